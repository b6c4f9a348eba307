"""The operators by which collectives combine values, as PE_MATH does: the same operations, so the same bits.

``avg`` is a sum that is divided once, where it is final.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from sipsim.core.arithmetic.operations import elementwise
from sipsim.core.dtypes import dtype_of

Array = np.ndarray[Any, Any]
AVG = "avg"
REDUCTIONS = ("sum", "max", "min", "prod", AVG)
ROUNDED = ("sum", "prod", AVG)
"""Those whose results in floating types depend on the order of operations."""
MATH_OF = {"sum": "add", AVG: "add", "prod": "mul", "max": "max", "min": "min"}
"""The operation of PEMATH_OF that combines two values."""


def combine(op: str, first: Array, second: Array) -> Array:
    """Two arrays of one type, as PEMATH_OF combines them."""
    return elementwise(MATH_OF[op], (first, second), dtype_of(first.dtype))


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
