"""What all tensors have: sizes that follow from a shape, a type and a layout. And arrays of the host."""

from math import prod
from typing import Any, Protocol

import numpy as np

from sipsim.core.dtypes import DType
from sipsim.core.units import as_whole

Array = np.ndarray[Any, Any]


NO_NUMBERS = "OUSMm"
"""Kinds of NumPy's types whose elements are objects, texts or times."""


class Divided(Protocol):
    """A layout, as far as sizes need it."""

    def cube_blocks(self) -> int: ...


class Shaped:
    """``shape`` elements of ``dtype`` on a SIP, laid out by ``dp``."""

    shape: tuple[int, ...]
    dtype: DType
    dp: Divided

    @property
    def nbytes(self) -> int:
        """Bytes of all elements on this rank."""
        return self.numel() * self.dtype.itemsize

    def numel(self) -> int:
        """Elements on this rank."""
        return prod(self.shape)

    def elements_per_cube(self) -> int:
        """Elements that each cube holds."""
        return self.numel() // self.dp.cube_blocks()


class HostTensor:
    """An array on the host, as ``torch.from_numpy`` gives it."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def numpy(self) -> Array:
        """The array itself."""
        return self.array


def whole(name: str, value: Any) -> int:
    """A whole number that a script gives, of Python or NumPy.

    Raises:
        TypeError: for anything else, a bool too.
    """
    found = as_whole(value)
    if found is None:
        raise TypeError(f"{name}={value!r}: give a whole number")
    return found


def array_for(shape: tuple[int, ...], source: Any) -> Array:
    """The elements of another tensor, for one of ``shape``.

    Raises:
        TypeError: for what is no tensor of numbers.
        ValueError: when the shapes differ.
    """
    array: Array | None = source.numpy() if hasattr(source, "numpy") else None
    if array is None or array.dtype.kind in NO_NUMBERS:
        raise TypeError(f"cannot copy {source!r} into a tensor; give a tensor, such as torch.from_numpy(array)")
    if tuple(array.shape) != shape:
        raise ValueError(f"cannot copy a tensor of shape {tuple(array.shape)} into one of {shape}")
    return array
