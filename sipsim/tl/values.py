"""Arguments and results of kernel operations: typed pointers and tensor handles."""

from abc import abstractmethod
from functools import lru_cache
from operator import index
from typing import Any, Protocol

import numpy as np

from sipsim.dtypes import DTYPES, DType, named_dtype
from sipsim.errors import KernelError

Shape = tuple[int, ...]


class HandleOps(Protocol):
    """The arithmetic of the kernel that holds a handle."""

    @abstractmethod
    def add(self, a: "TensorHandle", b: "TensorHandle") -> "TensorHandle":
        """``a + b`` element by element."""


class Pointer(int):
    """An address with the type of its elements. Arithmetic is in bytes and keeps the type."""

    dtype: DType

    def __new__(cls, address: int, dtype: DType) -> "Pointer":
        pointer = super().__new__(cls, address)
        pointer.dtype = dtype
        return pointer

    def __add__(self, offset: int) -> "Pointer":
        return Pointer(int(self) + as_bytes(offset, "an offset"), self.dtype)

    __radd__ = __add__

    def __sub__(self, offset: int) -> "Pointer":
        return Pointer(int(self) - as_bytes(offset, "an offset"), self.dtype)


class TensorHandle:
    """Values that a kernel holds in its PE: read-only, with a type and a shape. ``a + b`` is a timed operation.

    ``slot_pa``: the slot in HBM or SRAM from which the values are still to be fetched, or None.
    """

    __slots__ = ("_tl", "array", "dtype", "slot_pa")

    def __init__(self, tl: HandleOps, array: "np.ndarray[Any, Any]", dtype: DType, slot_pa: int | None = None) -> None:
        self._tl = tl
        self.array = array
        self.dtype = dtype
        self.slot_pa = slot_pa

    @property
    def shape(self) -> Shape:
        """Elements in each dimension."""
        return tuple(self.array.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.array.nbytes)

    def __add__(self, other: "TensorHandle") -> "TensorHandle":
        return self._tl.add(self, other)


def as_bytes(value: object, what: str = "an address") -> int:
    """A number of bytes: an int, or an integer of NumPy.

    Raises:
        KernelError: for anything else.
    """
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise KernelError(f"{value!r} is not {what}; give an int, in bytes") from None


def as_dtype(dtype: object) -> DType:
    """A type from its name (``"f16"``) or itself.

    Raises:
        KernelError: for anything else, with what is allowed.
    """
    known = named_dtype(dtype)
    if known is not None:
        return known
    raise KernelError(f"dtype {dtype!r} is not known; allowed: {', '.join(DTYPES)}")


def as_shape(shape: object) -> Shape:
    """A shape from an int or a sequence of ints, all at least 1.

    Raises:
        KernelError: for anything else.
    """
    if type(shape) is int and shape >= 1:
        return (shape,)
    dims = tuple(shape) if isinstance(shape, tuple | list) else ()
    if not dims or not all(isinstance(d, int) and not isinstance(d, bool) and d >= 1 for d in dims):
        raise KernelError(f"shape {shape!r} is not a shape; give one or more sizes of at least 1")
    return dims


def pointee(ptr: int, dtype: object) -> DType:
    """The type of the elements at an address: ``dtype`` if it is given, else the pointer's own.

    Raises:
        KernelError: when neither is known.
    """
    address = as_bytes(ptr)
    if dtype is not None:
        return as_dtype(dtype)
    if isinstance(ptr, Pointer):
        return ptr.dtype
    raise KernelError(f"address {address:#x} has no type; give dtype=")


@lru_cache(maxsize=1024)
def as_text(shape: Shape) -> str:
    """A shape as the op log writes it."""
    return "x".join(map(str, shape))
