"""Registry of the operations of PE_MATH by name: element by element, and along an axis.

Floating types: operands are widened to f32 (exact), the result is rounded to f32 and then to the type. With
the 11 and 8 bits of precision of f16 and bf16, this equals rounding once, as IEEE 754 requires, for ``+ - * /`` and
``sqrt``. Integers wrap in their type. ``max`` and ``min`` return a NaN operand, and the second of equal operands, such
as zeros of both signs. Sums along an axis accumulate in f32 (i32) in a fixed order (:func:`along_axis`). Only the sign
and payload of a NaN depend on the processor, since IEEE 754 does not specify them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sipsim.core.arithmetic import elementary
from sipsim.core.dtypes import DTYPES, DType

Array = np.ndarray[Any, Any]
F32, I8 = DTYPES["f32"], DTYPES["i8"]


class Operation(NamedTuple):
    """Elementwise operation: ``compute(*arrays)`` on ``operands`` arrays of f32 or an integer type.

    ``is_special``: one of the slow functions of PE_MATH. ``is_of_floats``: not defined for integers.
    ``is_comparison``: the result is i8, 1 for true. ``passes``: number of passes of PE_MATH over the elements.
    """

    compute: Callable[..., Array]
    operands: int
    is_special: bool = False
    is_of_floats: bool = False
    is_comparison: bool = False
    passes: int = 1


class Reduction(NamedTuple):
    """Reduction: ``join(a, b)`` combines two parts. ``accumulates``: whether the result has the accumulator type."""

    join: Callable[..., Array]
    accumulates: bool = False


def _in_f64(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x.astype(np.float64)).astype(np.float32)


def _rsqrt(x: Array) -> Array:
    return np.asarray(1.0 / np.sqrt(x))


def _gelu(x: Array) -> Array:
    """GELU by its tanh form in f32: ``x / (1 + exp(-2 u))`` with ``u = x (0.7978845608 + 0.0356774081 x x)``
    (Hendrycks and Gimpel, arXiv 1606.08415), since ``(1 + tanh u) / 2`` is ``1 / (1 + exp(-2 u))``.

    Special values follow from the IEEE operations: large negative numbers give -0, and -inf gives NaN, as
    ``-inf / inf`` does, although GELU has a limit there.
    """
    one, half_slope, slope = np.float32(1), np.float32(0.0713548162726), np.float32(1.5957691216057)
    u = x * (slope + half_slope * (x * x))
    return np.asarray(x / (one + _exp(-u)))


def _larger(x: Array, y: Array) -> Array:
    """Return the larger operand. For +0 and -0, the result of ``np.maximum`` would depend on the processor."""
    return np.where((x > y) | (x != x), x, y)


def _smaller(x: Array, y: Array) -> Array:
    return np.where((x < y) | (x != x), x, y)


def _relu(x: Array) -> Array:
    """Return ``x`` where above 0, else +0; NaN where ``x`` is NaN."""
    return np.where(x <= 0, x.dtype.type(0), x)


def _where(mask: Array, x: Array, y: Array) -> Array:
    return np.asarray(np.where(mask != 0, x, y))


_exp, _log = _in_f64(elementary.exp), _in_f64(elementary.log)

OPERATIONS: dict[str, Operation] = {
    "add": Operation(np.add, 2),
    "sub": Operation(np.subtract, 2),
    "mul": Operation(np.multiply, 2),
    "div": Operation(np.divide, 2, is_special=True, is_of_floats=True),
    "max": Operation(_larger, 2),
    "min": Operation(_smaller, 2),
    "neg": Operation(np.negative, 1),
    "abs": Operation(np.absolute, 1),
    "exp": Operation(_exp, 1, is_special=True, is_of_floats=True),
    "log": Operation(_log, 1, is_special=True, is_of_floats=True),
    "sqrt": Operation(np.sqrt, 1, is_special=True, is_of_floats=True),
    "rsqrt": Operation(_in_f64(_rsqrt), 1, is_special=True, is_of_floats=True),
    "relu": Operation(_relu, 1),
    "gelu": Operation(_gelu, 1, is_special=True, is_of_floats=True, passes=3),
    "lt": Operation(np.less, 2, is_comparison=True),
    "le": Operation(np.less_equal, 2, is_comparison=True),
    "gt": Operation(np.greater, 2, is_comparison=True),
    "ge": Operation(np.greater_equal, 2, is_comparison=True),
    "eq": Operation(np.equal, 2, is_comparison=True),
    "ne": Operation(np.not_equal, 2, is_comparison=True),
    "where": Operation(_where, 3),
}
"""All elementwise operations, by name in the op log."""

REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(np.add, accumulates=True),
    "reduce_max": Reduction(_larger),
    "reduce_min": Reduction(_smaller),
}


def result_dtype(op: str, dtype: DType) -> DType:
    """Return the result type of an operation on operands of ``dtype`` (for ``where``, of its values)."""
    if op in REDUCTIONS:
        return dtype.accumulator if REDUCTIONS[op].accumulates else dtype
    return I8 if OPERATIONS[op].is_comparison else dtype


def elementwise(op: str, operands: tuple[Array, ...], dtype: DType) -> Array:
    """Return the result of an operation on operands of ``dtype`` (the mask of ``where`` is i8); NumPy broadcasts."""
    operation = OPERATIONS[op]
    with np.errstate(all="ignore"):
        if not dtype.is_float or dtype is F32 or (op in _NATIVE_F16 and dtype.name == "f16"):
            result = operation.compute(*operands)
        else:
            wide = F32.numpy
            result = operation.compute(*(each if each.dtype == I8.numpy else each.astype(wide) for each in operands))
        return result.astype(result_dtype(op, dtype).numpy, copy=False)


_NATIVE_F16 = frozenset({"add", "sub", "mul"})
"""Operations computed by NumPy in f16: NumPy widens to f32 and rounds back in one pass over memory."""


def cast(values: Array, to: DType) -> Array:
    """Return values converted to another type. Float to float: round to nearest, ties to even. Integers: wrap.

    Float to integer: truncate, then clip to the type's range; NaN gives 0. Integer to f16 or bf16: through f32.
    """
    with np.errstate(all="ignore"):
        if values.dtype.kind in "iub":
            return np.asarray(values.astype(F32.numpy) if to.is_float else values).astype(to.numpy)
        if to.is_float:
            return np.asarray(_to_odd(values) if to.name == "bf16" and values.dtype.itemsize == 8 else values, to.numpy)
        limits = np.iinfo(to.numpy)
        wide = np.nan_to_num(np.trunc(values.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        return np.asarray(np.clip(wide, limits.min, limits.max), to.numpy)


def _to_odd(values: Array) -> Array:
    """Round float64 to f32 "to odd": of the two neighbours of an inexact value, take the one with an odd last bit.

    ``ml_dtypes`` rounds float64 to bf16 through f32. A value rounded to odd gives the same bf16 as the exact value,
    as f32 is more than two bits longer than bf16 (Boldo and Melquiond, IEEE Transactions on Computers, 2008).
    """
    nearest = values.astype(np.float32)
    is_even = nearest.view(np.uint32) & 1 == 0
    other = np.nextafter(nearest, np.where(values > nearest, np.inf, -np.inf).astype(np.float32))
    return np.where(is_even & (nearest != values) & ~np.isnan(values), other, nearest)


def along_axis(op: str, values: Array, dtype: DType, axis: int) -> Array:
    """Return values reduced along one axis, which then has size 1.

    The order is a tree: of ``n`` elements, element ``i`` is joined with element ``i + ceil(n / 2)``, repeatedly until
    one element remains. For sums, f16 and bf16 values are widened to f32, and the result is f32.
    """
    reduction = REDUCTIONS[op]
    wide = F32 if dtype.is_float else dtype
    part = np.moveaxis(values.astype((dtype.accumulator if reduction.accumulates else wide).numpy), axis, 0)
    with np.errstate(all="ignore"):
        while (n := len(part)) > 1:
            half = -(-n // 2)
            joined = reduction.join(part[: n - half], part[half:])
            part = np.concatenate([joined, part[n - half : half]]) if n - half < half else joined
    return np.moveaxis(part, 0, axis).astype(result_dtype(op, dtype).numpy)
