"""The check of raw config values against their types: the first that does not fit, in one line with what is allowed.

msgspec converts. When it fails, a walk over the same types finds the first wrong value with its whole key path,
which msgspec's own message lacks for the keys of a dictionary. Rules between values are not checked here.
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from sipsim.config.document import (
    KIND,
    PARAMS,
    Document,
    Path,
    Problem,
    dotted,
    refused,
    shown,
    unknown_key,
    value_at,
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


def with_example(document: Document, problem: Problem) -> Problem:
    """The problem of a missing key with an example of all that is missing there, as a flag that can be pasted.

    A config with the values of the example is accepted.
    """
    where = problem.paths[0][:-1] if problem.paths else ()
    if problem.lacks is None or not where or not all(isinstance(key, str) for key in where):
        return problem
    # A kind that is set behind its parameters drops them, so the example has both.
    owner = where[:-1] if where[-1] == PARAMS else where
    kind = _kind_of(value_at(document.values, owner))
    sources = (document.values, document.shipped)
    beside = chain.from_iterable((value_at(values, owner[:-1]) or {}).values() for values in sources)
    known = _values_by_key(each for each in beside if kind and _kind_of(each) == kind)
    for key, values in _values_by_key(sources).items():
        known.setdefault(key, []).extend(each for each in values if not isinstance(each, dict))
    given = value_at(document.values, where)
    example: Any = {
        field.encode_name: _example(field.encode_name, field.type, known)
        for field in inspect.type_info(problem.lacks).fields  # type: ignore[attr-defined]
        if field.required and not (isinstance(given, dict) and field.encode_name in given)
    }
    if owner != where:
        example = {KIND: kind, PARAMS: example}
    flag = shlex.quote(f"{dotted(owner)}={flow(example)}")
    return problem._replace(text=f"{problem.text}, such as --set {flag}")


def _kind_of(value: Any) -> Any:
    return value.get(KIND) if isinstance(value, dict) else None


def _values_by_key(mappings: Iterable[Any]) -> dict[str, list[Any]]:
    """All values below, by their own key, wherever they stand."""
    found: dict[str, list[Any]] = {}
    for mapping in mappings:
        for key, item in mapping.items():
            found.setdefault(key, []).append(item)
            if isinstance(item, dict):
                for name, items in _values_by_key([item]).items():
                    found.setdefault(name, []).extend(items)
    return found


def _example(key: str, kind: inspect.Type, known: dict[str, list[Any]]) -> Any:
    """A value that fits: one that stands in the config under such a key, or the least one."""
    least = next((least for cls, least in _LEAST.items() if isinstance(kind, cls)), None)
    candidates = [*known.get(key, ()), *(least(kind, known) if least else ())]
    return next((each for each in candidates if first_problem(each, kind, ()) is None), None)


def _least_number(kind: Any, _known: object) -> list[float]:
    return [1, *(bound for bound in (kind.ge, kind.gt and 2 * kind.gt, kind.le) if bound is not None)]


def _least_struct(kind: inspect.StructType, known: dict[str, list[Any]]) -> list[Any]:
    return [
        {field.encode_name: _example(field.encode_name, field.type, known) for field in kind.fields if field.required}
    ]


_LEAST: dict[type, Callable[[Any, dict[str, list[Any]]], Sequence[Any]]] = {
    inspect.StructType: _least_struct,
    inspect.DictType: lambda _kind, _known: [{}],
    inspect.UnionType: lambda kind, known: [_example("", kind.types[0], known)],
    inspect.TupleType: lambda kind, known: [[_example("", each, known) for each in kind.item_types]],
    inspect.VarTupleType: lambda _kind, _known: [[]],
    inspect.IntType: _least_number,
    inspect.FloatType: _least_number,
    inspect.StrType: lambda _kind, _known: ["x"],
    inspect.BoolType: lambda _kind, _known: [False],
    inspect.LiteralType: lambda kind, _known: kind.values,
    inspect.EnumType: lambda kind, _known: [each.value for each in kind.cls],
}


def flow(value: Any) -> str:
    """A value as YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return json.dumps(value)
    return value if isinstance(value, str) else shown(value)


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./]*")
