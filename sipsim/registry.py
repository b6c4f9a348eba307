"""Registries of definitions: a definition in one module of the right package is found by name.

A registry imports the modules of its package on first use. There is no other list of names: the command line, the
config check and the help text use the registry.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class UnknownName(LookupError):
    """A name that is not registered; the message has the nearest name and all that exist."""


class Registry(Generic[Thing]):
    """Definitions of one sort (``what`` in messages) by name, found in the modules of ``package``."""

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
            UnknownName: when the name is not registered.
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
