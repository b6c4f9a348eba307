"""PE_GEMM: products of matrices in memories, as composite commands (ADR-0014), and of handles; their replay."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.gemm import commands as epilogue
from sipsim.chips.ahbm.gemm.commands import BIAS, Dot, EpilogueStep, Gemm, Matrix
from sipsim.chips.ahbm.gemm.pipeline import PARTS, Pipeline, Stages, Times
from sipsim.chips.ahbm.gemm.tiling import (
    A,
    B,
    BufferTooSmall,
    Limits,
    Product,
    Rectangle,
    SystolicArray,
    Tiling,
    Tilings,
)
from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.chips.ahbm.pe.commands import Completion
from sipsim.chips.ahbm.pe.engine import CommandEngine, engine_for
from sipsim.chips.ahbm.pe.math import MathTimes
from sipsim.chips.ahbm.pe.tcm import Array, Handle, TcmReservation
from sipsim.config.schema import ComponentsFile
from sipsim.core.arithmetic.matmul import integer_bound, matmul, matmul_widened, widened
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import KernelError
from sipsim.core.units import BYTES_PER_KIB, drain_ps, gbytes_per_s_to_bps, ns_to_ps
from sipsim.records.code_place import CodeLine, user_line
from sipsim.records.oplog import as_text, record_kind, shape_of
from sipsim.records.replay import WRITTEN, ReplayPe, Values, read_rows, replays, write_rows


class Operands:
    """Operands A and B of a product, of ``dtype``, assembled from the pieces that PE_DMA has read; zero elsewhere.

    The sums of a block of outputs are computed once its operands have arrived, from the assembled pieces, in order of
    ``k``. So a piece in a wrong place gives a wrong result, while tiles and dataflow change no bit of the result
    (:mod:`sipsim.core.arithmetic.matmul`). Limit: while a command runs, the process holds both whole operands, widened
    to f32 (integers: f64).
    """

    def __init__(self, product: Product, dtype: DType) -> None:
        self._dtype = dtype
        m, k, n = product
        self._values = {A: widened(np.zeros((m, k), np.int8), dtype), B: widened(np.zeros((k, n), np.int8), dtype)}
        self._bounds = {A: 0.0, B: 0.0}

    def put(self, operand: int, place: Rectangle, data: bytes) -> None:
        """Store a piece that has arrived."""
        top, left, rows, columns = place
        piece = widened(np.frombuffer(data, self._dtype.numpy).reshape(rows, columns), self._dtype)
        self._values[operand][top : top + rows, left : left + columns] = piece
        self._bounds[operand] = max(self._bounds[operand], integer_bound(piece))

    def sums(self, place: Rectangle) -> Array:
        """Return the sums of a rectangle of outputs, in the accumulator's type."""
        top, left, rows, columns = place
        a, b = self._values[A][top : top + rows], self._values[B][:, left : left + columns]
        return matmul_widened(a, b, self._bounds[A] * self._bounds[B], self._dtype)


Ps = int
GEMM = record_kind("gemm", "a", "a_pitch", "b", "b_pitch", "c", "c_pitch", "shape", "dtype", "out_dtype", "epilogue")
"""Record with ``shape`` MxKxN and the steps of the epilogue (:class:`sipsim.chips.ahbm.gemm.commands.EpilogueStep`)."""
DOT = record_kind("dot", "a", "b", "acc", "shape", "dtype", "result")
NO_HANDLE = "none"
"""Text of ``acc`` for a product without an accumulator handle."""
_TILINGS = Tilings()


class GemmTimes:
    """Times of PE_GEMM's stages for the systolic array of a config."""

    def __init__(self, components: ComponentsFile) -> None:
        cost = components.pe_gemm
        self.array = SystolicArray(cost.rows, cost.columns, cost.dataflow)
        self.cycle_ps = ns_to_ps(1 / cost.clock_GHz)
        self.move_ps = ns_to_ps(components.pe_fetch_store.overhead_ns)
        self._dma_bps = gbytes_per_s_to_bps(components.pe_dma.bandwidth_GBps)
        self._cost = cost
        self._math = MathTimes(components.pe_math)

    def limits(self, dtype: DType, out: DType) -> Limits:
        """Return the tiling limits of a composite command."""
        cost = self._cost
        room_bytes = cost.buffer_KiB * BYTES_PER_KIB
        return Limits(
            dtype.itemsize, out.itemsize, cost.accumulators, cost.chunk_bytes, cost.outstanding_stores, room_bytes
        )

    def peak_ps(self, product: Product) -> Ps:
        """Return the time of a product at full utilisation of the array, in ps."""
        return product.macs * self.cycle_ps // (self.array.rows * self.array.columns)

    def shared_bytes(self, product: Product, cut: Tiling) -> int:
        """Return how many bytes of a command's loads may be in flight while the kernel has loads (:class:`Stages`).
        There is no limit if these loads take less than half of the array's time: PE_DMA has time for the kernel later.
        """
        if 2 * drain_ps(cut.load_bytes, self._dma_bps) < self.array.cycles(product) * self.cycle_ps:
            return cut.operand_bytes
        return self._cost.shared_KiB * BYTES_PER_KIB

    def epilogue_ps(self, steps: tuple[EpilogueStep, ...], dtype: DType, out: DType, cells: int) -> Ps:
        """Return the time of the epilogue's steps and cast for ``cells`` outputs with accumulators of ``dtype``."""
        nbytes = cells * dtype.itemsize
        ps = sum(self._math.latency_ps(nbytes * passes, special) for passes, special in [each.work for each in steps])
        return ps if out is dtype else ps + self._math.latency_ps(nbytes)


class _MatrixTransfers:
    """Transfers of one composite command, and the TCM space that the command reserves."""

    def __init__(self, command: Gemm, cut: Tiling, pe: PeParts, room: TcmReservation | None) -> None:
        self._command = command
        self._cut = cut
        self._dma = pe.gemm_dma
        self._kernel_dma = pe.dma
        self._room = room
        self._operands = Operands(command.product, command.dtype)
        self._bias: dict[int, Array] = {}

    def load(self, number: int, arrived: Callable[[], None]) -> None:
        load, command = self._cut.loads[number], self._command
        block = _block((command.a, command.b)[load.operand], load.place, command.dtype.itemsize)

        def store_piece(data: bytes) -> None:
            self._operands.put(load.operand, load.place, data)
            arrived()

        self._dma.read(block, store_piece)

    @property
    def has_others(self) -> bool:
        return self._kernel_dma.has_kernel_commands

    def write(self, block: int, written: Callable[[], None]) -> None:
        place, command = self._cut.blocks[block], self._command
        dtype, right = command.dtype.accumulator, place.left + place.columns
        bias = {index: row[place.left : right] for index, row in self._bias.items()}
        values = epilogue.perform(command.epilogue, self._operands.sums(place), dtype, command.out, bias)
        self._dma.write(_block(command.c, place, command.out.itemsize), values.tobytes(), written)

    def load_row(self, number: int, arrived: Callable[[], None]) -> None:
        index, step = [each for each in enumerate(self._command.epilogue) if each[1].name == BIAS][number]
        assert step.dtype is not None
        kind = step.dtype

        def store_row(data: bytes) -> None:
            self._bias[index] = np.frombuffer(data, kind.numpy)
            arrived()

        self._dma.read(Block.piece(step.address, self._command.product.n * kind.itemsize), store_row)


class _NoData:
    """Transfers of a product of handles, whose operands and result are in the TCM: no data move."""

    has_others = False

    def load(self, number: int, arrived: Callable[[], None]) -> None:
        raise NotImplementedError

    def load_row(self, number: int, arrived: Callable[[], None]) -> None:
        raise NotImplementedError

    def write(self, block: int, written: Callable[[], None]) -> None:
        written()


@engine_for(Gemm, Dot)
class GemmEngine(CommandEngine):
    """PE_GEMM of one PE. Commands pass the stages one after the other; without queues concurrent commands share them.

    A composite command reserves TCM space for its pieces while it runs, and issues its own PE_DMA transfers on
    ``vc_compute``, in parallel with the kernel's loads and stores. An op-log record is sufficient to repeat a command.
    The facts of a command's span are its critical path (:class:`~sipsim.chips.ahbm.gemm.pipeline.TimeBreakdown`) and,
    for a composite command, the addresses of A and C.
    """

    starts_later = True
    queue_name = "PE_GEMM"

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__(sip, pe)
        components = sip.plan.resolved.components
        self._cost = components.pe_gemm
        self._times = GemmTimes(components)

    def take(self, command: Gemm | Dot) -> Completion:
        if isinstance(command, Gemm):
            for matrix in (command.a, command.b, command.c):
                self._pe.dma.memory_at(matrix.address)
            completion = self._begin(command)
            self._enter(completion, partial(self._start_gemm, self._line()))
        else:
            completion = self._begin(command)
            self._claim(completion, *self._operands(command))
            self._enter(completion, self._fetch_handles)
        return completion

    def _line(self) -> CodeLine | None:
        """Return the kernel's code line that submits the command if TCM space is counted, otherwise None."""
        return None if self._pe.room is None else user_line(sys._getframe(1))

    def _start_gemm(self, line: CodeLine | None, completion: Completion) -> None:
        command: Gemm = completion.command
        cut = self._tiling(command)
        rows = [each for each in command.epilogue if each.name == BIAS]
        row_bytes = sum(command.product.n * each.dtype.itemsize for each in rows if each.dtype)
        room = self._room(cut.room_bytes + row_bytes, line)
        accumulator, out = command.dtype.accumulator, command.out
        epilogue_ps = partial(self._times.epilogue_ps, command.epilogue, accumulator, out)
        times = self._times
        stages = self._stages(
            epilogue_ps, 0, out, self._cost.outstanding_loads, times.shared_bytes(command.product, cut), len(rows)
        )
        moves = _MatrixTransfers(command, cut, self._pe, room)
        self._run(completion, Pipeline(cut, stages, moves, completion.start_ps, partial(self._written, completion)))

    def _fetch_handles(self, completion: Completion) -> None:
        self._fetch(completion, self._start_dot)

    def _start_dot(self, completion: Completion) -> None:
        command: Dot = completion.command
        dtype, out = command.a.dtype, command.result.dtype
        # The handles of operands and result already reserve TCM space.
        limits = self._times.limits(dtype, out)._replace(room_bytes=2**62)
        cut = _TILINGS.get(self._times.array, command.product, limits)
        stages = self._stages(_no_time, 0 if command.acc is None else out.itemsize, out, 0, 0, 0)
        self._run(
            completion,
            Pipeline(cut, stages, _NoData(), completion.start_ps, partial(self._multiplied, completion)),
        )

    def _stages(
        self, epilogue_ps: Callable[[int], Ps], sum_bytes: int, out: DType, loads: int, shared_bytes: int, rows: int
    ) -> Stages:
        times = self._times
        return Stages(
            self._engine,
            self._pe.units,
            self._pe.dma,
            times.cycle_ps,
            times.move_ps,
            epilogue_ps,
            sum_bytes,
            out.itemsize,
            loads,
            shared_bytes,
            rows,
            self._cost.accumulators,
        )

    def _tiling(self, command: Gemm) -> Tiling:
        try:
            return _TILINGS.get(self._times.array, command.product, self._times.limits(command.dtype, command.out))
        except BufferTooSmall as error:
            m, k, n = command.product
            raise KernelError(f"a gemm of {m}x{k}x{n}: {error}; set pe_gemm.buffer_KiB higher") from None

    def _room(self, nbytes: int, line: CodeLine | None) -> TcmReservation | None:
        if self._pe.room is None:
            return None
        return self._pe.room.take("the buffer of a gemm (pe_gemm.buffer_KiB)", nbytes, line)

    def _run(self, completion: Completion, pipeline: Pipeline) -> None:
        """Start the pipeline when PE_CPU has issued the command. The wait until now counts for earlier commands."""
        delay_ps = self._delay_ps(completion)
        if delay_ps:
            self._engine.at(self._engine.now_ps + delay_ps, pipeline.start)
        else:
            pipeline.start()

    def _written(self, completion: Completion, parts_ps: Times, path_ps: Times) -> None:
        command: Gemm = completion.command
        self._count(command.product, parts_ps)
        kinds, steps = (command.dtype.name, command.out.name), epilogue.as_text(command.epilogue)
        fields, work = (*command.a, *command.b, *command.c), (path_ps, command.a.address, command.c.address)
        self._end(completion, GEMM, *fields, as_text(command.product), *kinds, steps, work=work)

    def made(self, command: Gemm | Dot) -> Handle | Values | None:
        """Return the result of a product of handles, or the output that a composite command wrote to the memory."""
        if isinstance(command, Dot):
            return command.result
        m, _, n = command.product
        block = _block(command.c, Rectangle(0, 0, m, n), command.out.itemsize)
        data = self._sip.memory.read_block(block)
        return np.frombuffer(data, command.out.numpy).reshape(m, n)

    def _multiplied(self, completion: Completion, parts_ps: Times, path_ps: Times) -> None:
        command: Dot = completion.command
        a, b, acc, product, result = command.a, command.b, command.acc, command.product, command.result
        values = matmul(a.array, b.array, a.dtype, None if acc is None else acc.array)
        values.flags.writeable = False
        result.array = values
        self._count(product, parts_ps)
        fields = a.name, b.name, NO_HANDLE if acc is None else acc.name, as_text(product), a.dtype.name, result.name
        del a, b, acc, result, values, command
        self._end(completion, DOT, *fields, work=(path_ps,))

    def _count(self, product: Product, parts_ps: Times) -> None:
        """Add the times of a command to the counters."""
        used = self._recorder.composite_ps
        for part, ps in zip(PARTS, parts_ps, strict=True):
            used[part.name] += ps
        self._recorder.peak_ps += self._times.peak_ps(product)

    def _operands(self, command: Any) -> tuple[Handle, ...]:
        return (command.a, command.b) if command.acc is None else (command.a, command.b, command.acc)


def _block(matrix: Matrix, place: Rectangle, itemsize: int) -> Block:
    """Return the memory block of rectangle ``place`` of a matrix with elements of ``itemsize`` bytes."""
    top, left, rows, columns = place
    return Block(matrix.address + top * matrix.pitch + left * itemsize, rows, columns * itemsize, matrix.pitch)


def _no_time(_cells: int) -> Ps:
    return 0


@replays(GEMM, values=WRITTEN)
def replay_gemm(pe: ReplayPe, *fields: Any) -> Array:
    """Compute the whole product at once, independent of tiles and stages.

    The operands are read from memory; the output is written to memory and returned.
    """
    a, a_pitch, b, b_pitch, c, c_pitch, shape, dtype, out_dtype, text = fields
    (m, k, n), kind, out = shape_of(shape), DTYPES[dtype], DTYPES[out_dtype]
    steps = epilogue.from_text(text)
    bias = {i: _row(pe, step.address, n, step.dtype) for i, step in enumerate(steps) if step.dtype is not None}
    sums = matmul(_matrix(pe, a, a_pitch, m, k, kind), _matrix(pe, b, b_pitch, k, n, kind), kind)
    rows = epilogue.perform(steps, sums, kind.accumulator, out, bias)
    write_rows(pe, c, rows.tobytes(), n * out.itemsize, c_pitch)
    return rows


@replays(DOT)
def replay_dot(pe: ReplayPe, a: str, b: str, acc: str, _shape: str, dtype: str, _result: str) -> Array:
    """Return the product of the operands' values."""
    return matmul(pe.value(a), pe.value(b), DTYPES[dtype], None if acc == NO_HANDLE else pe.value(acc))


def _matrix(pe: ReplayPe, address: int, pitch: int, rows: int, columns: int, dtype: DType) -> Array:
    data = read_rows(pe, address, rows, columns * dtype.itemsize, pitch)
    return np.frombuffer(data, dtype.numpy).reshape(rows, columns)


def _row(pe: ReplayPe, address: int, columns: int, dtype: DType) -> Array:
    return _matrix(pe, address, 0, 1, columns, dtype).reshape(-1)
