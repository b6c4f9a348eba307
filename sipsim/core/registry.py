"""Registries of definitions by name; the module that defines a name is imported when the name is first requested.

A registry lists the modules of the built-in definitions and their names. It is the only list of these names: the
command line, the config check and the help text use it. A dotted name, such as ``my_lab.optical``, is a module on the
import path that registers its definition under the dotted name. When a module is no longer in ``sys.modules``,
:func:`forget_modules` drops its definitions.
"""

import difflib
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any, Generic, NamedTuple, TypeVar

from sipsim.core.errors import error_text, pass_on_halt

Key = TypeVar("Key")
Thing = TypeVar("Thing")


class UnknownName(LookupError):
    """Error for a name that is not registered; the message contains the most similar name and all registered names."""


class Entry(NamedTuple, Generic[Thing]):
    """Registered definition with its module and qualified name. ``owner``: the module whose removal drops the entry."""

    thing: Thing
    module: str
    qualname: str
    owner: str


_REGISTRIES: "list[Registry[Any]]" = []
_DEFINITIONS: "list[Definitions[Any, Any]]" = []
_SHARED: set[str] = set()
"""Modules that contain definitions, and modules imported while a registry imported a user's module."""


class Definitions(dict[Key, Thing]):
    """Definitions by key. ``modules``: by key, the modules that define the key. A key is dropped with the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.modules: dict[Key, set[str]] = {}
        _DEFINITIONS.append(self)

    def define(self, key: Key, thing: Thing, module: str) -> None:
        """Add ``thing`` for all ranks of a process until ``module`` is no longer imported; for ever if that is ""."""
        self[key] = thing
        if module:
            self.modules.setdefault(key, set()).add(module)
        _share(module)

    def forget(self) -> None:
        """Drop the definitions whose modules are no longer imported."""
        for key, modules in [*self.modules.items()]:
            modules.intersection_update(sys.modules)
            if not modules:
                self.pop(key, None)
                del self.modules[key]


def _share(module: str) -> None:
    """Note that all ranks of a process share a module and its parent packages."""
    while module and module not in _SHARED:
        _SHARED.add(module)
        module = module.rpartition(".")[0]


def is_definer(module: str) -> bool:
    """Whether a module contains definitions, so that all ranks of a process share the module and it runs only once."""
    return module in _SHARED


def forget_modules() -> None:
    """Drop the definitions of modules that are no longer imported, in all registries."""
    for each in _DEFINITIONS:
        each.forget()
    _SHARED.intersection_update(sys.modules)


def source_lines(names: Iterable[str]) -> list[str]:
    """Return a line per user's definition in ``names``: the name, and the SHA-256 of the module's source.

    The digest does not cover modules that the user's module imports.

    Raises:
        UnknownName: when a dotted name is neither a definition nor a module.
    """
    return [f"{name} {_source_sha256(name)}" for name in sorted(set(names)) if _is_module(name)]


def _source_sha256(name: str) -> str:
    modules = {each._entries[name].owner for each in _REGISTRIES if name in each._entries} or {name}
    digest = hashlib.sha256()
    for module in sorted(modules):
        reason = "" if module in sys.modules else _import_module(module)
        if reason:
            raise UnknownName(f"unknown module {module!r}; {reason.removesuffix('; ')}")
        file = getattr(sys.modules[module], "__file__", None)
        digest.update(Path(file).read_bytes() if file is not None and Path(file).is_file() else b"")
    return digest.hexdigest()


class Registry(Generic[Thing]):
    """Definitions of one sort (``what`` in messages) by name. ``built_in``: by module, the names that a module defines.

    ``objects_of``, ``classes_of``: the class of which each definition is an instance or a subclass; checked if given.
    """

    def __init__(
        self,
        what: str,
        built_in: Mapping[str, Sequence[str]] | None = None,
        objects_of: type | None = None,
        classes_of: type | None = None,
    ) -> None:
        self._what = what
        self._objects_of, self._classes_of = objects_of, classes_of
        self._modules = {name: module for module, names in (built_in or {}).items() for name in names}
        self._entries = Definitions[str, Entry[Thing]]()
        _REGISTRIES.append(self)

    def register(self, name: str, definition: object = None) -> Callable[[Thing], Thing]:
        """Return a class or function decorator that registers a definition: ``@KINDS.register("ucie")``.

        ``definition``: the user's class or function, if the decorated object was made from it. A definition whose
        module runs again replaces the first definition; a copy of the module under another name changes nothing.

        Raises:
            TypeError: for an object that is no definition of this sort, such as a class in place of an instance.
            ValueError: for a name that another definition has.
        """

        def add(thing: Thing) -> Thing:
            self._check(name, thing)
            entry = _entry(name, thing, thing if definition is None else definition)
            other = self._entries.get(name)
            if entry.module != self._modules.get(name, entry.module):
                raise ValueError(f"{self._what} {name!r} is defined twice; rename one of the two definitions")
            if other is not None and not _is_same(other, entry):
                if not _is_copy(other, entry):
                    raise ValueError(f"{self._what} {name!r} is defined twice; rename one of the two definitions")
                return thing
            self._entries.define(name, entry, entry.owner)
            return thing

        return add

    def _check(self, name: str, thing: object) -> None:
        got = f"{self._what} {name!r} is {thing!r}"
        if self._objects_of is not None and not isinstance(thing, self._objects_of):
            example = f", such as {thing.__name__}()" if isinstance(thing, type) else ""
            raise TypeError(f"{got}; must be an object of {self._objects_of.__name__}{example}")
        if self._classes_of is not None and not (isinstance(thing, type) and issubclass(thing, self._classes_of)):
            raise TypeError(f"{got}; must be a subclass of {self._classes_of.__name__}")

    def names(self) -> list[str]:
        """Return all names except dotted names, sorted. No module is imported."""
        return sorted(self._modules.keys() | {name for name in self._entries if not _is_module(name)})

    def get(self, name: str) -> Thing:
        """Return the definition called ``name``; its module is imported at first use.

        Raises:
            UnknownName: when the name is not registered, or its module cannot be imported or does not register it.
        """
        self._import_built_in(name)
        reason = ""
        if _is_module(name) and name not in self._entries:
            reason = _import_module(name) or "the module registers nothing under this name; "
        if name in self._entries:
            return self._entries[name].thing
        text = unknown_name(self._what, name, self.names(), reason)
        is_hinted = _is_module(name) or nearest(name, self.names())
        hint = "" if is_hinted else f"; a module of yours is named with a dot, such as my_lab.{name}"
        raise UnknownName(text + hint)

    def loaded(self, name: str) -> Thing | None:
        """Return the definition called ``name``; None if no built-in or imported module defines ``name``.

        Use this for names in messages between processes: a message must not cause a user's code to run.
        """
        self._import_built_in(name)
        entry = self._entries.get(name)
        return None if entry is None else entry.thing

    def _import_built_in(self, name: str) -> None:
        if name not in self._entries and name in self._modules:
            importlib.import_module(self._modules[name])


class TypeRegistry(Generic[Thing]):
    """Definitions of one sort, each for one type. ``modules`` contain the definitions; first use imports them."""

    def __init__(self, what: str, *modules: str) -> None:
        self._what = what
        self._modules = modules
        self._things = Definitions[type, Thing]()

    def register(self, key: type) -> Callable[[Thing], Thing]:
        """Return a class decorator that registers the class as the definition for type ``key``.

        Raises:
            ValueError: for a type that already has a definition.
        """

        def add(thing: Thing) -> Thing:
            if key in self._things:
                raise ValueError(f"{self._what} {key.__name__!r} is defined twice; remove one of the two definitions")
            self._things.define(key, thing, key.__module__)
            return thing

        return add

    def names(self) -> list[str]:
        """Return the names of all types, sorted."""
        self._load()
        return sorted({key.__name__ for key in self._things})

    def get(self, key: type) -> Thing:
        """Return the definition for a type.

        Raises:
            UnknownName: when the type has no definition.
        """
        self._load()
        if key in self._things:
            return self._things[key]
        raise UnknownName(unknown_name(self._what, key.__name__, self.names()))

    def _load(self) -> None:
        modules, self._modules = self._modules, ()
        for name in modules:
            importlib.import_module(name)


def _entry(name: str, thing: Thing, definition: object) -> Entry[Thing]:
    module = getattr(definition, "__module__", None) or ""
    qualname = getattr(definition, "__qualname__", None) or type(definition).__qualname__
    is_module = _is_module(name) and (name in sys.modules or not module)
    return Entry(thing, module, qualname, name if is_module else module)


def _is_same(other: Entry[Any], entry: Entry[Any]) -> bool:
    return bool(entry.module) and (other.module, other.qualname) == (entry.module, entry.qualname)


def _is_copy(other: Entry[Any], entry: Entry[Any]) -> bool:
    files = {getattr(sys.modules.get(each.module), "__file__", None) for each in (other, entry)}
    return other.qualname == entry.qualname and len(files) == 1 and None not in files and other.module != entry.module


def _import_module(name: str) -> str:
    """Import the module ``name``; return "", or the reason why the import failed."""
    before = set(sys.modules)
    try:
        importlib.import_module(name)
    except BaseException as error:
        pass_on_halt(error)
        return f"the module cannot be imported: {' '.join(error_text(error).split())}; "
    for module in sys.modules.keys() - before:
        _share(module)
    return ""


def _is_module(name: str) -> bool:
    return "." in name


def nearest(name: str, known: Sequence[str]) -> str:
    """Return the name in ``known`` that alone starts with ``name``, else the most similar one, else ""."""
    longer = [each for each in known if each.startswith(name)]
    return longer[0] if len(longer) == 1 else next(iter(difflib.get_close_matches(name, known, 1, 0.7)), "")


def unknown_name(what: str, name: str, known: Iterable[str], reason: str = "") -> str:
    """Return ``unknown link 'ethernt'; did you mean 'ethernet'? allowed: ...``; ``reason`` replaces the hint."""
    allowed = sorted(map(str, known))  # keys of a config may be of any type
    near = nearest(name, allowed)
    hint = reason or (f"did you mean {near!r}? " if near else "")
    return f"unknown {what} {name!r}; {hint}allowed: {', '.join(allowed) or 'none'}"


class SourceLoader(SourceFileLoader):
    """Loader of users' Python files without bytecode cache: compiles the source each time, and writes no bytecode.

    Python's cache does not detect a change within one second that keeps the file's size. So a script that a sweep
    rewrites quickly would run in its previous version.
    """

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def source_spec(name: str, path: Path | str) -> ModuleSpec:
    """Return the import spec of the file ``path`` as module ``name``."""
    spec = spec_from_file_location(name, path, loader=SourceLoader(name, str(path)))
    assert spec is not None
    return spec
