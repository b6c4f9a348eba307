"""The data of the built-in job by rows, for any number of contributions."""

from typing import Any

import numpy as np

from sipsim.collectives.testdata import seeded_values
from sipsim.core.dtypes import DType


def seeded_rows(
    rank: int, shape: tuple[int, int], dtype: DType, seed: int, contributions: int
) -> "np.ndarray[Any, Any]":
    """The data of one rank as int64, ``shape`` = (rows, elements per row)."""
    count = shape[0] * shape[1]
    return seeded_values(rank * count, count, dtype, seed, contributions).reshape(shape)
