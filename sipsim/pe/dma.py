"""PE_DMA: the data plane of a PE. It moves bytes between memories over the fabric and knows nothing of queues.

Reads are a command to the memory, its read latency, and the data back. Writes are *non-posted*: the data, the
memory's write latency, and an acknowledgement over the route back (DESIGN section 5, "raw DMA"). Loads and stores of
kernels use ``vc_compute``, transfers of PE_IPCQ use ``vc_comm`` (ADR-0023 D8): neither waits for the other in PE_DMA,
and the fabric arbitrates on shared edges.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from sipsim.config.model import PeDma as PeDmaCost
from sipsim.engine import Engine
from sipsim.errors import MemoryAccessError
from sipsim.ipcq.flits import WireFormat
from sipsim.memory.port import MemoryPort, MemoryPorts
from sipsim.noc.arbitration import COMM, COMPUTE
from sipsim.noc.fabric import Fabric
from sipsim.noc.graph import Graph, Node
from sipsim.topology.address import PhysAddr


class DmaContext(Protocol):
    """The parts of a SIP that its PEs' DMA engines use."""

    sip: int
    engine: Engine
    fabric: Fabric
    memory_ports: MemoryPorts
    wire_format: WireFormat

    @property
    def graph(self) -> Graph: ...


class PeDma:
    """The DMA engine of one PE. Addresses are physical and of this SIP. ``delay_ps`` comes before all else."""

    def __init__(self, context: DmaContext, node: Node, cost: PeDmaCost) -> None:
        self._context = context
        self._node = node
        self._command_bytes = cost.command_bytes
        self._ack_bytes = cost.ack_bytes

    def read(
        self, address: int, nbytes: int, done: Callable[[bytes], None], vc: int = COMPUTE, delay_ps: int = 0
    ) -> None:
        """Fetch ``nbytes``; ``done(data)`` when the last byte has arrived. The memory is read at its read's end."""
        memory_node, port = self._memory_at(address)
        if memory_node == self._node:
            self._after(delay_ps, lambda: port.read(address, nbytes, done))
            return
        context = self._context
        back = context.graph.route(memory_node, self._node)

        def send_back(data: bytes) -> None:
            context.fabric.start(back, context.wire_format.data_bytes(nbytes), lambda _h, _t: done(data), vc)

        forth = context.graph.route(self._node, memory_node)
        read = partial(port.read, address, nbytes, send_back)
        context.fabric.start(forth, self._command_bytes, lambda _h, _t: read(), vc, 0, delay_ps)

    def copy(self, src: int, dst: int, data: bytes, done: Callable[[], None]) -> None:
        """Move ``data``, the present content of ``src``, to ``dst`` over ``vc_comm``: a read and then a write."""
        self.read(src, len(data), lambda _data: self.write(dst, data, done, COMM), COMM)

    def latch(self, src: int, nbytes: int, done: Callable[[], None]) -> None:
        """The time of a copy of ``nbytes`` at ``src`` to the kernel's region of the PE's TCM, over ``vc_comm``."""
        context, node = self._context, self._node
        kernel_pa = PhysAddr(context.sip, int(node.cube), int(node.place), "tcm", 0).encode()
        tcm = context.memory_ports.at("tcm", node)
        self.read(src, nbytes, lambda _data: tcm.time_write(kernel_pa, nbytes, done), COMM)

    def write(self, address: int, data: bytes, done: Callable[[], None], vc: int = COMPUTE, delay_ps: int = 0) -> None:
        """Write ``data``; ``done()`` when the acknowledgement has arrived."""
        memory_node, port = self._memory_at(address)
        if memory_node == self._node:
            self._after(delay_ps, lambda: port.write(address, data, done))
            return
        context = self._context
        back = context.graph.route(memory_node, self._node)

        def acknowledge() -> None:
            context.fabric.start(back, self._ack_bytes, lambda _h, _t: done(), vc)

        forth, wire_bytes = context.graph.route(self._node, memory_node), context.wire_format.data_bytes(len(data))
        written = partial(port.write, address, data, acknowledge)
        context.fabric.start(forth, wire_bytes, lambda _h, _t: written(), vc, 0, delay_ps)

    def _after(self, delay_ps: int, action: Callable[[], None]) -> None:
        if delay_ps:
            engine = self._context.engine
            engine.at(engine.now_ps + delay_ps, action)
        else:
            action()

    def _memory_at(self, address: int) -> tuple[Node, MemoryPort]:
        place = self._local(address)
        node = self._context.graph.node_of(place)
        return node, self._context.memory_ports.at(place.space, node)

    def _local(self, address: int) -> PhysAddr:
        try:
            place = PhysAddr.decode(address)
        except ValueError as error:
            raise MemoryAccessError(str(error)) from None
        if place.sip != self._context.sip:
            raise MemoryAccessError(f"{place} is on another SIP; tl.load and tl.store reach their own SIP only")
        return place
