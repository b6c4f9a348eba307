"""Times of single commands where no other traffic is met, by the timing contract of DESIGN section 5."""

from functools import cache

from sipsim.engine import Engine
from sipsim.ipcq.flits import WireFormat
from sipsim.ipcq.messages import IpcqInitEntry
from sipsim.memory.port import MemoryPort, MemoryPorts
from sipsim.memory.store import MemoryStore
from sipsim.noc.graph import Node, Route
from sipsim.pe.math import PeMath
from sipsim.plan.plan import Plan
from sipsim.topology.address import PePlace, PhysAddr

Ps = int


class CommandTimes:
    """Times in ps. What is asked again is remembered: kernels repeat few commands very often."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        system, self._parts = plan.system, plan.resolved.components
        self._system = system
        self._wire = WireFormat(plan.ipcq.hw_strict)
        store = MemoryStore(0, system.capacities, system.spaces_of_cubes)
        self._memories = MemoryPorts(system.graph.memories, Engine(), store)
        self.math_ps = cache(PeMath(self._parts.pe_math).latency_ps)
        self.read_ps = cache(self._read_ps)
        self.write_ps = cache(self._write_ps)
        self.message_ps = cache(self._message_ps)

    def memory_of(self, address: int) -> tuple[Node, str]:
        """The node that serves a physical address, and its memory space."""
        place = PhysAddr.decode(address)
        return self._system.graph.node_of(place), place.space

    def _read_ps(self, pe: Node, memory: Node, space: str, nbytes: int) -> Ps:
        """A load: command, read latency, data."""
        port = self._port(space, memory)
        if memory == pe:
            return port.least_read_ps
        forth, back = self._system.graph.route(pe, memory), self._system.graph.route(memory, pe)
        command_ps = forth.latency_ps(self._parts.pe_dma.command_bytes)
        return command_ps + port.least_read_ps + back.latency_ps(self._wire.data_bytes(nbytes))

    def _write_ps(self, pe: Node, memory: Node, space: str, nbytes: int) -> Ps:
        """A store: data, write latency, acknowledgement."""
        port = self._port(space, memory)
        if memory == pe:
            return port.least_write_ps
        forth, back = self._system.graph.route(pe, memory), self._system.graph.route(memory, pe)
        data_ps = forth.latency_ps(self._wire.data_bytes(nbytes))
        return data_ps + port.least_write_ps + back.latency_ps(self._parts.pe_dma.ack_bytes)

    def _message_ps(self, src: PePlace, entry: IpcqInitEntry, nbytes: int) -> tuple[Ps, Ps]:
        """From ``tl.send`` until a message of ``nbytes`` is in its slot; and the time for which it holds its route."""
        system, peer = self._system, entry.peer
        memory = system.graph.memory_node(peer.cube, peer.pe, peer.buffer_kind)
        wire_bytes = self._wire.message_bytes(nbytes)
        route = self._route(src, peer.sip, memory, entry.direction)
        write_ps = self._port(peer.buffer_kind, memory).least_write_ps
        return self._plan.ipcq_overhead_ps + route.latency_ps(wire_bytes) + write_ps, route.drain_ps(wire_bytes)

    def credit_ps(self, place: PePlace, entry: IpcqInitEntry) -> tuple[Ps, Ps]:
        """For how long ``tl.recv`` is blocked by the credit, and how long the credit takes to the sender."""
        overhead_ps, mode = self._plan.ipcq_overhead_ps, self._plan.ipcq.credit_return_mode
        whole_ps = overhead_ps + entry.credit_ps
        if mode == "fast_path":
            return whole_ps, whole_ps
        return (overhead_ps if mode == "fabric" else 0), whole_ps

    def _route(self, src: PePlace, sip: int, end: Node, direction: str) -> Route:
        port = None if src.sip == sip else self._system.port_towards(src.sip, sip, direction)
        return self._system.end_to_end(src.sip, Node("pe", src.cube, src.pe), sip, end, port)

    def _port(self, space: str, node: Node) -> MemoryPort:
        return self._memories.at(space, node)
