"""Commands of PE_GEMM: a product of matrices in memories, with its epilogue, and one of values that a kernel holds."""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from sipsim.chips.ahbm.gemm.tiling import Product
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.core.arithmetic.operations import OPERATIONS, cast, elementwise
from sipsim.core.dtypes import DTYPES, DType

SCALE, BIAS = "scale", "bias"
PLAIN = ("relu", "gelu", "abs", "neg", "exp", "sqrt")
"""Operations without an operand, by their names in :data:`sipsim.core.arithmetic.operations.OPERATIONS`."""
_OPERATION = {SCALE: "mul", BIAS: "add"}


class Step(NamedTuple):
    """A step of a composite command's epilogue: what PE_MATH does to finished sums before they leave the PE (ADR-0014).

    It works on the accumulator's type, element by element; the result of all is cast to the type of the output at last.
    ``name``: :data:`SCALE` by ``value``, :data:`BIAS` with the row of ``dtype`` at physical ``address``, or one of
    :data:`PLAIN`.
    """

    name: str
    value: int | float = 0
    address: int = 0
    dtype: DType | None = None

    @property
    def text(self) -> str:
        """As the op log has it: exact, without spaces."""
        if self.name == SCALE:
            return f"{self.name}={self.value.hex() if isinstance(self.value, float) else self.value}"
        return f"{self.name}={self.dtype}@{self.address}" if self.name == BIAS else self.name

    @property
    def operation(self) -> str:
        """That of PE_MATH."""
        return _OPERATION.get(self.name, self.name)

    @property
    def work(self) -> tuple[int, bool]:
        """How often PE_MATH goes over the sums, and whether by a special function."""
        operation = OPERATIONS[self.operation]
        return operation.passes, operation.is_special


def as_text(steps: tuple[Step, ...]) -> str:
    """All steps, or ``none``."""
    return ";".join([each.text for each in steps]) or "none"


def from_text(text: str) -> tuple[Step, ...]:
    """The steps of a record."""
    return tuple(_step(each) for each in text.split(";")) if text != "none" else ()


def _step(text: str) -> Step:
    name, _, value = text.partition("=")
    if name == SCALE:
        return Step(name, int(value) if value.lstrip("-").isdigit() else float.fromhex(value))
    if name == BIAS:
        dtype, _, address = value.partition("@")
        return Step(name, 0, int(address), DTYPES[dtype])
    return Step(name)


def perform(steps: tuple[Step, ...], sums: Array, dtype: DType, out: DType, bias: "dict[int, Array]") -> Array:
    """The output of type ``out`` for sums of type ``dtype``. ``bias``: by the index of its step, the elements above
    each column.
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
    """Rows at equal distances: the first at physical address ``address``, the next ``pitch`` bytes later."""

    address: int
    pitch: int


class Gemm(msgspec.Struct, frozen=True):
    """``c = epilogue(a @ b)``: ``a`` and ``b`` of ``dtype``, ``c`` of ``out``; the epilogue is of the accumulator's."""

    a: Matrix
    b: Matrix
    c: Matrix
    product: Product
    dtype: DType
    out: DType
    epilogue: tuple[Step, ...]


class Dot(msgspec.Struct, frozen=True):
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
