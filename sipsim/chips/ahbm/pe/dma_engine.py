"""PE_DMA takes the loads and stores of a kernel, of one piece of memory or of rows."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from sipsim.chips.ahbm.memory.store import Block, MemoryStore
from sipsim.chips.ahbm.parts import SipParts
from sipsim.chips.ahbm.pe.commands import Completion, DmaRead, DmaReadBlock, DmaWrite, DmaWriteBlock
from sipsim.chips.ahbm.pe.engine import CommandEngine, Order, engine_for
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.core.dtypes import DTYPES
from sipsim.records.oplog import as_text, record_kind, shape_of
from sipsim.records.replay import READ as AS_READ
from sipsim.records.replay import WRITTEN, Feed, ReplayPe, read_rows, replays, write_rows

READ = record_kind("dma_read", "addr", "nbytes", "dtype", "shape", "result")
LOADS_AND_STORES = "PE_DMA"
"""The queue of loads and stores."""
WRITE = record_kind("dma_write", "addr", "nbytes", "dtype", "shape", "operand")
READ_BLOCK = record_kind("dma_read_block", "addr", "nbytes", "rows", "pitch", "dtype", "shape", "result")
WRITE_BLOCK = record_kind("dma_write_block", "addr", "nbytes", "rows", "pitch", "dtype", "shape", "operand")
"""Of a block in memory: ``nbytes`` in ``rows`` of equal size, ``pitch`` bytes from row to row."""


class TransferOrder:
    """The order of loads and stores: ``loads`` and ``stores`` of them are under way at a time, each from its start to
    its end, and they may end in any order.

    A command waits for one before it that writes bytes which it reads or writes, and for one that reads bytes which it
    writes. So what a load finds, and what a memory has in the end, does not depend on how many are under way. A store
    waits for one before it of the same handle that is bringing the handle's values from their slot.
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
        """What a command reads or writes, by the first addresses of its bytes."""
        command = completion.command
        if isinstance(command, DmaReadBlock | DmaWriteBlock):
            block = _block(command)
        else:
            nbytes = command.nbytes if isinstance(command, DmaRead) else command.operand.nbytes
            block = Block.piece(command.address, nbytes)
        return block._replace(address=self._canonical(block.address))


def _operand(completion: Completion) -> Handle | None:
    """What a store writes; None of a load."""
    operand: Handle | None = getattr(completion.command, "operand", None)
    return operand


def _is_fetching(store: Completion, operand: Handle) -> bool:
    return _operand(store) is operand and (operand.slot_pa is not None or store.value is not None)


class TransferEngine(CommandEngine):
    """PE_DMA, for loads and stores."""

    starts_later = True
    queue_name = LOADS_AND_STORES

    @classmethod
    def order(cls, sip: SipParts) -> Order:
        cost = sip.plan.resolved.components.pe_dma
        return TransferOrder(sip.memory, cost.outstanding_loads, cost.outstanding_stores)


@engine_for(DmaRead)
class ReadEngine(TransferEngine):
    """A read ends when its last byte has arrived."""

    def take(self, command: DmaRead | DmaReadBlock) -> Completion:
        self._pe.dma.check(command.address)
        completion = self._begin(command)
        self._pe.dma.given(completion)
        self._enter(completion, self._read)
        return completion

    def _read(self, completion: Completion) -> None:
        command = completion.command
        arrived, delay_ps = partial(self._arrived, completion), self._delay_ps(completion)
        self._pe.dma.read(command.address, command.nbytes, arrived, delay_ps, command.result.tcm_pa)

    def _arrived(self, completion: Completion, data: bytes) -> None:
        address, nbytes, dims, dtype, result = completion.command
        result.array = np.frombuffer(data, dtype.numpy).reshape(dims)
        name = result.name
        del result
        self._end(completion, READ, address, nbytes, dtype.name, as_text(dims), name)


@engine_for(DmaWrite)
class WriteEngine(TransferEngine):
    """A write ends when it has been acknowledged."""

    def take(self, command: DmaWrite | DmaWriteBlock) -> Completion:
        self._pe.dma.check(command.address)
        completion = self._begin(command)
        self._pe.dma.given(completion)
        # Before the claim, which takes the operand out of its slot.
        source = command.operand.tcm_pa
        self._claim(completion, command.operand)
        self._enter(completion, partial(self._start, source))
        return completion

    def _start(self, source: int | None, completion: Completion) -> None:
        self._fetch(completion, partial(self._write, source))

    def _operands(self, command: Any) -> tuple[Handle, ...]:
        return (command.operand,)

    def _write(self, source: int | None, completion: Completion) -> None:
        address, operand = completion.command
        written, delay_ps = partial(self._written, completion), self._delay_ps(completion)
        self._pe.dma.write(address, operand.array.tobytes(), written, delay_ps, source)

    def _written(self, completion: Completion) -> None:
        address, operand = completion.command
        fields = address, operand.nbytes, operand.dtype.name, as_text(operand.shape), operand.name
        del operand
        self._end(completion, WRITE, *fields)

    def tell(self, feed: Feed, command: Any) -> None:
        """What is in the memory now."""
        feed.values(self._sip.memory.read(command.address, command.operand.nbytes))


@engine_for(DmaReadBlock)
class BlockReadEngine(ReadEngine):
    """As a read, of rows."""

    def _read(self, completion: Completion) -> None:
        arrived, delay_ps = partial(self._arrived, completion), self._delay_ps(completion)
        command = completion.command
        self._pe.dma.read_block(_block(command), arrived, delay_ps, command.result.tcm_pa)

    def _arrived(self, completion: Completion, data: bytes) -> None:
        block, (*_, dims, dtype, result) = _block(completion.command), completion.command
        result.array = np.frombuffer(data, dtype.numpy).reshape(dims)
        name = result.name
        del result
        self._end(completion, READ_BLOCK, *_place(block), dtype.name, as_text(dims), name)


@engine_for(DmaWriteBlock)
class BlockWriteEngine(WriteEngine):
    """As a write, of rows."""

    def _write(self, source: int | None, completion: Completion) -> None:
        block, operand = _block(completion.command), completion.command.operand
        written, delay_ps = partial(self._written, completion), self._delay_ps(completion)
        self._pe.dma.write_block(block, operand.array.tobytes(), written, delay_ps, source)

    def _written(self, completion: Completion) -> None:
        block, operand = _block(completion.command), completion.command.operand
        fields = *_place(block), operand.dtype.name, as_text(operand.shape), operand.name
        del operand
        self._end(completion, WRITE_BLOCK, *fields)

    def tell(self, feed: Feed, command: Any) -> None:
        """What is in the memory now."""
        feed.values(self._sip.memory.read_block(_block(command)))


def _block(command: DmaReadBlock | DmaWriteBlock) -> Block:
    return Block(*command[:4])


def _place(block: Block) -> tuple[int, int, int, int]:
    return block.address, block.nbytes, block.rows, block.pitch


@replays(READ, values=AS_READ)
def replay_read(pe: ReplayPe, address: int, nbytes: int, dtype: str, shape: str, _result: str) -> Array:
    """What is in the memory."""
    return np.frombuffer(pe.read(address, nbytes), DTYPES[dtype].numpy).reshape(shape_of(shape))


@replays(WRITE, values=WRITTEN)
def replay_write(pe: ReplayPe, address: int, _nbytes: int, _dtype: str, _shape: str, operand: str) -> Array:
    """The values of the operand, which are in the memory then."""
    values = pe.value(operand)
    pe.write(address, values.tobytes())
    return values


@replays(READ_BLOCK, values=AS_READ)
def replay_block_read(pe: ReplayPe, *fields: Any) -> Array:
    """What is in the rows of the block."""
    address, nbytes, rows, pitch, dtype, shape, _result = fields
    data = read_rows(pe, address, rows, nbytes // rows, pitch)
    return np.frombuffer(data, DTYPES[dtype].numpy).reshape(shape_of(shape))


@replays(WRITE_BLOCK, values=WRITTEN)
def replay_block_write(pe: ReplayPe, *fields: Any) -> Array:
    """The values of the operand, which are in the rows then."""
    address, nbytes, rows, pitch, _dtype, _shape, operand = fields
    values = pe.value(operand)
    write_rows(pe, address, values.tobytes(), nbytes // rows, pitch)
    return values
