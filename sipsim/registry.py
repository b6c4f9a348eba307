"""One way to add a kind of thing: define it in one file of the right package, and it is found by name.

A registry imports the modules of its package on first use and remembers what they registered. There
is no list of kinds anywhere else: the command line, the config check and the help text ask here.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class UnknownName(LookupError):
    """A name that nobody registered; says which names exist and which is nearest."""


class Registry(Generic[Thing]):
    """Names to definitions of one sort (``what`` in messages), found in the modules of ``package``."""

    def __init__(self, what: str, package: str) -> None:
        self._what = what
        self._package = package
        self._things: dict[str, Thing] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[Thing], Thing]:
        """Class or function decorator: ``@KINDS.register("ucie")``."""

        def add(thing: Thing) -> Thing:
            if name in self._things:
                raise ValueError(f"{self._what} {name!r} is defined twice")
            self._things[name] = thing
            return thing

        return add

    def names(self) -> list[str]:
        """All registered names, sorted."""
        self._load()
        return sorted(self._things)

    def get(self, name: str) -> Thing:
        """The definition called ``name``.

        Raises:
            UnknownName: one line with the nearest name and all that exist.
        """
        self._load()
        if name in self._things:
            return self._things[name]
        raise UnknownName(unknown_name(self._what, name, self._things))

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
            importlib.import_module(f"{self._package}.{module.name}")


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """``unknown link 'ethernt'; did you mean 'ethernet'? allowed: ...`` as one line."""
    allowed = sorted(known)
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"unknown {what} {name!r}; {hint}allowed: {', '.join(allowed) or 'none'}"
