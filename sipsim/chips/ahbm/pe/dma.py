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
from sipsim.chips.ahbm.memory.ports import MemoryPort, MemoryPorts, Reading
from sipsim.chips.ahbm.memory.store import Block
from sipsim.chips.ahbm.parts import SipParts
from sipsim.chips.ahbm.pe.commands import MathWork
from sipsim.core.errors import MemoryAccessError
from sipsim.fabric.channels import COMM, COMPUTE
from sipsim.fabric.graph import Node, Route

Ps = int
TcmAddress = int | None
"""An address in the TCM; None: the start of the kernel's region, for data that have no address of their own."""


class Command(Protocol):
    """A command under way, until it has ``ended``, with an error or without."""

    ended: bool


class PeTcm:
    """A PE's TCM, for what its kernel holds: without effect where it has no bandwidth of its own.

    ``address``: the start of the kernel's region, for data that have no address of their own.
    """

    def __init__(self, sip: int, ports: MemoryPorts, node: Node) -> None:
        self.port = ports.at("tcm", node)
        self.address = PhysAddr(sip, node.cube, int(node.place), "tcm", 0).encode()

    def leaving(self, nbytes: int, route: Route | None = None, address: TcmAddress = None) -> Reading:
        """Begin to read data at ``address`` that leave the PE over ``route``; without one, to its engines."""
        block = self._block(nbytes, address)
        return Reading(route or self.port.here, 0, 0) if block is None else self.port.reading(block, route)

    def landing(self, nbytes: int, route: Route | None = None, address: TcmAddress = None) -> Route:
        """The route of data that come to ``address`` over ``route``; without one, from the PE's engines."""
        block = self._block(nbytes, address)
        return route or self.port.here if block is None else self.port.writing(block, route)

    def operating(self, work: MathWork) -> Route:
        """The route of an operation of PE_MATH, which reads and writes as it goes."""
        if not self.port.bandwidths:
            return self.port.here
        read = [Block.piece(self._at(address), nbytes) for address, nbytes in work.operands]
        return self.port.through(work.nbytes, read, Block.piece(self._at(work.result.address), work.result.nbytes))

    def landed_ps(self, nbytes: int) -> Ps:
        """The time until data have landed whose last byte is here now."""
        block = self._block(nbytes)
        return 0 if block is None else self.port.written_ps(block)

    def _block(self, nbytes: int, address: TcmAddress = None) -> Block | None:
        """Where data of the kernel are; None if they take no time there."""
        return Block.piece(self._at(address), nbytes) if self.port.bandwidths and nbytes else None

    def _at(self, address: TcmAddress) -> int:
        return self.address if address is None else address


class PeDma:
    """The DMA engine of one PE. Addresses are physical and of this SIP. ``delay_ps`` comes before all else.

    ``tcm``: the ports of its TCM, which other engines of the PE use, too. ``engine``: the engine of the PE whose
    transfers these are; ``stores`` of its writes leave at a time on ``vc_compute``.
    """

    def __init__(self, sip: SipParts, node: Node, engine: str, stores: int) -> None:
        self._sip = sip
        self._node = node
        self._engine = engine
        self._stores = stores
        cost = sip.plan.resolved.components.pe_dma
        self._command_bytes = cost.command_bytes
        self._ack_bytes = cost.ack_bytes
        self._of_kernel: deque[Command] = deque()
        self.tcm = PeTcm(sip.sip, sip.memory_ports, node)

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
        self, address: int, nbytes: int, done: Callable[[bytes], None], delay_ps: Ps = 0, tcm_pa: TcmAddress = None
    ) -> None:
        """Fetch ``nbytes`` to ``tcm_pa`` in the TCM; ``done(data)`` when all are here. The memory is read when the
        first byte leaves it.
        """
        self._read(Block.piece(address, nbytes), done, COMPUTE, delay_ps, tcm_pa)

    def read_block(
        self, block: Block, done: Callable[[bytes], None], delay_ps: Ps = 0, tcm_pa: TcmAddress = None
    ) -> None:
        """Fetch the bytes of a block, by one command and one transfer; else as :meth:`read`.

        A block in one piece takes exactly what :meth:`read` does.
        """
        self._read(block.joined, done, COMPUTE, delay_ps, tcm_pa)

    def copy(self, src: int, dst: int, data: bytes, done: Callable[[], None]) -> None:
        """Move ``data``, the present content of ``src``, to ``dst`` over ``vc_comm``: a read and then a write."""
        nbytes = len(data)
        target = Block.piece(dst, nbytes)
        passed = partial(self._write, target, data, done, COMM, leaves=False)
        self._read(Block.piece(src, nbytes), lambda _data: passed(), COMM, lands=False)

    def _replies(self, memory_node: Node, vc: int) -> Any:
        """What a memory sends back to this engine."""
        return self._sip.fabric.train((memory_node, self._node, self._engine), vc, is_reply=True)

    def write(
        self, address: int, data: bytes, done: Callable[[], None], delay_ps: Ps = 0, tcm_pa: TcmAddress = None
    ) -> None:
        """Write ``data``, from ``tcm_pa`` in the TCM, to ``address``; ``done()`` when the acknowledgement is here."""
        self.write_block(Block.piece(address, len(data)), data, done, delay_ps, tcm_pa)

    def write_block(
        self, block: Block, data: bytes, done: Callable[[], None], delay_ps: Ps = 0, tcm_pa: TcmAddress = None
    ) -> None:
        """Write ``data`` of the PE to a block, by one transfer; else as :meth:`write`, also in its time if the block is
        in one piece.

        Raises:
            MemoryAccessError: for an address that is not in a memory of this SIP.
        """
        self._memory_at(block.address)
        self._after(delay_ps, lambda: self._write(block.joined, data, done, COMPUTE, tcm_pa))

    def _read(
        self,
        block: Block,
        done: Callable[[bytes], None],
        vc: int,
        delay_ps: Ps = 0,
        tcm_pa: TcmAddress = None,
        lands: bool = True,
    ) -> None:
        """``lands``: the bytes are written to the PE's TCM, and do not only pass."""
        sip, nbytes = self._sip, block.nbytes
        memory_node, port = self._memory_at(block.address)
        if memory_node == self._node:

            def read_here() -> None:
                self._within(port.reading(block), nbytes, vc, "reads", lambda: done(sip.memory.read_block(block)))

            self._after(delay_ps, read_here)
            return
        back = sip.graph.route(memory_node, self._node)
        back = self.tcm.landing(nbytes, back, tcm_pa) if lands else back

        def read_out() -> None:
            reading = port.reading(block, back)
            self._after(reading.first_ps, lambda: send_back(reading))

        def send_back(reading: Reading) -> None:
            data = sip.memory.read_block(block)

            def here(_head_ps: Ps, _tail_ps: Ps) -> None:
                self._after(self.tcm.landed_ps(nbytes) if lands else 0, partial(done, data))

            wire_bytes = sip.wire_format.data_bytes(nbytes)
            train = self._replies(memory_node, vc)
            sip.fabric.start(train, reading.route, wire_bytes, here, None, reading.span_ps, reading.span_ps)

        forth = sip.graph.route(self._node, memory_node)
        train = sip.fabric.train((self._node, self._engine, "commands"), vc)
        sip.fabric.start(train, forth, self._command_bytes, lambda _h, _t: read_out(), None, delay_ps)

    def latch(self, src: int, dst: int, nbytes: int, done: Callable[[], None]) -> None:
        """The time of a copy of ``nbytes`` at ``src`` to ``dst`` in the PE's TCM, over ``vc_comm``.

        Bytes are written as they come, within the TCM too. Where reads and writes share its port, both take it.
        """
        block, tcm = Block.piece(src, nbytes), self.tcm.port
        if self._memory_at(src)[0] == self._node:
            target = Block.piece(dst, nbytes)
            copying = Reading(tcm.through(nbytes, (block,), target), tcm.least_read_ps, 0)
            self._within(copying, nbytes, COMM, "copies", lambda: self._after(tcm.written_ps(target), done))
            return
        rest_ps = 0 if tcm.bandwidths else tcm.least_write_ps
        self._read(block, lambda _data: self._after(rest_ps, done), COMM, tcm_pa=dst)

    def _write(
        self,
        block: Block,
        data: bytes,
        done: Callable[[], None],
        vc: int,
        tcm_pa: TcmAddress = None,
        leaves: bool = True,
    ) -> None:
        """``leaves``: the bytes are read from the PE's TCM, and do not only pass."""
        sip, nbytes = self._sip, len(data)
        memory_node, port = self._memory_at(block.address)

        def write(then: Callable[[], None]) -> None:
            sip.memory.write_block(block, data)
            then()

        if memory_node == self._node:

            def here() -> None:
                self._after(port.written_ps(block), partial(write, done))

            self._within(Reading(port.writing(block), 0, 0), nbytes, vc, "writes", here)
            return
        back = sip.graph.route(memory_node, self._node)

        def acknowledge() -> None:
            sip.fabric.start(self._replies(memory_node, vc), back, self._ack_bytes, lambda _h, _t: done())

        def arrived(_head_ps: Ps, _tail_ps: Ps) -> None:
            self._after(port.written_ps(block), partial(write, acknowledge))

        forth = sip.graph.route(self._node, memory_node)
        reading = self.tcm.leaving(nbytes, forth, tcm_pa) if leaves else Reading(forth, 0, 0)
        route, delay_ps = port.writing(block, reading.route), reading.first_ps + reading.span_ps
        in_flight = self._stores if vc == COMPUTE else 1
        train = sip.fabric.train((self._node, self._engine), vc, in_flight)
        wire_bytes = sip.wire_format.data_bytes(nbytes)
        sip.fabric.start(train, route, wire_bytes, arrived, None, delay_ps, reading.span_ps)

    def fetch(self, nbytes: int, delay_ps: Ps, done: Callable[[], None]) -> None:
        """The time of a read of the PE's TCM by PE_FETCH_STORE, which begins in ``delay_ps``."""
        route, first_ps, span_ps = self.tcm.leaving(nbytes)
        self._within(Reading(route, delay_ps + first_ps, span_ps), nbytes, COMPUTE, "fetches", done)

    def put(self, nbytes: int, delay_ps: Ps, done: Callable[[], None]) -> None:
        """As :meth:`fetch`, of a write."""
        landed = partial(self._when_landed, nbytes, done)
        self._within(Reading(self.tcm.landing(nbytes), delay_ps, 0), nbytes, COMPUTE, "stores", landed)

    def operate(self, route: Route, nbytes: int, delay_ps: Ps, span_ps: Ps, done: Callable[[], None]) -> None:
        """The time of an operation of PE_MATH, which reads and writes the TCM as it goes: it begins in ``delay_ps``,
        and takes at least ``span_ps``."""
        self._within(Reading(route, delay_ps, span_ps), nbytes, COMPUTE, "operations", done)

    def _when_landed(self, nbytes: int, done: Callable[[], None]) -> None:
        self._after(self.tcm.landed_ps(nbytes), done)

    def _within(self, reading: Reading, nbytes: int, vc: int, what: str, done: Callable[[], None]) -> None:
        """An access to the PE's own memory; those of one engine that are the same ``what`` follow each other."""
        route, first_ps, span_ps = reading
        if not route.edges:
            self._after(first_ps + span_ps, done)
            return
        train = self._sip.fabric.train((self._node, self._engine, what), vc)
        self._sip.fabric.start(train, route, nbytes, lambda _h, _t: done(), None, first_ps + span_ps, span_ps)

    def _after(self, delay_ps: Ps, action: Callable[[], None]) -> None:
        if delay_ps:
            engine = self._sip.engine
            engine.at(engine.now_ps + delay_ps, action)
        else:
            action()

    def _memory_at(self, address: int) -> tuple[Node, MemoryPort]:
        place = self._local(address)
        node = self._sip.graph.node_of(place)
        return node, self._sip.memory_ports.at(place.space, node)

    def _local(self, address: int) -> PhysAddr:
        try:
            place = PhysAddr.decode(address)
        except ValueError as error:
            raise MemoryAccessError(str(error)) from None
        if place.sip != self._sip.sip:
            raise MemoryAccessError(f"{place} is on another SIP; tl.load and tl.store reach their own SIP only")
        return place
