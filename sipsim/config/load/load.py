"""Reads config files and flags into one checked :class:`~sipsim.config.schema.model.Resolved`, or raises one line.

The defaults come first, then a variant of them, then a user's files, which hold only what differs, then the flags. A
variant is a file of the folder ``variants`` beside the default files; it may change keys of all of them.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path as File
from typing import Any

import msgspec
from msgspec import inspect

import sipsim
from sipsim.config.check.check import first_problem
from sipsim.config.check.example import with_example
from sipsim.config.document import (
    SECTION_FILES,
    Document,
    Implied,
    Problem,
    Rule,
    Unused,
    unknown_key,
)
from sipsim.config.load.override import Override, apply
from sipsim.config.schema.model import Resolved
from sipsim.config.yaml import one_line, read_mapping, shown_path
from sipsim.core.errors import ConfigError
from sipsim.core.registry.registry import unknown_name

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
    """The files of all variants, by name."""
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
