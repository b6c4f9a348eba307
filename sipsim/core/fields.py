"""Descriptions of the fields of result files, at the declaration of each field; pages are made from them.

A record is a TypedDict, a ``msgspec.Struct`` or a NamedTuple whose fields are ``Annotated[T, about]``, where ``about``
is one of :func:`simulated_time`, :func:`host_time` and :func:`no_time` with a sentence. ``T`` may contain records.
"""

from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NotRequired, Required, Union, get_args, get_origin, get_type_hints

_UNIONS = (Union, UnionType)
_TYPE_NAMES = {
    int: "integer",
    float: "number",
    str: "string",
    bool: "boolean",
    NoneType: "null",
    list: "array",
    tuple: "array",
    dict: "object",
}


class About(NamedTuple):
    """``time``: what clock the value is a time of: ``simulated``, ``host`` or ``none``. ``text``: one sentence."""

    time: str
    text: str


class FieldLine(NamedTuple):
    """A field as pages list it.

    ``path``: its keys joined by dots, with ``[]`` after a list. ``types``: those of JSON. ``is_optional``: the key may
    be missing, as it is where the value is None. ``is_open``: an object whose keys are not listed.
    """

    path: str
    types: str
    about: About
    is_optional: bool
    is_open: bool


def simulated_time(text: str) -> About:
    """A time or span of the simulated system: the same in every run."""
    return About("simulated", text)


def host_time(text: str) -> About:
    """A time or span of the machines that simulate: another in every run."""
    return About("host", text)


def no_time(text: str) -> About:
    """No time: a name, a count, a size, a ratio."""
    return About("none", text)


def columns_of(record: type) -> tuple[str, ...]:
    """The names of a record's own fields, in order."""
    return tuple(get_type_hints(record))


def fields_of(record: type, prefix: str = "") -> Iterator[FieldLine]:
    """Every field of a record, those of the records in it after their field.

    Raises:
        TypeError: for a field without a description.
    """
    optional: frozenset[str] = getattr(record, "__optional_keys__", frozenset())
    for name, hint in get_type_hints(record, include_extras=True).items():
        about, choices = _about(hint), list(_choices(hint))
        if about is None:
            raise TypeError(f"{record.__name__}.{name} has no description; make it Annotated[..., no_time('...')]")
        path = prefix + name
        is_optional = name in optional
        names = dict.fromkeys(_type_name(each) for each in choices if not (is_optional and each is NoneType))
        is_open = any(get_origin(each) is dict for each in choices)
        yield FieldLine(path, " or ".join(names), about, is_optional, is_open)
        for each in choices:
            item, depth = _item(each)
            if _is_record(item):
                yield from fields_of(item, path + "[]" * depth + ".")


def _about(hint: Any) -> About | None:
    """The description of a type, or of the first member of a union that has one."""
    found = [each for each in get_args(hint) if isinstance(each, About)]
    if found or get_origin(hint) not in (Annotated, Required, NotRequired, *_UNIONS):
        return found[0] if found else None
    return next(filter(None, map(_about, get_args(hint))), None)


def _choices(hint: Any) -> Iterator[Any]:
    """The members of a union, or the type itself, without descriptions."""
    if get_origin(hint) in _UNIONS:
        for each in get_args(hint):
            yield from _choices(each)
    elif get_origin(hint) in (Annotated, Required, NotRequired):
        yield from _choices(get_args(hint)[0])
    else:
        yield hint


def _item(hint: Any) -> tuple[Any, int]:
    """What a list of lists of ... holds, and how many lists that is."""
    depth = 0
    while get_origin(hint) in (list, tuple):
        hint, depth = next(_choices(get_args(hint)[0])), depth + 1
    return hint, depth


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and hint not in _TYPE_NAMES and hasattr(hint, "__annotations__")


def _type_name(hint: Any) -> str:
    return _TYPE_NAMES.get(get_origin(hint) or hint, "object")
