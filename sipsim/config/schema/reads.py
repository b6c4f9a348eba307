"""Which of the keys that a user has changed are read by what runs: a key that nothing reads has no effect.

A section with changed keys is replaced by one of a class that notes reads of just these; all else is as fast as it was.
What only checks, describes or hashes a config does not count. A part needs nothing for this, as long as it reads a key
where it takes effect: when the part is made, at its first use, or later.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

from msgspec.structs import asdict

from sipsim.config.schema.section import Section

Path = tuple[str, ...]
Noted = tuple[tuple[str, tuple[Path, ...]], ...]
AnySection = TypeVar("AnySection", bound=Section)
_NOTED, _READS = "noted_reads", "reads_of_run"


class Change(NamedTuple):
    """A value that a user has changed: from ``default``, by the file or flag ``origin``."""

    path: Path
    value: Any
    default: Any
    origin: str


class Reads:
    """Which values at ``paths`` were ``seen`` so far, while ``is_counting``. ``changes``: what they are.

    ``for_readers``: those that say something to people, and have no effect on any run.
    """

    def __init__(self, paths: Sequence[Path] = (), changes: Sequence[Change] = ()) -> None:
        self.paths = tuple(paths)
        self.changes = tuple(changes)
        self.seen: set[Path] = set()
        self.for_readers: set[Path] = set()
        self.is_counting = False
        self._classes: dict[tuple[type[Section], Noted], type[Section]] = {}

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Reads in here do not count."""
        before, self.is_counting = self.is_counting, False
        try:
            yield
        finally:
            self.is_counting = before

    def watched(self, section: AnySection, where: Path = ()) -> AnySection:
        """The section that stands at ``where``, in which reads are noted."""
        ways = [(*where, key) for key in section.__struct_fields__]
        inside = [path for path in self.paths if path[: len(where) + 1] in ways]
        made: AnySection = self._watched(section, inside, len(where))
        return made

    def _watched(self, value: Any, paths: list[Path], depth: int) -> Any:
        by_key: dict[str, list[Path]] = {}
        values, noted = asdict(value) if isinstance(value, Section) else dict(value), {}
        for path in paths:
            if path[depth] in values:
                by_key.setdefault(path[depth], []).append(path)
        for key, some in by_key.items():
            if isinstance(value, Section) and key in value.for_readers:
                self.for_readers.update(some)
            elif _holds_sections(values[key]) and all(len(path) > depth + 1 for path in some):
                values[key] = self._watched(values[key], some, depth + 1)
            else:
                noted[key] = tuple(some)
        return self.noting(type(value), noted)(**values) if isinstance(value, Section) else values

    def noting(self, kind: type[AnySection], noted: Mapping[str, tuple[Path, ...]]) -> type[AnySection]:
        """The class of sections that note reads of these keys, always the same; encoders read none.

        ``noted``: by key the paths of changed values there, of which a value with keys may have several.
        """
        if not noted:
            return kind
        known = kind, tuple(noted.items())
        if known not in self._classes:
            own = {_NOTED: noted, _READS: self, **{key: self._note(kind, key, noted[key]) for key in noted}}
            self._classes[known] = subclass(kind, own)
        return cast("type[AnySection]", self._classes[known])

    def _note(self, kind: type[Section], key: str, paths: tuple[Path, ...]) -> property:
        field = getattr(kind, key)

        def read(section: Section) -> Any:
            if self.is_counting:
                self.seen.update(paths)
            return field.__get__(section)

        return property(read)


def merged(kind: type[AnySection], owners: Mapping[str, Section]) -> AnySection:
    """A section whose values are those of others, by key. They are read when they are read of it, not here."""
    values_of = {id(owner): asdict(owner) for owner in owners.values()}
    values = {key: values_of[id(owner)][key] for key, owner in owners.items()}
    noting = {key: owner for key, owner in owners.items() if key in getattr(owner, _NOTED, ())}
    if not noting:
        return kind(**values)
    reads: Reads = getattr(next(iter(noting.values())), _READS)
    return reads.noting(kind, {key: getattr(owner, _NOTED)[key] for key, owner in noting.items()})(**values)


def _holds_sections(value: Any) -> bool:
    return isinstance(value, Section) or (isinstance(value, dict) and any(map(_holds_sections, value.values())))


def subclass(kind: type[AnySection], own: Mapping[str, Any]) -> type[AnySection]:
    """A class of the same fields and the same name, with attributes of its own."""
    meta: Any = type(kind)
    made: type[AnySection] = meta(kind.__name__, (kind,), {"__module__": kind.__module__, **own})
    return made
