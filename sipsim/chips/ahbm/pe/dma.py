"""PE_DMA: the loads and stores of a kernel, and the data plane of a PE, which moves bytes between memories.

A read is a command to the memory, the memory's read latency, and the data, which leave the memory as they are read. A
write is *non-posted*: the data, the memory's write latency, and an acknowledgement over the return route. Loads and
stores use the ports of the PE's TCM, if these have a bandwidth; a copy uses only PE_DMA. Loads and stores of kernels
use ``vc_compute``, transfers of PE_IPCQ use ``vc_comm`` (ADR-0023 D8): neither waits for the other in PE_DMA, and the
fabric arbitrates on shared edges.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.ahbm.address import OFFSET_BITS, Block, PhysAddr
from sipsim.chips.ahbm.memory.ports import MemoryPort, MemoryPorts, Reading
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.chips.ahbm.pe.commands import Completion, DmaRead, DmaWrite, MathWork
from sipsim.chips.ahbm.pe.engine import CommandEngine, Issue, Order, Take, engine_for
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import MemoryAccessError
from sipsim.fabric.channels import COMM, COMPUTE
from sipsim.fabric.graph import Node, Route
from sipsim.records.oplog import as_text, record_kind, shape_of
from sipsim.records.replay import READ as AS_READ
from sipsim.records.replay import WRITTEN, ReplayPe, Values, read_rows, replays, write_rows

Ps = int
TcmAddress = int | None
"""Address in the TCM; None, for data without an address, stands for the start of the kernel's region."""
READ = record_kind("dma_read", "addr", "nbytes", "dtype", "shape", "result")
LOADS_AND_STORES = "PE_DMA"
"""Name of the queue of loads and stores."""
WRITE = record_kind("dma_write", "addr", "nbytes", "dtype", "shape", "operand")
READ_BLOCK = record_kind("dma_read_block", "addr", "nbytes", "rows", "pitch", "dtype", "shape", "result")
WRITE_BLOCK = record_kind("dma_write_block", "addr", "nbytes", "rows", "pitch", "dtype", "shape", "operand")
"""Records of a block in memory: ``nbytes`` in ``rows`` of equal size, ``pitch`` bytes from row to row."""


class PeTcm:
    """Accesses of a PE's engines to the PE's TCM; accesses take no time if the TCM's ports have no bandwidth.

    ``address``: start of the kernel's region, for data without an address.
    """

    def __init__(self, sip: int, ports: MemoryPorts, node: Node) -> None:
        self.port = ports.at("tcm", node)
        self.address = PhysAddr(sip, node.cube, int(node.place), "tcm", 0).encode()

    def leaving(self, nbytes: int, route: Route | None = None, address: TcmAddress = None) -> Reading:
        """Begin to read data at ``address`` and send it over ``route``, to the PE's engines if ``route`` is None."""
        block = self._block(nbytes, address)
        return Reading(route or self.port.here, 0, 0) if block is None else self.port.reading(block, route)

    def landing(self, nbytes: int, route: Route | None = None, address: TcmAddress = None) -> Route:
        """Return the route of a write to ``address`` over ``route``, from the PE's engines if ``route`` is None."""
        block = self._block(nbytes, address)
        return route or self.port.here if block is None else self.port.writing(block, route)

    def operating(self, work: MathWork) -> Route:
        """Return the route of an operation of PE_MATH, which reads and writes the TCM at the same time."""
        if not self.port.bandwidths:
            return self.port.here
        pieces = [
            Block(self.address if address is None else address, 1, nbytes, nbytes)
            for address, nbytes in (*work.operands, work.result)
        ]
        return self.port.through(work.nbytes, pieces[:-1], pieces[-1])

    def landed_ps(self, nbytes: int) -> Ps:
        """Return the write time that is left when the last byte of a write has arrived, in ps."""
        block = self._block(nbytes)
        return 0 if block is None else self.port.written_ps(block)

    def _block(self, nbytes: int, address: TcmAddress = None) -> Block | None:
        """Return the block of an access; None if the access takes no time."""
        if not (self.port.bandwidths and nbytes):
            return None
        return Block(self.address if address is None else address, 1, nbytes, nbytes)


class TransferOrder:
    """Order of loads and stores: at most ``loads`` loads and ``stores`` stores are in flight at a time; they end in any
    order.

    A command waits for each earlier command with overlapping bytes, unless both are loads. So the values that loads
    return and the final memory contents do not depend on the number in flight. A store also waits for an earlier store
    of the same handle that is still fetching the handle's values from their slot.
    """

    def __init__(self, memory: MemoryStore, loads: int, stores: int) -> None:
        self._canonical = memory.canonical
        self._loads = loads
        self._stores = stores

    def __call__(self, before: Sequence[Completion], completion: Completion) -> bool:
        if not before:
            return True
        operand = _operand(completion)
        alike = [each for each in before if (_operand(each) is None) == (operand is None)]
        if len(alike) >= (self._loads if operand is None else self._stores):
            return False
        if operand is not None and any(_is_fetching(each, operand) for each in alike):
            return False
        block = self._block(completion)
        others = before if operand is not None else (each for each in before if _operand(each) is not None)
        return not any(self._block(each).meets(block) for each in others)

    def _block(self, completion: Completion) -> Block:
        """Return the block that a command accesses, at its canonical address."""
        block: Block = completion.command.block
        return Block(self._canonical(block.address), block.rows, block.row_bytes, block.pitch)


def _operand(completion: Completion) -> Handle | None:
    """Return a store's operand; None for a load."""
    operand: Handle | None = getattr(completion.command, "operand", None)
    return operand


def _is_fetching(store: Completion, operand: Handle) -> bool:
    return _operand(store) is operand and (operand.slot_pa is not None or store.value is not None)


class MemoryAccess(NamedTuple):
    """Node and port of a memory, and a PE's routes to and from it; the routes are None for the PE's own TCM."""

    node: Node
    port: MemoryPort
    forth: Route | None
    back: Route | None


@engine_for(DmaRead, DmaWrite)
class PeDma(CommandEngine):
    """DMA engine of one PE. Addresses are physical and in this SIP. A transfer starts after ``delay_ps``.

    A load ends when its last byte has arrived, a store when it is acknowledged. ``tcm``: the ports of the PE's TCM,
    which other engines of the PE use too. ``part``: the engine of the PE that the transfers belong to; at most
    ``stores`` of its writes on ``vc_compute`` are sent at a time.
    """

    starts_later = True
    queue_name = LOADS_AND_STORES

    def __init__(self, sip: SipParts, pe: PeParts, part: str, stores: int) -> None:
        super().__init__(sip, pe)
        self._node = Node("pe", pe.cube, pe.pe)
        self._part = part
        self._stores = stores
        cost = sip.plan.resolved.components.pe_dma
        self._command_bytes = cost.command_bytes
        self._ack_bytes = cost.ack_bytes
        self._kernel_commands: deque[Completion] = deque()
        self._memories: dict[int, MemoryAccess] = {}
        self.tcm = PeTcm(sip.sip, sip.memory_ports, self._node)

    @classmethod
    def order(cls, sip: SipParts) -> Order:
        cost = sip.plan.resolved.components.pe_dma
        return TransferOrder(sip.memory, cost.outstanding_loads, cost.outstanding_stores)

    def accepts(self, command: type) -> tuple[Issue, Take]:
        return self.issue, self.load if command is DmaRead else self.store

    def load(self, command: DmaRead) -> Completion:
        """Load a block into its handle, at the handle's TCM address.

        Raises:
            MemoryAccessError: for an address that is not in a memory of this SIP.
        """
        memory, completion = self.memory_at(command.block.address), self._begin_kernel_command(command)
        self._enter(completion, partial(self._load, memory))
        return completion

    def store(self, command: DmaWrite) -> Completion:
        """Write the values of a handle to a block.

        Raises:
            MemoryAccessError: for an address that is not in a memory of this SIP.
        """
        memory, completion = self.memory_at(command.block.address), self._begin_kernel_command(command)
        # Read before the claim, which clears the operand's slot.
        source = command.operand.tcm_pa
        self._claim(completion, command.operand)
        self._enter(completion, partial(self._fetch, then=partial(self._store, memory, source)))
        return completion

    def _begin_kernel_command(self, command: DmaRead | DmaWrite) -> Completion:
        completion = self._begin(command)
        self._forget_ended()
        self._kernel_commands.append(completion)
        return completion

    @property
    def has_kernel_commands(self) -> bool:
        """Whether loads or stores of the kernel have not ended."""
        self._forget_ended()
        return bool(self._kernel_commands)

    def _forget_ended(self) -> None:
        while self._kernel_commands and self._kernel_commands[0].ended:
            self._kernel_commands.popleft()

    def _load(self, memory: MemoryAccess, completion: Completion) -> None:
        command, loaded, delay_ps = completion.command, partial(self._loaded, completion), self._delay_ps(completion)
        self._read(memory, command.block, loaded, COMPUTE, delay_ps, command.result.tcm_pa)

    def _loaded(self, completion: Completion, data: bytes) -> None:
        command: DmaRead = completion.command
        block, result, dtype = command.block, command.result, command.dtype
        result.array = np.frombuffer(data, dtype.numpy).reshape(command.dims)
        fields = *_place(block), dtype.name, as_text(command.dims), result.name
        del result, command
        work = block.address, block.nbytes
        self._end(completion, READ if block.is_contiguous else READ_BLOCK, *fields, work=work)

    def _store(self, memory: MemoryAccess, source: TcmAddress, completion: Completion) -> None:
        block, data = completion.command.block, completion.command.operand.array.tobytes()
        stored = partial(self._stored, completion)
        self._after(self._delay_ps(completion), partial(self._write, memory, block, data, stored, COMPUTE, source))

    def _stored(self, completion: Completion) -> None:
        block, operand = completion.command.block, completion.command.operand
        fields = *_place(block), operand.dtype.name, as_text(operand.shape), operand.name
        del operand
        work = block.address, block.nbytes
        self._end(completion, WRITE if block.is_contiguous else WRITE_BLOCK, *fields, work=work)

    def _operands(self, command: DmaWrite) -> tuple[Handle, ...]:
        return (command.operand,)

    def made(self, command: DmaRead | DmaWrite) -> Handle | Values | None:
        """Return the bytes that a store wrote to the memory, or the result of a load."""
        return self._sip.memory.read_block(command.block) if isinstance(command, DmaWrite) else command.result

    # --- transfers of the PE's engines

    def read(self, block: Block, done: Callable[[bytes], None], delay_ps: Ps = 0, tcm_pa: TcmAddress = None) -> None:
        """Fetch a block to ``tcm_pa`` in the TCM with one command and one transfer; call ``done(data)`` at its end. The
        memory is read when the first byte leaves it.
        """
        self._read(self.memory_at(block.address), block.joined, done, COMPUTE, delay_ps, tcm_pa)

    def write(self, block: Block, data: bytes, done: Callable[[], None]) -> None:
        """Write ``data`` of the PE to a block with one transfer; call ``done()`` when the acknowledgement arrives.

        Raises:
            MemoryAccessError: for an address that is not in a memory of this SIP.
        """
        self._write(self.memory_at(block.address), block.joined, data, done, COMPUTE)

    def copy(self, src: int, dst: int, data: bytes, done: Callable[[], None]) -> None:
        """Copy ``data``, the current contents of ``src``, to ``dst`` over ``vc_comm``: a read and then a write."""
        nbytes = len(data)

        def write(_data: bytes) -> None:
            self._write(self.memory_at(dst), Block.piece(dst, nbytes), data, done, COMM, leaves=False)

        self._read(self.memory_at(src), Block.piece(src, nbytes), write, COMM, lands=False)

    def _replies(self, memory: MemoryAccess, vc: int) -> Any:
        """Return the train of a memory's replies to this engine."""
        return self._sip.fabric.train((memory.node, self._node, self._part), vc, is_reply=True)

    def _read(
        self,
        memory: MemoryAccess,
        block: Block,
        done: Callable[[bytes], None],
        vc: int,
        delay_ps: Ps = 0,
        tcm_pa: TcmAddress = None,
        lands: bool = True,
    ) -> None:
        """Read a block. ``lands``: the bytes are written to the PE's TCM; else they pass only through PE_DMA."""
        sip, nbytes, port = self._sip, block.nbytes, memory.port
        if memory.forth is None or memory.back is None:

            def read_here() -> None:
                self._within(port.reading(block), nbytes, vc, "reads", lambda: done(sip.memory.read_block(block)))

            self._after(delay_ps, read_here)
            return
        back = self.tcm.landing(nbytes, memory.back, tcm_pa) if lands else memory.back

        def read_out() -> None:
            reading = port.reading(block, back)
            self._after(reading.first_ps, lambda: send_back(reading))

        def send_back(reading: Reading) -> None:
            data = sip.memory.read_block(block)

            def landed(_head_ps: Ps, _tail_ps: Ps) -> None:
                self._after(self.tcm.landed_ps(nbytes) if lands else 0, partial(done, data))

            wire_bytes = sip.wire_format.data_bytes(nbytes)
            train = self._replies(memory, vc)
            sip.fabric.start(train, reading.route, wire_bytes, landed, None, reading.span_ps, reading.span_ps)

        train = sip.fabric.train((self._node, self._part, "commands"), vc)

        def asked(_head_ps: Ps, _tail_ps: Ps) -> None:
            port.when_served(block, True, read_out)

        sip.fabric.start(train, memory.forth, self._command_bytes, asked, None, delay_ps)

    def latch(self, src: int, dst: int, nbytes: int, done: Callable[[], None]) -> None:
        """Time a copy of ``nbytes`` at ``src`` to ``dst`` in the PE's TCM over ``vc_comm``; no bytes move.

        Bytes are written as they arrive, within the TCM too. If reads and writes share the TCM's port, both use it.
        """
        block, tcm = Block.piece(src, nbytes), self.tcm.port
        memory = self.memory_at(src)
        if memory.node == self._node:
            target = Block.piece(dst, nbytes)
            copying = Reading(tcm.through(nbytes, (block,), target), tcm.least_read_ps, 0)
            self._within(copying, nbytes, COMM, "copies", lambda: self._after(tcm.written_ps(target), done))
            return
        rest_ps = 0 if tcm.bandwidths else tcm.least_write_ps
        self._read(memory, block, lambda _data: self._after(rest_ps, done), COMM, tcm_pa=dst)

    def _write(
        self,
        memory: MemoryAccess,
        block: Block,
        data: bytes,
        done: Callable[[], None],
        vc: int,
        tcm_pa: TcmAddress = None,
        leaves: bool = True,
    ) -> None:
        """Write a block. ``leaves``: the bytes are read from the PE's TCM; else they pass only through PE_DMA."""
        sip, nbytes, port, back = self._sip, len(data), memory.port, memory.back

        if memory.forth is None or back is None:

            def landed() -> None:
                self._after(port.written_ps(block), partial(self._write_block, block, data, done))

            self._within(Reading(port.writing(block), 0, 0), nbytes, vc, "writes", landed)
            return

        def acknowledge() -> None:
            sip.fabric.start(self._replies(memory, vc), back, self._ack_bytes, lambda _h, _t: done())

        def served() -> None:
            self._after(port.written_ps(block), partial(self._write_block, block, data, acknowledge))

        def arrived(_head_ps: Ps, _tail_ps: Ps) -> None:
            port.when_served(block, False, served)

        reading = self.tcm.leaving(nbytes, memory.forth, tcm_pa) if leaves else Reading(memory.forth, 0, 0)
        route, delay_ps = port.writing(block, reading.route), reading.first_ps + reading.span_ps
        in_flight = self._stores if vc == COMPUTE else 1
        train = sip.fabric.train((self._node, self._part), vc, in_flight)
        wire_bytes = sip.wire_format.data_bytes(nbytes)
        sip.fabric.start(train, route, wire_bytes, arrived, None, delay_ps, reading.span_ps)

    def _write_block(self, block: Block, data: bytes, then: Callable[[], None]) -> None:
        self._sip.memory.write_block(block, data)
        then()

    def fetch(self, nbytes: int, delay_ps: Ps, done: Callable[[], None]) -> None:
        """Time a read of the PE's TCM by PE_FETCH_STORE that begins in ``delay_ps``."""
        route, first_ps, span_ps = self.tcm.leaving(nbytes)
        self._within(Reading(route, delay_ps + first_ps, span_ps), nbytes, COMPUTE, "fetches", done)

    def put(self, nbytes: int, delay_ps: Ps, done: Callable[[], None]) -> None:
        """Time a write to the PE's TCM by PE_FETCH_STORE that begins in ``delay_ps``."""
        landed = partial(self._when_landed, nbytes, done)
        self._within(Reading(self.tcm.landing(nbytes), delay_ps, 0), nbytes, COMPUTE, "stores", landed)

    def operate(self, route: Route, nbytes: int, delay_ps: Ps, span_ps: Ps, done: Callable[[], None]) -> None:
        """Time an operation of PE_MATH, which reads and writes the TCM at the same time. It begins in ``delay_ps`` and
        takes at least ``span_ps``.
        """
        self._within(Reading(route, delay_ps, span_ps), nbytes, COMPUTE, "operations", done)

    def _when_landed(self, nbytes: int, done: Callable[[], None]) -> None:
        self._after(self.tcm.landed_ps(nbytes), done)

    def _within(self, reading: Reading, nbytes: int, vc: int, what: str, done: Callable[[], None]) -> None:
        """Time an access to the PE's TCM. Accesses of one engine with the same ``what`` are served in order."""
        route, first_ps, span_ps = reading
        if not route.edges:
            self._after(first_ps + span_ps, done)
            return
        train = self._sip.fabric.train((self._node, self._part, what), vc)
        self._sip.fabric.start(train, route, nbytes, lambda _h, _t: done(), None, first_ps + span_ps, span_ps)

    def _after(self, delay_ps: Ps, action: Callable[[], None]) -> None:
        if delay_ps:
            self._engine.at(self._engine.now_ps + delay_ps, action)
        else:
            action()

    def memory_at(self, address: int) -> MemoryAccess:
        """Return the memory of an address and the routes to this memory; computed once per memory.

        Raises:
            MemoryAccessError: for an address that is not in a memory of this SIP.
        """
        access = self._memories.get(address >> OFFSET_BITS)
        if access is None:
            access = self._memories[address >> OFFSET_BITS] = self._reach(address)
        return access

    def _reach(self, address: int) -> MemoryAccess:
        sip, here = self._sip, self._node
        try:
            place = PhysAddr.decode(address)
        except ValueError as error:
            raise MemoryAccessError(str(error)) from None
        if place.sip != sip.sip:
            raise MemoryAccessError(f"{place} is on another SIP; tl.load and tl.store reach only the kernel's SIP")
        cubes, pes = sip.plan.system.n_cubes, sip.plan.system.n_pes
        if place.cube >= cubes or place.pe >= pes:
            raise MemoryAccessError(
                f"{place} does not exist; the SIP has cubes 0 to {cubes - 1}, each with PEs 0 to {pes - 1}"
            )
        node = sip.graph.node_of(place)
        port = sip.memory_ports.at(place.space, node)
        if node == here:
            return MemoryAccess(node, port, None, None)
        return MemoryAccess(node, port, sip.graph.route(here, node), sip.graph.route(node, here))


def _place(block: Block) -> tuple[int, ...]:
    """Return the record fields of a block's location."""
    if block.is_contiguous:
        return block.address, block.nbytes
    return block.address, block.nbytes, block.rows, block.pitch


@replays(READ, values=AS_READ)
def replay_read(pe: ReplayPe, address: int, nbytes: int, dtype: str, shape: str, _result: str) -> Array:
    """Return the contents of the memory."""
    return np.frombuffer(pe.read(address, nbytes), DTYPES[dtype].numpy).reshape(shape_of(shape))


@replays(WRITE, values=WRITTEN)
def replay_write(pe: ReplayPe, address: int, _nbytes: int, _dtype: str, _shape: str, operand: str) -> Array:
    """Write the operand's values to the memory, and return them."""
    values = pe.value(operand)
    pe.write(address, values.tobytes())
    return values


@replays(READ_BLOCK, values=AS_READ)
def replay_block_read(pe: ReplayPe, *fields: Any) -> Array:
    """Return the contents of the block's rows."""
    address, nbytes, rows, pitch, dtype, shape, _result = fields
    data = read_rows(pe, address, rows, nbytes // rows, pitch)
    return np.frombuffer(data, DTYPES[dtype].numpy).reshape(shape_of(shape))


@replays(WRITE_BLOCK, values=WRITTEN)
def replay_block_write(pe: ReplayPe, *fields: Any) -> Array:
    """Write the operand's values to the block's rows, and return them."""
    address, nbytes, rows, pitch, _dtype, _shape, operand = fields
    values = pe.value(operand)
    write_rows(pe, address, values.tobytes(), nbytes // rows, pitch)
    return values
