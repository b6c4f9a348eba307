"""Checks of config values: an error names the first value that does not fit, in one line with key path and allowed
values.

msgspec converts the values. If that fails, :func:`check` searches for the first value that does not fit its type, and
reports its whole key path; msgspec's message lacks the keys of dictionaries. Rules between values raise
:class:`Problem`, too.
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

from sipsim.config.schema import Resolved
from sipsim.core.errors import ConfigError
from sipsim.core.registry import Registry, UnknownName, unknown_name

Path = tuple[str | int, ...]
KIND, PARAMS = "kind", "params"
Checked = TypeVar("Checked")


class Problem(ConfigError):
    """Error for a config value that does not fit; the text names the value's key. ``paths``: key paths of the values
    that caused the error. ``lacks``: the struct whose required key is missing at the first path, if that is the error.
    """

    def __init__(self, paths: tuple[Path, ...], text: str, lacks: type | None = None) -> None:
        super().__init__(text)
        self.paths = paths
        self.lacks = lacks

    def __reduce__(self) -> tuple[object, ...]:
        # Copies need all arguments of the constructor, not only the text.
        return type(self), (self.paths, str(self), self.lacks), vars(self)

    def caused_by(self, path: Path) -> "Problem":
        """Return this problem with ``path`` as a further possible cause."""
        return Problem((*self.paths, path), str(self), self.lacks)


Rule = Callable[[Resolved], object]
"""Rule between checked values: raises the first :class:`Problem` that it finds. Rules are in files ``rules.py``."""


def apply_rules(rules: Iterable[Rule], resolved: Resolved) -> None:
    """Apply rules in order.

    Raises:
        Problem: the first problem that a rule raises, or returns, as rules of earlier versions do.
    """
    for rule in rules:
        problem = rule(resolved)
        if isinstance(problem, Problem):
            raise problem


def refused(path: Path, value: object, what: str, *others: Path) -> Problem:
    """Return the problem of the value at ``path``; the values at ``others`` may have caused it."""
    return Problem((path, *others), f"{dotted(path)} = {value}: {what}")


def check_registered(path: Path, name: str, registry: Registry[Any]) -> None:
    """Check that ``name``, the value at ``path``, is in the registry.

    Raises:
        Problem: for an unknown name; the message contains the nearest name and all registered names.
    """
    try:
        registry.get(name)
    except UnknownName as error:
        raise Problem((path,), f"{dotted(path)}: {error}") from None


def no_power_of_two(value: int, when: str = "") -> str:
    """Return the message for a ``value`` of 1 or more that is no power of two, else ""; ``when``: the condition."""
    return f"must be a power of two{when}, such as {1 << value.bit_length() - 1}" if value & value - 1 else ""


def unknown_key(where: Path, name: object, allowed: list[str]) -> str:
    """Return a message such as ``unknown key 'cuont' in system.sips; did you mean 'count'? allowed: ...``."""
    parent = f" in {dotted(where)}" if where else ""
    text = unknown_name("key", str(name), allowed)
    start = f"unknown key {str(name)!r}"
    return f"{start}{parent}{text.removeprefix(start)}"


def dotted(path: Sequence[str | int]) -> str:
    """Return a key path as users write it: ``system.sips.custom_links[0].a``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def value_at(values: Any, path: Path) -> Any:
    """Return the value at a path of keys; None if the path does not exist."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def shown(value: Any) -> str:
    """Return a value as text for a message: null and booleans as in YAML, at most 60 characters."""
    constants = {None: "null", True: "true", False: "false"}
    text = constants[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def flow(value: Any) -> str:
    """Return a value as YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and not _PLAIN.fullmatch(value):
        return json.dumps(value)
    return value if isinstance(value, str) else shown(value)


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./]*")


# --- against types ------------------------------------------------------------------------------------


def convert_part(value: Any, to: type[Checked], path: Path) -> Checked:
    """Return a value, at key path ``path``, converted to type ``to``.

    Raises:
        Problem: for the first value that does not fit.
    """
    try:
        return msgspec.convert(value, to)
    except (msgspec.ValidationError, UnicodeError) as error:
        check(value, inspect.type_info(to), path)
        raise Problem((path,), f"{dotted(path)}: {str(error).split(' - at `$')[0]}") from None


def check(value: Any, kind: inspect.Type, path: Path) -> None:
    """Check a value at key path ``path`` and all values in it, in the order of the schema's fields.

    Raises:
        Problem: for the first value that does not fit ``kind``.
    """

    def wrong(what: str) -> Problem:
        return refused(path, shown(value), what)

    match kind:
        case inspect.StructType():
            _check_struct(value, kind, path)
        case inspect.DictType():
            if not isinstance(value, dict):
                raise wrong("must be a mapping of names to entries")
            for key in value:
                if not isinstance(key, str):
                    raise refused((*path, str(key)), shown(value[key]), f"the key {shown(key)} must be text")
            for key, item in value.items():
                check(item, kind.value_type, (*path, key))
        case inspect.UnionType():
            if value is not None:
                _check_union(value, kind, path)
        case inspect.TupleType(item_types=types):
            if not isinstance(value, list | tuple) or len(value) != len(types):
                raise wrong(f"must be a list of {len(types)} values")
            for index, (item, item_type) in enumerate(zip(value, types, strict=True)):
                check(item, item_type, (*path, index))
        case inspect.VarTupleType():
            if not isinstance(value, list | tuple):
                raise wrong("must be a list")
            for index, item in enumerate(value):
                check(item, kind.item_type, (*path, index))
        case inspect.IntType():
            if isinstance(value, bool) or not isinstance(value, int):
                raise wrong("must be a whole number")
            _check_bounds(value, kind, path)
        case inspect.FloatType():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise wrong("must be a number")
            if not math.isfinite(value):
                raise wrong("must be a finite number")
            _check_bounds(value, kind, path)
        case inspect.StrType():
            if not isinstance(value, str):
                raise wrong("must be text")
        case inspect.BoolType():
            if not isinstance(value, bool):
                raise wrong("must be true or false")
        case inspect.LiteralType() | inspect.EnumType():
            values = _choices(kind)
            if not isinstance(value, str) or value not in values:
                raise wrong(f"must be one of: {', '.join(map(str, values))}")


def _check_struct(value: Any, kind: inspect.StructType, path: Path) -> None:
    names = [field.encode_name for field in kind.fields]
    if not isinstance(value, dict):
        raise refused(path, shown(value), f"must be a mapping; allowed: {', '.join(sorted(names))}")
    for key in value:
        if key not in names:
            raise Problem(((*path, key),), unknown_key(path, key, names))
    for field in kind.fields:
        if field.required and field.encode_name not in value:
            missing = (*path, field.encode_name)
            raise Problem((missing,), f"{dotted(missing)}: missing; it must be given", kind.cls)
    for field in kind.fields:
        if field.encode_name in value:
            check(value[field.encode_name], field.type, (*path, field.encode_name))


def _check_union(value: Any, kind: inspect.UnionType, path: Path) -> None:
    inner, *names = [option for option in kind.types if not isinstance(option, inspect.NoneType)]
    if any(_fits(value, name) for name in names):
        return
    try:
        check(value, inner, path)
    except Problem as problem:
        if problem.paths != (path,):
            raise
        words = [str(word) for name in names if isinstance(name, inspect.LiteralType) for word in name.values]
        raise Problem(problem.paths, ", or ".join([str(problem), *words, "null"])) from None


def _check_bounds(value: float, kind: inspect.IntType | inspect.FloatType, path: Path) -> None:
    if kind.ge is not None and value < kind.ge:
        raise refused(path, shown(value), f"must be at least {kind.ge:.15g}")
    if kind.gt is not None and value <= kind.gt:
        raise refused(path, shown(value), f"must be more than {kind.gt:.15g}")
    if kind.le is not None and value > kind.le:
        raise refused(path, shown(value), f"must be at most {kind.le:.15g}")


def _choices(kind: inspect.LiteralType | inspect.EnumType) -> Sequence[Any]:
    return kind.values if isinstance(kind, inspect.LiteralType) else [each.value for each in kind.cls]


def _fits(value: Any, kind: inspect.Type) -> bool:
    try:
        check(value, kind, ())
    except Problem:
        return False
    return True


# --- examples -----------------------------------------------------------------------------------------


def with_example(problem: Problem, values: dict[str, Any], shipped: dict[str, Any]) -> Problem:
    """Return the problem of a missing key with a ``--set`` flag that gives example values for all missing keys there.

    ``values``: the whole config; ``shipped``: the default files' values. The check accepts a config with the example.
    """
    where = problem.paths[0][:-1] if problem.paths else ()
    if problem.lacks is None or not where or not all(isinstance(key, str) for key in where):
        return problem
    # A change of a kind drops the old parameters, so the example sets both.
    owner = where[:-1] if where[-1] == PARAMS else where
    kind = _kind_of(value_at(values, owner))
    beside = chain.from_iterable((value_at(each, owner[:-1]) or {}).values() for each in (values, shipped))
    candidates = _values_by_key(each for each in beside if kind and _kind_of(each) == kind)
    for key, items in _values_by_key((values, shipped)).items():
        candidates.setdefault(key, []).extend(each for each in items if not isinstance(each, dict))
    given = value_at(values, where)
    example: Any = {
        field.encode_name: _example(field.encode_name, field.type, candidates)
        for field in inspect.type_info(problem.lacks).fields  # type: ignore[attr-defined]
        if field.required and not (isinstance(given, dict) and field.encode_name in given)
    }
    if owner != where:
        example = {KIND: kind, PARAMS: example}
    flag = shlex.quote(f"{dotted(owner)}={flow(example)}")
    return Problem(problem.paths, f"{problem}, such as --set {flag}", problem.lacks)


def _kind_of(value: Any) -> Any:
    return value.get(KIND) if isinstance(value, dict) else None


def _values_by_key(mappings: Iterable[Any]) -> dict[str, list[Any]]:
    """Return all values in the mappings, at any depth, by their last key."""
    values: dict[str, list[Any]] = {}
    for mapping in mappings:
        for key, item in mapping.items():
            values.setdefault(key, []).append(item)
            if isinstance(item, dict):
                for name, items in _values_by_key([item]).items():
                    values.setdefault(name, []).extend(items)
    return values


def _example(key: str, kind: inspect.Type, candidates: dict[str, list[Any]]) -> Any:
    """Return the first value that fits ``kind``: from the ``candidates`` for ``key``, or else a default example."""
    values = [*candidates.get(key, ()), *_defaults_of(kind, candidates)]
    return next((value for value in values if _fits(value, kind)), None)


def _defaults_of(kind: inspect.Type, candidates: dict[str, list[Any]]) -> Sequence[Any]:
    """Return default example values of a type."""
    match kind:
        case inspect.StructType(fields=fields):
            required = [(field.encode_name, field.type) for field in fields if field.required]
            return [{name: _example(name, each, candidates) for name, each in required}]
        case inspect.DictType():
            return [{}]
        case inspect.UnionType(types=types):
            return [_example("", types[0], candidates)]
        case inspect.TupleType(item_types=types):
            return [[_example("", each, candidates) for each in types]]
        case inspect.VarTupleType():
            return [[]]
        case inspect.IntType() | inspect.FloatType():
            return [1, *(bound for bound in (kind.ge, kind.gt and 2 * kind.gt, kind.le) if bound is not None)]
        case inspect.StrType():
            return ["x"]
        case inspect.BoolType():
            return [False]
        case inspect.LiteralType() | inspect.EnumType():
            return _choices(kind)
    return []
