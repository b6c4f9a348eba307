"""The config of a run: files and flags make one checked :class:`~sipsim.config.schema.Resolved`, or one line of error.

The defaults come first, then a variant of them, then a user's files, which hold only what differs, then the flags.
"""

import copy
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path as File
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

import sipsim
from sipsim.config.check import first_problem, with_example
from sipsim.config.document import (
    SECTION_FILES,
    Document,
    Implied,
    Path,
    Problem,
    Rule,
    Unused,
    dotted,
    unknown_key,
    value_at,
)
from sipsim.config.schema import Resolved
from sipsim.config.yaml import YamlMistake, one_line, parse_text, read_mapping, shown_path
from sipsim.core.errors import ConfigError
from sipsim.core.registry import unknown_name

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

    This comes before the check. The types of :class:`Resolved` decide which paths exist; the check decides whether the
    value fits, and its message names the flag.

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


CCL = "ccl"
VARIANT = "AHBM_VARIANT"
"""The environment variable that names the variant of a run that names none."""


def load(
    rules: Iterable[Rule],
    config: File | None = None,
    ccl: File | None = None,
    overrides: Sequence[Override] = (),
    variant: str | None = None,
    unused: Unused = lambda _resolved: (),
    implied: Sequence[Implied] = (),
) -> Resolved:
    """The config of a run: the defaults, then the variant, ``config`` and ``ccl`` merged over them, then ``overrides``.

    ``rules`` are applied in order to the checked values; each may rely on those before it, and so may ``unused``.
    ``implied``, in order, of values that no rule has seen: what takes the place of defaults, and not of what a user
    gives.
    ``variant``: a name of :func:`variants`; None is that of the environment, if it names one.

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
    resolved = convert(document)
    for each in implied:
        if document.imply(each(resolved)):
            resolved = convert(document)
    problem = next(filter(None, (rule(resolved) for rule in rules)), None)
    problem = problem or next((each for each in unused(resolved) if not document.is_default(each.paths[0])), None)
    if problem:
        raise document.error(with_example(document, problem))
    changes = list(document.changes())
    return resolved.watched([change.path for change in changes], changes) if changes else resolved


def convert(document: Document) -> Resolved:
    """The document as checked structs.

    Raises:
        ConfigError: the first value that the schema refuses.
    """
    raw = {
        stem: {key: document.values[key] for key in section.__struct_fields__ if key in document.values}
        for stem, section in SECTION_FILES.items()
    }
    try:
        return msgspec.convert(raw, Resolved)
    except (msgspec.ValidationError, UnicodeError) as error:
        problems = (first_problem(values, inspect.type_info(SECTION_FILES[stem]), ()) for stem, values in raw.items())
        found = next(filter(None, problems), None)
        raise document.error(with_example(document, found or Problem((), str(error)))) from None


def default_dir() -> File:
    """Folder of the default files: inside the package when installed, beside it in a checkout."""
    package = File(sipsim.__file__).parent
    packaged = package / "_configs"
    return packaged if packaged.is_dir() else package.parent / "configs"


def variants() -> dict[str, File]:
    """The files of all variants, by name: the folder ``variants`` beside the default files.

    A variant may change keys of all default files.
    """
    return {path.stem: path for path in sorted((default_dir() / "variants").glob("*.yaml"))}


def _variant_file(name: str, origin: str) -> File:
    known = variants()
    if name not in known:
        raise ConfigError(one_line(f"{origin} {name}: {unknown_name('variant', name, known)}"))
    return known[name]


def _defaults(variant: str | None = None) -> Document:
    """The default files, and the variant merged over them."""
    document = Document()
    for stem in SECTION_FILES:
        path = default_dir() / f"{stem}.yaml"
        keys = _keys_of([stem])
        document.values.update(_read(path, keys))
        for key in keys:
            document.expect(key, shown_path(path))
    document.end_shipped()
    chosen = os.environ.get(VARIANT) if variant is None else variant
    if chosen:
        file = _variant_file(chosen, VARIANT if variant is None else "--variant")
        _merge_file(document, file, _keys_of(SECTION_FILES))
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
    home = next((stem for stem in SECTION_FILES if key in _keys_of([stem])), None)
    if home is None:
        return unknown_key((), key, keys)
    return f"key {key!r} belongs to {home}.yaml; give it with {'--ccl' if home == CCL else '--config'}"


def _keys_of(stems: Iterable[str]) -> list[str]:
    return [key for stem in stems for key in SECTION_FILES[stem].__struct_fields__]
