"""A group of ranks for algorithms: its SIPs, the links between them, and the routes of messages. No side effects."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import pairwise

from sipsim.collectives.patterns.lines import PORT_PREFIX, Path
from sipsim.collectives.schedule import End, Wiring, mutual
from sipsim.fabric.sips import SipNetwork
from sipsim.topology.links import TOPOLOGIES, Shape

OPPOSITE_PORT = {"E": "W", "W": "E", "N": "S", "S": "N"}
NEXT, PREVIOUS = "next", "prev"


def direction_of(port: str) -> str:
    """Return the name of the direction that leaves a SIP by a port, such as ``global_E`` (ADR-0032 D3)."""
    return f"{PORT_PREFIX}{port}"


def towards(rank: int) -> str:
    """Return the name of the direction to a rank of the group, over a route with the fewest links."""
    return f"to{rank}"


class Group:
    """Process group. ``sips``: the SIP of each rank of the group, in order; ``system``: all SIPs and their links."""

    def __init__(self, sips: tuple[int, ...], system: SipNetwork) -> None:
        self.sips = sips
        self.system = system

    @property
    def size(self) -> int:
        """The number of ranks."""
        return len(self.sips)

    def rank_of(self, sip: int) -> int | None:
        """Return the group rank of a SIP; None if the SIP is not in the group."""
        return self.sips.index(sip) if sip in self.sips else None

    @cached_property
    def distances(self) -> list[list[int]]:
        """Number of links on the route from each rank to each other rank: ``distances[src][dst]``."""
        return [[self.system.hops(a, b) for b in self.sips] for a in self.sips]

    @cached_property
    def grid(self) -> Shape:
        """(width, height) if the SIPs form a rectangle with ranks numbered row by row; otherwise (size, 1)."""
        width, _ = self.system.shape
        if TOPOLOGIES.get(self.system.topology).dimensions == 1:
            return self.size, 1
        columns = sorted({sip % width for sip in self.sips})
        rows = sorted({sip // width for sip in self.sips})
        if list(self.sips) != [row * width + column for row in rows for column in columns]:
            return self.size, 1
        return len(columns), len(rows)

    @cached_property
    def ring_order(self) -> list[int]:
        """All ranks in a snake order over the grid, so that successive ranks are neighbours where possible."""
        width, height = self.grid
        if height == 1 or width == 1:
            return list(range(self.size))
        if height % 2 == 0:
            return _there_and_back(width, height, lambda x, y: y * width + x)
        if width % 2 == 0:
            return _there_and_back(height, width, lambda x, y: x * width + y)
        return list(_snake(width, height))

    @cached_property
    def ring(self) -> Path:
        """All ranks as a ring in ``ring_order``: over links at ports E or S if all of them exist, else over routes."""
        order = self.ring_order
        return next(self._linked([order], ("E", "S"), True), [Path(tuple(order), NEXT, PREVIOUS, True)])[0]

    @cached_property
    def line(self) -> Path:
        """All ranks as a line in ``ring_order``: ``ring`` without a connection from the last rank to the first."""
        order = self.ring_order
        return next(self._linked([order], ("E", "S"), False), [Path(tuple(order), NEXT, PREVIOUS, False)])[0]

    @cached_property
    def is_ring(self) -> bool:
        """True if a link joins each rank of ``ring`` to the next rank, and another link the last rank to the first."""
        order = self.ring_order
        if self.size < 3:
            return self.ring.has_links
        return self._are_neighbours and self._are_joined(order[-1], order[0])

    @cached_property
    def is_line(self) -> bool:
        """True if a link joins each rank of ``line`` to the next rank, and no link joins the last to the first."""
        return self.size > 1 and self._are_neighbours and not self.is_ring

    @property
    def _are_neighbours(self) -> bool:
        return all(self._are_joined(a, b) for a, b in pairwise(self.ring_order))

    @cached_property
    def rows(self) -> list[Path]:
        """The rows of the grid, either all rings or all lines; empty if a row has one rank."""
        width, height = self.grid
        return self._axis([list(range(y * width, (y + 1) * width)) for y in range(height)], "E", "x")

    @cached_property
    def columns(self) -> list[Path]:
        """The columns of the grid, either all rings or all lines; empty if a column has one rank."""
        width, height = self.grid
        return self._axis([list(range(x, width * height, width)) for x in range(width)], "S", "y")

    def _axis(self, lines: list[list[int]], port: str, axis: str) -> list[Path]:
        if len(lines[0]) == 1:
            return []
        by_routes = [Path(tuple(line), f"{NEXT}_{axis}", f"{PREVIOUS}_{axis}", True) for line in lines]
        by_links = (paths for closed in (True, False) for paths in self._linked(lines, (port,), closed))
        return next(by_links, by_routes)

    def _linked(self, lines: list[list[int]], ports: tuple[str, ...], closed: bool) -> Iterator[list[Path]]:
        """Yield the lines as paths for each port whose links join, in every line, each rank to the next rank."""
        for port in ports:
            back = OPPOSITE_PORT[port]
            pairs = [pair for line in lines for pair in pairwise([*line, line[0]] if closed else line)]
            if self.size > 1 and all(self._leads(a, port, b, back) for a, b in pairs):
                yield [Path(tuple(line), direction_of(port), direction_of(back), closed) for line in lines]

    def _leads(self, a: int, port: str, b: int, far_port: str) -> bool:
        far = self.system.far_ends.get((self.sips[a], port))
        return far is not None and (far.sip, far.port) == (self.sips[b], far_port)

    def _are_joined(self, a: int, b: int) -> bool:
        ends = (self.system.far_ends.get((self.sips[a], port)) for port in OPPOSITE_PORT)
        return any(far is not None and far.sip == self.sips[b] for far in ends)


def wiring_of(paths: Iterable[Path]) -> Wiring:
    """Return a wiring with a queue pair between successive ranks of each path, closed paths included."""
    pairs: dict[End, End] = {}
    for path in paths:
        around = (*path.ranks, path.ranks[0]) if path.closed else path.ranks
        if len(path.ranks) > 1:
            pairs.update(((a, path.ahead), (b, path.back)) for a, b in pairwise(around))
    return mutual(pairs)


def pairwise_wiring(pairs: set[tuple[int, int]]) -> Wiring:
    """Return a wiring with a queue pair between the ranks of each pair, in directions :func:`towards` each other."""
    return mutual({(a, towards(b)): (b, towards(a)) for a, b in sorted(pairs)})


def _there_and_back(width: int, height: int, rank_at: Callable[[int, int], int]) -> list[int]:
    """Return a closed tour of a grid of even height: each row without column 0, then back along column 0."""
    tour = [(0, 0)]
    for y in range(height):
        xs = range(1, width)
        tour += [(x, y) for x in (xs if y % 2 == 0 else reversed(xs))]
    tour += [(0, y) for y in range(height - 1, 0, -1)]
    return [rank_at(x, y) for x, y in tour]


def _snake(width: int, height: int) -> Iterator[int]:
    for y in range(height):
        xs = range(width)
        yield from (y * width + x for x in (xs if y % 2 == 0 else reversed(xs)))


Port = tuple[int, str]
"""(SIP, port by which a link leaves it)."""


def route(group: Group, src: int, dst: int, direction: str) -> Iterator[Port]:
    """Yield the ports on a message's route between two ranks: first the direction's port, then ports by the routing."""
    sip, goal, system = group.sips[src], group.sips[dst], group.system
    port = system.port_towards(sip, goal, direction)
    while sip != goal:
        yield sip, port
        sip = system.far_ends[sip, port].sip
        if sip != goal:
            port = system.next_port(sip, goal)
