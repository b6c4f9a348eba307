"""Arguments and results of kernel operations: typed pointers and tensor handles."""

from abc import abstractmethod
from collections.abc import Callable
from operator import index
from typing import Any, Protocol

from sipsim.dtypes import DTYPES, DType, named_dtype
from sipsim.errors import KernelError
from sipsim.pe.commands import Completion, Const
from sipsim.pe.handles import Array, Handle

Shape = tuple[int, ...]


class HandleOps(Protocol):
    """The kernel operations that handles need: a number for a new one, and commands."""

    _number_handle: Callable[[], int]
    _submit: Callable[[Any], Completion]

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


class TensorHandle(Handle):
    """Values that a kernel holds in its PE: read-only, with a type and a shape. ``a + b`` is a timed operation.

    Made of an array, it holds a copy of it; without one it is the result of a command, which fills it.
    """

    __slots__ = ("_tl",)

    def __init__(self, tl: HandleOps, array: Array | None, dtype: DType) -> None:
        self.dtype = dtype
        self.name = f"h{tl._number_handle()}"
        self.slot_pa = self.in_slot = self.room = None
        self.is_released = False
        self._tl = tl
        if array is not None:
            self._tl._submit(Const(array, self))

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
