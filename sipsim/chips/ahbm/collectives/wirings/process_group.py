"""A process group of one rank: its SIPs, its window for rings, and the wirings that its calls have made. Pure.

All ranks of a group make the same calls in the same order, so all give a wiring the same generation and room.
"""

from typing import NamedTuple

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.launch.workers import Place
from sipsim.chips.ahbm.collectives.wirings.install import RingSize, ring_size
from sipsim.chips.ahbm.collectives.wirings.windows import Room
from sipsim.collectives.call.calls import group_name
from sipsim.collectives.group.group import Group
from sipsim.collectives.schedule.steps import Wiring
from sipsim.config.schema.model import IpcqKnobs

FIRST_PAIR = 2**14
"""Within a group generations below are those of its wirings, the others those of its pairs of ranks."""
PER_GROUP = 2 * FIRST_PAIR
MOST_GROUPS = 2**16
"""In a run."""
PER_TURN = MOST_GROUPS * PER_GROUP
"""A group with more wirings goes on in another range of as many generations for all groups, and so on, up to 2**63."""


def wiring_generation(group: int, number: int) -> int:
    """The generation of wiring ``number``, from 1, of a group by its number."""
    turn, place = divmod(number, FIRST_PAIR)
    return turn * PER_TURN + group * PER_GROUP + place


def pair_generation(group: int, number: int, row: int = 0) -> int:
    """The generation of pair ``number``, from 0, of a group by its number; in its row ``row`` it is another one."""
    return row * PER_TURN + group * PER_GROUP + FIRST_PAIR + number


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
    it, all if empty. ``rows``: how many rows have started since it was made.
    """

    def __init__(
        self, number: int, group: Group, window: dict[int, int], window_bytes: int, pes: tuple[int, ...] = ()
    ) -> None:
        self.number = number
        self.group = group
        self.window = window
        self.calls = self.rows = 0
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
        generation = wiring_generation(self.number, self._made)
        self._wired[name] = Wired(generation, name, wiring, size, offset, {})
        return Replaced(self._wired[name], gone)

    def close(self) -> list[Wired]:
        """All its wirings, which must be closed; it has none afterwards."""
        gone = [*self._wired.values()]
        self._wired.clear()
        self._room = Room(self.window_bytes)
        return gone
