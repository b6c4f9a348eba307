"""Settings from the command line: ``--set key.path=value`` and the flags that stand for one key.

Applied to the raw values before the check. The types of ``model`` decide which paths exist; the check decides
whether the value fits, and its message names the flag.
"""

import copy
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from msgspec import inspect

from sipsim.config.document import (
    Document,
    Path,
    dotted,
    unknown_key,
    value_at,
)
from sipsim.config.schema.model import Resolved
from sipsim.config.yaml import YamlMistake, one_line, parse_text
from sipsim.core.errors import ConfigError

_LONGEST_ORIGIN = 200
_PAIR = re.compile(r"([0-9]{1,9})x([0-9]{1,9})", re.ASCII)


class Override(NamedTuple):
    """One value for one key path; ``origin`` names the flag in messages, such as ``--sips -1``."""

    path: str
    value: Any
    origin: str

    def paths(self) -> Iterator[str]:
        """The key paths that it sets."""
        if isinstance(self.value, dict):
            for key, value in self.value.items():
                yield from Override(f"{self.path}.{key}", value, self.origin).paths()
        else:
            yield self.path


def parse_set(text: str) -> Override:
    """``key.path=value``, the value in YAML: ``system.sips.count=4``, ``system.sips.shape=[3,2]``.

    Raises:
        ConfigError: without ``=``, or a value that is not YAML.
    """
    origin = one_line(f"--set {text}")[:_LONGEST_ORIGIN]
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{origin}: write --set key.path=value, such as --set system.sips.count=4")
    try:
        return Override(path.strip(), parse_text(value), origin)
    except YamlMistake as mistake:
        raise ConfigError(one_line(f"{origin}: {mistake.what}")) from None


def apply(document: Document, override: Override) -> None:
    """Set one value; a mapping merges key by key, as a file does.

    Raises:
        ConfigError: a path that no config file has, with the nearest valid key.
    """
    keys = tuple(override.path.split("."))
    kind = _kind_at(document.values, keys, override.origin)
    if override.value == {} and value_at(document.values, keys):
        what = "sets nothing: a mapping is merged into the one that is there; set its keys"
        raise ConfigError(one_line(f"{override.origin}: {what}"))
    document.merge(keys, _spelled_out(copy.deepcopy(override.value), kind), override.origin)


def _kind_at(values: dict[str, Any], keys: tuple[str, ...], origin: str) -> inspect.Type:
    kind: inspect.Type | None = None
    node: Any = values
    for depth, key in enumerate(keys):
        allowed = _inside(kind, node, key if depth + 1 == len(keys) else None)
        if key not in allowed:
            raise ConfigError(one_line(f"{origin}: {_refusal(keys[:depth], key, list(allowed))}"))
        kind = allowed[key]
        node = node.get(key) if isinstance(node, dict) else None
    assert kind is not None
    return kind


def _refusal(where: Path, key: str, allowed: list[str]) -> str:
    if where and not allowed:
        return f"{dotted(where)} is one value; nothing can be set inside it"
    return unknown_key(where, key, allowed)


class _AnyKey(dict[str, inspect.Type]):
    """Any key is allowed: the parameters of a link, which its kind checks."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> inspect.Type:
        return inspect.AnyType()


def _inside(kind: inspect.Type | None, node: Any, new: str | None) -> dict[str, inspect.Type]:
    """The keys below ``kind`` and their types; ``new`` may be added where names are free."""
    if kind is None:
        return _top_level()
    if isinstance(kind, inspect.UnionType):
        kind = next((each for each in kind.types if isinstance(each, inspect.StructType)), kind)
    if isinstance(kind, inspect.StructType):
        return _fields(kind)
    if isinstance(kind, inspect.DictType) and not isinstance(kind.value_type, inspect.AnyType):
        names = [*(node if isinstance(node, dict) else ()), *([] if new is None else [new])]
        return dict.fromkeys(names, kind.value_type)
    return _AnyKey() if isinstance(kind, inspect.DictType | inspect.AnyType) else {}


@cache
def _top_level() -> dict[str, inspect.Type]:
    found: dict[str, inspect.Type] = {}
    for section in _fields(inspect.type_info(Resolved)).values():
        found.update(_fields(section))
    return found


def _fields(kind: inspect.Type) -> dict[str, inspect.Type]:
    assert isinstance(kind, inspect.StructType)
    return {field.encode_name: field.type for field in kind.fields}


def _spelled_out(value: Any, kind: inspect.Type) -> Any:
    """``3x2`` as ``[3, 2]`` where a pair is expected."""
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    pair = _PAIR.fullmatch(value) if isinstance(value, str) else None
    if pair and any(isinstance(option, inspect.TupleType) for option in options):
        return [int(pair[1]), int(pair[2])]
    return value
