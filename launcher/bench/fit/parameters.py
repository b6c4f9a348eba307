"""What is fitted: the keys of the chips' files whose source says so, and the keys that follow them.

A key's source decides. ``fitted...``: a parameter. ``as KEY``, ``SECTION.KEY: why`` and ``the fabric's``: it follows
that key, which may follow another. ``assumption: as Wormhole`` and ``assumption: Wormhole's at the faster clock``: it
follows the same key of Wormhole, there at its clock. There is no other list of parameters.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from launcher.bench.fit.neutral import neutral
from launcher.bench.machine import LINKS
from sipsim.config.load import default_dir
from sipsim.core.errors import ConfigError

FIRST = "wormhole"
"""The chip that others follow."""
WHOLE_UNITS = ("bytes", "packets")
FACTOR = 4.0
"""A value is at least the neutral one divided by this, and at most that times this."""
Values = Mapping[str, float]
"""By name: ``CHIP:KEY``."""
_COMMENT = re.compile(r"  # \[([^\]]*)\] source: (.*)$")
_AT_ITS_CLOCK, _SAME = "Wormhole's at the faster clock", "as Wormhole"


class Key(NamedTuple):
    """A line of a chip's file that has a value: its path, unit and source; ``text``: the value, "" for a list."""

    chip: str
    path: tuple[str, ...]
    text: str
    unit: str
    source: str

    @property
    def key(self) -> str:
        """As of ``--set``, behind ``system.chip_params.``."""
        return ".".join(self.path)

    @property
    def name(self) -> str:
        """With its chip."""
        return f"{self.chip}:{self.key}"


class Parameter(NamedTuple):
    """``start``: the neutral value; values are searched from ``least``, not below ``floor``, to ``most``."""

    key: Key
    start: float
    floor: float = 0.0

    @property
    def name(self) -> str:
        """``CHIP:KEY``."""
        return self.key.name

    @property
    def least(self) -> float:
        """The lower bound, a value of its own."""
        smallest = 1.0 if self.key.unit in WHOLE_UNITS else 0.1
        return max(self.rounded(self.start / FACTOR), smallest, self.floor)

    @property
    def most(self) -> float:
        """The upper bound."""
        return self.rounded(self.start * FACTOR)

    def rounded(self, value: float) -> float:
        """Whole, of what is counted; else to a tenth."""
        return float(round(value)) if self.key.unit in WHOLE_UNITS else round(value, 1)


class Follower(NamedTuple):
    """A key that has the value of a parameter, times ``factor``, then in whole numbers."""

    key: Key
    leader: str
    factor: float

    def value(self, values: Values) -> float:
        """Its own."""
        return values[self.leader] if self.factor == 1 else float(round(values[self.leader] * self.factor))


class Model(NamedTuple):
    """All that a fit can move."""

    parameters: tuple[Parameter, ...]
    followers: tuple[Follower, ...]

    @property
    def neutral(self) -> dict[str, float]:
        """Where a fit begins."""
        return {each.name: each.start for each in self.parameters}

    @property
    def chosen(self) -> dict[str, float]:
        """What the chips' files have."""
        return {each.name: float(each.key.text) for each in self.parameters}

    def settings(self, values: Values) -> dict[str, tuple[str, ...]]:
        """As of ``--set``, by chip; followers move with their parameter, if it has a value."""
        own = [(each.key, values[each.name]) for each in self.parameters if each.name in values]
        own += [(each.key, each.value(values)) for each in self.followers if each.leader in values]
        found: dict[str, tuple[str, ...]] = {}
        for key, value in own:
            shown = int(value) if float(value).is_integer() else value
            found[key.chip] = (*found.get(key.chip, ()), f"system.chip_params.{key.key}={shown}")
        return found


def project_model(chips: Iterable[str] = LINKS) -> Model:
    """Of the chips' files of the project.

    Raises:
        ConfigError: for a source that follows a key that is not there, or a parameter without a neutral value.
    """
    folder = default_dir() / "chips"
    return model([key for chip in chips for key in read_keys(chip, (folder / f"{chip}.yaml"))])


def read_keys(chip: str, path: Path) -> list[Key]:
    """The keys of a chip's file that have a value and, in the same line, its unit and source."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    return [
        Key(chip, where, value, found[1], found[2])
        for where, value, number in _leaves(yaml.compose(text, Loader=yaml.SafeLoader), ())
        if (found := _COMMENT.search(lines[number]))
    ]


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, int]]:
    for key, value in node.value:
        where = (*path, key.value)
        if isinstance(value, yaml.MappingNode):
            yield from _leaves(value, where)
        elif value.tag != "tag:yaml.org,2002:null":
            yield where, value.value if isinstance(value, yaml.ScalarNode) else "", key.start_mark.line


def model(keys: Iterable[Key]) -> Model:
    """Of the keys of all chips.

    Raises:
        ConfigError: as of :func:`project_model`.
    """
    known = {(key.chip, key.path): key for key in keys}
    parameters = tuple(_parameter(key, known) for key in known.values() if _is_fitted(key))
    followers = (_follower(key, known) for key in known.values() if not _is_fitted(key))
    return Model(parameters, tuple(each for each in followers if each is not None))


Known = Mapping[tuple[str, tuple[str, ...]], Key]


def _is_fitted(key: Key) -> bool:
    return key.source.startswith("fitted")


def _parameter(key: Key, known: Known) -> Parameter:
    try:
        found = neutral(key.key)
    except KeyError:
        raise ConfigError(f"{key.name}: fitted, but without a neutral value in launcher/bench/fit/neutral.py") from None
    bare = Parameter(key, found.value(_clock_MHz(key.chip, known)), found.least)
    return bare._replace(start=bare.rounded(bare.start))


def _clock_MHz(chip: str, known: Known) -> float:
    return float(known[chip, ("clock_MHz",)].text)


def _follower(key: Key, known: Known) -> Follower | None:
    """None for a key that follows none, or one that is not fitted."""
    factor, leader, seen = 1.0, key, {key}
    while not _is_fitted(leader):
        found = _leader(leader, known)
        if found is None:
            return None
        if found in seen:
            raise ConfigError(f"{key.name}: follows itself")
        if _AT_ITS_CLOCK in leader.source:
            factor *= _clock_MHz(FIRST, known) / _clock_MHz(leader.chip, known)
        leader = found
        seen.add(found)
    return Follower(key, leader.name, factor)


def _leader(key: Key, known: Known) -> Key | None:
    """The key that a source names; None if it names none."""
    said = key.source.removeprefix("assumption: ")
    if key.chip != FIRST and said.startswith((_AT_ITS_CLOCK, _SAME)):
        return known.get((FIRST, key.path))
    found = re.match(r"([a-z_]+(?:\.\w+)+):", said)
    if found and any(chip == key.chip and path[0] == found[1].split(".")[0] for chip, path in known):
        named = found[1]
    elif said.startswith("the fabric's"):
        named = f"fabric.costs.{key.path[-1]}"
    elif found := re.match(r"as ([\w.-]*\w)", key.source):
        named = found[1]
    else:
        return None
    for path in _readings(key.path, tuple(named.split("."))):
        if (key.chip, path) in known:
            return known[key.chip, path]
    raise ConfigError(f"{key.name}: its source says {key.source!r}; there is no key {named}")


def _readings(path: tuple[str, ...], named: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The keys that a name may mean, the nearest first: a key, or a section that has the rest of the path, too."""
    for depth in reversed(range(len(path))):
        yield *path[:depth], *named
        yield *path[:depth], *named, *path[depth + 1 :]
