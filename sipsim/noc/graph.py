"""The SIP as a graph: nodes with a fixed cost, edges with a distance and a bandwidth, dimension-ordered routes.

Structure and costs; the fabric decides when an edge is used. Edges and routes are made on first use, so that idle
cubes cost nothing. All SIPs of a system share one graph.
"""

from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from sipsim.config.model import Resolved
from sipsim.links.base import LinkKind
from sipsim.topology.address import PhysAddr
from sipsim.units import drain_ps, gbytes_per_s_to_bps, ns_to_ps

PORTS = ("E", "W", "N", "S")
_STEP = {"E": (1, 0), "W": (-1, 0), "N": (0, -1), "S": (0, 1)}
_FACING = {"E": "W", "W": "E", "N": "S", "S": "N"}


class Node(NamedTuple):
    """``place`` is the PE or router number, or the port letter; ``cube`` is -1 for the SIP's own IO ports."""

    kind: str
    cube: int
    place: int | str

    def __str__(self) -> str:
        return f"io.{self.place}" if self.kind == "io" else f"cube{self.cube}.{self.kind}{self.place}"


class Edge(NamedTuple):
    """A directed wire. ``overhead_ps``: what its end node adds to a head. ``link``: set on a link between SIPs."""

    src: Node
    dst: Node
    wire_ps: int
    overhead_ps: int
    bandwidth_bps: int
    link: LinkKind | None = None

    @property
    def name(self) -> str:
        return f"{self.src}>{self.dst}"

    def wire_bytes(self, payload_bytes: int) -> int:
        """Bytes on this wire for a payload, framing included."""
        return self.link.wire_bytes(payload_bytes) if self.link else payload_bytes

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


class SipGraph:
    """Nodes, edges and routes inside one SIP. Routes go X first, then Y, in the cube mesh and in each cube."""

    def __init__(self, resolved: Resolved) -> None:
        self._sip = resolved.topology.sip
        self._cube = resolved.topology.cube
        self._parts = resolved.components
        self._edges: dict[tuple[Node, Node], Edge] = {}
        self._routes: dict[tuple[Node, Node, int], Route] = {}

    @cached_property
    def n_cubes(self) -> int:
        """Cubes of a SIP."""
        return self._sip.cube_mesh.w * self._sip.cube_mesh.h

    def node_of(self, address: PhysAddr) -> Node:
        """The end node of a transfer to ``address``."""
        return self.memory_node(address.cube, address.pe, address.space)

    def memory_node(self, cube: int, pe: int, space: str) -> Node:
        """The node of a PE's TCM (the PE itself), of its slice of HBM, or of its cube's SRAM."""
        if space == "tcm":
            return Node("pe", cube, pe)
        return Node(space, cube, pe if space == "hbm" else 0)

    def port_cube(self, port: str) -> int:
        """The cube that an IO port sits on: as configured, or the middle of that side."""
        configured: int | None = getattr(self._sip.ports, port)
        if configured is not None:
            return configured
        w, h = self._sip.cube_mesh.w, self._sip.cube_mesh.h
        x, y = {"E": (w - 1, h // 2), "W": (0, h // 2), "N": (w // 2, 0), "S": (w // 2, h - 1)}[port]
        return y * w + x

    def route(self, src: Node, dst: Node) -> Route:
        """The route between two nodes of this SIP; none of them a router or a UCIe port."""
        key = (src, dst, 0)
        if key not in self._routes:
            nodes = self._nodes_between(src, dst)
            edges = tuple(self.edge(a, b) for a, b in pairwise(nodes))
            self._routes[key] = Route(src, self.overhead_ps(src), edges)
        return self._routes[key]

    def edge(self, src: Node, dst: Node) -> Edge:
        """The directed edge between two adjacent nodes."""
        key = (src, dst)
        if key not in self._edges:
            wire_ps = ns_to_ps(round(self._distance_mm(src, dst) * self._parts.wire.ns_per_mm, 9))
            bandwidth = min(self._bandwidth_bps(src), self._bandwidth_bps(dst))
            self._edges[key] = Edge(src, dst, wire_ps, self.overhead_ps(dst), bandwidth)
        return self._edges[key]

    def link_edge(self, port: str, link: LinkKind) -> Edge:
        """The link out of an IO port; the far port's overhead is the far SIP's to add."""
        return Edge(Node("io", -1, port), Node("far", -1, port), link.latency_ps, 0, link.bandwidth_bps, link)

    def overhead_ps(self, node: Node) -> int:
        """Time that a node adds to every head that starts at it or passes it."""
        return ns_to_ps(self._cost(node).overhead_ns)

    def _bandwidth_bps(self, node: Node) -> int:
        return gbytes_per_s_to_bps(self._cost(node).bandwidth_GBps)

    def _cost(self, node: Node):  # type: ignore[no-untyped-def]
        parts = self._parts
        by_kind = {
            "pe": parts.pe_dma,
            "router": parts.router,
            "ucie": parts.ucie_port,
            "io": parts.io_port,
            "hbm": parts.hbm,
            "sram": parts.sram,
        }
        return by_kind[node.kind]

    def _distance_mm(self, src: Node, dst: Node) -> float:
        noc, kinds = self._cube.noc, {src.kind, dst.kind}
        if kinds == {"router"}:
            return noc.router_pitch_mm
        if kinds == {"ucie"}:
            return self._sip.cube_gap_mm
        if "io" in kinds:
            return self._sip.port_distance_mm
        other = (kinds - {"router"}).pop()
        by_kind = {
            "pe": noc.pe_distance_mm,
            "hbm": noc.hbm_distance_mm,
            "sram": noc.sram_distance_mm,
            "ucie": noc.ucie_distance_mm,
        }
        return by_kind[other]

    def _attachment(self, node: Node) -> tuple[int, int]:
        """(cube, router) that a node is attached to."""
        if node.kind == "io":
            cube = self.port_cube(str(node.place))
            return cube, self._side_router(str(node.place))
        if node.kind in ("pe", "hbm"):
            return node.cube, int(node.place)
        return node.cube, 0

    def _side_router(self, port: str) -> int:
        w, h = self._cube.noc.routers.w, self._cube.noc.routers.h
        x, y = {"E": (w - 1, h // 2), "W": (0, h // 2), "N": (w // 2, 0), "S": (w // 2, h - 1)}[port]
        return y * w + x

    def _nodes_between(self, src: Node, dst: Node) -> list[Node]:
        if src == dst:
            return [src]
        cube, router = self._attachment(src)
        last_cube, last_router = self._attachment(dst)
        nodes = [src]
        for port in _steps(cube, last_cube, self._sip.cube_mesh.w):
            nodes += self._routers_between(cube, router, self._side_router(port))
            dx, dy = _STEP[port]
            neighbour = cube + dy * self._sip.cube_mesh.w + dx
            nodes += [Node("ucie", cube, port), Node("ucie", neighbour, _FACING[port])]
            cube, router = neighbour, self._side_router(_FACING[port])
        return [*nodes, *self._routers_between(cube, router, last_router), dst]

    def _routers_between(self, cube: int, first: int, last: int) -> list[Node]:
        width = self._cube.noc.routers.w
        routers = [first]
        for port in _steps(first, last, width):
            dx, dy = _STEP[port]
            routers.append(routers[-1] + dy * width + dx)
        return [Node("router", cube, r) for r in routers]


def _steps(first: int, last: int, width: int) -> list[str]:
    """Moves from one place of a grid to another, X before Y."""
    dx, dy = last % width - first % width, last // width - first // width
    return ["E" if dx > 0 else "W"] * abs(dx) + ["S" if dy > 0 else "N"] * abs(dy)
