"""What every graph of a SIP is made of: nodes with a fixed cost, edges with a delay and a bandwidth, routes.

Structure and costs; the fabric decides when an edge is used. Which nodes there are is a chip's own matter, such as
:mod:`sipsim.noc.cube_mesh`.
"""

from typing import NamedTuple, Protocol

from sipsim.topology.address import PhysAddr
from sipsim.units import drain_ps


class Node(NamedTuple):
    """``place`` is the PE or router number, or the port letter; ``cube`` is -1 for the SIP's own IO ports."""

    kind: str
    cube: int
    place: int | str

    def __str__(self) -> str:
        if self.cube < 0:
            return f"{self.kind}.{self.place}"
        return f"cube{self.cube}.{self.kind}{self.place}"


class Framing(Protocol):
    """What a link between SIPs adds to the bytes that it carries."""

    def wire_bytes(self, payload_bytes: int) -> int:
        """Bytes on the wire for a payload of ``payload_bytes`` (at least 1)."""


class Edge(NamedTuple):
    """A directed wire. ``overhead_ps``: what its end node adds to a head. ``framing``: set on a link between SIPs."""

    src: Node
    dst: Node
    wire_ps: int
    overhead_ps: int
    bandwidth_bps: int
    framing: Framing | None = None

    @property
    def name(self) -> str:
        return f"{self.src}>{self.dst}"

    def wire_bytes(self, payload_bytes: int) -> int:
        """Bytes on this wire for a payload, framing included."""
        return payload_bytes if self.framing is None else self.framing.wire_bytes(payload_bytes)

    def drain_ps(self, payload_bytes: int) -> int:
        """Time this wire needs for a payload."""
        return drain_ps(self.wire_bytes(payload_bytes), self.bandwidth_bps)


class Route(NamedTuple):
    """A chain of edges. ``start_ps`` is the overhead of the node that the head starts from."""

    start: Node
    start_ps: int
    edges: tuple[Edge, ...]

    def head_ps(self) -> int:
        """Latency of the head: every wire and every node, without the drain."""
        return self.start_ps + sum(e.wire_ps + e.overhead_ps for e in self.edges)

    def drain_ps(self, payload_bytes: int) -> int:
        """The drain over the bottleneck, paid once."""
        return max((e.drain_ps(payload_bytes) for e in self.edges), default=0)

    def latency_ps(self, payload_bytes: int) -> int:
        """The timing contract of DESIGN section 5: an uncontended transfer without the memory's write latency."""
        return self.head_ps() + self.drain_ps(payload_bytes)

    def then(self, onward: "Route") -> "Route":
        """This route followed by one that starts at the far end of this route's link."""
        join = self.edges[-1]._replace(overhead_ps=self.edges[-1].overhead_ps + onward.start_ps)
        return Route(self.start, self.start_ps, (*self.edges[:-1], join, *onward.edges))


def port_node(port: str) -> Node:
    """The node of a SIP's IO port, where a link begins and ends."""
    return Node("io", -1, port)


def link_edge(port: str, latency_ps: int, bandwidth_bps: int, framing: Framing) -> Edge:
    """The link out of an IO port; the far port's overhead is the far SIP's to add."""
    return Edge(port_node(port), Node("far", -1, port), latency_ps, 0, bandwidth_bps, framing)


class RouteGraph(Protocol):
    """The nodes of one SIP. All SIPs of a system share one graph."""

    def route(self, src: Node, dst: Node) -> Route:
        """The route between two nodes; the same object at every call."""


class Graph(RouteGraph, Protocol):
    """A graph with memories."""

    def node_of(self, address: PhysAddr) -> Node:
        """The end node of a transfer to ``address``."""
