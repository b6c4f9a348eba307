"""Arguments and results of kernel operations: typed pointers and tensor handles."""

import math
from abc import abstractmethod
from collections.abc import Callable
from operator import index
from typing import Any, NoReturn, Protocol

import numpy as np

from sipsim.chips.ahbm.pe.commands import Completion, Const
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.core.arithmetic.operations import cast as round_to
from sipsim.core.dtypes import DTYPES, DType, named_dtype
from sipsim.core.errors import KernelError

Shape = tuple[int, ...]
HANDLES = "tl.load, tl.recv, tl.full, tl.wait and operations return handles"


class HandleOps(Protocol):
    """The kernel operations that handles need: a number for a new one, and commands."""

    _number_handle: Callable[[], int]
    _submit: Callable[[Any], Completion]

    @abstractmethod
    def _operate(self, op: str, *operands: Any) -> "TensorHandle":
        """An element-wise operation, on handles and numbers."""

    @abstractmethod
    def _view(self, x: "TensorHandle", dims: Shape, first: int = 0) -> "TensorHandle":
        """A handle in another shape, or a part of it."""

    @abstractmethod
    def dot(self, a: "TensorHandle", b: "TensorHandle") -> "TensorHandle":
        """``a @ b`` of matrices."""

    @abstractmethod
    def cast(self, x: "TensorHandle", dtype: object) -> "TensorHandle":
        """A handle in another type."""


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


class PointerList:
    """Addresses of tensors of ``nbytes`` each, one after the other, as if they were one."""

    def __init__(self, pointers: list[Pointer], nbytes: int, dtype: DType) -> None:
        self._pointers = pointers
        self._nbytes = nbytes
        self.dtype = dtype

    def __add__(self, offset: int) -> Pointer:
        index, inside = divmod(offset, self._nbytes)
        return self._pointers[index] + inside


class TensorHandle(Handle):
    """Values that a kernel holds in its PE: read-only, with a type and a shape. ``a + b`` is a timed operation.

    Made of an array, it holds a copy of it; without one it is the result of a command, which fills it. Comparisons are
    operations, too, so a handle has no truth, and cannot be a key of a dict; ``is`` compares handles.
    """

    __slots__ = ("_tl",)

    def __init__(self, tl: HandleOps, array: Array | None, dtype: DType) -> None:
        self.dtype = dtype
        self.name = f"h{tl._number_handle()}"
        self.slot_pa = self.in_slot = self.room = None
        self.is_released = self.is_placed = False
        self.offset = 0
        self._tl = tl
        if array is not None:
            self._tl._submit(Const(array, self))

    def __add__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("add", self, other)

    def __radd__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("add", other, self)

    def __sub__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("sub", self, other)

    def __rsub__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("sub", other, self)

    def __mul__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("mul", self, other)

    def __rmul__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("mul", other, self)

    def __truediv__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("div", self, other)

    def __rtruediv__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("div", other, self)

    def __neg__(self) -> "TensorHandle":
        return self._tl._operate("neg", self)

    def __abs__(self) -> "TensorHandle":
        return self._tl._operate("abs", self)

    def __lt__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("lt", self, other)

    def __le__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("le", self, other)

    def __gt__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("gt", self, other)

    def __ge__(self, other: Any) -> "TensorHandle":
        return self._tl._operate("ge", self, other)

    def __eq__(self, other: object) -> "TensorHandle":  # type: ignore[override]
        return self._tl._operate("eq", self, other)

    def __ne__(self, other: object) -> "TensorHandle":  # type: ignore[override]
        return self._tl._operate("ne", self, other)

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None
    """An array of NumPy beside a handle is an operand of the handle, which refuses it, and not one of its elements."""

    def __matmul__(self, other: Any) -> "TensorHandle":
        return self._tl.dot(self, other)

    def __pow__(self, other: object) -> NoReturn:
        raise KernelError(f"{self!r} ** {other!r} is no operation of PE_MATH; write x * x, or tl.exp(y * tl.log(x))")

    def __floordiv__(self, other: object) -> NoReturn:
        raise KernelError(f"{self!r} // {other!r} is no operation of PE_MATH; write tl.cast(x / y, 'i32') of floats")

    def __float__(self) -> NoReturn:
        raise KernelError(f"{self!r} is no number of Python: its elements are known in simulated time only")

    def __repr__(self) -> str:
        array = getattr(self, "array", None)
        return f"{self.name} of {self.dtype}{'' if array is None else list(array.shape)}"

    def __bool__(self) -> NoReturn:
        raise KernelError(f"{self.name} has no truth: its elements are known in simulated time only; use tl.where")

    def __getitem__(self, key: object) -> "TensorHandle":
        """``x[:, None]``: a view with a dimension of 1 at each ``None``, and all of the others. ``x[a:b]``: rows."""
        if isinstance(key, slice) and key != slice(None):
            return self._rows(key)
        parts = key if isinstance(key, tuple) else (key,)
        dims, sizes = [], list(self.shape)
        for part in parts:
            if part is None:
                dims.append(1)
            elif isinstance(part, slice) and part == slice(None) and sizes:
                dims.append(sizes.pop(0))
            else:
                raise KernelError(
                    f"a handle of shape {list(self.shape)} is indexed by {len(self.shape)} ':' and by None, such as "
                    f"x[:, None], or by one range of its first dimension; tl.load reads a part of a tensor"
                )
        return self._tl._view(self, (*dims, *sizes))

    def _rows(self, key: slice) -> "TensorHandle":
        count, *others = self.shape
        start, stop = (0 if key.start is None else key.start), (count if key.stop is None else key.stop)
        is_range = key.step is None and type(start) is type(stop) is int
        if not is_range or not 0 <= start < stop <= count:
            raise KernelError(
                f"a handle of shape {list(self.shape)} has no rows {key.start}:{key.stop}; give a first row and the "
                f"first one behind the last, from 0 to {count}"
            )
        return self._tl._view(self, (stop - start, *others), start * math.prod(others))

    def to(self, dtype: object) -> "TensorHandle":
        """The values in another type, as ``tl.cast``."""
        return self._tl.cast(self, dtype)


def as_number(value: Any, dtype: DType, name: str) -> int | float:
    """A number, rounded to a type, as an int or float of Python. ``name``: the operation that takes it.

    Raises:
        KernelError: for anything else; for a fraction where integers are, and a number that the type does not hold.
    """
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | Pointer)
    if not is_number:
        what = "a number" if name == "tl.full" else "handles and numbers"
        raise KernelError(f"{name} takes {what}, not {type(value).__name__}; {HANDLES}")
    if not dtype.is_float:
        if not isinstance(value, int | np.integer):
            raise KernelError(f"{name}: {value!r} is no int, and the others are {dtype}; write tl.cast(x, 'f32')")
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= value <= limits.max:
            raise KernelError(f"{name}: {dtype} does not hold {value}; write tl.cast(x, 'i32'), or 'f32'")
        return int(value)
    try:
        exact = float(value)
    except OverflowError:
        raise KernelError(f"{name}: {dtype} does not hold {value}") from None
    rounded = float(round_to(np.array(exact), dtype))
    if math.isinf(rounded) and not math.isinf(exact):
        raise KernelError(f"{name}: {dtype} does not hold {value}; write tl.cast(x, 'f32')")
    return rounded


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
