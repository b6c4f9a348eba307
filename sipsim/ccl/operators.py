"""The operators by which collectives combine values, on arrays and in kernels: the same operations, so the same bits.

``avg`` is a sum that is divided once, where it is final.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from sipsim.arithmetic.operations import elementwise
from sipsim.dtypes import dtype_of
from sipsim.tl.values import TensorHandle

if TYPE_CHECKING:
    from sipsim.tl.language import TL

Array = np.ndarray[Any, Any]
AVG = "avg"
REDUCTIONS = ("sum", "max", "min", "prod", AVG)
ROUNDED = ("sum", "prod", AVG)
"""Those whose results in floating types depend on the order of operations."""
_MATH = {"sum": "add", AVG: "add", "prod": "mul", "max": "max", "min": "min"}
"""The operation of PE_MATH that combines two values."""


def combine(op: str, first: Array, second: Array) -> Array:
    """Two arrays of one type, as PE_MATH combines them."""
    return elementwise(_MATH[op], (first, second), dtype_of(first.dtype))


def final(op: str, total: Array, count: int) -> Array:
    """What ``count`` combined terms amount to."""
    if op != AVG:
        return total
    return elementwise("div", (total, np.asarray(count, total.dtype)), dtype_of(total.dtype))


def combine_all(op: str, terms: Iterable[Array]) -> Array:
    """All terms, one or more, one after the other."""
    each = iter(terms)
    total, count = next(each), 1
    for term in each:
        total, count = combine(op, total, term), count + 1
    return final(op, total, count)


def combined(op: str, first: TensorHandle, second: TensorHandle, tl: "TL") -> TensorHandle:
    """Two values of a kernel; what is final of ``avg`` is its to divide."""
    word = _MATH[op]
    if word == "add":
        return first + second
    if word == "mul":
        return first * second
    return tl.maximum(first, second) if word == "max" else tl.minimum(first, second)
