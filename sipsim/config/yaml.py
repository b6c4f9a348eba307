"""Strict reader of a subset of YAML: mappings, lists and plain scalars.

The reader refuses duplicate keys, anchors and aliases, tags, several documents, deep nesting and large files. Scalars
follow YAML 1.2's core schema, so ``no`` is text and ``1e3`` a number. The reader works on parser events, so that limits
apply before memory is allocated.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from sipsim.core.errors import ConfigError
from sipsim.core.files import read_limited

MAX_FILE_BYTES = 2**20
MAX_DEPTH = 24
MAX_DIGITS = 40

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CONSTANTS = {
    "": None,
    **dict.fromkeys(("~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_INT = re.compile(r"[-+]?[0-9]+", re.ASCII)
_HEX = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", re.ASCII)
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class YamlMistake(Exception):
    """Error in a YAML text: the reason, and the number of the line, from 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; keys are always text.

    Raises:
        ConfigError: one line with ``file:line`` and the reason.
    """
    shown = shown_path(path)
    text = _decode(_read_limited(path, shown), shown)
    try:
        value = parse_text(text)
    except YamlMistake as mistake:
        raise ConfigError(f"{shown}:{mistake.line}: {one_line(mistake.what)}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{shown}:1: the file must contain a mapping of keys to values")
    return value


def parse_text(text: str) -> Any:
    """Return one YAML document as Python values.

    Raises:
        YamlMistake: for the first mistake, with its line.
    """
    bad = _UNPRINTABLE.search(text)
    if bad:
        line = text.count("\n", 0, bad.start()) + 1
        raise YamlMistake(line, f"not valid YAML: control character {bad.group()!a}")
    try:
        return _Builder(text).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise YamlMistake(line, f"not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise YamlMistake(1, f"not valid YAML: {error}") from None


def shown_path(path: Path) -> str:
    """Return a path for messages, relative to the working directory if the path is below that."""
    try:
        return one_line(str(path.relative_to(Path.cwd()) if path.is_absolute() else path))
    except (ValueError, OSError):
        return one_line(str(path))


def one_line(text: str) -> str:
    """Return the text with control characters and line ends escaped, so that a message stays one line."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _read_limited(path: Path, shown: str) -> bytes:
    try:
        data = read_limited(path, MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{shown}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if data is None:
        raise ConfigError(f"{shown}: larger than {MAX_FILE_BYTES} bytes; a config file is a few KiB")
    return data


def _decode(data: bytes, shown: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{shown}:{line}: not valid UTF-8: {error.reason}") from None


class _Builder:
    """Builder of values from parser events; raises ``YamlMistake`` at the first event that is not allowed."""

    def __init__(self, text: str) -> None:
        self._parser = _LOADER(text)

    def document(self) -> Any:
        try:
            return self._document()
        finally:
            self._parser.dispose()

    def _document(self) -> Any:
        self._parser.get_event()
        if isinstance(self._parser.peek_event(), yaml.StreamEndEvent):
            return None
        self._parser.get_event()
        value = self._value(self._parser.get_event(), 0)
        self._parser.get_event()
        after = self._parser.get_event()
        if not isinstance(after, yaml.StreamEndEvent):
            raise _mistake(after, "a second document; write all keys in one document")
        return value

    def _value(self, event: Any, depth: int) -> Any:
        _refuse_references(event)
        if isinstance(event, yaml.ScalarEvent):
            return _quoted(event) if event.style else _plain(event)
        if depth >= MAX_DEPTH:
            raise _mistake(event, f"nested deeper than {MAX_DEPTH} levels; no key needs that")
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(depth + 1)
        return self._list(depth + 1)

    def _list(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := self._parser.get_event(), yaml.SequenceEndEvent):
            items.append(self._value(event, depth))
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(event := self._parser.get_event(), yaml.MappingEndEvent):
            key = _key(event)
            if key in values:
                raise _mistake(event, f"duplicate key {_short(key)}; remove one of the two")
            values[key] = self._value(self._parser.get_event(), depth)
        return values


def _key(event: Any) -> str:
    _refuse_references(event)
    if not isinstance(event, yaml.ScalarEvent):
        raise _mistake(event, "a key must be text, not a list or a mapping")
    return _quoted(event)


def _quoted(event: Any) -> str:
    text: str = event.value
    if _SURROGATE.search(text):
        raise _mistake(event, "an escape of half a surrogate pair, which is no character; write the character itself")
    return text


def _refuse_references(event: Any) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise _mistake(event, f"alias *{event.anchor} is not allowed; write the value out")
    if event.anchor is not None:
        raise _mistake(event, f"anchor &{event.anchor} is not allowed; write the value out")
    if event.tag is not None:
        raise _mistake(event, f"tag {_short(event.tag)} is not allowed; write the value without it")


def _plain(event: Any) -> Any:
    text: str = event.value
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    number = int if _INT.fullmatch(text) else _hex if _HEX.fullmatch(text) else None
    if number is None:
        return float(text) if _FLOAT.fullmatch(text) else text
    if len(text) > MAX_DIGITS:
        raise _mistake(event, f"a number of more than {MAX_DIGITS} digits; quote it if it is text")
    return number(text)


def _hex(text: str) -> int:
    return int(text, 16)


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _mistake(event: Any, what: str) -> YamlMistake:
    return YamlMistake(event.start_mark.line + 1, what)
