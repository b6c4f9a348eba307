"""The first of some raw values that does not fit its type, in one line with what is allowed.

msgspec converts. When it fails, a walk over the same types finds the first wrong value with its whole key path,
which msgspec's own message lacks for the keys of a dictionary. Rules between values are not checked here.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from sipsim.config.document import (
    Path,
    Problem,
    dotted,
    refused,
    shown,
    unknown_key,
)

Checked = TypeVar("Checked")


def convert_part(value: Any, to: type[Checked], path: Path) -> Checked | Problem:
    """One value converted to ``to``, or its first problem; ``path`` is its key path."""
    try:
        return msgspec.convert(value, to)
    except (msgspec.ValidationError, UnicodeError) as error:
        found = first_problem(value, inspect.type_info(to), path)
        return found or Problem((path,), f"{dotted(path)}: {_without_place(error)}")


def _without_place(error: Exception) -> str:
    return str(error).split(" - at `$")[0]


def first_problem(value: Any, kind: inspect.Type, path: Path) -> Problem | None:
    """The first value that does not fit ``kind``, in the order of the schema's fields."""
    finder = _FINDERS.get(type(kind))
    return finder(value, kind, path) if finder else None


def _first(problems: Iterable[Problem | None]) -> Problem | None:
    return next(filter(None, problems), None)


def _wrong(path: Path, value: Any, what: str) -> Problem:
    return refused(path, shown(value), what)


def _in_struct(value: Any, kind: inspect.StructType, path: Path) -> Problem | None:
    names = [field.encode_name for field in kind.fields]
    if not isinstance(value, dict):
        return _wrong(path, value, f"must be a mapping; allowed: {', '.join(sorted(names))}")
    for key in value:
        if key not in names:
            return Problem(((*path, key),), unknown_key(path, key, names))
    for field in kind.fields:
        if field.required and field.encode_name not in value:
            missing = (*path, field.encode_name)
            return Problem((missing,), f"{dotted(missing)}: missing; it must be given", kind.cls)
    return _first(
        first_problem(value[field.encode_name], field.type, (*path, field.encode_name))
        for field in kind.fields
        if field.encode_name in value
    )


def _in_dict(value: Any, kind: inspect.DictType, path: Path) -> Problem | None:
    if not isinstance(value, dict):
        return _wrong(path, value, "must be a mapping of names to entries")
    for key in value:
        if not isinstance(key, str):
            return _wrong((*path, str(key)), value[key], f"the key {shown(key)} must be text")
    return _first(first_problem(item, kind.value_type, (*path, key)) for key, item in value.items())


def _in_union(value: Any, kind: inspect.UnionType, path: Path) -> Problem | None:
    if value is None:
        return None
    inner, *names = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
    if any(first_problem(value, name, path) is None for name in names):
        return None
    found = first_problem(value, inner, path)
    if found and found.paths == (path,):
        words = [str(word) for name in names if isinstance(name, inspect.LiteralType) for word in name.values]
        return Problem(found.paths, ", or ".join([found.text, *words, "null"]))
    return found


def _in_tuple(value: Any, kind: inspect.TupleType, path: Path) -> Problem | None:
    size = len(kind.item_types)
    if not isinstance(value, list | tuple) or len(value) != size:
        return _wrong(path, value, f"must be a list of {size} values")
    return _first(
        first_problem(item, item_type, (*path, index))
        for index, (item, item_type) in enumerate(zip(value, kind.item_types, strict=True))
    )


def _in_list(value: Any, kind: inspect.VarTupleType, path: Path) -> Problem | None:
    if not isinstance(value, list | tuple):
        return _wrong(path, value, "must be a list")
    return _first(first_problem(item, kind.item_type, (*path, index)) for index, item in enumerate(value))


def _in_int(value: Any, kind: inspect.IntType, path: Path) -> Problem | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return _wrong(path, value, "must be a whole number")
    return _in_bounds(value, kind, path)


def _in_float(value: Any, kind: inspect.FloatType, path: Path) -> Problem | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _wrong(path, value, "must be a number")
    if not math.isfinite(value):
        return _wrong(path, value, "must be a finite number")
    return _in_bounds(value, kind, path)


def _in_bounds(value: float, kind: inspect.IntType | inspect.FloatType, path: Path) -> Problem | None:
    if kind.ge is not None and value < kind.ge:
        return _wrong(path, value, f"must be at least {kind.ge:.15g}")
    if kind.gt is not None and value <= kind.gt:
        return _wrong(path, value, f"must be more than {kind.gt:.15g}")
    if kind.le is not None and value > kind.le:
        return _wrong(path, value, f"must be at most {kind.le:.15g}")
    return None


def _in_text(value: Any, kind: inspect.StrType, path: Path) -> Problem | None:
    return None if isinstance(value, str) else _wrong(path, value, "must be text")


def _in_bool(value: Any, kind: inspect.BoolType, path: Path) -> Problem | None:
    return None if isinstance(value, bool) else _wrong(path, value, "must be true or false")


def _in_literal(value: Any, kind: inspect.LiteralType, path: Path) -> Problem | None:
    return _one_of(value, kind.values, path)


def _in_enum(value: Any, kind: inspect.EnumType, path: Path) -> Problem | None:
    return _one_of(value, [each.value for each in kind.cls], path)


def _one_of(value: Any, values: Sequence[Any], path: Path) -> Problem | None:
    if isinstance(value, str) and value in values:
        return None
    return _wrong(path, value, f"must be one of: {', '.join(map(str, values))}")


_FINDERS: dict[type, Callable[[Any, Any, Path], Problem | None]] = {
    inspect.StructType: _in_struct,
    inspect.DictType: _in_dict,
    inspect.UnionType: _in_union,
    inspect.TupleType: _in_tuple,
    inspect.VarTupleType: _in_list,
    inspect.IntType: _in_int,
    inspect.FloatType: _in_float,
    inspect.StrType: _in_text,
    inspect.BoolType: _in_bool,
    inspect.LiteralType: _in_literal,
    inspect.EnumType: _in_enum,
}
