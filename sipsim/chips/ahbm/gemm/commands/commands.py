"""Commands of PE_GEMM: a product of matrices in memories, with its epilogue, and one of values that a kernel holds."""

from typing import NamedTuple

from sipsim.chips.ahbm.gemm.commands.epilogue import Step
from sipsim.chips.ahbm.gemm.tiling.array import Product
from sipsim.chips.ahbm.pe.tcm.handles import Handle
from sipsim.core.dtypes import DType


class Matrix(NamedTuple):
    """Rows at equal distances: the first at physical address ``address``, the next ``pitch`` bytes later."""

    address: int
    pitch: int


class Gemm(NamedTuple):
    """``c = epilogue(a @ b)``: ``a`` and ``b`` of ``dtype``, ``c`` of ``out``; the epilogue is of the accumulator's."""

    a: Matrix
    b: Matrix
    c: Matrix
    product: Product
    dtype: DType
    out: DType
    epilogue: tuple[Step, ...]


class Dot(NamedTuple):
    """``result = acc + a @ b``, of the accumulator's type; without ``acc`` from +0."""

    a: Handle
    b: Handle
    acc: Handle | None
    product: Product
    result: Handle

    @property
    def result_bytes(self) -> int:
        """Of an accumulator for each output."""
        return self.product.m * self.product.n * self.result.dtype.itemsize
