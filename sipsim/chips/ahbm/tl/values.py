"""Arguments and results of kernel operations: typed pointers and tensor handles."""

import math
from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any, NoReturn

from sipsim.chips.ahbm.pe.commands import Const
from sipsim.chips.ahbm.pe.tcm import Array, Handle
from sipsim.core.dtypes import DType
from sipsim.core.errors import KernelError

if TYPE_CHECKING:
    from sipsim.chips.ahbm.tl.language import TL

Shape = tuple[int, ...]
HANDLES = "tl.load, tl.recv, tl.full, tl.wait and operations return handles"


class Pointer(int):
    """Address with the type of its elements. Arithmetic is in bytes and preserves the type."""

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
    """Addresses of tensors of ``nbytes`` each, indexed by one byte offset as if the tensors were contiguous."""

    def __init__(self, pointers: list[Pointer], nbytes: int, dtype: DType) -> None:
        self._pointers = pointers
        self._nbytes = nbytes
        self.dtype = dtype

    def __add__(self, offset: int) -> Pointer:
        index, inside = divmod(offset, self._nbytes)
        return self._pointers[index] + inside


def _operator(op: str) -> Callable[["TensorHandle", Any], "TensorHandle"]:
    def _operate(self: "TensorHandle", other: Any) -> "TensorHandle":
        return self._tl._operate(op, self, other)

    return _operate


def _swapped(op: str) -> Callable[["TensorHandle", Any], "TensorHandle"]:
    """Return the method of an operator whose right operand is the handle."""

    def _operate(self: "TensorHandle", other: Any) -> "TensorHandle":
        return self._tl._operate(op, other, self)

    return _operate


class TensorHandle(Handle):
    """Values of a kernel in its PE: read-only, with a type and a shape. ``a + b`` is a timed operation.

    A handle that is made from an array holds a copy of it; a handle without an array is the result of a command, which
    fills it. Comparisons are operations too, so a handle has no truth value and cannot be a dict key; ``is`` compares
    handles.
    """

    __slots__ = ("_tl",)

    def __init__(self, tl: "TL", array: Array | None, dtype: DType) -> None:
        self.dtype = dtype
        self.name = f"h{tl._number_handle()}"
        self.slot_pa = self.in_slot = self.room = None
        self.is_released = self.is_placed = False
        self.offset = 0
        self._tl = tl
        if array is not None:
            self._tl._submit(Const(array, self))

    __add__, __radd__ = _operator("add"), _swapped("add")
    __sub__, __rsub__ = _operator("sub"), _swapped("sub")
    __mul__, __rmul__ = _operator("mul"), _swapped("mul")
    __truediv__, __rtruediv__ = _operator("div"), _swapped("div")
    __lt__, __le__, __gt__, __ge__ = _operator("lt"), _operator("le"), _operator("gt"), _operator("ge")
    __eq__, __ne__ = _operator("eq"), _operator("ne")  # type: ignore[assignment]

    def __neg__(self) -> "TensorHandle":
        return self._tl._operate("neg", self)

    def __abs__(self) -> "TensorHandle":
        return self._tl._operate("abs", self)

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None
    """Let the handle refuse ``array + handle``, which NumPy would otherwise add element by element."""

    def __matmul__(self, other: Any) -> "TensorHandle":
        return self._tl.dot(self, other)

    def __pow__(self, other: object) -> NoReturn:
        raise KernelError(f"{self!r} ** {other!r}: PE_MATH has no power; write x * x, or tl.exp(y * tl.log(x))")

    def __floordiv__(self, other: object) -> NoReturn:
        raise KernelError(f"{self!r} // {other!r}: PE_MATH cannot floor-divide; write tl.cast(x / y, 'i32') of floats")

    def __float__(self) -> NoReturn:
        raise KernelError(f"{self!r} is not a Python number: its elements are known only in simulated time")

    def __repr__(self) -> str:
        array = getattr(self, "array", None)
        return f"{self.name} of {self.dtype}{'' if array is None else list(array.shape)}"

    def __bool__(self) -> NoReturn:
        raise KernelError(f"{self.name} has no truth value: elements are known only in simulated time; use tl.where")

    def __getitem__(self, key: object) -> "TensorHandle":
        """Return a view: ``x[:, None]`` inserts a dimension of 1 at each ``None``; ``x[a:b]`` selects rows."""
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
                    f"index a handle of shape {list(self.shape)} by {len(self.shape)} ':' and by None, such as "
                    f"x[:, None], or by one range of its first dimension; tl.load reads a part of a tensor"
                )
        return self._tl._view(self, (*dims, *sizes))

    def _rows(self, key: slice) -> "TensorHandle":
        count, *others = self.shape
        start, stop = (0 if key.start is None else key.start), (count if key.stop is None else key.stop)
        is_range = key.step is None and type(start) is type(stop) is int
        if not is_range or not 0 <= start < stop <= count:
            raise KernelError(
                f"a handle of shape {list(self.shape)} has no rows {key.start}:{key.stop}; give first and end row, "
                f"from 0 to {count}"
            )
        return self._tl._view(self, (stop - start, *others), start * math.prod(others))

    def to(self, dtype: object) -> "TensorHandle":
        """Return the values in another type, as ``tl.cast``."""
        return self._tl.cast(self, dtype)


def as_bytes(value: object, what: str = "an address") -> int:
    """Return a number of bytes, given as an int or a NumPy integer, as an int.

    Raises:
        KernelError: for a value of another type.
    """
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise KernelError(f"{value!r} is not {what}; give an int, in bytes") from None
