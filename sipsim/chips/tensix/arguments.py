"""Checks of the arguments of host scripts: a wrong argument raises one line that says what to give. Pure."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import isfunction, signature
from reprlib import repr as shown
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sipsim.chips.tensix.noc import Core
from sipsim.core.errors import KernelMisuse
from sipsim.core.units import as_whole

Api = TypeVar("Api", bound=type)
Check = Callable[[str, Any], Any]
"""A function of a parameter's name and value that returns the value to use, or raises ``KernelMisuse``."""
Natural = Annotated[int, 0]
"""A whole number, 0 or more."""
Count = Annotated[int, 1]
"""A whole number, 1 or more."""
Within = Annotated[int, None]
"""A whole number whose range the method checks, since the range depends on other values."""


_MAKERS: dict[str, dict[Any, str]] = {}
"""By name of a script's object and by type, the first method of the object that returns a value of the type."""


def checked(name: str) -> Callable[[Api], Api]:
    """Return a class decorator for the calls of host scripts: each public method first checks arguments against the
    annotations, except texts, sequences and arrays, which the method must check. ``name``: the object's name in host
    scripts, for messages; several classes may share a name.
    """

    def decorate(cls: Api) -> Api:
        methods = {each: value for each, value in vars(cls).items() if isfunction(value) and not each.startswith("_")}
        hints = {each: get_type_hints(method, include_extras=True) for each, method in methods.items()}
        makers = _MAKERS.setdefault(name, {})
        for each, hint in hints.items():
            makers.setdefault(hint.get("return"), f"{name}.{each}")
        for each, method in methods.items():
            setattr(cls, each, _checked(f"{name}.{each}", method, hints[each], makers))
        return cls

    return decorate


def _checked(
    name: str, method: Callable[..., Any], hints: Mapping[str, Any], makers: Mapping[Any, str]
) -> Callable[..., Any]:
    parameters = signature(method)
    checks = {each: _check_of(hints.get(each), makers) for each in parameters.parameters}
    wanted = ", ".join(list(parameters.parameters)[1:])

    @wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            bound = parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise KernelMisuse(f"{name}: {error}; the call takes ({wanted})") from None
        for each, value in bound.arguments.items():
            check = checks[each]
            if check is not None:
                try:
                    bound.arguments[each] = check(each, value)
                except KernelMisuse as error:
                    raise KernelMisuse(f"{name}: {error}") from None
        return method(*bound.args, **bound.kwargs)

    return call


def _check_of(hint: Any, makers: Mapping[Any, str]) -> Check | None:
    """Return the check for an annotation, or None if the method must check the value."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    check = _check_of_kinds([kind for kind in kinds if kind is not NoneType], makers)
    if check is None or NoneType not in kinds:
        return check
    check_value = check
    return lambda name, value: None if value is None else check_value(name, value)


def _check_of_kinds(kinds: list[Any], makers: Mapping[Any, str]) -> Check | None:
    if Core in kinds:
        return None if any(get_origin(kind) is Iterable for kind in kinds) else tile
    if len(kinds) == 1:
        if get_origin(kinds[0]) is Annotated:
            _, least = get_args(kinds[0])
            return None if least is None else lambda name, value: whole(name, value, least)
        kind = get_origin(kinds[0]) or kinds[0]
        if kind in _PLAIN:
            return _PLAIN[kind]
    if not all(isinstance(kind, type) and kind.__module__.startswith("sipsim.") for kind in kinds):
        return None

    def is_one(name: str, value: Any) -> Any:
        if not isinstance(value, tuple(kinds)):
            names = " or ".join(kind.__name__ for kind in kinds)
            what = next((f"what {makers[kind]} returns" for kind in kinds if kind in makers), f"a {names}")
            raise KernelMisuse(f"{name}={shown(value)}: give {what}")
        return value

    return is_one


def any_whole(name: str, value: Any) -> int:
    """Return a whole number of any sign.

    Raises:
        KernelMisuse: if the value is not a whole number.
    """
    number = as_whole(value)
    if number is None:
        raise KernelMisuse(f"{name}={shown(value)}: give a whole number")
    return number


def _number(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool | str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise KernelMisuse(f"{name}={shown(value)}: give a number")
    return number


def _bytes(name: str, value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise KernelMisuse(f"{name}={shown(value)}: give bytes, such as array.tobytes()")
    return bytes(value)


def _several(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise KernelMisuse(f"{name}={shown(value)}: give a tuple, such as ({shown(value)},)")
    return tuple(value)


def _function(name: str, value: Any) -> Any:
    if not callable(value):
        raise KernelMisuse(f"{name}={shown(value)}: give a function")
    return value


def tile(name: str, value: Any) -> Core:
    """Return a tile from a pair of coordinates. The caller checks that the chip has this tile.

    Raises:
        KernelMisuse: if the value is not a pair of whole numbers.
    """
    if not isinstance(value, tuple | list) or len(value) != len(Core._fields):
        raise KernelMisuse(f"{name}={shown(value)}: give a tile, (x, y)")
    return Core(*(any_whole(f"a coordinate of {name}", each) for each in value))


def tiles(name: str, value: Any) -> tuple[Core, ...]:
    """Return tiles from one pair of coordinates or from several pairs.

    Raises:
        KernelMisuse: if the value is neither one pair nor several pairs.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        raise KernelMisuse(f"{name}={shown(value)}: give a tile, (x, y), or several tiles")
    given = tuple(value)
    if given and not any(isinstance(each, Iterable) for each in given):
        return (tile(name, given),)
    return tuple(tile(name, each) for each in given)


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return a whole number of at least ``least`` and, if ``most`` is given, at most ``most``.

    Raises:
        KernelMisuse: if the value is not a whole number in this range.
    """
    number = as_whole(value)
    if number is None or number < least or (most is not None and number > most):
        up_to = " or more" if most is None else f" to {most}"
        raise KernelMisuse(f"{name}={value!r}: give a whole number, {least}{up_to}")
    return number


def ranks(name: str, value: Any, count: int) -> list[int]:
    """Return a list of ranks below ``count``.

    Raises:
        KernelMisuse: if the value is no list of such ranks.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise KernelMisuse(f"{name}={shown(value)}: give a list of ranks")
    return [whole(f"a rank of {name}", each, 0, count - 1) for each in value]


def yes_or_no(name: str, value: Any) -> bool:
    """Return a bool.

    Raises:
        KernelMisuse: if the value is not a bool.
    """
    if not isinstance(value, bool):
        raise KernelMisuse(f"{name}={value!r}: give True or False")
    return value


_PLAIN: dict[Any, Check] = {
    int: any_whole,
    float: _number,
    bool: yes_or_no,
    bytes: _bytes,
    tuple: _several,
    Callable: _function,
}
"""The checks of plain types, by annotation."""


def one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value``, a text that must be one of ``choices``.

    Raises:
        KernelMisuse: if the value is none of the choices.
    """
    allowed = list(choices)
    if not isinstance(value, str) or value not in allowed:
        raise KernelMisuse(f"{name}={value!r}: give one of {', '.join(allowed)}")
    return value


def some_of(name: str, value: Any, choices: Iterable[str]) -> list[str]:
    """Return the texts in ``value``, which must be among ``choices``, in the order of the choices.

    Raises:
        KernelMisuse: if the value is a single text, or contains a text that is no choice.
    """
    allowed = list(choices)
    if not isinstance(value, list | tuple | set | frozenset) or not all(each in allowed for each in value):
        raise KernelMisuse(f"{name}={value!r}: give a list with some of {', '.join(allowed)}")
    return [each for each in allowed if each in value]


def worker_tile(core: Core, workers: Iterable[Core]) -> Core:
    """Return ``core``, a tile that must be a worker.

    Raises:
        KernelMisuse: if the tile is not a worker.
    """
    if core not in workers:
        raise KernelMisuse(f"tile {core} is no worker; give a tile of tt.workers")
    return core
