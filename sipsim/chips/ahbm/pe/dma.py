"""PE_DMA: the data plane of a PE. It moves bytes between memories over the fabric and knows nothing of queues.

Reads are a command to the memory, its read latency, and the data back, which leave the memory as they are read. Writes
are *non-posted*: the data, the memory's write latency, and an acknowledgement over the route back (DESIGN section 5,
"raw DMA"). What a kernel loads or stores passes its PE's TCM, whose ports it takes if they have a bandwidth; a copy
passes PE_DMA alone. Loads and stores of kernels use ``vc_compute``, transfers of PE_IPCQ use ``vc_comm`` (ADR-0023 D8):
neither waits for the other in PE_DMA, and the fabric arbitrates on shared edges.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.ipcq.messages import WireFormat
from sipsim.chips.ahbm.memory.ports import MemoryPort, MemoryPorts, StreamingPort
from sipsim.chips.ahbm.memory.store import Block
from sipsim.chips.ahbm.mesh import Graph
from sipsim.config.schema import PeDma as PeDmaCost
from sipsim.core.engine import Engine
from sipsim.core.errors import MemoryAccessError
from sipsim.fabric.channels import COMM, COMPUTE
from sipsim.fabric.graph import Node
from sipsim.fabric.transport import Transport

Ps = int
Land = Callable[[bytes, Callable[[bytes], None], Ps, Ps], None]
"""What takes data at the PE, told the times of their head and tail there, and calls with them when all are there."""


class Command(Protocol):
    """A command under way, until it has ``ended``, with an error or without."""

    ended: bool


class DmaContext(Protocol):
    """The parts of a SIP that its PEs' DMA engines use."""

    sip: int
    engine: Engine
    memory_ports: MemoryPorts
    wire_format: WireFormat

    @property
    def fabric(self) -> Transport: ...

    @property
    def graph(self) -> Graph: ...


def _pass_on(data: bytes, done: Callable[[bytes], None], _head_ps: Ps, _tail_ps: Ps) -> None:
    """Data that do not stay at the PE."""
    done(data)


class PeTcm:
    """The ports of a PE's TCM, for what its kernel holds: without effect where they have no bandwidth.

    ``address``: the first byte of the kernel's region.
    """

    def __init__(self, sip: int, ports: MemoryPorts, node: Node) -> None:
        port = ports.at("tcm", node)
        self._port = port if isinstance(port, StreamingPort) else None
        self.address = PhysAddr(sip, node.cube, int(node.place), "tcm", 0).encode()

    @property
    def has_ports(self) -> bool:
        """Whether its ports have a bandwidth."""
        return self._port is not None

    def land(self, data: bytes, done: Callable[[bytes], None], head_ps: Ps, tail_ps: Ps) -> None:
        """Write data that came from ``head_ps`` to ``tail_ps``, which is now; then ``done(data)``."""
        if self._port is None:
            done(data)
        else:
            self._port.stream_write(self.address, len(data), tail_ps - head_ps, partial(done, data))

    def take(self, nbytes: int) -> tuple[Ps, Ps]:
        """Begin to read data that leave the PE: time until the last byte, and from the first to the last."""
        if self._port is None:
            return 0, 0
        first_ps, span_ps = self._port.claim_read(self.address, nbytes)
        return first_ps + span_ps, span_ps

    def put(self, nbytes: int) -> Ps:
        """Begin to write what engines of the PE have made: time until it is there."""
        return 0 if self._port is None else self._port.claim_write(self.address, nbytes, 0)


class PeDma:
    """The DMA engine of one PE. Addresses are physical and of this SIP. ``delay_ps`` comes before all else.

    ``tcm``: the ports of its TCM, which other engines of the PE use, too. ``engine``: the engine of the PE whose
    transfers these are; ``loads`` of its commands and ``stores`` of its writes leave at a time on ``vc_compute``.
    """

    def __init__(self, context: DmaContext, node: Node, cost: PeDmaCost, engine: str, loads: int, stores: int) -> None:
        self._context = context
        self._node = node
        self._engine = engine
        self._loads = loads
        self._stores = stores
        self._command_bytes = cost.command_bytes
        self._ack_bytes = cost.ack_bytes
        self._of_kernel: deque[Command] = deque()
        self.tcm = PeTcm(context.sip, context.memory_ports, node)

    def given(self, command: Command) -> None:
        """The kernel has given a load or a store."""
        self._forget_ended()
        self._of_kernel.append(command)

    @property
    def has_kernel_commands(self) -> bool:
        """Whether loads or stores of the kernel have not ended."""
        self._forget_ended()
        return bool(self._of_kernel)

    def _forget_ended(self) -> None:
        while self._of_kernel and self._of_kernel[0].ended:
            self._of_kernel.popleft()

    def check(self, address: int) -> None:
        """Check that a command of a kernel can start: a refused one takes no place in a queue, and claims no slot.

        Raises:
            MemoryAccessError: for an address that is not in a memory of this SIP.
        """
        self._memory_at(address)

    def read(
        self, address: int, nbytes: int, done: Callable[[bytes], None], vc: int = COMPUTE, delay_ps: Ps = 0
    ) -> None:
        """Fetch ``nbytes``; ``done(data)`` when all are here. The memory is read when the first one leaves it."""
        self._read(address, nbytes, done, vc, self.tcm.land, delay_ps)

    def read_block(self, block: Block, done: Callable[[bytes], None], vc: int = COMPUTE, delay_ps: Ps = 0) -> None:
        """Fetch the bytes of a block, by one command and one transfer; else as :meth:`read`.

        A block in one piece takes exactly what :meth:`read` does.
        """
        rows = None if block.is_contiguous else block
        self._read(block.address, block.nbytes, done, vc, self.tcm.land, delay_ps, rows)

    def copy(self, src: int, dst: int, data: bytes, done: Callable[[], None]) -> None:
        """Move ``data``, the present content of ``src``, to ``dst`` over ``vc_comm``: a read and then a write."""
        self._read(src, len(data), lambda _data: self._write(dst, data, done, COMM, 0, 0), COMM, _pass_on)

    def _replies(self, memory_node: Node, vc: int) -> Any:
        """What a memory sends back to this engine."""
        return self._context.fabric.train((memory_node, self._node, self._engine), vc, is_reply=True)

    def write(self, address: int, data: bytes, done: Callable[[], None], vc: int = COMPUTE, delay_ps: Ps = 0) -> None:
        """Write ``data`` of the PE; ``done()`` when the acknowledgement has arrived."""
        self._write_own(address, data, done, vc, delay_ps)

    def write_block(
        self, block: Block, data: bytes, done: Callable[[], None], vc: int = COMPUTE, delay_ps: Ps = 0
    ) -> None:
        """Write ``data`` of the PE to a block, by one transfer; else as :meth:`write`, also in its time if the block is
        in one piece."""
        self._write_own(block.address, data, done, vc, delay_ps, None if block.is_contiguous else block)

    def _write_own(
        self,
        address: int,
        data: bytes,
        done: Callable[[], None],
        vc: int,
        delay_ps: Ps,
        rows: Block | None = None,
    ) -> None:
        """Write what is in the PE's TCM. ``rows``: the block at ``address``, None if it is in one piece."""
        if self._memory_at(address)[0] == self._node or self.tcm.has_ports:
            self._after(delay_ps, lambda: self._take_and_write(address, data, done, vc, rows))
        else:
            self._write(address, data, done, vc, delay_ps, 0, rows)

    def _take_and_write(self, address: int, data: bytes, done: Callable[[], None], vc: int, rows: Block | None) -> None:
        is_near = self._memory_at(address)[0] == self._node
        taken_ps, span_ps = (0, 0) if is_near else self.tcm.take(len(data))
        self._write(address, data, done, vc, taken_ps, span_ps, rows)

    def _read(
        self,
        address: int,
        nbytes: int,
        done: Callable[[bytes], None],
        vc: int,
        land: Land,
        delay_ps: Ps = 0,
        rows: Block | None = None,
    ) -> None:
        memory_node, port = self._memory_at(address)
        if memory_node == self._node:
            read = partial(port.read, address, nbytes, done) if rows is None else partial(port.read_block, rows, done)
            self._after(delay_ps, read)
            return
        context = self._context
        back = context.graph.route(memory_node, self._node)

        def send_back(data: bytes, span_ps: Ps) -> None:
            here = partial(land, data, done)
            wire_bytes = context.wire_format.data_bytes(nbytes)
            train = self._replies(memory_node, vc)
            context.fabric.start(train, back, wire_bytes, here, None, span_ps, span_ps)

        forth = context.graph.route(self._node, memory_node)
        if rows is None:
            read_out = partial(port.read_out, address, nbytes, send_back)
        else:
            read_out = partial(port.read_out_block, rows, send_back)
        in_flight = self._loads if vc == COMPUTE else 1
        train = context.fabric.train((self._node, self._engine, "commands"), vc, in_flight)
        context.fabric.start(train, forth, self._command_bytes, lambda _h, _t: read_out(), None, delay_ps)

    def latch(self, src: int, nbytes: int, done: Callable[[], None]) -> None:
        """The time of a copy of ``nbytes`` at ``src`` to the kernel's region of the PE's TCM, over ``vc_comm``.

        Bytes are written as they come. Within the TCM too, where reads and writes have ports of their own; where they
        share one, the write waits for the read (:meth:`MemoryPort.copy_span_ps`).
        """
        memory_node, port = self._memory_at(src)
        if memory_node == self._node:

            def leave(span_ps: Ps) -> None:
                self._after(span_ps, lambda: port.stream_write(self.tcm.address, nbytes, span_ps, done))

            port.stream_read(src, nbytes, leave)
            return
        tcm = self._context.memory_ports.at("tcm", self._node)

        def land(_data: bytes, _done: object, head_ps: Ps, tail_ps: Ps) -> None:
            tcm.stream_write(self.tcm.address, nbytes, tail_ps - head_ps, done)

        self._read(src, nbytes, lambda _data: None, COMM, land)

    def _write(
        self,
        address: int,
        data: bytes,
        done: Callable[[], None],
        vc: int,
        delay_ps: Ps,
        span_ps: Ps,
        rows: Block | None = None,
    ) -> None:
        """``delay_ps`` and ``span_ps``: of the data at this PE, as in ``Fabric.start``."""
        memory_node, port = self._memory_at(address)
        write = partial(port.write, address) if rows is None else partial(port.write_block, rows)
        if memory_node == self._node:
            write(data, done)
            return
        context = self._context
        back = context.graph.route(memory_node, self._node)

        def acknowledge() -> None:
            context.fabric.start(self._replies(memory_node, vc), back, self._ack_bytes, lambda _h, _t: done())

        forth, wire_bytes = context.graph.route(self._node, memory_node), context.wire_format.data_bytes(len(data))

        def arrived(head_ps: Ps, tail_ps: Ps) -> None:
            write(data, acknowledge, tail_ps - head_ps)

        in_flight = self._stores if vc == COMPUTE else 1
        train = context.fabric.train((self._node, self._engine), vc, in_flight)
        context.fabric.start(train, forth, wire_bytes, arrived, None, delay_ps, span_ps)

    def _after(self, delay_ps: Ps, action: Callable[[], None]) -> None:
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
