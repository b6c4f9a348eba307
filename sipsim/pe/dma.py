"""PE_DMA: the data plane of a PE. It moves bytes between memories over the fabric and knows nothing of queues.

Reads are a command to the memory, its read latency, and the data back. Writes are *non-posted*: the data, the
memory's write latency, and an acknowledgement over the route back (DESIGN section 5, "raw DMA"). Loads and stores of
kernels use ``vc_compute``, transfers of PE_IPCQ use ``vc_comm`` (ADR-0023 D8): neither waits for the other in PE_DMA,
and the fabric arbitrates on shared edges.
"""

from collections.abc import Callable
from typing import Protocol

from sipsim.config.model import ComponentsFile, MemoryCost, TcmCost
from sipsim.engine import Engine
from sipsim.errors import MemoryAccessError
from sipsim.ipcq.flits import WireFormat
from sipsim.memory.store import MemoryStore
from sipsim.noc.arbitration import COMM, COMPUTE
from sipsim.noc.fabric import Fabric
from sipsim.noc.graph import Graph, Node
from sipsim.topology.address import PhysAddr
from sipsim.units import ns_to_ps


class DmaContext(Protocol):
    """The parts of a SIP that its PEs' DMA engines use."""

    sip: int
    engine: Engine
    fabric: Fabric
    memory: MemoryStore
    timing: "MemoryTiming"
    wire_format: WireFormat

    @property
    def graph(self) -> Graph: ...


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

    def __init__(self, context: DmaContext, node: Node) -> None:
        self._context = context
        self._node = node

    def read(self, address: int, nbytes: int, done: Callable[[bytes], None], vc: int = COMPUTE) -> None:
        """Fetch ``nbytes``; ``done(data)`` when the last byte has arrived. The memory is read at its read's end."""
        context = self._context
        place = self._local(address)
        memory_node = context.graph.node_of(place)
        read_ps = context.timing.read_ps[place.space]
        if memory_node == self._node:
            context.engine.at(context.engine.now_ps + read_ps, lambda: done(context.memory.read(address, nbytes)))
            return
        back = context.graph.route(memory_node, self._node)

        def at_memory(_head: int, _tail: int) -> None:
            data = context.memory.read(address, nbytes)
            context.fabric.start(back, context.wire_format.data_bytes(nbytes), lambda _h, _t: done(data), vc)

        forth = context.graph.route(self._node, memory_node)
        context.fabric.start(forth, context.timing.command_bytes, at_memory, vc, lead_ps=-read_ps)

    def copy(self, src: int, dst: int, data: bytes, done: Callable[[], None]) -> None:
        """Move ``data``, the present content of ``src``, to ``dst`` over ``vc_comm``: a read and then a write."""
        self.read(src, len(data), lambda _data: self.write(dst, data, done, COMM), COMM)

    def write(self, address: int, data: bytes, done: Callable[[], None], vc: int = COMPUTE) -> None:
        """Write ``data``; ``done()`` when the acknowledgement has arrived."""
        context = self._context
        place = self._local(address)
        memory_node = context.graph.node_of(place)
        write_ps = context.timing.write_ps[place.space]

        if memory_node == self._node:

            def written() -> None:
                context.memory.write(address, data)
                done()

            context.engine.at(context.engine.now_ps + write_ps, written)
            return
        back = context.graph.route(memory_node, self._node)

        def at_memory(_head: int, _tail: int) -> None:
            context.memory.write(address, data)
            context.fabric.start(back, context.timing.ack_bytes, lambda _h, _t: done(), vc)

        forth = context.graph.route(self._node, memory_node)
        context.fabric.start(forth, context.wire_format.data_bytes(len(data)), at_memory, vc, lead_ps=-write_ps)

    def _local(self, address: int) -> PhysAddr:
        try:
            place = PhysAddr.decode(address)
        except ValueError as error:
            raise MemoryAccessError(str(error)) from None
        if place.sip != self._context.sip:
            raise MemoryAccessError(f"{place} is on another SIP; tl.load and tl.store reach their own SIP only")
        return place
