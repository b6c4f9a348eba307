"""The second pass of products: the whole of one at a time, from its record, whatever tiles and stages it had."""

from typing import Any

import numpy as np

from sipsim.chips.ahbm.gemm.commands import epilogue
from sipsim.chips.ahbm.gemm.engine.composite import DOT, GEMM, NO_HANDLE
from sipsim.chips.ahbm.pe.tcm.handles import Array
from sipsim.core.arithmetic.matmul import matmul
from sipsim.core.dtypes import DTYPES, DType
from sipsim.records.oplog.oplog import shape_of
from sipsim.records.replay.rules import WRITTEN, ReplayPe, read_rows, replays, write_rows


@replays(GEMM, values=WRITTEN)
def replay_gemm(pe: ReplayPe, *fields: Any) -> Array:
    """Operands are read and the output is written, which is there then."""
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
    """The product of the values of its operands."""
    return matmul(pe.value(a), pe.value(b), DTYPES[dtype], None if acc == NO_HANDLE else pe.value(acc))


def _matrix(pe: ReplayPe, address: int, pitch: int, rows: int, columns: int, dtype: DType) -> Array:
    data = read_rows(pe, address, rows, columns * dtype.itemsize, pitch)
    return np.frombuffer(data, dtype.numpy).reshape(rows, columns)


def _row(pe: ReplayPe, address: int, columns: int, dtype: DType) -> Array:
    return _matrix(pe, address, 0, 1, columns, dtype).reshape(-1)
