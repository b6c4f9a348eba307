"""The values of a composite command: pieces of operands as PE_DMA has read them, and products of them.

Sums of a block of outputs are computed when its operands have come, from what has come, in order of ``k``. So pieces in
wrong places make wrong results, and neither tiles nor dataflow change a bit (:mod:`sipsim.core.arithmetic.matmul`).

Limit: while a command runs, this process holds both operands whole, widened to f32 (f64 of integers).
"""

import numpy as np

from sipsim.chips.ahbm.gemm.tiling.array import Product
from sipsim.chips.ahbm.gemm.tiling.tiling import A, B, Rectangle
from sipsim.chips.ahbm.pe.tcm.handles import Array
from sipsim.core.arithmetic.matmul import integer_bound, matmul_widened, widened
from sipsim.core.dtypes import DType


class Operands:
    """A and B of a product, of ``dtype``; zero where nothing has come."""

    def __init__(self, product: Product, dtype: DType) -> None:
        self._dtype = dtype
        m, k, n = product
        self._values = {A: widened(np.zeros((m, k), np.int8), dtype), B: widened(np.zeros((k, n), np.int8), dtype)}
        self._bounds = {A: 0.0, B: 0.0}

    def put(self, operand: int, place: Rectangle, data: bytes) -> None:
        """A piece has come."""
        top, left, rows, columns = place
        piece = widened(np.frombuffer(data, self._dtype.numpy).reshape(rows, columns), self._dtype)
        self._values[operand][top : top + rows, left : left + columns] = piece
        self._bounds[operand] = max(self._bounds[operand], integer_bound(piece))

    def sums(self, place: Rectangle) -> Array:
        """Of a part of the outputs, in the accumulator's type."""
        top, left, rows, columns = place
        a, b = self._values[A][top : top + rows], self._values[B][:, left : left + columns]
        return matmul_widened(a, b, self._bounds[A] * self._bounds[B], self._dtype)
