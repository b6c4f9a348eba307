"""Graphs of a SIP: nodes with a fixed delay, edges with a delay and a bandwidth, routes, and grids of places.

A graph describes structure and costs. The chip defines the nodes; the fabric decides when an edge is used. A grid
consists of cubes in a SIP or of routers in a cube; its places are numbered row by row from the north-west.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sipsim.core.errors import InvariantViolation
from sipsim.core.units import drain_ps

Done = Callable[[int, int], None]
"""Callback with the times, in ps, at which the head and the tail of a transfer are at the end of its route."""
FAR = "far"
"""Kind of the node at the far end of a link between SIPs."""


class Node(NamedTuple):
    """Node of a graph. ``cube``: the cube's number, -1 for the SIP's IO ports. ``place``: a number, such as the PE's or
    router's, or a port's letter.
    """

    kind: str
    cube: int
    place: int | str

    def __str__(self) -> str:
        if self.cube < 0:
            return f"{self.kind}.{self.place}"
        return f"cube{self.cube}.{self.kind}{self.place}"


class Framing(Protocol):
    """Framing that an edge adds to a payload, such as the frames of a link, or flits between dies of one SIP."""

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire for a payload of ``payload_bytes`` (at least 1)."""

    def first_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire of a payload's first packet: all bytes, if the payload is one packet."""
        return self.wire_bytes(payload_bytes)

    def stored_ps(self, payload_bytes: int) -> int:
        """Return the time, in ps, for which the node after the edge stores bytes before it forwards a head."""
        return 0


@dataclass(frozen=True)
class FixedBytes(Framing):
    """Framing of a memory's edge, which every transfer uses for ``nbytes`` bytes, whatever the transfer's size."""

    nbytes: int

    def wire_bytes(self, payload_bytes: int) -> int:
        return self.nbytes


class Edge(NamedTuple):
    """Directed wire; or, if ``memory`` is set, the port or bank of that name in the memory at node ``src``, which is
    then also ``dst``. ``overhead_ps``: the delay of a head at node ``dst``. ``framing``: the framing of payloads on the
    edge, if any; links between SIPs have one.
    """

    src: Node
    dst: Node
    wire_ps: int
    overhead_ps: int
    bandwidth_bps: int
    framing: Framing | None = None
    memory: str = ""

    @property
    def name(self) -> str:
        return f"{self.src} {self.memory}" if self.memory else f"{self.src}>{self.dst}"

    @property
    def shared(self) -> "Edge":
        """The edge by which its use by all transfers is looked up: a memory's edge without the size of one transfer."""
        return self._replace(framing=None) if type(self.framing) is FixedBytes else self

    @property
    def is_link(self) -> bool:
        """Whether the edge leads to another SIP."""
        return self.dst.kind == FAR

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on this wire for a payload, framing included.

        Raises:
            InvariantViolation: if the framing makes the payload shorter.
        """
        if self.framing is None:
            return payload_bytes
        wire_bytes = self.framing.wire_bytes(payload_bytes)
        if wire_bytes < payload_bytes and not self.memory:
            what = f"{type(self.framing).__name__}.wire_bytes({payload_bytes}) is {wire_bytes}"
            raise InvariantViolation(f"{what}; must be at least the payload's {payload_bytes} bytes")
        return wire_bytes

    def drain_ps(self, payload_bytes: int) -> int:
        """Return the time that this wire needs for a payload."""
        return drain_ps(self.wire_bytes(payload_bytes), self.bandwidth_bps)

    def first_ps(self, payload_bytes: int) -> int:
        """Return the time, in ps, after which the first packet of a payload has left over this wire, and the node after
        the wire has stored enough to forward the head. Return 0 if only the whole payload does both.
        """
        if self.framing is None:
            return 0
        first_ps = drain_ps(self.framing.first_bytes(payload_bytes), self.bandwidth_bps)
        first_ps = max(first_ps, self.framing.stored_ps(payload_bytes))
        return first_ps if first_ps < self.drain_ps(payload_bytes) else 0


class Bottleneck(NamedTuple):
    """Time between head and tail of an uncontended transfer, and the edges that cause it.

    ``hops``: the numbers of the edges that equally bound the time; the first of these needs ``drain_ps`` for the bytes.
    ``stored``: numbers of earlier links after which a node stores the head, with the delays in ps.
    """

    hops: tuple[int, ...]
    drain_ps: int
    stored: tuple[tuple[int, int], ...]

    @property
    def ps(self) -> int:
        """The time between head and tail."""
        return self.drain_ps + sum(ps for _, ps in self.stored)


def bottleneck(edges: Sequence[Edge], payload_bytes: int, source_ps: int = 0, end_ps: int = 0) -> Bottleneck:
    """Return the bottleneck of a chain of edges: the slowest edge, if no node stores bytes.

    A head continues when the node after a link has stored a frame, or the whole transfer if that is shorter. If nodes
    before edge ``k`` delay the head by ``s(k)`` in sum, the tail is ``max over k of (s(k) + drain(k))`` behind it.
    ``source_ps``, ``end_ps``: the time that a memory before the first edge (hop -1), and a memory after the last edge
    (hop ``len(edges)``), needs for the bytes.
    """
    stored: tuple[tuple[int, int], ...] = ()
    stored_before = stored
    hops, most_ps, stored_ps = [-1 if source_ps else 0], source_ps, 0
    for hop, edge in enumerate(edges):
        behind_ps = stored_ps + edge.drain_ps(payload_bytes)
        if behind_ps > most_ps:
            hops, most_ps, stored_before = [hop], behind_ps, stored
        elif behind_ps == most_ps:
            hops.append(hop)
        held_ps = 0 if edge.framing is None else min(edge.framing.stored_ps(payload_bytes), most_ps - stored_ps)
        if held_ps:
            stored = (*stored, (hop, held_ps))
            stored_ps += held_ps
    if stored_ps + end_ps > most_ps:
        hops, most_ps, stored_before = [len(edges)], stored_ps + end_ps, stored
    return Bottleneck(tuple(hops), most_ps - sum(ps for _, ps in stored_before), stored_before)


class Route(NamedTuple):
    """Chain of edges from node ``start``. ``start_ps``: the delay of the head in that node."""

    start: Node
    start_ps: int
    edges: tuple[Edge, ...]

    def head_ps(self) -> int:
        """Return the latency of the head, in ps: the delays of all wires and nodes, without the drain."""
        return self.start_ps + sum([e.wire_ps + e.overhead_ps for e in self.edges])

    def drain_ps(self, payload_bytes: int) -> int:
        """Return the drain over the slowest edge, in ps."""
        return max((e.drain_ps(payload_bytes) for e in self.edges), default=0)

    def latency_ps(self, payload_bytes: int) -> int:
        """Return the time of an uncontended transfer: head latency and drain, without the memory's write latency."""
        return self.head_ps() + bottleneck(self.edges, payload_bytes).ps

    def then(self, onward: "Route") -> "Route":
        """Return this route followed by a route that starts at the far end of this route's link."""
        join = self.edges[-1]._replace(overhead_ps=self.edges[-1].overhead_ps + onward.start_ps)
        return Route(self.start, self.start_ps, (*self.edges[:-1], join, *onward.edges))


def port_node(port: str) -> Node:
    """Return the node of a SIP's IO port, where a link begins and ends."""
    return Node("io", -1, port)


def link_edge(port: str, latency_ps: int, bandwidth_bps: int, framing: Framing) -> Edge:
    """Return the edge of the link at an IO port. Its overhead is 0: the far SIP counts the far port's overhead."""
    return Edge(port_node(port), Node(FAR, -1, port), latency_ps, 0, bandwidth_bps, framing)


class RouteGraph(Protocol):
    """Graph of one SIP. All SIPs of a system share one graph."""

    def route(self, src: Node, dst: Node) -> Route:
        """Return the route from ``src`` to ``dst``: the same object at every call."""


PORTS = ("E", "W", "N", "S")
"""Sides of a grid: east, west, north, south; and the ports at these sides."""
_STEP = {"E": (1, 0), "W": (-1, 0), "N": (0, -1), "S": (0, 1)}
FACING = {"E": "W", "W": "E", "N": "S", "S": "N"}


def middle(port: str, w: int, h: int) -> int:
    """Return the middle place of a side of a ``w`` x ``h`` grid."""
    x, y = {"E": (w - 1, h // 2), "W": (0, h // 2), "N": (w // 2, 0), "S": (w // 2, h - 1)}[port]
    return y * w + x


def steps(first: int, last: int, width: int) -> list[str]:
    """Return the moves (``E``, ``W``, ``N``, ``S``) from one place of a grid to another, X before Y."""
    dx, dy = last % width - first % width, last // width - first // width
    return ["E" if dx > 0 else "W"] * abs(dx) + ["S" if dy > 0 else "N"] * abs(dy)


def neighbour(place: int, port: str, width: int) -> int:
    """Return the place next to ``place``, on the side ``port``."""
    dx, dy = _STEP[port]
    return place + dy * width + dx
