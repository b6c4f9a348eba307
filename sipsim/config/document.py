"""All config values before they are checked, each with its origin: a default file, a user's file or a flag.

Plain data under the top-level keys of all config files; which key belongs to which file follows from the fields
of :class:`~sipsim.config.schema.Resolved`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from sipsim.config.schema import OF_MODULE, Change, Resolved, Section, field_types
from sipsim.config.yaml import one_line
from sipsim.core.errors import ConfigError
from sipsim.core.registry import Registry, UnknownName, unknown_name

Path = tuple[str | int, ...]
KIND, PARAMS, MODULE = "kind", "params", "module"
ALGORITHMS = "algorithms"
CHOOSES = (KIND, MODULE)
"""Keys on which others of their mapping depend."""

SECTION_FILES: dict[str, type[Section]] = field_types(Resolved)
"""The section of each config file, by the file's stem."""


class Problem(NamedTuple):
    """A refusal: a text that names the key, and the paths of the values that caused it.

    ``lacks``: the struct that lacks the first path, if that is what is wrong.
    """

    paths: tuple[Path, ...]
    text: str
    lacks: type | None = None

    def caused_by(self, path: Path) -> "Problem":
        """This problem, with another value that may have caused it."""
        return self._replace(paths=(*self.paths, path))


Rule = Callable[[Resolved], Problem | None]
"""A rule between checked values: the first problem that it finds. A domain keeps its own in ``rules.py``."""
Unused = Callable[[Resolved], Iterable[Problem]]
"""The values without effect, the first path of each; a problem where it is not the default's."""


Implied = Callable[[Resolved], Iterable[tuple[Path, Any]]]
"""The values that others imply, by their paths."""


class Document:
    """Values by key, and the origin of each. ``shipped``: those of the default files alone."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.shipped: dict[str, Any] = {}
        self._origins: dict[Path, str] = {}
        self._defaults: dict[str, Any] = {}
        self._default_origins: set[str] = set()
        self._shipped_origins: set[str] = set()

    def end_shipped(self) -> None:
        """Mark the end of the shipped files: later values come from a variant or from the user."""
        self.shipped = deepcopy(self.values)
        self._shipped_origins = set(self._origins.values())

    def end_defaults(self) -> None:
        """Mark the end of the defaults: later values come from the user."""
        self._defaults = self.shipped if self.values == self.shipped else deepcopy(self.values)
        self._default_origins = set(self._origins.values())

    def is_default(self, path: Path) -> bool:
        """Whether the value at ``path`` is that of the defaults."""
        return bool(value_at(self.values, path) == value_at(self._defaults, path))

    def changes(self) -> Iterator[Change]:
        """The values that differ from the default files', but for implied ones."""
        for path, value in _leaves(self.values, ()):
            default, origin = value_at(self.shipped, path), self.origin(path)
            if value != default and origin not in self._shipped_origins:
                yield Change(path, value, default, origin)

    def imply(self, values: Iterable[tuple[Path, Any]]) -> bool:
        """Set each value that is still of the defaults; whether there was one."""
        own = [(path, value) for path, value in values if self.origin(path) in self._default_origins]
        for path, value in own:
            self._mapping_at(path[:-1], "")[path[-1]] = value
        return bool(own)

    def merge(self, path: Path, value: Any, origin: str) -> None:
        """Set ``value`` at ``path``; a mapping merges into a mapping key by key, anything else replaces.

        ``params`` belong to a ``kind``: where that changes, those of the former one are dropped. So is what the
        defaults say of an algorithm where its ``module`` changes: a user's entry may have the name of one of theirs.

        Raises:
            ConfigError: when ``path`` leads through a value that is not a mapping.
        """
        if not path:
            for key, item in value.items():
                self.merge((key,), item, origin)
            return
        parent = self._mapping_at(path[:-1], origin)
        old = parent.get(path[-1])
        if isinstance(old, dict) and isinstance(value, dict):
            for key, item in sorted(value.items(), key=lambda each: each[0] not in CHOOSES):
                self.merge((*path, key), item, origin)
            return
        if path[-1] in CHOOSES and old != value:
            self._drop_former(path, parent)
        parent[path[-1]] = value
        if isinstance(old, dict):
            self._forget_below(path)
        self._origins.pop(path, None)
        self._origins[path] = origin

    def expect(self, key: str, origin: str) -> None:
        """Set the origin of a top-level key, present or missing, until a merge sets the key."""
        self._origins[(key,)] = origin

    def origin(self, *paths: Path) -> str:
        """The origin that last set one of these values or a part of one; the origin of a whole holds for its parts."""
        owners = {owner for path in paths if (owner := self._owner(path)) is not None}
        latest = [known for known in self._origins if known in owners or any(_below(known, path) for path in paths)]
        return self._origins[latest[-1]] if latest else "config"

    def error(self, problem: Problem) -> ConfigError:
        """The problem as one line that starts with its origin."""
        return ConfigError(one_line(f"{self.origin(*problem.paths)}: {problem.text}"))

    def _owner(self, path: Path) -> Path | None:
        prefixes = (path[:length] for length in range(len(path), 0, -1))
        return next((prefix for prefix in prefixes if prefix in self._origins), None)

    def _drop_former(self, path: Path, parent: dict[Any, Any]) -> None:
        """Drop what belongs to the former value at ``path``, in ``parent``."""
        where = path[:-1]
        if path[-1] == KIND and PARAMS in parent:
            parent[PARAMS] = {}
            self._forget_below((*where, PARAMS))
        if path[-1] == MODULE and where[:1] == (ALGORITHMS,):
            for key in OF_MODULE & parent.keys():
                if self.origin((*where, key)) in self._default_origins:
                    del parent[key]
                    self._forget_below((*where, key))

    def _forget_below(self, path: Path) -> None:
        for known in [known for known in self._origins if _below(known, path)]:
            del self._origins[known]

    def _mapping_at(self, path: Path, origin: str) -> dict[Any, Any]:
        mapping: dict[Any, Any] = self.values
        for depth, key in enumerate(path, start=1):
            child = mapping.setdefault(key, {})
            if not isinstance(child, dict):
                what = f"{dotted(path[:depth])} = {shown(child)}: must be a mapping to be set inside"
                raise ConfigError(one_line(f"{origin}: {what}"))
            mapping = child
        return mapping


def value_at(values: Any, path: Path) -> Any:
    """The value at a path of keys; None without one."""
    for key in path:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values without keys of their own, by path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    else:
        yield path, value


def _below(known: Path, path: Path) -> bool:
    return known[: len(path)] == path


def dotted(path: Sequence[str | int]) -> str:
    """A key path as users write it: ``system.sips.custom_links[0].a``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def refused(path: Path, value: object, what: str, *others: Path) -> Problem:
    """The value at ``path`` is refused; those at ``others`` may have caused it."""
    return Problem((path, *others), f"{dotted(path)} = {value}: {what}")


def no_power_of_two(value: int, when: str = "") -> str:
    """What is said of a value of 1 or more that is no power of two but must be one, ``when``; else nothing."""
    return f"must be a power of two{when}, such as {1 << value.bit_length() - 1}" if value & value - 1 else ""


def unregistered(path: Path, name: str, registry: Registry[Any]) -> Problem | None:
    """A problem unless ``name``, the value at ``path``, is in the registry."""
    try:
        registry.get(name)
    except UnknownName as error:
        return Problem((path,), f"{dotted(path)}: {error}")
    return None


def shown(value: Any) -> str:
    """A value for a message: null and booleans as in YAML, at most 60 characters."""
    constants = {None: "null", True: "true", False: "false"}
    text = constants[value] if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def unknown_key(where: Path, name: object, allowed: list[str]) -> str:
    """``unknown key 'cuont' in system.sips; did you mean 'count'? allowed: ...``"""
    place = f" in {dotted(where)}" if where else ""
    text = unknown_name("key", str(name), allowed)
    start = f"unknown key {str(name)!r}"
    return f"{start}{place}{text.removeprefix(start)}"
