"""The workers of an operation on one chip: one a link and side, and their lists of packets while these are made."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sipsim.chips.tensix.ccl.tensors.tensor import Piece
from sipsim.chips.tensix.ccl.workers.work import Packet, Until, Words
from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.fabric.packet import OPPOSITE, Route, Way, multicast, unicast
from sipsim.chips.tensix.noc.floor_plan import Core

SIDES = (Way.E, Way.W)
STEP = {Way.E: 1, Way.W: -1}
Cut = Callable[[int], list[Piece]]
"""The pieces of a slice: its number to how it is cut, the same on all chips."""


class Place(NamedTuple):
    """Chip ``position`` of ``size`` in a line or ring. ``is_both``: packets of a ring go both ways, else forward."""

    position: int
    size: int
    is_ring: bool
    is_both: bool = True

    def reach(self, way: Way) -> int:
        """Chips that packets of this direction are for."""
        if not self.is_ring:
            return self.size - 1 - self.position if way is Way.E else self.position
        if not self.is_both:
            return self.size - 1 if way is Way.E else 0
        return self.size // 2

    def is_shared(self, hops: int) -> bool:
        """Whether the chip so far away is as far the other way, so that each carries half of what it gets."""
        return self.is_ring and self.is_both and 2 * hops == self.size

    def at(self, way: Way, hops: int) -> int:
        """The chip so many hops away."""
        return (self.position + STEP[way] * hops) % self.size


class Worker:
    """That of ``link`` on a side. ``counts``: what its semaphores were raised to by the calls before; it is for the
    caller to keep.
    """

    def __init__(self, link: int, side: Way, core: Core, words: Words, counts: dict[int, int]) -> None:
        self.link = link
        self.side = side
        self.core = core
        self.words = words
        self._counts = counts
        self._new: dict[int, int] = {}
        self.hellos: list[tuple[Route, NocAddress]] = []
        self.begin: list[Until] = []
        self.packets: list[Packet] = []
        self.end: list[Until] = []

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing to do."""
        return not (self.hellos or self.packets)

    def address(self, word: int) -> NocAddress:
        """A semaphore of it, on whatever chip."""
        return NocAddress(self.core, word)

    def expect(self, word: int, count: int) -> Until:
        """So many more increments of a semaphore by this call, and the condition that they have come."""
        self._new[word] = self._new.get(word, 0) + count
        return self.until(word, self._new[word])

    def further(self, word: int, count: int) -> Until:
        """The condition that so many more have come than are expected up to now."""
        return self.until(word, self._new.get(word, 0) + count)

    def until(self, word: int, count: int) -> Until:
        """The condition that this call has raised a semaphore so far."""
        return Until(word, (self._counts.get(word, 0) + count) % 2**32)

    def settle(self) -> None:
        """The call's increments count as come."""
        for word, count in self._new.items():
            self._counts[word] = self._counts.get(word, 0) + count


class Crew(NamedTuple):
    """All workers of a call, by link and side. ``packet_bytes``: of the longest payload; ``fabric``: its number."""

    place: Place
    num_links: int
    packet_bytes: int
    fabric: int
    workers: dict[tuple[int, Way], Worker]

    def toward(self, worker: Worker, way: Way) -> Worker:
        """That to which packets of a direction are told when they have come: it is on the side from which they come."""
        return self.workers[worker.link, OPPOSITE[way]] if self.place.is_both else worker

    def share(self, pieces: Sequence[Piece], link: int) -> list[Piece]:
        """The pieces that go over a link."""
        return list(pieces[link :: self.num_links])

    def greet(self) -> None:
        """Each worker tells the chips on its side that it has begun, and waits until they have told it."""
        for worker in self.workers.values():
            reach = self.place.reach(worker.side)
            facing = self.toward(worker, worker.side)
            if reach:
                worker.hellos.append((multicast(1, reach, worker.side), facing.address(worker.words.ready)))
                worker.begin.append(worker.expect(worker.words.ready, reach))


def half(pieces: Sequence[Piece], side: Way) -> list[Piece]:
    """Of what both directions share, the part of one."""
    middle = (len(pieces) + 1) // 2
    return list(pieces[:middle] if side is Way.E else pieces[middle:])


def hop(way: Way) -> Route:
    """To the neighbour."""
    return unicast(1, way)
