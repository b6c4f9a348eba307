"""Reduction operators of collectives, computed with the operations of PE_MATH: the results are bit-identical."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sipsim.collectives.testdata import seeded_values
from sipsim.core.arithmetic.operations import elementwise
from sipsim.core.dtypes import DTYPES, DType, dtype_of
from sipsim.core.errors import pass_on_halt

Array = np.ndarray[Any, Any]
AVG = "avg"
"""Average operator: divides the complete sum once."""
NO_OP = "none"
"""The operator of a collective that only moves data."""
REDUCTIONS = ("sum", "max", "min", "prod", AVG)
ROUNDED = ("sum", "prod", AVG)
"""Operators whose results in floating types depend on the order of operations."""
MATH_OF = {"sum": "add", AVG: "add", "prod": "mul", "max": "max", "min": "min"}
"""The operation of PE_MATH that combines two values."""


def combine(op: str, first: Array, second: Array) -> Array:
    """Combine two arrays of one type element by element, as PE_MATH does."""
    return elementwise(MATH_OF[op], (first, second), dtype_of(first.dtype))


def final(op: str, total: Array, count: int) -> Array:
    """Return the result of a reduction of ``count`` terms: for ``avg`` ``total / count``, else ``total``."""
    if op != AVG:
        return total
    return elementwise("div", (total, np.asarray(count, total.dtype)), dtype_of(total.dtype))


def combine_all(op: str, terms: Iterable[Array]) -> Array:
    """Combine all terms (at least one) from first to last."""
    remaining = iter(terms)
    total, count = next(remaining), 1
    for term in remaining:
        total, count = combine(op, total, term), count + 1
    return final(op, total, count)


MOST_ELEMENTS = 256
"""Test elements per cube: enough for two orders of addition to round differently in some element."""
EXACT = DTYPES["i32"]


def rows_differ(reference: Callable[..., Any], system: Any, ranks: int, shape: tuple[int, int], dtype: DType) -> bool:
    """Return whether rows that are equal in integers differ in ``dtype`` because ranks add in different orders.

    ``reference``: the algorithm's reference function, which adds in the kernel's order; this function runs it on test
    data. ``shape``: (cubes, elements per cube) of a rank; at most ``MOST_ELEMENTS`` elements per cube are tested.
    Returns False if the sums of ``dtype`` are exact, or if the reference raises.
    """
    if dtype.exact_int is None:
        return False
    cubes, n_elem = shape[0], min(shape[1], MOST_ELEMENTS)
    whole = seeded_values(0, ranks * cubes * n_elem, EXACT, 0, 1).reshape(ranks, cubes, n_elem)
    try:
        with np.errstate(all="ignore"):
            exact = _rows(reference([*whole.astype(EXACT.numpy)], system), cubes)
            rounded = _rows(reference([*(whole / 2**31).astype(dtype.numpy)], system), cubes)
    except BaseException as error:
        pass_on_halt(error)
        # A reference that rejects these data is reported when results are compared with its output.
        return False
    rounded_of: dict[bytes, bytes] = {}
    return any(rounded_of.setdefault(key, row) != row for key, row in zip(exact, rounded, strict=True))


def _rows(outputs: list[Array], cubes: int) -> list[bytes]:
    """Return the bytes of each row of every rank whose result is not None."""
    arrays = [output for output in outputs if output is not None]
    return [row.tobytes() for array in arrays for row in np.broadcast_to(array, (cubes, np.shape(array)[-1]))]
