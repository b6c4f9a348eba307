"""Product of two matrices under the accumulation rule of their type.

For each element of the result, the products ``a[i, k] * b[k, j]`` are added one after the other in the order of
``k``, to one accumulator that starts at +0 or at the given value. Floating types: f32 products and sums, each rounded
(products of f16 are exact in f32, as are products of bf16 except on underflow). Integers: i32, which wraps. Tiling
does not change the bits of the result, if the parts of ``k`` are added in order.

The result does not depend on the machine: BLAS, whose order of additions is unspecified, is used only if every partial
sum is exact in any order.
"""

from typing import Any

import numpy as np

from sipsim.core.dtypes import DTYPES, DType

Array = np.ndarray[Any, Any]
_EXACT_F32, _EXACT_F64 = 2**24, 2**53
_CELLS = 2**15
"""Block size in accumulators: a block and its products of one step fit in a cache."""


def matmul(a: Array, b: Array, dtype: DType, start: Array | None = None) -> Array:
    """Return ``start + a @ b``: shapes (M, K) and (K, N) of ``dtype``; result (M, N) of its accumulator type."""
    wide_a, wide_b = widened(a, dtype), widened(b, dtype)
    return matmul_widened(wide_a, wide_b, integer_bound(wide_a) * integer_bound(wide_b), dtype, start)


def widened(values: Array, dtype: DType) -> Array:
    """Convert elements of ``dtype`` to the operand type of :func:`matmul_widened`: f32, or f64 for integers."""
    return values.astype(DTYPES["f32"].numpy if dtype.is_float else np.float64, copy=False)


def matmul_widened(a: Array, b: Array, bound: float, dtype: DType, start: Array | None = None) -> Array:
    """Multiply as :func:`matmul`, with operands converted by :func:`widened`, such as parts of larger matrices.

    ``bound``: the product of the operands' :func:`integer_bound`, or more; affects only the speed, not the result.
    """
    if not dtype.is_float:
        return _integers(a, b, bound * a.shape[1], start)
    bound *= a.shape[1]
    if start is not None:
        bound += integer_bound(start) if _has_no_negative_zero(start) else float("inf")
    if bound <= _EXACT_F32:
        # Adding +0 turns a -0 of BLAS into +0: by the rule, an accumulator is -0 only if it starts at -0.
        total: Array = a @ b + np.float32(0)
        return total if start is None else start + total
    if a.shape[0] > b.shape[1]:
        # The rule is the same for the transposed product, and NumPy's inner loop runs along the longer side.
        return np.ascontiguousarray(_in_order(b.T, a.T, None if start is None else start.T).T)
    return _in_order(a, b, start)


def _in_order(a: Array, b: Array, start: Array | None) -> Array:
    """Apply the accumulation rule literally: one step of ``k`` at a time, over one block of the result."""
    rows, columns = a.shape[0], b.shape[1]
    total = np.zeros((rows, columns), np.float32) if start is None else start.astype(np.float32)
    width = max(min(columns, _CELLS), 1)
    height = max(_CELLS // width, 1)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for top in range(0, rows, height):
            for left in range(0, columns, width):
                block = np.ascontiguousarray(total[top : top + height, left : left + width])
                part, step = np.ascontiguousarray(b[:, left : left + width]), np.empty_like(block)
                for k, column in enumerate(a[top : top + height].T):
                    np.multiply(column[:, None], part[k], out=step)
                    np.add(block, step, out=block)
                total[top : top + height, left : left + width] = block
    return total


def _integers(a: Array, b: Array, bound: float, start: Array | None) -> Array:
    """Multiply integers modulo 2**32, in any order; with unsigned numbers, since signed overflow is undefined in C."""
    if bound <= _EXACT_F64:
        total = (a @ b).astype(np.int64).astype(np.uint32)
    else:
        total = np.matmul(a.astype(np.int32).view(np.uint32), b.astype(np.int32).view(np.uint32))
    if start is not None:
        total = total + start.astype(np.int32).view(np.uint32)
    return total.view(np.int32)


def _has_no_negative_zero(values: Array) -> bool:
    return not np.any(np.signbit(values) & (values == 0))


def integer_bound(values: Array) -> float:
    """Return the largest magnitude of the values if all are integers, else infinity."""
    if not values.size:
        return 0.0
    largest = float(max(values.max(), -values.min()))
    if not largest <= _EXACT_F64 or not np.array_equal(values, np.rint(values)):
        return float("inf")
    return largest
