"""Descriptions of the fields of result files, at each field's declaration, from which documentation is generated.

A record is a ``msgspec.Struct``, a NamedTuple or a TypedDict whose fields are ``Annotated[T, about]``, where ``about``
is one of :func:`simulated_time`, :func:`host_time` and :func:`no_time` with a sentence. ``T`` may contain records.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, get_type_hints

from msgspec import NODEFAULT, Meta, inspect

_ARRAYS = (inspect.ListType, inspect.VarTupleType, inspect.TupleType)
_RECORDS = (inspect.StructType, inspect.NamedTupleType, inspect.TypedDictType)
_TYPE_NAMES: dict[type, str] = {
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    **dict.fromkeys(_ARRAYS, "array"),
}


class FieldLine(NamedTuple):
    """Field as the documentation lists it.

    ``path``: keys joined by dots, with ``[]`` after a list. ``types``: JSON types. ``time``: the clock of the value,
    ``simulated``, ``host`` or ``none``. ``text``: one sentence. ``is_optional``: the key is omitted if the value is
    None. ``is_open``: the value is an object whose keys are not listed.
    """

    path: str
    types: str
    time: str
    text: str
    is_optional: bool
    is_open: bool


def simulated_time(text: str) -> Meta:
    """Return the description of a time or duration in the simulated system, which is equal in every run."""
    return Meta(description=text, extra={"time": "simulated"})


def host_time(text: str) -> Meta:
    """Return the description of a time or duration on the host machines, which differs from run to run."""
    return Meta(description=text, extra={"time": "host"})


def no_time(text: str) -> Meta:
    """Return the description of a value that is not a time: a name, a count, a size, a ratio."""
    return Meta(description=text, extra={"time": "none"})


def columns_of(record: type) -> tuple[str, ...]:
    """Return the names of a record's fields, in order, without the fields of nested records."""
    return tuple(field.encode_name for field in _own_fields(inspect.type_info(record)))


def fields_of(record: type) -> Iterator[FieldLine]:
    """Yield every field of a record, followed by the fields of its nested records.

    Raises:
        TypeError: for a field without a description.
    """
    return _lines(inspect.type_info(record), "")


def _lines(record: Any, prefix: str) -> Iterator[FieldLine]:
    for field in _own_fields(record):
        about, choices = _about(field.type), list(_choices(field.type))
        if about is None:
            where = f"{record.cls.__name__}.{field.name}"
            raise TypeError(f"{where} has no description; make it Annotated[..., no_time('...')]")
        path = prefix + field.encode_name
        is_optional = not field.required and field.default is field.default_factory is NODEFAULT
        types = [_TYPE_NAMES.get(type(each), "object") for each in choices]
        listed = dict.fromkeys(each for each in types if not (is_optional and each == "null"))
        is_open = any(isinstance(each, inspect.DictType) for each in choices)
        yield FieldLine(path, " or ".join(listed), *about, is_optional, is_open)
        for each in choices:
            item, depth = _item(each)
            if isinstance(item, _RECORDS):
                yield from _lines(item, path + "[]" * depth + ".")


def _own_fields(record: Any) -> Iterator[inspect.Field]:
    """Return the fields of a record in the order of declaration; msgspec sorts the keys of a TypedDict."""
    fields = {field.name: field for field in record.fields}
    names = get_type_hints(record.cls) if isinstance(record, inspect.TypedDictType) else fields
    return (fields[name] for name in names)


def _about(kind: inspect.Type) -> tuple[str, str] | None:
    """Return (clock, text) of the description of a type, or of the first union member that has a description."""
    if isinstance(kind, inspect.UnionType):
        return next(filter(None, map(_about, kind.types)), None)
    if not isinstance(kind, inspect.Metadata):
        return None
    return (kind.extra["time"], (kind.extra_json_schema or {})["description"]) if kind.extra else _about(kind.type)


def _choices(kind: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the members of a union, or the type itself, without descriptions."""
    if isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _choices(each)
    elif isinstance(kind, inspect.Metadata):
        yield from _choices(kind.type)
    else:
        yield kind


def _item(kind: inspect.Type) -> tuple[inspect.Type, int]:
    """Return the item type of a possibly nested list, and the depth of nesting."""
    depth = 0
    while isinstance(kind, _ARRAYS):
        inner = kind.item_types[0] if isinstance(kind, inspect.TupleType) else kind.item_type
        kind, depth = next(_choices(inner)), depth + 1
    return kind, depth
