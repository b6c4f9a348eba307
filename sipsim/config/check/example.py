"""Examples for keys that are missing: values that a config with them accepts, as a flag that can be pasted."""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from msgspec import inspect

from sipsim.config.check.check import first_problem
from sipsim.config.document import KIND, PARAMS, Document, Problem, dotted, shown, value_at


def with_example(document: Document, problem: Problem) -> Problem:
    """The problem of a missing key with an example of all that is missing there, as a flag that can be pasted."""
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
