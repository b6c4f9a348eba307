"""Whether rows that are equal in exact numbers differ in the last bits of a floating type, by an algorithm's reference.

They do where ranks add in different orders. The reference repeats the kernel's orders, so it is asked, on test data.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sipsim.collectives.testdata import seeded_values
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import pass_on_halt

Array = np.ndarray[Any, Any]
MOST_ELEMENTS = 256
"""A cube's part of the data: enough for every order of additions to round differently somewhere."""
EXACT = DTYPES["i32"]


def rows_differ(reference: Callable[..., Any], system: Any, ranks: int, shape: tuple[int, int], dtype: DType) -> bool:
    """Whether two rows of any rank differ in ``dtype`` that are equal in integers.

    ``shape``: (cubes, elements a cube) of a rank, of which at most ``MOST_ELEMENTS`` are tried. False for a type whose
    sums are exact, and for a reference that fails.
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
        # A reference that cannot take these data is told of where results are compared with it.
        return False
    found: dict[bytes, bytes] = {}
    return any(found.setdefault(key, row) != row for key, row in zip(exact, rounded, strict=True))


def _rows(outputs: list[Array], cubes: int) -> list[bytes]:
    """The bytes of each row of all ranks whose result is known."""
    known = [rank for rank in outputs if rank is not None]
    return [row.tobytes() for rank in known for row in np.broadcast_to(rank, (cubes, np.shape(rank)[-1]))]
