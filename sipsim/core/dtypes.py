"""Element types of tensors, messages and operands: name, NumPy type, size and accumulator type."""

from functools import cached_property
from typing import Any

import numpy as np


class DType:
    """Element type; ``DTYPES`` contains one object per type, and no other objects exist.

    ``itemsize``: bytes. ``exact_int``: the largest magnitude up to which every integer is representable; None for
    integer types. ``is_float``: f16, bf16 and f32. ``numpy_name``: NumPy's name, little endian; None for bf16.
    """

    def __init__(self, name: str, itemsize: int, exact_int: int | None, numpy_name: str | None) -> None:
        self.name = name
        self.itemsize = itemsize
        self.exact_int = exact_int
        self.is_float = exact_int is not None
        self._numpy_name = numpy_name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return as_dtype_named, (self.name,)

    @cached_property
    def numpy(self) -> "np.dtype[Any]":
        """NumPy's type; for bf16 the type of ``ml_dtypes``, which is imported at first use."""
        if self._numpy_name is not None:
            return np.dtype(self._numpy_name)
        import ml_dtypes

        bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bf16

    @property
    def stored(self) -> "np.dtype[Any]":
        """NumPy's type in files; for bf16 unsigned integers, as NumPy's file format does not store its name."""
        return self.numpy if self._numpy_name is not None else np.dtype(f"<u{self.itemsize}")

    @property
    def accumulator(self) -> "DType":
        """The type in which sums of products and of elements accumulate: f32 for floats, i32 for integers."""
        return DTYPES["f32" if self.is_float else "i32"]


DTYPES: dict[str, DType] = {
    "f16": DType("f16", 2, 2**11, "<f2"),
    "bf16": DType("bf16", 2, 2**8, None),
    "f32": DType("f32", 4, 2**24, "<f4"),
    "i32": DType("i32", 4, None, "<i4"),
    "i8": DType("i8", 1, None, "<i1"),
}

DEFAULT_DTYPE = "f16"
"""Default of the command line and of host scripts, so that messages have the same bytes in both."""


def as_dtype_named(name: str) -> DType:
    """Return the element type with a name of ``DTYPES``; used for unpickling."""
    return DTYPES[name]


def named_dtype(dtype: object) -> DType | None:
    """Return the type for a ``DType`` or its name; None for anything else."""
    if isinstance(dtype, DType):
        return dtype
    return DTYPES.get(dtype) if isinstance(dtype, str) else None


def dtype_of_numpy(dtype: "np.dtype[Any]") -> DType | None:
    """Return the element type with the same format as a NumPy type; None if no element type has this format."""
    if dtype.name == "bfloat16":
        return DTYPES["bf16"]
    numpy_types = (each for each in DTYPES.values() if each._numpy_name is not None)
    return next((each for each in numpy_types if each.numpy == dtype), None)


def dtype_of(dtype: object) -> DType:
    """Return the type for ``dtype``: a ``DType``, its name or PyTorch's name, or the NumPy type of the same format.

    Raises:
        TypeError: for any other type.
    """
    named = named_dtype("bf16" if dtype == "bfloat16" else dtype)
    if named is not None:
        return named
    try:
        element_type = dtype_of_numpy(np.dtype(dtype))  # type: ignore[call-overload]
    except TypeError:
        element_type = None
    if element_type is None:
        raise TypeError(f"dtype {dtype!r} is not available; allowed: {', '.join(DTYPES)}")
    return element_type
