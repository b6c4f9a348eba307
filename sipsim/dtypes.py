"""Element types of tensors and messages: name, NumPy type, size, and the largest integer that stays exact in sums."""

from typing import NamedTuple

import numpy as np


class DType(NamedTuple):
    """``exact_int`` is the largest magnitude up to which every integer is representable; None where addition wraps."""

    name: str
    numpy: np.dtype[np.generic]
    itemsize: int
    exact_int: int | None

    def __str__(self) -> str:
        return self.name


DTYPES: dict[str, DType] = {
    "f16": DType("f16", np.dtype("<f2"), 2, 2**11),
    "f32": DType("f32", np.dtype("<f4"), 4, 2**24),
    "i32": DType("i32", np.dtype("<i4"), 4, None),
}

DEFAULT_DTYPE = "f16"
"""Where none is named, on the command line and in host scripts alike, so that both move the same bytes."""


def named_dtype(dtype: object) -> DType | None:
    """A type from its name or itself; None for anything else."""
    if isinstance(dtype, DType):
        return dtype
    return DTYPES.get(dtype) if isinstance(dtype, str) else None
