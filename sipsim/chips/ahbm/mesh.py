"""A SIP as a mesh of cubes: its parts, the edges between them, dimension-ordered routes.

Where a part sits and what its edges cost is its own definition. Edges and routes are made on first use, so that idle
cubes cost nothing. All SIPs of a system share one graph.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import msgspec

from sipsim.chips.ahbm.address import MIB, PhysAddr, TcmMap, add_space, tcm_map
from sipsim.config.schema import IoCpu, MemoryCost, NoParams, Resolved, Section, TcmCost
from sipsim.config.schema import Node as NodeCost
from sipsim.core.errors import ConfigError
from sipsim.core.registry import Registry
from sipsim.core.units import gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.channels import ChunkFraming
from sipsim.fabric.graph import FACING, Edge, Framing, Node, Route, middle, neighbour, steps
from sipsim.fabric.links.ucie import UcieCrossing


class Site(NamedTuple):
    """A router of a cube, to which a node is attached."""

    cube: int
    router: int


Cost = NodeCost | IoCpu
"""What a node costs: what it adds to a head, and the bandwidth of the edges into and out of it."""


class Part(ABC):
    """All nodes of kind ``kind``, in a system of one config: where they sit, and what their edges cost.

    A new part is one definition, registered by its node kind, here or in a module that ``parts`` of the components
    names. ``Params``: what ``parts.<kind>`` of the components may hold, as ``params``; for parts whose costs have no
    section.
    """

    Params: ClassVar[type[Section]] = NoParams

    def __init__(self, resolved: Resolved, kind: str) -> None:
        self.topology = resolved.topology
        self.components = resolved.components
        self.params: Any = msgspec.convert(resolved.components.parts.get(kind, {}), self.Params)

    @cached_property
    def overhead_ps(self) -> int:
        """The time, in ps, that each node adds to a head."""
        return ns_to_ps(self.cost().overhead_ns)

    @cached_property
    def bandwidth_bps(self) -> int:
        """The bandwidth, in bytes a second, of the edges into and out of each node."""
        return gbytes_per_s_to_bps(self.cost().bandwidth_GBps)

    @abstractmethod
    def cost(self) -> Cost:
        """What each node costs."""

    @abstractmethod
    def wire_mm(self, to: str) -> float:
        """Millimetres of wire to an adjacent node of kind ``to``: a router, or for routers and ports their like."""

    def framing(self, to: str) -> Framing | None:
        """What the edge to an adjacent node of kind ``to`` adds to the bytes that it carries."""
        return None

    def site(self, node: Node) -> Site:
        """The router that a node is attached to: node ``n`` at router ``n`` of its cube, if not said otherwise."""
        return Site(node.cube, int(node.place))


class MemorySection(NamedTuple):
    """The costs of a memory, the key path at which they stand in the config, and the regions of a TCM."""

    path: tuple[str, ...]
    cost: MemoryCost | TcmCost
    regions: TcmMap | None = None


class MemoryPart(Part):
    """Nodes that serve memory space ``space``. ``is_of_cube``: one memory a cube, whichever PE an address names."""

    space: ClassVar[str]
    is_of_cube: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "space"):
            add_space(cls.space, cls.__module__)

    @abstractmethod
    def memory(self) -> MemorySection:
        """Access times, and the memory kind that pays them (:mod:`sipsim.chips.ahbm.memory`)."""

    @abstractmethod
    def capacity_bytes(self) -> int:
        """Bytes of each memory: of a PE's part, or of the cube's."""

    def place_of(self, pe: int) -> int:
        """The number of the node that serves an address, by the address's PE."""
        return pe


PARTS: Registry[type[Part]] = Registry(
    "part",
    {
        "sipsim.chips.ahbm.mesh": (
            "hbm",
            "io",
            "io_cpu",
            "m_cpu",
            "pe",
            "router",
            "sram",
            "ucie",
        )
    },
)


def part_kinds(resolved: Resolved) -> list[str]:
    """The node kinds of a system: all parts of this project, and the modules that ``parts`` of the components names."""
    built_in = PARTS.names()
    return [*built_in, *(kind for kind in resolved.components.parts if kind not in built_in)]


def memory_parts(resolved: Resolved) -> list[MemoryPart]:
    """Every part with a memory."""
    parts = (PARTS.get(kind)(resolved, kind) for kind in part_kinds(resolved))
    return [part for part in parts if isinstance(part, MemoryPart)]


class CubeMeshGraph:
    """Nodes, edges and routes inside one SIP. Routes go X first, then Y, in the cube mesh and in each cube.

    ``memories``: the part that serves each memory space. ``chunks``: what frames the bytes on every edge, if something
    does.
    """

    def __init__(self, resolved: Resolved, chunks: ChunkFraming | None = None) -> None:
        self._cubes = resolved.topology.sip.cube_mesh
        self._routers = resolved.topology.cube.noc.routers
        self._ns_per_mm = resolved.components.wire.ns_per_mm
        self._parts = {kind: PARTS.get(kind)(resolved, kind) for kind in part_kinds(resolved)}
        self._serving = _by_space(self._parts)
        self.memories = {space: part for space, (_, part) in self._serving.items()}
        self._chunks = chunks
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
            if self._chunks is not None:
                framing = replace(self._chunks, around=framing)
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


@PARTS.register("hbm")
class HbmPort(MemoryPart):
    """The HBM controller's port of PE ``n``'s slice, on router ``n``.

    Access times are the memory's (:mod:`sipsim.chips.ahbm.memory`).
    """

    space = "hbm"

    def cost(self) -> Cost:
        return self.components.hbm

    def memory(self) -> MemorySection:
        return MemorySection(("hbm",), self.components.hbm)

    def capacity_bytes(self) -> int:
        return self.topology.cube.hbm_MiB_per_pe * MIB

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.hbm_distance_mm


@PARTS.register("io")
class IoPort(Part):
    """The end of the link to another SIP, one on each side of a SIP.

    It sits on the configured cube, or the middle of its side of the cube mesh; there, in the middle of the same side.
    """

    def cost(self) -> Cost:
        return self.components.io_port

    def wire_mm(self, to: str) -> float:
        return self.topology.sip.port_distance_mm

    def site(self, node: Node) -> Site:
        port, sip, routers = str(node.place), self.topology.sip, self.topology.cube.noc.routers
        configured: int | None = getattr(sip.ports, port)
        cube = middle(port, sip.cube_mesh.w, sip.cube_mesh.h) if configured is None else configured
        return Site(cube, middle(port, routers.w, routers.h))


NO_CPU = NodeCost(overhead_ns=0, bandwidth_GBps=1)
"""Of a CPU that the config does not have, and no message passes."""


@PARTS.register("io_cpu")
class IoCpuPort(Part):
    """IO_CPU, which takes the host's launches at the edge of the SIP (ADR-0036).

    It sits on the first router of its cube, and as far from it as an IO port.
    """

    def cost(self) -> Cost:
        return self.components.io_cpu or NO_CPU

    def wire_mm(self, to: str) -> float:
        return self.topology.sip.port_distance_mm

    def site(self, node: Node) -> Site:
        section = self.components.io_cpu
        return Site(section.cube if section else 0, 0)


@PARTS.register("m_cpu")
class MCpuPort(Part):
    """M_CPU, the management CPU of a cube (ADR-0035), on its first router, and as far from it as a PE."""

    def cost(self) -> Cost:
        return self.components.m_cpu or NO_CPU

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.pe_distance_mm

    def site(self, node: Node) -> Site:
        return Site(node.cube, 0)


@PARTS.register("pe")
class PePort(MemoryPart):
    """The port of PE ``n``, on router ``n``; its TCM is reached there.

    A transfer to or from the PE passes its PE_DMA, whose costs the port has.
    """

    space = "tcm"

    def cost(self) -> Cost:
        return self.components.pe_dma

    def memory(self) -> MemorySection:
        return MemorySection(("tcm",), self.components.tcm, tcm_map(self.components.tcm_layout))

    def capacity_bytes(self) -> int:
        return tcm_map(self.components.tcm_layout).size

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.pe_distance_mm


@PARTS.register("router")
class Router(Part):
    """The routers of a cube, a mesh row by row, a pitch apart."""

    def cost(self) -> Cost:
        return self.components.router

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.router_pitch_mm


@PARTS.register("sram")
class SramPort(MemoryPart):
    """The SRAM's port, one a cube, on router 0: it belongs to the cube, whichever PE an address names."""

    space = "sram"
    is_of_cube = True

    def cost(self) -> Cost:
        return self.components.sram

    def memory(self) -> MemorySection:
        return MemorySection(("sram",), self.components.sram)

    def capacity_bytes(self) -> int:
        return self.topology.cube.sram_MiB * MIB

    def wire_mm(self, to: str) -> float:
        return self.topology.cube.noc.sram_distance_mm

    def site(self, node: Node) -> Site:
        return Site(node.cube, 0)

    def place_of(self, pe: int) -> int:
        return 0


@PARTS.register("ucie")
class UciePort(Part):
    """A UCIe port in the middle of a side of a cube. It joins a router of its cube with the port of the next cube that
    faces it.

    The two ports are the ends of a crossing (:mod:`sipsim.fabric.links.ucie`). Each takes half of ``fdi_to_fdi_ns``,
    rounded to ps; the wire between them is ``sip.cube_gap_mm`` long. There is no retimer in a package.
    """

    def cost(self) -> Cost:
        port = self.components.ucie_port
        return NodeCost(overhead_ns=port.fdi_to_fdi_ns / 2, bandwidth_GBps=port.bandwidth_GBps)

    def wire_mm(self, to: str) -> float:
        return self.topology.sip.cube_gap_mm if to == "ucie" else self.topology.cube.noc.ucie_distance_mm

    def framing(self, to: str) -> Framing | None:
        port = self.components.ucie_port
        if to != "ucie" or port.flit_bytes is None:
            return None
        wire_ps = ns_to_ps(round(self.wire_mm(to) * self.components.wire.ns_per_mm, 9))
        return UcieCrossing(2 * self.overhead_ps, wire_ps, 0, port.flit_bytes, port.flit_overhead_bytes)

    def site(self, node: Node) -> Site:
        routers = self.topology.cube.noc.routers
        return Site(node.cube, middle(str(node.place), routers.w, routers.h))
