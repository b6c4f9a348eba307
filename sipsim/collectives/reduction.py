"""The operators by which collectives combine values: PE_MATH's operations, so the same bits."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sipsim.collectives.testdata import seeded_values
from sipsim.core.arithmetic.operations import elementwise
from sipsim.core.dtypes import DTYPES, DType, dtype_of
from sipsim.core.errors import pass_on_halt

Array = np.ndarray[Any, Any]
AVG = "avg"
"""A sum that is divided once, where it is final."""
NO_OP = "none"
"""The operator of a collective that moves data and combines none."""
REDUCTIONS = ("sum", "max", "min", "prod", AVG)
ROUNDED = ("sum", "prod", AVG)
"""Those whose results in floating types depend on the order of operations."""
MATH_OF = {"sum": "add", AVG: "add", "prod": "mul", "max": "max", "min": "min"}
"""The operation of PE_MATH that combines two values."""


def combine(op: str, first: Array, second: Array) -> Array:
    """Two arrays of one type, as PE_MATH combines them."""
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


MOST_ELEMENTS = 256
"""A cube's part of the data: enough for every order of additions to round differently somewhere."""
EXACT = DTYPES["i32"]


def rows_differ(reference: Callable[..., Any], system: Any, ranks: int, shape: tuple[int, int], dtype: DType) -> bool:
    """Whether two rows of any rank differ in ``dtype`` that are equal in integers.

    They do where ranks add in different orders. ``reference``: the algorithm's, which repeats the kernel's orders, so
    it is asked, on test data. ``shape``: (cubes, elements a cube) of a rank, of which at most ``MOST_ELEMENTS`` are
    tried. False for a type whose sums are exact, and for a reference that fails.
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
        # A reference that cannot take these data is reported where results are compared with it.
        return False
    found: dict[bytes, bytes] = {}
    return any(found.setdefault(key, row) != row for key, row in zip(exact, rounded, strict=True))


def _rows(outputs: list[Array], cubes: int) -> list[bytes]:
    """The bytes of each row of all ranks whose result is known."""
    known = [rank for rank in outputs if rank is not None]
    return [row.tobytes() for rank in known for row in np.broadcast_to(rank, (cubes, np.shape(rank)[-1]))]
