"""Graph of a SIP as a mesh of cubes: its parts, the edges between them, dimension-ordered routes.

The definition of a part gives its location and the costs of its edges. Edges and routes are created at their first use,
so that idle cubes cost nothing. All SIPs of a system share one graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from sipsim.chips.ahbm.address import MIB, PhysAddr, TcmMap, add_space, tcm_map
from sipsim.config.check import Problem
from sipsim.config.schema import IoCpu, MemoryCost, NoParams, Resolved, Section, TcmCost
from sipsim.config.schema import Node as NodeCost
from sipsim.core.errors import ConfigError
from sipsim.core.registry import Registry
from sipsim.core.units import gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.channels import ChunkFraming
from sipsim.fabric.graph import FACING, Edge, Framing, Node, Route, middle, neighbour, steps
from sipsim.fabric.links.ucie import UcieCrossing

if TYPE_CHECKING:
    from sipsim.chips.ahbm.processes import PartDoor

HOST_NODE, IO_CPU_NODE = Node("host", -1, 0), Node("io_cpu", -1, 0)
"""The host's memory, and IO_CPU, through which all routes to and from the host lead."""


class Site(NamedTuple):
    """Router of a cube to which a node is attached."""

    cube: int
    router: int


Cost = NodeCost | IoCpu
"""Costs of a node: the time that it adds to a head, and the bandwidth of its edges."""


class Memory(NamedTuple):
    """Memory space that the nodes of a part serve.

    ``cost``: access times and memory kind (:mod:`sipsim.chips.ahbm.memory`), at key ``path`` of the config.
    ``is_of_cube``: whether a cube has one memory for all PEs; otherwise each PE has a memory. ``capacity_bytes()``
    returns the bytes of one memory. ``place_of(pe)`` returns the number of the node that serves a PE's addresses.
    ``regions()`` returns the regions of a TCM; ``regions`` is None for other memories.
    """

    space: str
    path: tuple[str, ...]
    cost: MemoryCost | TcmCost
    capacity_bytes: Callable[[], int]
    is_of_cube: bool = False
    place_of: Callable[[int], int] = lambda pe: pe
    regions: Callable[[], TcmMap] | None = None


@dataclass(eq=False)
class Part:
    """All nodes of one kind in a system: their costs, their location, and the memory that they serve.

    ``cost()`` returns the cost of a node. ``wire_mm(to)`` returns the millimetres of wire to an adjacent node of kind
    ``to``: a router, or for routers and ports another router or port. ``site(node)`` returns the router to which a node
    is attached, by default router ``n`` of the cube for node ``n``. ``framing(to)`` returns the overhead on the edge to
    an adjacent node of kind ``to``. The config is read when a value is first needed. ``processes(door)`` starts the
    part's SimPy processes on a SIP, at time 0 and at each row start.
    """

    cost: Callable[[], Cost]
    wire_mm: Callable[[str], float]
    site: Callable[[Node], Site] = lambda node: Site(node.cube, int(node.place))
    memory: Memory | None = None
    framing: Callable[[str], Framing | None] = lambda _to: None
    processes: "Callable[[PartDoor], None] | None" = None

    @cached_property
    def overhead_ps(self) -> int:
        """Time that each node adds to a head, in ps."""
        return ns_to_ps(self.cost().overhead_ns)

    @cached_property
    def bandwidth_bps(self) -> int:
        """Bandwidth of the edges into and out of each node, in B/s."""
        return gbytes_per_s_to_bps(self.cost().bandwidth_GBps)


class MakePart(Protocol):
    """Factory of the part of a node kind. ``Params``: schema of ``parts.<kind>`` of the components."""

    Params: type[Section]
    __module__: str

    def __call__(self, resolved: Resolved, params: Any) -> Part: ...


PARTS: Registry[MakePart] = Registry(
    "part",
    {"sipsim.chips.ahbm.mesh": ("hbm", "host", "io", "io_cpu", "m_cpu", "pe", "router", "sram", "ucie")},
)


def part(kind: str, params: type[Section] = NoParams) -> Callable[[Callable[[Resolved, Any], Part]], MakePart]:
    """Return a decorator that registers the factory of a node kind's part, built in or in a module that ``parts`` of
    ``components.yaml`` names.

    ``params``: schema of ``parts.<kind>`` of the components; empty for parts that have a section in the components.
    """

    def add(make: Callable[[Resolved, Any], Part]) -> MakePart:
        made: Any = make
        made.Params = params
        return PARTS.register(kind)(made)

    return add


def part_kinds(resolved: Resolved) -> list[str]:
    """Return the node kinds of a system: the kinds of built-in parts, and the keys of ``parts`` in the components."""
    built_in = PARTS.names()
    return [*built_in, *(kind for kind in resolved.components.parts if kind not in built_in)]


def parts_of(resolved: Resolved) -> dict[str, Part]:
    """Return the part of each node kind.

    Raises:
        Problem: if there are more memory spaces than address codes.
    """
    parts = {}
    for kind in part_kinds(resolved):
        make = PARTS.get(kind)
        parts[kind] = made = make(resolved, msgspec.convert(resolved.components.parts.get(kind, {}), make.Params))
        if made.memory is not None:
            try:
                add_space(made.memory.space, make.__module__)
            except ValueError as error:
                raise Problem((("parts", kind),), f"parts.{kind}: {error}; leave a part with a memory out") from None
    return parts


def memories_of(resolved: Resolved) -> list[Memory]:
    """Return all memories of a system."""
    return [part.memory for part in parts_of(resolved).values() if part.memory is not None]


class CubeMeshGraph:
    """Nodes, edges and routes inside one SIP. Routing is X first, then Y, in the cube mesh and in each cube.

    ``parts``: parts by node kind. ``memories``: memories by space. ``chunks``: framing of the bytes on every edge; None
    without this overhead.
    """

    def __init__(self, resolved: Resolved, chunks: ChunkFraming | None = None) -> None:
        self._cubes = resolved.topology.sip.cube_mesh
        self._routers = resolved.topology.cube.noc.routers
        self._ns_per_mm = resolved.components.wire.ns_per_mm
        self.parts = parts_of(resolved)
        self._serving = _by_space(self.parts)
        self.memories = {space: memory for space, (_, memory) in self._serving.items()}
        self._chunks = chunks
        self._edges: dict[tuple[Node, Node], Edge] = {}
        self._routes: dict[tuple[Node, ...], Route] = {}

    @cached_property
    def n_cubes(self) -> int:
        """Cubes per SIP."""
        return self._cubes.w * self._cubes.h

    def node_of(self, address: PhysAddr) -> Node:
        """Return the end node of a transfer to ``address``."""
        return self.memory_node(address.cube, address.pe, address.space)

    def memory_node(self, cube: int, pe: int, space: str) -> Node:
        """Return the node that serves a PE's addresses in a memory space; for space ``tcm`` this is the PE."""
        kind, memory = self._serving[space]
        return Node(kind, cube, memory.place_of(pe))

    def port_cube(self, port: str) -> int:
        """Return the cube to which an IO port is attached."""
        return self.parts["io"].site(Node("io", -1, port)).cube

    def route(self, src: Node, dst: Node) -> Route:
        """Return the route between two nodes of this SIP, which must not be routers or UCIe ports."""
        key = (src, dst)
        if key not in self._routes:
            nodes = self._nodes_between(src, dst)
            edges = tuple(self.edge(a, b) for a, b in pairwise(nodes))
            self._routes[key] = Route(src, self.overhead_ps(src), edges)
        return self._routes[key]

    def route_through(self, src: Node, via: Node, dst: Node) -> Route:
        """Return the route from ``src`` to ``dst`` through a part at ``via``, whose overhead counts in and out."""
        key = (src, via, dst)
        if key not in self._routes:
            self._routes[key] = self.route(src, via).then(self.route(via, dst))
        return self._routes[key]

    def edge(self, src: Node, dst: Node) -> Edge:
        """Return the directed edge between two adjacent nodes. The node that is not a router defines the wire."""
        key = (src, dst)
        if key not in self._edges:
            one, other = (dst, src) if src.kind == "router" else (src, dst)
            part = self.parts[one.kind]
            wire_mm, framing = part.wire_mm(other.kind), part.framing(other.kind)
            if self._chunks is not None:
                framing = replace(self._chunks, around=framing)
            wire_ps = ns_to_ps(round(wire_mm * self._ns_per_mm, 9))
            bandwidth_bps = min(self.parts[node.kind].bandwidth_bps for node in key)
            self._edges[key] = Edge(src, dst, wire_ps, self.overhead_ps(dst), bandwidth_bps, framing)
        return self._edges[key]

    def overhead_ps(self, node: Node) -> int:
        """Return the time in ps that a node adds to every head that starts at the node or passes the node."""
        return self.parts[node.kind].overhead_ps

    def _nodes_between(self, src: Node, dst: Node) -> list[Node]:
        if src == dst:
            return [src]
        if src == HOST_NODE:
            return [src, *self._nodes_between(IO_CPU_NODE, dst)]
        if dst == HOST_NODE:
            return [*self._nodes_between(src, IO_CPU_NODE), dst]
        cube, router = self._site(src)
        last_cube, last_router = self._site(dst)
        nodes, ucie = [src], self.parts["ucie"]
        for port in steps(cube, last_cube, self._cubes.w):
            near = Node("ucie", cube, port)
            far = Node("ucie", neighbour(cube, port, self._cubes.w), FACING[port])
            nodes += [*self._routers_between(cube, router, ucie.site(near).router), near, far]
            cube, router = ucie.site(far)
        return [*nodes, *self._routers_between(cube, router, last_router), dst]

    def _site(self, node: Node) -> Site:
        site, routers = self.parts[node.kind].site(node), self._routers.w * self._routers.h
        if not (0 <= site.cube < self.n_cubes and 0 <= site.router < routers):
            what = f"{node} is at router {site.router} of cube {site.cube}, which does not exist"
            raise ConfigError(f"{what}; a SIP has {self.n_cubes} cubes of {routers} routers, from 0")
        return site

    def _routers_between(self, cube: int, first: int, last: int) -> list[Node]:
        routers = [first]
        for port in steps(first, last, self._routers.w):
            routers.append(neighbour(routers[-1], port, self._routers.w))
        return [Node("router", cube, router) for router in routers]


def _by_space(parts: dict[str, Part]) -> dict[str, tuple[str, Memory]]:
    """Return the node kind and the memory of each space."""
    serving: dict[str, tuple[str, Memory]] = {}
    for kind, part in parts.items():
        if part.memory is not None:
            other, _ = serving.setdefault(part.memory.space, (kind, part.memory))
            if other != kind:
                raise ValueError(f"{other} and {kind} both serve memory space {part.memory.space!r}; rename one")
    return serving


NO_CPU = NodeCost(overhead_ns=0, bandwidth_GBps=1)
"""Cost of a CPU that the config does not have; no message passes it."""


def _on_first_router(node: Node) -> Site:
    return Site(node.cube, 0)


@part("hbm")
def hbm(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``hbm``: the HBM controller's port of PE ``n``'s slice, on router ``n``."""
    cube, cost = resolved.topology.cube, resolved.components.hbm
    memory = Memory("hbm", ("hbm",), cost, lambda: cube.hbm_MiB_per_pe * MIB)
    return Part(lambda: cost, lambda _to: cube.noc.hbm_distance_mm, memory=memory)


@part("host")
def host(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``host``: the end of the host's link, next to IO_CPU, whose latency each way is the node's."""
    launch = resolved.components.launch

    def cost() -> NodeCost:
        return NO_CPU if launch is None else NodeCost(launch.host_latency_ns, launch.bandwidth_GBps)

    return Part(cost, lambda _to: 0)


@part("io")
def io_port(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``io``: the end of the link to another SIP, one per side of a SIP.

    A port is on the configured cube, or in the middle of its side of the cube mesh; in the cube, on the middle router
    of the same side.
    """
    sip, routers = resolved.topology.sip, resolved.topology.cube.noc.routers

    def site(node: Node) -> Site:
        port = str(node.place)
        configured: int | None = getattr(sip.ports, port)
        cube = middle(port, sip.cube_mesh.w, sip.cube_mesh.h) if configured is None else configured
        return Site(cube, middle(port, routers.w, routers.h))

    return Part(lambda: resolved.components.io_port, lambda _to: sip.port_distance_mm, site)


@part("io_cpu")
def io_cpu(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``io_cpu``: IO_CPU, which takes the host's launches at the edge of the SIP (ADR-0036).

    IO_CPU is on the first router of its cube, at the distance of an IO port. The latency of the host's link includes
    its wires.
    """
    components, sip = resolved.components, resolved.topology.sip

    def site(_node: Node) -> Site:
        return Site(components.io_cpu.cube if components.io_cpu else 0, 0)

    def wire_mm(to: str) -> float:
        return 0 if to == HOST_NODE.kind else sip.port_distance_mm

    return Part(lambda: components.io_cpu or NO_CPU, wire_mm, site)


@part("m_cpu")
def m_cpu(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``m_cpu``: a cube's management CPU (ADR-0035), on the first router, at the distance of a PE."""
    noc = resolved.topology.cube.noc
    return Part(lambda: resolved.components.m_cpu or NO_CPU, lambda _to: noc.pe_distance_mm, _on_first_router)


@part("pe")
def pe(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``pe``: the port of PE ``n`` and its TCM, on router ``n``.

    A transfer to or from the PE passes its PE_DMA, so the port has PE_DMA's costs.
    """
    noc, components = resolved.topology.cube.noc, resolved.components

    def regions() -> TcmMap:
        return tcm_map(components.tcm_layout)

    memory = Memory("tcm", ("tcm",), components.tcm, lambda: regions().size, regions=regions)
    return Part(lambda: components.pe_dma, lambda _to: noc.pe_distance_mm, memory=memory)


@part("router")
def router(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``router``: the routers of a cube, a mesh numbered row by row, one pitch apart."""
    noc = resolved.topology.cube.noc
    return Part(lambda: resolved.components.router, lambda _to: noc.router_pitch_mm)


@part("sram")
def sram(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``sram``: the SRAM's port, one per cube, on router 0, whichever PE an address contains."""
    cube, cost = resolved.topology.cube, resolved.components.sram
    memory = Memory("sram", ("sram",), cost, lambda: cube.sram_MiB * MIB, is_of_cube=True, place_of=lambda _pe: 0)
    return Part(lambda: cost, lambda _to: cube.noc.sram_distance_mm, _on_first_router, memory)


@part("ucie")
def ucie(resolved: Resolved, _params: NoParams) -> Part:
    """Return the part ``ucie``: a UCIe port in the middle of each side of a cube, between a router and the facing port
    of the next cube.

    The two ports are the ends of a crossing (:mod:`sipsim.fabric.links.ucie`). Each takes half of ``fdi_to_fdi_ns``,
    rounded to ps; the wire between them is ``sip.cube_gap_mm`` long. A package contains no retimer.
    """
    port, noc, components = resolved.components.ucie_port, resolved.topology.cube.noc, resolved.components

    def wire_mm(to: str) -> float:
        return resolved.topology.sip.cube_gap_mm if to == "ucie" else noc.ucie_distance_mm

    def framing(to: str) -> Framing | None:
        if to != "ucie" or port.flit_bytes is None:
            return None
        wire_ps = ns_to_ps(round(wire_mm(to) * components.wire.ns_per_mm, 9))
        return UcieCrossing(2 * made.overhead_ps, wire_ps, 0, port.flit_bytes, port.flit_overhead_bytes)

    def cost() -> NodeCost:
        return NodeCost(overhead_ns=port.fdi_to_fdi_ns / 2, bandwidth_GBps=port.bandwidth_GBps)

    def site(node: Node) -> Site:
        return Site(node.cube, middle(str(node.place), noc.routers.w, noc.routers.h))

    made = Part(cost, wire_mm, site, framing=framing)
    return made
