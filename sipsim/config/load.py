"""Config of a run: makes one checked :class:`~sipsim.config.schema.Resolved` of files and flags, or one line of error.

Later values replace earlier ones: the default files, a variant, the user's files with differences, then flags.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path as File
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

import sipsim
from sipsim.config.check import (
    KIND,
    PARAMS,
    Path,
    Problem,
    Rule,
    apply_rules,
    check,
    dotted,
    shown,
    unknown_key,
    value_at,
    with_example,
)
from sipsim.config.schema import OF_MODULE, Change, Resolved, Section, field_types
from sipsim.config.yaml import YamlMistake, one_line, parse_text, read_mapping, shown_path
from sipsim.core.errors import ConfigError
from sipsim.core.registry import unknown_name

CCL = "ccl"
VARIANT = "AHBM_VARIANT"
"""Environment variable with the name of the variant for runs without ``--variant``."""
MODULE = "module"
ALGORITHMS = "algorithms"
CHOOSES = (KIND, MODULE)
"""Keys on which other keys of the same mapping depend."""
SECTION_FILES: dict[str, type[Section]] = field_types(Resolved)
"""Section type of each config file, by the file's stem."""
_MAX_ORIGIN_LENGTH = 200
_PAIR = re.compile(r"([0-9]{1,9})x([0-9]{1,9})", re.ASCII)

Unused = Callable[[Resolved], Iterable[Problem]]
"""Function that yields a problem for each value without effect. Problems of default values are dropped."""
Implied = Callable[[Resolved], Iterable[tuple[Path, Any]]]
"""Function that yields paths and values that other values imply."""


class Document:
    """Config values before the check, and the origin of each: a default file, a user's file or a flag.

    ``values``: all values, by the top-level keys of all files. ``shipped``: the values of the default files alone.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.shipped: dict[str, Any] = {}
        self._origins: dict[Path, str] = {}
        self._defaults: dict[str, Any] = {}
        self._default_origins: set[str] = set()
        self._shipped_origins: set[str] = set()

    def end_shipped(self) -> None:
        """Mark the end of the shipped files: later values come from a variant or from the user."""
        self.shipped = deepcopy(self.values)
        self._shipped_origins = set(self._origins.values())

    def end_defaults(self) -> None:
        """Mark the end of the defaults: later values come from the user."""
        self._defaults = self.shipped if self.values == self.shipped else deepcopy(self.values)
        self._default_origins = set(self._origins.values())

    def is_default(self, path: Path) -> bool:
        """Whether the value at ``path`` equals the default."""
        return bool(value_at(self.values, path) == value_at(self._defaults, path))

    def changes(self) -> Iterator[Change]:
        """Yield the values that differ from the default files, without implied values."""
        for path, value in _leaves(self.values, ()):
            default, origin = value_at(self.shipped, path), self.origin(path)
            if value != default and origin not in self._shipped_origins:
                yield Change(path, value, default, origin)

    def imply(self, values: Iterable[tuple[Path, Any]]) -> bool:
        """Set each of ``values`` whose old value is a default, not a user's; return whether any was set."""
        changes = [(path, value) for path, value in values if self.origin(path) in self._default_origins]
        for path, value in changes:
            self._mapping_at(path[:-1], "")[path[-1]] = value
        return bool(changes)

    def merge(self, path: Path, value: Any, origin: str) -> None:
        """Set ``value`` at ``path``; a mapping is merged key by key, any other value replaces the old one.

        ``params`` belong to a ``kind``: a change of the kind drops the old ``params``. A change of an algorithm's
        ``module`` drops the default keys of its entry: a user's entry may have the name of a shipped one.

        Raises:
            ConfigError: if ``path`` leads through a value that is not a mapping.
        """
        if not path:
            for key, item in value.items():
                self.merge((key,), item, origin)
            return
        parent = self._mapping_at(path[:-1], origin)
        old = parent.get(path[-1])
        if isinstance(old, dict) and isinstance(value, dict):
            for key, item in sorted(value.items(), key=lambda each: each[0] not in CHOOSES):
                self.merge((*path, key), item, origin)
            return
        if path[-1] in CHOOSES and old != value:
            self._drop_dependent(path, parent)
        parent[path[-1]] = value
        if isinstance(old, dict):
            self._forget_below(path)
        self._origins.pop(path, None)
        self._origins[path] = origin

    def expect(self, key: str, origin: str) -> None:
        """Set the origin of a top-level key, present or missing, until a merge sets the key."""
        self._origins[(key,)] = origin

    def origin(self, *paths: Path) -> str:
        """Return the origin that last set the value at one of ``paths``, a mapping around it, or a value below it."""
        owners = {owner for path in paths if (owner := self._owner(path)) is not None}
        setters = [other for other in self._origins if other in owners or any(_below(other, path) for path in paths)]
        return self._origins[setters[-1]] if setters else "config"

    def error(self, problem: Problem) -> ConfigError:
        """Return the problem as an error whose line starts with the origin of the wrong value."""
        return ConfigError(one_line(f"{self.origin(*problem.paths)}: {problem}"))

    def _owner(self, path: Path) -> Path | None:
        """Return the longest prefix of a path, or the path itself, that has an origin."""
        prefixes = (path[:length] for length in range(len(path), 0, -1))
        return next((prefix for prefix in prefixes if prefix in self._origins), None)

    def _drop_dependent(self, path: Path, parent: dict[Any, Any]) -> None:
        """Drop the keys of ``parent`` that depend on the old value at ``path``."""
        where = path[:-1]
        if path[-1] == KIND and PARAMS in parent:
            parent[PARAMS] = {}
            self._forget_below((*where, PARAMS))
        if path[-1] == MODULE and where[:1] == (ALGORITHMS,):
            for key in OF_MODULE & parent.keys():
                if self.origin((*where, key)) in self._default_origins:
                    del parent[key]
                    self._forget_below((*where, key))

    def _forget_below(self, path: Path) -> None:
        for other in [other for other in self._origins if _below(other, path)]:
            del self._origins[other]

    def _mapping_at(self, path: Path, origin: str) -> dict[Any, Any]:
        mapping: dict[Any, Any] = self.values
        for depth, key in enumerate(path, start=1):
            child = mapping.setdefault(key, {})
            if not isinstance(child, dict):
                what = f"{dotted(path[:depth])} = {shown(child)}: must be a mapping, as a key below it is set"
                raise ConfigError(one_line(f"{origin}: {what}"))
            mapping = child
        return mapping


def _below(other: Path, path: Path) -> bool:
    return other[: len(path)] == path


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and value of each value that is no mapping."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path, value


class Override(NamedTuple):
    """Value for one key path; ``origin`` names the flag in messages, such as ``--sips -1``."""

    path: str
    value: Any
    origin: str

    def paths(self) -> Iterator[str]:
        """Yield the key paths that the override sets."""
        if isinstance(self.value, dict):
            for key, value in self.value.items():
                yield from Override(f"{self.path}.{key}", value, self.origin).paths()
        else:
            yield self.path


def parse_set(text: str) -> Override:
    """Return the override in a ``--set`` argument: a key path and a YAML value, ``system.sips.shape=[3,2]``.

    Raises:
        ConfigError: for a text without ``=``, or a value that is not YAML.
    """
    origin = one_line(f"--set {text}")[:_MAX_ORIGIN_LENGTH]
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"{origin}: write --set key.path=value, such as --set system.sips.count=4")
    try:
        return Override(path.strip(), parse_text(value), origin)
    except YamlMistake as mistake:
        raise ConfigError(one_line(f"{origin}: {mistake.what}")) from None


def apply(document: Document, override: Override) -> None:
    """Apply an override to a document; a mapping is merged key by key, as for a file.

    The types of :class:`Resolved` decide which paths exist. The value is checked later, by :func:`convert` and rules.

    Raises:
        ConfigError: for a path that no config file has, with the nearest valid key; for an empty mapping.
    """
    keys = tuple(override.path.split("."))
    kind = _kind_at(document.values, keys, override.origin)
    if override.value == {} and value_at(document.values, keys):
        what = "sets nothing, as a mapping is merged into the existing one; set single keys"
        raise ConfigError(one_line(f"{override.origin}: {what}"))
    document.merge(keys, _as_pair(deepcopy(override.value), kind), override.origin)


def _kind_at(values: dict[str, Any], keys: tuple[str, ...], origin: str) -> inspect.Type:
    """Return the type of the value at a path, or raise ``ConfigError`` if no config file has the path."""
    kind: inspect.Type | None = None
    node: Any = values
    for depth, key in enumerate(keys):
        where, is_last = keys[:depth], depth + 1 == len(keys)
        allowed = _inside(kind, node, key if is_last else None)
        if allowed is None:
            return inspect.AnyType()
        if key not in allowed:
            what = unknown_key(where, key, list(allowed))
            if where and not allowed:
                what = f"{dotted(where)} has no keys; set {dotted(where)} as a whole"
            raise ConfigError(one_line(f"{origin}: {what}"))
        kind = allowed[key]
        node = node.get(key) if isinstance(node, dict) else None
    assert kind is not None
    return kind


def _inside(kind: inspect.Type | None, node: Any, new: str | None) -> dict[str, inspect.Type] | None:
    """Return the allowed keys below ``kind`` and their types; where users choose names, those of ``node`` and ``new``.
    None if any key is allowed, as in the parameters of a link, which the link kind checks.
    """
    match kind:
        case None:
            return _top_level()
        case inspect.StructType():
            return _fields(kind)
        case inspect.UnionType():
            struct = next((each for each in kind.types if isinstance(each, inspect.StructType)), None)
            return _fields(struct) if struct else {}
        case inspect.AnyType() | inspect.DictType(value_type=inspect.AnyType()):
            return None
        case inspect.DictType():
            names = [*(node if isinstance(node, dict) else ()), *([] if new is None else [new])]
            return dict.fromkeys(names, kind.value_type)
    return {}


@cache
def _top_level() -> dict[str, inspect.Type]:
    keys: dict[str, inspect.Type] = {}
    for section in _fields(inspect.type_info(Resolved)).values():
        keys.update(_fields(section))
    return keys


def _fields(kind: inspect.Type) -> dict[str, inspect.Type]:
    assert isinstance(kind, inspect.StructType)
    return {field.encode_name: field.type for field in kind.fields}


def _as_pair(value: Any, kind: inspect.Type) -> Any:
    """Return ``3x2`` as ``[3, 2]`` if ``kind`` is a pair; any other value unchanged."""
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    pair = _PAIR.fullmatch(value) if isinstance(value, str) else None
    if pair and any(isinstance(option, inspect.TupleType) for option in options):
        return [int(pair[1]), int(pair[2])]
    return value


def load(
    rules: Iterable[Rule],
    config: File | None = None,
    ccl: File | None = None,
    overrides: Sequence[Override] = (),
    variant: str | None = None,
    unused: Unused = lambda _resolved: (),
    implied: Sequence[Implied] = (),
) -> Resolved:
    """Return the config of a run: the default files, with the variant, ``config``, ``ccl`` and ``overrides`` merged
    over them in this order.

    ``rules`` are applied in order to values that fit the schema; each rule, and ``unused`` after them, may rely on
    earlier rules. ``implied``: applied in order before the rules; their values replace defaults, but not users' values.
    ``variant``: a name of :func:`variants`; if None, the name in the environment variable :data:`VARIANT`, if set.

    Raises:
        ConfigError: one line that names the file or flag, the key, its value and what is allowed.
    """
    document = _defaults(variant)
    document.end_defaults()
    if config is not None:
        _merge_file(document, config, _keys_of(stem for stem in SECTION_FILES if stem != CCL))
    if ccl is not None:
        _merge_file(document, ccl, _keys_of([CCL]))
    for override in overrides:
        apply(document, override)
    try:
        resolved = convert(document)
        for function in implied:
            if document.imply(function(resolved)):
                resolved = convert(document)
        apply_rules(rules, resolved)
        for problem in unused(resolved):
            if not document.is_default(problem.paths[0]):
                raise problem
    except Problem as problem:
        raise document.error(with_example(problem, document.values, document.shipped)) from None
    changes = list(document.changes())
    return resolved.watched([change.path for change in changes], changes) if changes else resolved


def convert(document: Document) -> Resolved:
    """Return the document converted to structs of the schema.

    Raises:
        Problem: for the first value that does not fit the schema.
    """
    raw = {
        stem: {key: document.values[key] for key in section.__struct_fields__ if key in document.values}
        for stem, section in SECTION_FILES.items()
    }
    try:
        return msgspec.convert(raw, Resolved)
    except (msgspec.ValidationError, UnicodeError) as error:
        for stem, values in raw.items():
            check(values, inspect.type_info(SECTION_FILES[stem]), ())
        raise Problem((), str(error)) from None


def default_dir() -> File:
    """Return the folder of the default files: inside an installed package, beside the package in a checkout."""
    package = File(sipsim.__file__).parent
    packaged = package / "_configs"
    return packaged if packaged.is_dir() else package.parent / "configs"


def variants() -> dict[str, File]:
    """Return the files of all variants, by name, from the folder ``variants`` in :func:`default_dir`.

    A variant may change keys of all default files.
    """
    return {path.stem: path for path in sorted((default_dir() / "variants").glob("*.yaml"))}


def _defaults(variant: str | None = None) -> Document:
    """Return a document of the default files with the variant merged over them."""
    document = Document()
    for stem in SECTION_FILES:
        path = default_dir() / f"{stem}.yaml"
        keys = _keys_of([stem])
        document.values.update(_read(path, keys))
        for key in keys:
            document.expect(key, shown_path(path))
    document.end_shipped()
    name = os.environ.get(VARIANT) if variant is None else variant
    if name:
        files, origin = variants(), VARIANT if variant is None else "--variant"
        if name not in files:
            raise ConfigError(one_line(f"{origin} {name}: {unknown_name('variant', name, files)}"))
        _merge_file(document, files[name], _keys_of(SECTION_FILES))
    return document


def _merge_file(document: Document, path: File, keys: list[str]) -> None:
    document.merge((), _read(path, keys), shown_path(path))


def _read(path: File, keys: list[str]) -> dict[str, Any]:
    values = read_mapping(path)
    for key in values:
        if key not in keys:
            raise ConfigError(one_line(f"{shown_path(path)}: {_misplaced(key, keys)}"))
    return values


def _misplaced(key: str, keys: list[str]) -> str:
    owner = next((stem for stem in SECTION_FILES if key in _keys_of([stem])), None)
    if owner is None:
        return unknown_key((), key, keys)
    return f"key {key!r} belongs to {owner}.yaml; give the key in a file for {'--ccl' if owner == CCL else '--config'}"


def _keys_of(stems: Iterable[str]) -> list[str]:
    return [key for stem in stems for key in SECTION_FILES[stem].__struct_fields__]
