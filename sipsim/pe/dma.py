"""PE_DMA: the data plane of a PE. It moves bytes between memories over the fabric and knows nothing of queues.

Reads are a command to the memory, its read latency, and the data back. Writes are *non-posted*: the data, the
memory's write latency, and an acknowledgement over the route back (DESIGN section 5, "raw DMA"). What kernels load
and store goes by ``vc_compute``, what PE_IPCQ asks for by ``vc_comm`` (ADR-0023 D8): neither waits for the other here,
and on the edges that they share the fabric arbitrates.
"""

from collections.abc import Callable
from typing import Protocol

from sipsim.config.model import ComponentsFile, MemoryCost, TcmCost
from sipsim.engine import Engine
from sipsim.errors import MemoryAccessError
from sipsim.ipcq.flits import WireFormat
from sipsim.memory.store import MemoryStore
from sipsim.noc.fabric import Fabric
from sipsim.noc.graph import Node, SipGraph
from sipsim.noc.virtual_channels import COMM, COMPUTE
from sipsim.topology.address import PhysAddr
from sipsim.units import ns_to_ps


class Surroundings(Protocol):
    """What a PE needs of its SIP."""

    sip: int
    engine: Engine
    fabric: Fabric
    graph: SipGraph
    memory: MemoryStore
    timing: "MemoryTiming"
    wire_format: WireFormat


class MemoryTiming:
    """Access latencies by space, and the sizes of DMA control messages, as integers."""

    def __init__(self, parts: ComponentsFile) -> None:
        costs: dict[str, MemoryCost | TcmCost] = {"tcm": parts.tcm, "hbm": parts.hbm, "sram": parts.sram}
        self.read_ps = {space: ns_to_ps(cost.read_latency_ns) for space, cost in costs.items()}
        self.write_ps = {space: ns_to_ps(cost.write_latency_ns) for space, cost in costs.items()}
        self.command_bytes = parts.pe_dma.command_bytes
        self.ack_bytes = parts.pe_dma.ack_bytes


class PeDma:
    """The DMA engine of one PE. Addresses are physical and of this SIP."""

    def __init__(self, around: Surroundings, node: Node) -> None:
        self._around = around
        self._node = node

    def read(self, address: int, nbytes: int, done: Callable[[bytes], None], vc: int = COMPUTE) -> None:
        """Fetch ``nbytes``; ``done(data)`` when the last byte is here. The bytes are those of the memory's read."""
        around = self._around
        place = self._local(address)
        memory_node = around.graph.node_of(place)
        read_ps = around.timing.read_ps[place.space]
        if memory_node == self._node:
            around.engine.at(around.engine.now_ps + read_ps, lambda: done(around.memory.read(address, nbytes)))
            return
        back = around.graph.route(memory_node, self._node)

        def at_memory(_head: int, _tail: int) -> None:
            data = around.memory.read(address, nbytes)
            around.fabric.start(back, around.wire_format.data_bytes(nbytes), lambda _h, _t: done(data), vc)

        there = around.graph.route(self._node, memory_node)
        around.fabric.start(there, around.timing.command_bytes, at_memory, vc, lead_ps=-read_ps)

    def copy(self, src: int, dst: int, data: bytes, done: Callable[[], None]) -> None:
        """Move ``data``, as it lies at ``src`` now, to ``dst``, by ``vc_comm``: a read and then a write."""
        self.read(src, len(data), lambda _there: self.write(dst, data, done, COMM), COMM)

    def write(self, address: int, data: bytes, done: Callable[[], None], vc: int = COMPUTE) -> None:
        """Put ``data``; ``done()`` when the acknowledgement is here."""
        around = self._around
        place = self._local(address)
        memory_node = around.graph.node_of(place)
        write_ps = around.timing.write_ps[place.space]

        if memory_node == self._node:

            def written() -> None:
                around.memory.write(address, data)
                done()

            around.engine.at(around.engine.now_ps + write_ps, written)
            return
        back = around.graph.route(memory_node, self._node)

        def at_memory(_head: int, _tail: int) -> None:
            around.memory.write(address, data)
            around.fabric.start(back, around.timing.ack_bytes, lambda _h, _t: done(), vc)

        there = around.graph.route(self._node, memory_node)
        around.fabric.start(there, around.wire_format.data_bytes(len(data)), at_memory, vc, lead_ps=-write_ps)

    def _local(self, address: int) -> PhysAddr:
        try:
            place = PhysAddr.decode(address)
        except ValueError as error:
            raise MemoryAccessError(str(error)) from None
        if place.sip != self._around.sip:
            raise MemoryAccessError(f"{place} is on another SIP; tl.load and tl.store reach their own SIP only")
        return place
