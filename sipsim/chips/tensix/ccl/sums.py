"""Sums of elements, as reductions of chips of tiles make them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sipsim.core.dtypes import DType


def array_of(dtype: DType, data: bytes) -> "np.ndarray[Any, Any]":
    """Return the elements in ``data`` as a one-dimensional array."""
    return np.frombuffer(data, dtype.numpy)


def add(dtype: DType, parts: Sequence[bytes]) -> bytes:
    """Return the elementwise sum of ``parts``, added from first to last. Integers wrap, floats round to ``dtype``."""
    total = array_of(dtype, parts[0])
    for part in parts[1:]:
        total = total + array_of(dtype, part)
    return bytes(total.astype(dtype.numpy).tobytes())
