"""Registries of definitions: a definition in one module of the right package is found by name.

A registry imports the modules of its package on first use. There is no other list of names: the command line, the
config check and the help text use the registry. A dotted name, such as ``my_lab.optical``, is a module anywhere on the
import path, which registers its definition under that name.
"""

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

Thing = TypeVar("Thing")


class UnknownName(LookupError):
    """A name that is not registered; the message has the nearest name and all that exist."""


_REGISTRIES: "list[Registry[Any]]" = []


class Registry(Generic[Thing]):
    """Definitions of one sort (``what`` in messages) by name, found in the modules of ``packages``."""

    def __init__(self, what: str, *packages: str) -> None:
        self._what = what
        self._packages = packages
        self._things: dict[str, Thing] = {}
        self._loaded = False
        _REGISTRIES.append(self)

    def register(self, name: str) -> Callable[[Thing], Thing]:
        """Class or function decorator: ``@KINDS.register("ucie")``."""

        def add(thing: Thing) -> Thing:
            # Where one process runs several ranks, each may have a copy of a user's module.
            if name in self._things and not _is_module(name):
                raise ValueError(f"{self._what} {name!r} is defined twice")
            self._things[name] = thing
            return thing

        return add

    def names(self) -> list[str]:
        """All names of the package's definitions, sorted; dotted names are not listed."""
        self._load()
        return sorted(name for name in self._things if not _is_module(name))

    def get(self, name: str) -> Thing:
        """The definition called ``name``; a dotted name's module is imported at its first use.

        Raises:
            UnknownName: when the name is not registered, or its module cannot be imported or does not register it.
        """
        self._load()
        refusal = self._import_module(name) if _is_module(name) and name not in self._things else ""
        if name in self._things:
            return self._things[name]
        raise UnknownName(unknown_name(self._what, name, self.names(), refusal))

    def loaded(self, name: str) -> Thing | None:
        """The definition called ``name`` unless it is in a module that nothing has imported: none is imported here.

        For names in messages, which must not choose what code runs.
        """
        self._load()
        return self._things.get(name)

    def forget_modules(self) -> None:
        """Drop the definitions of modules that are not imported any more."""
        for name in [name for name in self._things if _is_module(name) and name not in sys.modules]:
            del self._things[name]

    def _import_module(self, name: str) -> str:
        """Import the module ``name``; the reason to give if its definition is then still missing."""
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())
            return f"the module cannot be imported: {type(error).__name__}: {reason}; "
        return "the module registers nothing under this name; "

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for name in self._packages:
            package = importlib.import_module(name)
            for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
                importlib.import_module(f"{name}.{module.name}")


def forget_modules() -> None:
    """Drop the definitions of modules that are not imported any more."""
    for registry in _REGISTRIES:
        registry.forget_modules()


def _is_module(name: str) -> bool:
    return "." in name


def unknown_name(what: str, name: str, known: Iterable[str], reason: str = "") -> str:
    """``unknown link 'ethernt'; did you mean 'ethernet'? allowed: ...`` as one line; ``reason`` replaces the hint."""
    allowed = sorted(known)
    near = difflib.get_close_matches(name, allowed, n=1, cutoff=0.5)
    hint = reason or (f"did you mean {near[0]!r}? " if near else "")
    return f"unknown {what} {name!r}; {hint}allowed: {', '.join(allowed) or 'none'}"
