"""A SIP as a mesh of cubes: its parts, the edges between them, dimension-ordered routes.

Edges and routes are made on first use, so that idle cubes cost nothing. Where a part sits and what its edges cost is
its own definition (:mod:`sipsim.fabric.noc.parts`). All SIPs of a system share one graph.
"""

from functools import cached_property
from itertools import pairwise
from typing import Protocol

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.mesh.base import PARTS, MemoryPart, Part, Site, part_kinds
from sipsim.config.schema.model import Resolved
from sipsim.core.errors import ConfigError
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph.graph import Edge, Node, Route, RouteGraph
from sipsim.fabric.graph.grid import FACING, neighbour, steps


class Graph(RouteGraph, Protocol):
    """A graph with memories."""

    def node_of(self, address: PhysAddr) -> Node:
        """The end node of a transfer to ``address``."""


class CubeMeshGraph:
    """Nodes, edges and routes inside one SIP. Routes go X first, then Y, in the cube mesh and in each cube.

    ``memories``: the part that serves each memory space.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._cubes = resolved.topology.sip.cube_mesh
        self._routers = resolved.topology.cube.noc.routers
        self._ns_per_mm = resolved.components.wire.ns_per_mm
        self._parts = {kind: PARTS.get(kind)(resolved, kind) for kind in part_kinds(resolved)}
        self._serving = _by_space(self._parts)
        self.memories = {space: part for space, (_, part) in self._serving.items()}
        self._edges: dict[tuple[Node, Node], Edge] = {}
        self._routes: dict[tuple[Node, Node], Route] = {}

    @cached_property
    def n_cubes(self) -> int:
        """Cubes of a SIP."""
        return self._cubes.w * self._cubes.h

    def node_of(self, address: PhysAddr) -> Node:
        """The end node of a transfer to ``address``."""
        return self.memory_node(address.cube, address.pe, address.space)

    def memory_node(self, cube: int, pe: int, space: str) -> Node:
        """The node that serves a PE's part of a memory space: for its TCM the PE itself."""
        kind, part = self._serving[space]
        return Node(kind, cube, part.place_of(pe))

    def port_cube(self, port: str) -> int:
        """The cube that an IO port sits on."""
        return self._parts["io"].site(Node("io", -1, port)).cube

    def route(self, src: Node, dst: Node) -> Route:
        """The route between two nodes of this SIP; none of them a router or a UCIe port."""
        key = (src, dst)
        if key not in self._routes:
            nodes = self._nodes_between(src, dst)
            edges = tuple(self.edge(a, b) for a, b in pairwise(nodes))
            self._routes[key] = Route(src, self.overhead_ps(src), edges)
        return self._routes[key]

    def edge(self, src: Node, dst: Node) -> Edge:
        """The directed edge between two adjacent nodes. Its wire is that of the one that is not a router."""
        key = (src, dst)
        if key not in self._edges:
            one, other = (dst, src) if src.kind == "router" else (src, dst)
            part = self._parts[one.kind]
            wire_mm, framing = part.wire_mm(other.kind), part.framing(other.kind)
            wire_ps = ns_to_ps(round(wire_mm * self._ns_per_mm, 9))
            bandwidth_bps = min(self._parts[node.kind].bandwidth_bps for node in key)
            self._edges[key] = Edge(src, dst, wire_ps, self.overhead_ps(dst), bandwidth_bps, framing)
        return self._edges[key]

    def overhead_ps(self, node: Node) -> int:
        """Time that a node adds to every head that starts at it or passes it."""
        return self._parts[node.kind].overhead_ps

    def _nodes_between(self, src: Node, dst: Node) -> list[Node]:
        if src == dst:
            return [src]
        cube, router = self._site(src)
        last_cube, last_router = self._site(dst)
        nodes, ucie = [src], self._parts["ucie"]
        for port in steps(cube, last_cube, self._cubes.w):
            near = Node("ucie", cube, port)
            far = Node("ucie", neighbour(cube, port, self._cubes.w), FACING[port])
            nodes += [*self._routers_between(cube, router, ucie.site(near).router), near, far]
            cube, router = ucie.site(far)
        return [*nodes, *self._routers_between(cube, router, last_router), dst]

    def _site(self, node: Node) -> Site:
        site, routers = self._parts[node.kind].site(node), self._routers.w * self._routers.h
        if not (0 <= site.cube < self.n_cubes and 0 <= site.router < routers):
            what = f"{node} is at router {site.router} of cube {site.cube}, which does not exist"
            raise ConfigError(f"{what}; a SIP has {self.n_cubes} cubes of {routers} routers, from 0")
        return site

    def _routers_between(self, cube: int, first: int, last: int) -> list[Node]:
        routers = [first]
        for port in steps(first, last, self._routers.w):
            routers.append(neighbour(routers[-1], port, self._routers.w))
        return [Node("router", cube, router) for router in routers]


def _by_space(parts: dict[str, Part]) -> dict[str, tuple[str, MemoryPart]]:
    """The part that serves each memory space, and its node kind."""
    serving: dict[str, tuple[str, MemoryPart]] = {}
    for kind, part in parts.items():
        if isinstance(part, MemoryPart):
            other, _ = serving.setdefault(part.space, (kind, part))
            if other != kind:
                raise ValueError(f"{other} and {kind} both serve memory space {part.space!r}")
    return serving
