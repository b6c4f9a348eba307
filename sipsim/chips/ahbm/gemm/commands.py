"""Commands of PE_GEMM: a product of matrices in memories, with its epilogue, and a product of handles."""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from sipsim.chips.ahbm.gemm.tiling import Product
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.core.arithmetic.operations import OPERATIONS, cast, elementwise
from sipsim.core.dtypes import DTYPES, DType

SCALE, BIAS = "scale", "bias"
UNARY = ("relu", "gelu", "abs", "neg", "exp", "sqrt")
"""Operations without a second operand, by their names in :data:`sipsim.core.arithmetic.operations.OPERATIONS`."""
_OPERATION = {SCALE: "mul", BIAS: "add"}


class EpilogueStep(NamedTuple):
    """Step of a composite command's epilogue: an operation of PE_MATH on finished sums in the PE (ADR-0014).

    A step is element-wise in the accumulator's type; the result of the last step is cast to the type of the output.
    ``name``: :data:`SCALE`, which multiplies by ``value``; :data:`BIAS`, which adds the row of ``dtype`` at physical
    ``address``; or one of :data:`UNARY`.
    """

    name: str
    value: int | float = 0
    address: int = 0
    dtype: DType | None = None

    @property
    def text(self) -> str:
        """Text for the op log: exact, without spaces."""
        if self.name == SCALE:
            return f"{self.name}={self.value.hex() if isinstance(self.value, float) else self.value}"
        return f"{self.name}={self.dtype}@{self.address}" if self.name == BIAS else self.name

    @property
    def operation(self) -> str:
        """Name of the operation of PE_MATH."""
        return _OPERATION.get(self.name, self.name)

    @property
    def work(self) -> tuple[int, bool]:
        """Number of PE_MATH passes over the sums, and whether the function is special."""
        operation = OPERATIONS[self.operation]
        return operation.passes, operation.is_special


def as_text(steps: tuple[EpilogueStep, ...]) -> str:
    """Return the text of an epilogue for the op log; ``none`` without steps."""
    return ";".join([each.text for each in steps]) or "none"


def from_text(text: str) -> tuple[EpilogueStep, ...]:
    """Parse the epilogue of an op-log record."""
    return tuple(_step(each) for each in text.split(";")) if text != "none" else ()


def _step(text: str) -> EpilogueStep:
    name, _, value = text.partition("=")
    if name == SCALE:
        return EpilogueStep(name, int(value) if value.lstrip("-").isdigit() else float.fromhex(value))
    if name == BIAS:
        dtype, _, address = value.partition("@")
        return EpilogueStep(name, 0, int(address), DTYPES[dtype])
    return EpilogueStep(name)


def perform(steps: tuple[EpilogueStep, ...], sums: Array, dtype: DType, out: DType, bias: "dict[int, Array]") -> Array:
    """Return the output of type ``out`` for sums of type ``dtype``. ``bias``: a row of one value per column, by
    index of the step.
    """
    for index, step in enumerate(steps):
        other: tuple[Any, ...] = ()
        if step.name == SCALE:
            other = (np.asarray(step.value, dtype.numpy),)
        elif step.name == BIAS:
            other = (cast(bias[index], dtype)[None, :],)
        sums = elementwise(step.operation, (sums, *other), dtype)
    return cast(sums, out)


class Matrix(NamedTuple):
    """Matrix whose first row is at physical address ``address`` and each next row ``pitch`` bytes later."""

    address: int
    pitch: int


class Gemm(msgspec.Struct, frozen=True):
    """Command ``c = epilogue(a @ b)``: ``a``, ``b`` have type ``dtype``, ``c`` type ``out``, sums accumulator type."""

    a: Matrix
    b: Matrix
    c: Matrix
    product: Product
    dtype: DType
    out: DType
    epilogue: tuple[EpilogueStep, ...]


class Dot(msgspec.Struct, frozen=True):
    """Command ``result = acc + a @ b`` in the accumulator's type; if ``acc`` is None the sums start at +0."""

    a: Handle
    b: Handle
    acc: Handle | None
    product: Product
    result: Handle

    @property
    def result_bytes(self) -> int:
        """Bytes of the result: one accumulator per output."""
        return self.product.m * self.product.n * self.result.dtype.itemsize
