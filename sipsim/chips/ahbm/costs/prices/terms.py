"""What a span costs by the config: the terms of every built-in kind of span, in picoseconds, on one machine.

The equations are those of :mod:`sipsim.chips.ahbm.costs.probe.probe`: an uncontended transfer is the overhead of its
first node, every wire and node on the way, and the drain of its slowest edge (DESIGN section 5). What a span took
beyond its terms is waiting and sharing.
"""

from collections.abc import Iterator

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.costs.prices import product_terms
from sipsim.chips.ahbm.costs.prices.launch_terms import LaunchTerms
from sipsim.chips.ahbm.costs.prices.transfer_terms import MIB, THROUGH, Presets, Term, slowest, sum_ps
from sipsim.chips.ahbm.ipcq.messages.flits import WireFormat
from sipsim.chips.ahbm.ipcq.messages.messages import IpcqEndpoint
from sipsim.chips.ahbm.memory.ports.port import MemoryPort, MemoryPorts, StreamingPort
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.chips.ahbm.pe.math.math import PeMath
from sipsim.config.schema.model import IpcqKnobs, Resolved
from sipsim.core.engine import Engine
from sipsim.core.units import ns_to_ps
from sipsim.fabric.graph.graph import Node, Route

__all__ = ["Machine", "Place", "Ps", "Term", "memory_of", "on_any_sip", "sum_ps"]

Ps = int
Place = tuple[int, int, int]


SPECIAL = "PE_MATH, special functions"
"""Its bytes, ``pe_math.special_factor`` times as slow."""


def on_any_sip(place: Place) -> Place:
    """SIPs are alike inside, so SIP 0 stands for all."""
    return (0, *place[1:])


def memory_of(address: int) -> int:
    """The first byte of the memory that a physical address is in, on SIP 0."""
    return PhysAddr.decode(address)._replace(sip=0, offset=0).encode()


class Machine(LaunchTerms):
    """The costs of a system as ``resolved`` has it; ``knobs``: those of the queues, which it does not change.

    ``run``: the machine on which times were measured that have no price of their own; None where that is this one.
    """

    def __init__(self, resolved: Resolved, knobs: IpcqKnobs, run: "Machine | None" = None) -> None:
        super().__init__(resolved, knobs)
        self._run = self if run is None else run
        self._product_prices: dict[tuple[Place, int, int], tuple[product_terms.Price, ...]] = {}
        components = resolved.components
        self._wire_format = WireFormat(knobs.hw_strict)
        self._ipcq_ps = ns_to_ps(components.pe_ipcq.overhead_ns)
        self._math = PeMath(components.pe_math)
        self._math_start_ps = ns_to_ps(components.pe_math.overhead_ns)
        self._walk_ps = 0 if components.pe_mmu is None else ns_to_ps(components.pe_mmu.walk_ns)
        system = self.system
        store = MemoryStore(0, system.capacities, system.spaces_of_cubes)
        self._memories = MemoryPorts(system.graph.memories, Engine(), store)

    def read(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A read by PE_DMA: a command to the memory, its access, the data back."""
        here, there, port, space = self._memory(place, address)
        if here == there:
            return [*self._reading(space, port), *self._near(space, port, port.read_span_ps(nbytes))]
        tcm = self._memories.at("tcm", here)
        return [
            *self._read_from(here, there, port, space, nbytes, *self._landing(tcm, nbytes)),
            *(self._writing("tcm", tcm) if isinstance(tcm, StreamingPort) else ()),
        ]

    def copy_out(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A read by PE_DMA of what does not stay at the PE."""
        here, there, port, space = self._memory(place, address)
        if here == there:
            return [*self._reading(space, port), *self._near(space, port, port.read_span_ps(nbytes))]
        return self._read_from(here, there, port, space, nbytes)

    def latch(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A copy by PE_DMA to the kernel's region of the PE's TCM."""
        here, there, port, space = self._memory(place, address)
        tcm = self._memories.at("tcm", here)
        if here == there:
            copy_ps = port.copy_span_ps(address, PhysAddr(*place, "tcm", 0).encode(), nbytes)
            copying = self._near(space, port, copy_ps)
            return [*self._reading(space, port), *copying, *self._writing(space, port)]
        return [
            *self._read_from(here, there, port, space, nbytes, *self._landing(tcm, nbytes)),
            *self._writing("tcm", tcm),
        ]

    def write(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A write by PE_DMA: the data to the memory, its access, the acknowledgement."""
        tcm = self._memories.at("tcm", Node("pe", place[1], place[2]))
        near = self.node_of(address) == Node("pe", place[1], place[2])
        taking = () if near else self._taking(tcm, nbytes)
        leaving = self._reading("tcm", tcm) if taking else ()
        return [*leaving, *self._write_to(place, address, nbytes, *taking)]

    def copy_in(self, place: Place, address: int, nbytes: int) -> list[Term]:
        """A write by PE_DMA of what was not in the PE's TCM."""
        return self._write_to(place, address, nbytes)

    def math(self, nbytes: int, is_special: bool = False) -> list[Term]:
        """An operation of PE_MATH that goes over ``nbytes``, those of all passes."""
        bytes_ps = self._math.latency_ps(nbytes, is_special) - self._math_start_ps
        return [
            Term("PE_MATH, start of an operation", ("pe_math.overhead_ns",), self._math_start_ps),
            Term(SPECIAL if is_special else "PE_MATH, bytes", ("pe_math.bandwidth_GBps",), bytes_ps),
        ]

    def product(self, place: Place, operands: int, outputs: int, way_ps: tuple[Ps, ...]) -> list[Term]:
        """The way through a command of PE_GEMM, whose operands and outputs are in memories that begin there."""
        key = place, operands, outputs
        return product_terms.scaled(way_ps, self._prices_of_product(*key), self._run._prices_of_product(*key))

    def _prices_of_product(self, place: Place, operands: int, outputs: int) -> tuple[product_terms.Price, ...]:
        key = place, operands, outputs
        found = self._product_prices.get(key)
        if found is None:
            tcm = self._memories.at("tcm", Node("pe", place[1], place[2]))
            rates = slowest(self.read(place, operands, MIB)), slowest(self.write(place, outputs, MIB))
            found = self._product_prices[key] = product_terms.prices(self._components, tcm, *rates)
        return found

    def delay(self, ps: Ps) -> list[Term]:
        """A delay that a kernel names."""
        return [Term("PE_CPU, delays of kernels", ("tl.delay",), ps)]

    def page_walks(self, walks: int) -> list[Term]:
        """The stall of a command that misses so many pages in its TLB."""
        return [Term("PE_MMU, page walks", ("pe_mmu.walk_ns",), walks * self._walk_ps)]

    def message(self, src: Place, direction: str, peer: IpcqEndpoint, nbytes: int, read_pa: int | None) -> list[Term]:
        """From a send to the arrival in the peer's ring; with ``read_pa`` its bytes are fetched from there first."""
        source = Node("pe", src[1], src[2])
        kind = peer.buffer_kind
        slot = self.system.graph.memory_node(peer.cube, peer.pe, kind)
        route, presets = self._route(src[0], source, peer.sip, slot, direction)
        ring = self._memories.at(kind, slot)
        ends = [self._span(kind, ring, ring.write_span_ps(nbytes))]
        fetch = [] if read_pa is None else [*self._fetch(source, read_pa)]
        if fetch and read_pa is not None:
            memory, space = self.node_of(read_pa), PhysAddr.decode(read_pa).space
            port, back = self._memories.at(space, memory), self.system.graph.route(memory, source)
            route_and_fetch = route._replace(edges=(*back.edges, *route.edges))
            reading = [self._span(space, port, port.read_span_ps(nbytes))]
            drain = self._drain(route_and_fetch, self.message_bytes(nbytes), presets, reading, ends)
        else:
            tcm = self._memories.at("tcm", source)
            taking = self._taking(tcm, nbytes)
            fetch = [*self._reading("tcm", tcm)] if taking else []
            drain = self._drain(route, self.message_bytes(nbytes), presets, taking, ends)
        return [self.ipcq(), *fetch, *self._head(route, presets), *drain, *self._writing(kind, ring)]

    def passing(self, place: Place, nbytes: int, read_pa: int | None) -> list[Term]:
        """From a send until the last byte of its message has passed PE_DMA, or has come there from another memory."""
        node = Node("pe", place[1], place[2])
        if read_pa is not None and self.node_of(read_pa) != node:
            return [self.ipcq(), *self.read(place, read_pa, nbytes)]
        route = self.system.graph.route(node, self.system.graph.memory_node(place[1], place[2], "hbm"))
        first = route._replace(edges=route.edges[:1])
        tcm = self._memories.at("tcm", node)
        taking = self._taking(tcm, nbytes)
        leaving = [*(self._reading("tcm", tcm) if taking else ()), self._node(node, route.start_ps)]
        return [self.ipcq(), *leaving, *self._drain(first, self.message_bytes(nbytes), (), taking)]

    def credit(self, src: Place, direction: str, peer: Place) -> list[Term]:
        """A credit's way to the peer, on its own wire or as a message."""
        route, presets = self._back(src, direction, peer)
        return [self.ipcq(), *self.transfer(route, self.knobs.ipcq_credit_size_bytes, presets)]

    def injection(self, src: Place, direction: str, peer: Place) -> list[Term]:
        """A credit as a message until it has left the PE."""
        route, presets = self._back(src, direction, peer)
        first = Route(route.start, route.start_ps, route.edges[:1])
        nbytes = self.knobs.ipcq_credit_size_bytes
        return [self.ipcq(), self._node(first.start, first.start_ps), *self._drain(first, nbytes, presets)]

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
        yield from self._reading(space, self._memories.at(space, memory))
        yield from self._head(back._replace(edges=back.edges[:-1]))
        yield Term("wires", ("wire.ns_per_mm",), back.edges[-1].wire_ps)

    def _read_from(
        self, here: Node, there: Node, port: MemoryPort, space: str, nbytes: int, *spans: Term
    ) -> list[Term]:
        command, data = self._components.pe_dma.command_bytes, self._wire_format.data_bytes(nbytes)
        reading = self._span(space, port, port.read_span_ps(nbytes))
        return [
            *self.transfer(self.system.graph.route(here, there), command),
            *self._reading(space, port),
            *self.transfer(self.system.graph.route(there, here), data, (), reading, *spans),
        ]

    def _write_to(self, place: Place, address: int, nbytes: int, *spans: Term) -> list[Term]:
        here, there, port, space = self._memory(place, address)
        writing = self._span(space, port, port.write_span_ps(nbytes))
        if here == there:
            return [*self._near(space, port, writing.ps), *self._writing(space, port)]
        data = self._wire_format.data_bytes(nbytes)
        return [
            *self.transfer(self.system.graph.route(here, there), data, (), writing, *spans),
            *self._writing(space, port),
            *self.transfer(self.system.graph.route(there, here), self._components.pe_dma.ack_bytes),
        ]

    def _reading(self, space: str, port: MemoryPort) -> list[Term]:
        return [Term(f"{space.upper()} {each.what}", (f"{space}.{each.key}",), each.ps) for each in port.read_terms()]

    def _writing(self, space: str, port: MemoryPort) -> list[Term]:
        return [Term(f"{space.upper()} {each.what}", (f"{space}.{each.key}",), each.ps) for each in port.write_terms()]

    def _span(self, space: str, port: MemoryPort, ps: Ps) -> Term:
        return Term(f"{THROUGH}{space.upper()}", (f"{space}.{port.bandwidth_key}",), ps)

    def _near(self, space: str, port: MemoryPort, ps: Ps) -> list[Term]:
        """The time of an access's bytes in a memory that is reached without the fabric."""
        return [self._span(space, port, ps)] if ps else []

    def _taking(self, tcm: MemoryPort, nbytes: int) -> list[Term]:
        """The time of bytes that leave a PE in its TCM, if that has a bandwidth."""
        return [self._span("tcm", tcm, tcm.read_span_ps(nbytes))] if isinstance(tcm, StreamingPort) else []

    def _landing(self, tcm: MemoryPort, nbytes: int) -> list[Term]:
        return [self._span("tcm", tcm, tcm.write_span_ps(nbytes))] if isinstance(tcm, StreamingPort) else []

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
