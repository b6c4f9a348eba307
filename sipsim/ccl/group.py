"""A group of ranks as algorithms see it: its SIPs, and how they are joined. Pure."""

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise

from sipsim.ccl.schedule.steps import End, Wiring, mutual
from sipsim.system.joined import JoinedSips
from sipsim.topology.base import TOPOLOGIES, Shape

OPPOSITE_PORT = {"E": "W", "W": "E", "N": "S", "S": "N"}
NEXT, PREVIOUS = "next", "prev"


def direction_of(port: str) -> str:
    """The direction that leaves a SIP by a port (ADR-0032 D3)."""
    return f"global_{port}"


def towards(rank: int) -> str:
    """The direction to a rank of the group, by the route of fewest links."""
    return f"to{rank}"


class Group:
    """``sips``: the SIP of each rank of the group, in order; ``system``: all SIPs and their links."""

    def __init__(self, sips: tuple[int, ...], system: JoinedSips) -> None:
        self.sips = sips
        self.system = system

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.sips)

    def rank_of(self, sip: int) -> int | None:
        """The group rank of a SIP; None for one outside."""
        return self.sips.index(sip) if sip in self.sips else None

    @cached_property
    def grid(self) -> Shape:
        """(width, height) of the rectangle of SIPs whose ranks run along its rows; (size, 1) if it is none."""
        width, _ = self.system.shape
        if TOPOLOGIES.get(self.system.topology).dimensions == 1:
            return self.size, 1
        columns = sorted({sip % width for sip in self.sips})
        rows = sorted({sip // width for sip in self.sips})
        if list(self.sips) != [row * width + column for row in rows for column in columns]:
            return self.size, 1
        return len(columns), len(rows)

    def line(self, ranks: list[int], port: str) -> list[tuple[End, End]] | None:
        """The ends that join each of these ranks to the next one by the link of a port; None if one is missing."""
        ends = []
        for a, b in pairwise(ranks):
            far = self.system.far_ends.get((self.sips[a], port))
            if far is None or far.sip != self.sips[b]:
                return None
            ends.append(((a, direction_of(port)), (b, direction_of(far.port))))
        return ends

    def ring(self, ranks: list[int], port: str) -> list[tuple[End, End]] | None:
        """The same with the last rank joined to the first; None for one rank, too."""
        return self.line([*ranks, ranks[0]], port) if len(ranks) > 1 else None

    @cached_property
    def ring_order(self) -> list[int]:
        """All ranks, each beside the next where the grid allows it: rows there and back, and home along a column."""
        width, height = self.grid
        if height == 1 or width == 1:
            return list(range(self.size))
        if height % 2 == 0:
            return _there_and_back(width, height, lambda x, y: y * width + x)
        if width % 2 == 0:
            return _there_and_back(height, width, lambda x, y: x * width + y)
        return list(_snake(width, height))

    @cached_property
    def ring_wiring(self) -> Wiring:
        """All ranks in a ring, in ``ring_order``: by the ports E and W if each link is there, else by the shortest way.

        Directions are ``global_E`` and ``global_W``, or ``next`` and ``prev``.
        """
        order = self.ring_order
        if self.size == 1:
            return {}
        for port in ("E", "S"):
            if (ends := self.ring(order, port)) is not None:
                return mutual(dict(ends))
        following = [*order[1:], order[0]]
        return mutual({(a, NEXT): (b, PREVIOUS) for a, b in zip(order, following, strict=True)})

    @cached_property
    def ring_directions(self) -> tuple[str, str]:
        """The directions to the next and to the previous rank of ``ring_wiring``."""
        names = {direction for _, direction in self.ring_wiring}
        pairs = ((direction_of("E"), direction_of("W")), (direction_of("S"), direction_of("N")))
        return next((pair for pair in pairs if set(pair) == names), (NEXT, PREVIOUS))


def pairwise_wiring(pairs: set[tuple[int, int]]) -> Wiring:
    """A queue pair between the ranks of each pair, in directions :func:`towards` each other."""
    return mutual({(a, towards(b)): (b, towards(a)) for a, b in sorted(pairs)})


def _there_and_back(width: int, height: int, place: Callable[[int, int], int]) -> list[int]:
    """A closed tour of a grid with an even height: along rows without their first place, then home along the first."""
    tour = [(0, 0)]
    for y in range(height):
        xs = range(1, width)
        tour += [(x, y) for x in (xs if y % 2 == 0 else reversed(xs))]
    tour += [(0, y) for y in range(height - 1, 0, -1)]
    return [place(x, y) for x, y in tour]


def _snake(width: int, height: int) -> Iterator[int]:
    for y in range(height):
        xs = range(width)
        yield from (y * width + x for x in (xs if y % 2 == 0 else reversed(xs)))
