"""Arguments of host scripts, checked: what is wrong is one line that says what to give. Pure."""

from collections.abc import Iterable
from operator import index
from typing import Any

from sipsim.errors import KernelMisuse
from sipsim.tensix.floor_plan import Core


def whole(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number from ``least`` on, up to ``most`` if that is given.

    Raises:
        KernelMisuse: for anything else.
    """
    if not isinstance(value, bool):
        try:
            found = index(value)
        except TypeError:
            found = least - 1
        if least <= found and (most is None or found <= most):
            return found
    upto = " or more" if most is None else f" to {most}"
    raise KernelMisuse(f"{name}={value!r}: give a whole number, {least}{upto}")


def yes_or_no(name: str, value: Any) -> bool:
    """A bool.

    Raises:
        KernelMisuse: for anything else.
    """
    if not isinstance(value, bool):
        raise KernelMisuse(f"{name}={value!r}: give True or False")
    return value


def one_of(name: str, value: Any, choices: Iterable[str]) -> str:
    """A text that is among others.

    Raises:
        KernelMisuse: for anything else.
    """
    found = list(choices)
    if not isinstance(value, str) or value not in found:
        raise KernelMisuse(f"{name}={value!r}: give one of {', '.join(found)}")
    return value


def some_of(name: str, value: Any, choices: Iterable[str]) -> list[str]:
    """Texts that are among others, in their order.

    Raises:
        KernelMisuse: for anything else, a text by itself too.
    """
    found = list(choices)
    if not isinstance(value, list | tuple | set | frozenset) or not all(each in found for each in value):
        raise KernelMisuse(f"{name}={value!r}: give a list of some of {', '.join(found)}")
    return [each for each in found if each in value]


def worker_tile(value: Any, workers: Iterable[Core]) -> Core:
    """A tile that is a worker.

    Raises:
        KernelMisuse: for anything else.
    """
    found = Core(*value) if isinstance(value, tuple | list) and len(value) == len(Core._fields) else None
    if found is None or found not in workers:
        told = value if found is None else found
        raise KernelMisuse(f"tile {told} is no worker; Tensix tiles are, give one of tt.workers")
    return found
