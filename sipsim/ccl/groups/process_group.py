"""A process group of one rank: its SIPs, its window for rings, and the wirings that its calls have made. Pure.

All ranks of a group make the same calls in the same order, so all give a wiring the same generation and room.
"""

from typing import NamedTuple

from sipsim.ccl.algorithm import Algorithm
from sipsim.ccl.group import Group
from sipsim.ccl.groups.install import RingSize, ring_size
from sipsim.ccl.groups.windows import Room
from sipsim.ccl.groups.workers import Place
from sipsim.ccl.schedule.steps import Wiring
from sipsim.config.model import IpcqKnobs
from sipsim.errors import ConfigError
from sipsim.record.calls import group_name

WIRINGS_PER_GROUP = 2**15
"""Generations are numbered through within a group: in the first half its wirings, in the second its pairs of ranks."""
MOST_GROUPS = 2**31 // WIRINGS_PER_GROUP
"""In a run: a message carries the number of its generation in 31 bits."""


class Wired(NamedTuple):
    """An algorithm's queue pairs: rings of a size at an offset of the window, on ``places``, which grow with use."""

    generation: int
    algorithm: str
    wiring: Wiring
    size: RingSize
    offset: int
    places: dict[Place, None]


class Replaced(NamedTuple):
    """A wiring to use, and those whose room it has taken, which must be closed first."""

    wired: Wired
    gone: list[Wired]


class ProcessGroup:
    """Group ``number`` of a run, counted alike on all ranks; 0 is that of all SIPs. ``window``: by SIP, its offset in
    the TCM. ``calls``: how many collectives it has run or begun. ``pes``: those of each cube that may work for
    it, all if empty.
    """

    def __init__(
        self, number: int, group: Group, window: dict[int, int], window_bytes: int, pes: tuple[int, ...] = ()
    ) -> None:
        self.number = number
        self.group = group
        self.window = window
        self.calls = 0
        self.pes = pes
        self.window_bytes = window_bytes
        self._room = Room(window_bytes)
        self._wired: dict[str, Wired] = {}
        self._made = 0

    @property
    def name(self) -> str:
        """For messages."""
        return group_name(self.number, self.group.sips)

    def __repr__(self) -> str:
        return self.name

    def wired(self, algorithm: Algorithm, knobs: IpcqKnobs) -> Replaced:
        """The wiring of an algorithm, made if it has no room in the window any more.

        Raises:
            ConfigError: when its rings do not fit the window.
        """
        name = algorithm.name
        if self._room.use(name):
            return Replaced(self._wired[name], [])
        assert algorithm.wiring is not None
        wiring: Wiring = algorithm.wiring(self.group)
        size = ring_size(wiring, knobs, self.window_bytes)
        offset, names = self._room.take(name, size.nbytes)
        gone = [self._wired.pop(each) for each in names]
        self._made += 1
        if self._made >= WIRINGS_PER_GROUP // 2:
            raise ConfigError(
                f"{self.name} has wired its algorithms {self._made} times, as they do not fit its rings at a time; "
                f"set defaults.group_KiB higher, or give each algorithm a group"
            )
        generation = self.number * WIRINGS_PER_GROUP + self._made
        self._wired[name] = Wired(generation, name, wiring, size, offset, {})
        return Replaced(self._wired[name], gone)

    def close(self) -> list[Wired]:
        """All its wirings, which must be closed; it has none afterwards."""
        gone = [*self._wired.values()]
        self._wired.clear()
        self._room = Room(self.window_bytes)
        return gone
