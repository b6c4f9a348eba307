"""What a span costs by the config: the terms of every built-in kind of span, in picoseconds, on one machine.

The equations are those of :mod:`sipsim.plan.probe`: an uncontended transfer is the overhead of its first node, every
wire and node on the way, and the drain of its slowest edge (DESIGN section 5). What a span took beyond its terms is
waiting and sharing.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sipsim.config.model import IpcqKnobs, Resolved
from sipsim.engine import Engine
from sipsim.ipcq.flits import WireFormat
from sipsim.ipcq.messages import IpcqEndpoint
from sipsim.memory.port import MemoryPort, MemoryPorts
from sipsim.memory.store import MemoryStore
from sipsim.noc.graph import Node, Route
from sipsim.pe.math import PeMath
from sipsim.system.system import System
from sipsim.topology.address import PhysAddr
from sipsim.topology.build import link_presets
from sipsim.units import ns_to_ps

Ps = int
Place = tuple[int, int, int]
Presets = tuple[str, ...]

MIB = 1 << 20
BYTES, LINK_BYTES = "bytes through the slowest edge inside SIPs", "bytes through links"
_SECTIONS = {"pe": "pe_dma", "ucie": "ucie_port", "io": "io_port"}
"""The config sections of node kinds that are called otherwise."""
_PARTS = {
    "router": "routers",
    "ucie": "ports between cubes",
    "io": "IO ports of SIPs",
    "pe": "PE_DMA",
    "hbm": "HBM ports",
    "sram": "SRAM ports",
}


class Term(NamedTuple):
    """A summand: the part of the machine, the config keys that it comes from (the first one is its own), and time."""

    part: str
    keys: tuple[str, ...]
    ps: Ps

    @property
    def is_drain(self) -> bool:
        """Whether it is the time that a transfer's bytes need on its slowest edge."""
        return self.part in (BYTES, LINK_BYTES)


def sum_ps(terms: Iterable[Term]) -> Ps:
    """The time of all terms."""
    return sum(term.ps for term in terms)


def on_any_sip(place: Place) -> Place:
    """SIPs are alike inside, so SIP 0 stands for all."""
    return (0, *place[1:])


def memory_of(address: int) -> int:
    """The first byte of the memory that a physical address is in, on SIP 0."""
    return PhysAddr.decode(address)._replace(sip=0, offset=0).encode()


class Machine:
    """The costs of a system as ``resolved`` has it; ``knobs``: those of the queues, which it does not change."""

    def __init__(self, resolved: Resolved, knobs: IpcqKnobs) -> None:
        self.system = System(resolved, knobs.vc_chunk_size)
        self.knobs = knobs
        components = resolved.components
        self._components = components
        self._wire_format = WireFormat(knobs.hw_strict)
        self._ipcq_ps = ns_to_ps(components.pe_ipcq.overhead_ns)
        self._math = PeMath(components.pe_math)
        self._math_start_ps = ns_to_ps(components.pe_math.overhead_ns)
        system = self.system
        store = MemoryStore(0, system.capacities, system.spaces_of_cubes)
        self._memories = MemoryPorts(system.graph.memories, Engine(), store)
        self._edge_ps: dict[tuple[int, Node, Node], Ps] = {}
        self._presets = dict(
            zip(
                ((link.src, link.src_port) for link in system.links),
                link_presets(resolved.topology.system.sips, system.links),
                strict=True,
            )
        )

    # --- spans ----------------------------------------------------------------------------------------------------

    def read(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A read by PE_DMA: a command to the memory, its access, the data back."""
        here, there, port, space = self._memory(place, address)
        if here == there:
            return [self._access(space, port.least_read_ps, "read")]
        command, data = self._components.pe_dma.command_bytes, self._wire_format.data_bytes(nbytes)
        return [
            *self.transfer(self.system.graph.route(here, there), command),
            self._access(space, port.least_read_ps, "read"),
            *self.transfer(self.system.graph.route(there, here), data),
        ]

    def write(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A write by PE_DMA: the data to the memory, its access, the acknowledgement."""
        here, there, port, space = self._memory(place, address)
        if here == there:
            return [self._access(space, port.least_write_ps, "write")]
        return [
            *self.transfer(self.system.graph.route(here, there), self._wire_format.data_bytes(nbytes)),
            self._access(space, port.least_write_ps, "write"),
            *self.transfer(self.system.graph.route(there, here), self._components.pe_dma.ack_bytes),
        ]

    def math(self, nbytes: int) -> list[Term]:
        """An element-wise operation with a result of ``nbytes``."""
        bytes_ps = self._math.latency_ps(nbytes) - self._math_start_ps
        return [
            Term("PE_MATH, start of an operation", ("pe_math.overhead_ns",), self._math_start_ps),
            Term("PE_MATH, bytes", ("pe_math.bandwidth_GBps",), bytes_ps),
        ]

    def message(self, src: Place, direction: str, peer: IpcqEndpoint, nbytes: int, read_pa: int | None) -> list[Term]:
        """From a send to the arrival in the peer's ring; with ``read_pa`` its bytes are fetched from there first."""
        source = Node("pe", src[1], src[2])
        kind = peer.buffer_kind
        slot = self.system.graph.memory_node(peer.cube, peer.pe, kind)
        route, presets = self._route(src[0], source, peer.sip, slot, direction)
        fetch = [] if read_pa is None else [*self._fetch(source, read_pa)]
        if fetch and read_pa is not None:
            back = self.system.graph.route(self.node_of(read_pa), source)
            route_and_fetch = route._replace(edges=(*back.edges, *route.edges))
            drain = self._drain(route_and_fetch, self.message_bytes(nbytes), presets)
        else:
            drain = self._drain(route, self.message_bytes(nbytes), presets)
        write = self._access(kind, self._memories.at(kind, slot).least_write_ps, "write")
        return [self.ipcq(), *fetch, *self._head(route, presets), drain, write]

    def passing(self, place: Place, nbytes: int, read_pa: int | None) -> list[Term]:
        """From a send until the last byte of its message has passed PE_DMA, or has come there from another memory."""
        node = Node("pe", place[1], place[2])
        if read_pa is not None and self.node_of(read_pa) != node:
            return [self.ipcq(), *self.read(place, read_pa, nbytes)]
        route = self.system.graph.route(node, self.system.graph.memory_node(place[1], place[2], "hbm"))
        first = route._replace(edges=route.edges[:1])
        return [self.ipcq(), self._node(node, route.start_ps), self._drain(first, self.message_bytes(nbytes))]

    def credit(self, src: Place, direction: str, peer: Place) -> list[Term]:
        """A credit's way to the peer, on its own wire or as a message."""
        route, presets = self._back(src, direction, peer)
        return [self.ipcq(), *self.transfer(route, self.knobs.ipcq_credit_size_bytes, presets)]

    def injection(self, src: Place, direction: str, peer: Place) -> list[Term]:
        """A credit as a message until it has left the PE."""
        route, presets = self._back(src, direction, peer)
        first = Route(route.start, route.start_ps, route.edges[:1])
        nbytes = self.knobs.ipcq_credit_size_bytes
        return [self.ipcq(), self._node(first.start, first.start_ps), self._drain(first, nbytes, presets)]

    def message_bytes(self, nbytes: int) -> int:
        """Bytes of a message on the wires, without a link's framing."""
        return self._wire_format.message_bytes(nbytes)

    def node_of(self, address: int) -> Node:
        """The node that serves a physical address."""
        return self.system.graph.node_of(PhysAddr.decode(address))

    def port_of(self, src_sip: int, dst_sip: int, direction: str) -> str:
        """The port by which messages of a direction leave."""
        return self.system.port_towards(src_sip, dst_sip, direction)

    def issue(self) -> list[Term]:
        """A command on PE_CPU, before it reaches its engine."""
        return [Term("PE_CPU, issue of a command", ("pe_cpu.issue_ns",), ns_to_ps(self._components.pe_cpu.issue_ns))]

    def look(self) -> list[Term]:
        """The poll on PE_CPU that sees an event."""
        return [Term("PE_CPU, poll", ("pe_cpu.poll_ns",), ns_to_ps(self._components.pe_cpu.poll_ns))]

    def wakeup(self) -> list[Term]:
        """PE_CPU wakes up by an event."""
        return [Term("PE_CPU, wake-up", ("pe_cpu.wakeup_ns",), ns_to_ps(self._components.pe_cpu.wakeup_ns))]

    # --- transfers --------------------------------------------------------------------------------------------------

    def transfer(self, route: Route, nbytes: int, presets: Presets = ()) -> Iterator[Term]:
        """The terms of an uncontended transfer. ``presets``: those of the links on its route, in order."""
        yield from self._head(route, presets)
        if route.edges:
            yield self._drain(route, nbytes, presets)

    def drain_ps(self, sip: int, src: Node, dst: Node) -> Ps:
        """Time that an edge of a SIP needs for a MiB."""
        edge = (sip, src, dst) if dst.kind == "far" else (0, src, dst)
        if edge not in self._edge_ps:
            if dst.kind == "far":
                self._edge_ps[edge] = self.system.link_of(sip, str(src.place)).drain_ps(MIB)
            else:
                self._edge_ps[edge] = self.system.graph.edge(src, dst).drain_ps(MIB)
        return self._edge_ps[edge]

    def edge_name(self, sip: int, src: Node, dst: Node) -> str:
        """An edge of a SIP with its SIP; a link by its name."""
        if dst.kind != "far":
            return f"sip{sip}.{src}>{dst}"
        far = self.system.far_ends[sip, str(src.place)]
        return f"link {self.system.links[far.channel].name}"

    def rate_keys(self, sip: int, src: Node, dst: Node) -> tuple[str, ...]:
        """The config keys of an edge's bandwidth."""
        if dst.kind != "far":
            return tuple(self._rate_keys(src.kind, dst.kind))
        return (_link_key(self._presets[sip, str(src.place)], "bandwidth_GBps"),)

    def _head(self, route: Route, presets: Presets = ()) -> Iterator[Term]:
        links = iter(presets)
        yield self._node(route.start, route.start_ps)
        for edge in route.edges:
            if edge.framing is None:
                yield Term("wires", ("wire.ns_per_mm",), edge.wire_ps)
                yield self._node(edge.dst, edge.overhead_ps)
            else:
                # The far port's overhead belongs to the edge, see `Route.then`.
                yield Term("latency of links", (_link_key(next(links), "latency_ns"),), edge.wire_ps)
                yield Term(_PARTS["io"], ("io_port.overhead_ns",), edge.overhead_ps)

    def ipcq(self) -> Term:
        """PE_IPCQ's work on a send or a credit."""
        return Term("PE_IPCQ", ("pe_ipcq.overhead_ns",), self._ipcq_ps)

    def _fetch(self, source: Node, address: int) -> Iterator[Term]:
        """A read whose bytes PE_DMA passes on as they come: their drain is that of the message."""
        memory, graph = self.node_of(address), self.system.graph
        if memory == source:
            return
        space, back = PhysAddr.decode(address).space, graph.route(memory, source)
        yield from self.transfer(graph.route(source, memory), self._components.pe_dma.command_bytes)
        yield self._access(space, self._memories.at(space, memory).least_read_ps, "read")
        yield from self._head(back._replace(edges=back.edges[:-1]))
        yield Term("wires", ("wire.ns_per_mm",), back.edges[-1].wire_ps)

    def _node(self, node: Node, overhead_ps: Ps) -> Term:
        section = _SECTIONS.get(node.kind, node.kind)
        key = f"{section}.overhead_ns" if hasattr(self._components, section) else f"parts.{section}"
        return Term(_PARTS.get(node.kind, f"parts {node.kind}"), (key,), overhead_ps)

    def _drain(self, route: Route, nbytes: int, presets: Presets = ()) -> Term:
        slowest_ps = route.drain_ps(nbytes)
        slowest = [edge for edge in route.edges if edge.drain_ps(nbytes) == slowest_ps]
        kinds = {(edge.src.kind, edge.dst.kind) for edge in slowest if edge.framing is None}
        inside = tuple(sorted({key for pair in kinds for key in self._rate_keys(*pair)}))
        links = zip((edge for edge in route.edges if edge.framing is not None), presets, strict=False)
        names = dict.fromkeys(name for edge, name in links if edge.drain_ps(nbytes) == slowest_ps)
        if not names:
            return Term(BYTES, inside, slowest_ps)
        return Term(LINK_BYTES, (*(_link_key(name, "bandwidth_GBps") for name in names), *inside), slowest_ps)

    def _rate_keys(self, *kinds: str) -> list[str]:
        """The bandwidths that bound an edge between two kinds of nodes, which is as wide as the narrower of them."""
        sections = [_SECTIONS.get(kind, kind) for kind in kinds]
        known = {each: getattr(self._components, each, None) for each in sections}
        least = min((each.bandwidth_GBps for each in known.values() if each is not None), default=0)
        return [f"{name}.bandwidth_GBps" for name, each in known.items() if each and each.bandwidth_GBps == least]

    def _access(self, space: str, ps: Ps, what: str) -> Term:
        return Term(f"{space.upper()} {what} access", (f"{space}.{what}_latency_ns",), ps)

    def _memory(self, place: Place, address: int) -> tuple[Node, Node, MemoryPort, str]:
        space, node = PhysAddr.decode(address).space, self.node_of(address)
        return Node("pe", place[1], place[2]), node, self._memories.at(space, node), space

    def _back(self, src: Place, direction: str, peer: Place) -> tuple[Route, Presets]:
        return self._route(src[0], Node("pe", src[1], src[2]), peer[0], Node("pe", peer[1], peer[2]), direction)

    def _route(self, src_sip: int, start: Node, dst_sip: int, end: Node, direction: str) -> tuple[Route, Presets]:
        """The route, and the presets of the links on it."""
        port = None if src_sip == dst_sip else self.port_of(src_sip, dst_sip, direction)
        route = self.system.end_to_end(src_sip, start, dst_sip, end, port)
        if port is None:
            return route, ()
        *leaving, _ = self.system.pieces(src_sip, start, dst_sip, end, port)
        return route, tuple(self._presets[sip, str(piece.edges[-1].src.place)] for sip, piece in leaving)


def _link_key(preset: str, name: str) -> str:
    return f"links.{preset}.params.{name}"
