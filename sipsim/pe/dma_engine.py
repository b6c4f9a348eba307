"""PE_DMA takes the loads and stores of a kernel."""

from functools import partial

import numpy as np

from sipsim.dtypes import DTYPES
from sipsim.pe.commands import Completion, DmaRead, DmaWrite
from sipsim.pe.engines import CommandEngine, engine_for
from sipsim.pe.handles import Array
from sipsim.record.oplog import as_text, record_kind, shape_of
from sipsim.record.replay.feed import Feed
from sipsim.record.replay.rules import ReplayPe, replays

READ = record_kind("dma_read", "addr", "nbytes", "dtype", "shape", "result")
LOADS_AND_STORES = "PE_DMA"
"""The queue of loads and stores: one descriptor is executed after the other."""
WRITE = record_kind("dma_write", "addr", "nbytes", "dtype", "shape", "operand")


@engine_for(DmaRead)
class ReadEngine(CommandEngine):
    """A read ends when its last byte has arrived."""

    starts_later = True
    queue_name = LOADS_AND_STORES

    def take(self, command: DmaRead) -> Completion:
        self._pe.dma.check(command.address)
        completion = self._begin(command)
        self._enter(completion, self._read)
        return completion

    def _read(self, completion: Completion) -> None:
        command = completion.command
        arrived, delay_ps = partial(self._arrived, completion), self._delay_ps(completion)
        self._pe.dma.read(command.address, command.nbytes, arrived, delay_ps=delay_ps)

    def _arrived(self, completion: Completion, data: bytes) -> None:
        address, nbytes, dims, dtype, result = completion.command
        result.array = np.frombuffer(data, dtype.numpy).reshape(dims)
        name = result.name
        del result
        self._end(completion, READ, address, nbytes, dtype.name, as_text(dims), name)


@engine_for(DmaWrite)
class WriteEngine(CommandEngine):
    """A write ends when it has been acknowledged."""

    starts_later = True
    queue_name = LOADS_AND_STORES

    def take(self, command: DmaWrite) -> Completion:
        self._pe.dma.check(command.address)
        completion = self._begin(command)
        self._claim(completion, command.operand)
        self._enter(completion, self._start)
        return completion

    def _start(self, completion: Completion) -> None:
        self._fetch(completion, (completion.command.operand,), self._write)

    def _write(self, completion: Completion) -> None:
        address, operand = completion.command
        written, delay_ps = partial(self._written, completion), self._delay_ps(completion)
        self._pe.dma.write(address, operand.array.tobytes(), written, delay_ps=delay_ps)

    def _written(self, completion: Completion) -> None:
        address, operand = completion.command
        fields = address, operand.nbytes, operand.dtype.name, as_text(operand.shape), operand.name
        del operand
        self._end(completion, WRITE, *fields)

    def tell(self, feed: Feed, command: DmaWrite) -> None:
        """What is in the memory now."""
        feed.values(self._sip.memory.read(command.address, command.operand.nbytes))


@replays(READ)
def replay_read(pe: ReplayPe, address: int, nbytes: int, dtype: str, shape: str, _result: str) -> Array:
    """What is in the memory."""
    return np.frombuffer(pe.read(address, nbytes), DTYPES[dtype].numpy).reshape(shape_of(shape))


@replays(WRITE)
def replay_write(pe: ReplayPe, address: int, _nbytes: int, _dtype: str, _shape: str, operand: str) -> Array:
    """The values of the operand, which are in the memory then."""
    values = pe.value(operand)
    pe.write(address, values.tobytes())
    return values
