"""The kernel operations on values, a base of :class:`~sipsim.chips.ahbm.tl.language.language.TL`: PE_MATH performs
them.

Operands are handles of one type, and numbers, which are rounded to that type first. Shapes broadcast as in NumPy. What
an operation computes: :mod:`sipsim.core.arithmetic.operations`. Values that a word makes (``zeros``, ``full``,
``arange``) are written by PE_MATH, and take its time for their bytes. Names are Triton's, but for ``relu`` and
``gelu``.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sipsim.chips.ahbm.pe.commands import Cast, Join, Make, MathOp, Number, Rearrange, Reduce, View
from sipsim.chips.ahbm.tl.language.ipcq_ops import IpcqOps
from sipsim.chips.ahbm.tl.values import HANDLES, Shape, TensorHandle, as_dtype, as_number, as_shape
from sipsim.core.arithmetic.operations import OPERATIONS, result_dtype
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import KernelError

F32, I32, I8 = DTYPES["f32"], DTYPES["i32"], DTYPES["i8"]
Operand = TensorHandle | Number
_NAMES = {"sub": "-", "mul": "*", "div": "/", "neg": "-", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}
_NAMES |= {"ne": "!=", "max": "tl.maximum", "min": "tl.minimum"}


class MathOps(IpcqOps):
    """Operations on values for the kernel on one PE. They block until PE_MATH is done; views take no time."""

    def zeros(self, shape: int | Shape, dtype: object) -> TensorHandle:
        """Elements that are 0."""
        return self._make("full", as_shape(shape), 0, as_dtype(dtype))

    def full(self, shape: int | Shape, value: Number, dtype: object) -> TensorHandle:
        """Elements that are a number, rounded to the type."""
        return self._make("full", as_shape(shape), value, as_dtype(dtype))

    def arange(self, start: int, end: int, dtype: object = "i32") -> TensorHandle:
        """The integers from ``start`` to below ``end``, in one dimension.

        Raises:
            KernelError: when there is none, or one that the type does not hold.
        """
        kind = as_dtype(dtype)
        if type(start) is not int or type(end) is not int or end <= start:
            raise KernelError(f"tl.arange({start!r}, {end!r}): give two ints, the second one larger")
        limit = kind.exact_int
        if limit is not None and max(abs(start), abs(end - 1)) > limit:
            raise KernelError(f"tl.arange({start}, {end}): {kind} holds integers up to {limit} exactly; use 'i32'")
        as_number(end - 1, kind, "tl.arange")
        return self._make("arange", (end - start,), start, kind)

    def add(self, a: Operand, b: Operand) -> TensorHandle:
        """``a + b`` element by element, rounded once in their type; integers wrap.

        Raises:
            KernelError: when types differ, shapes do not broadcast, or an operand is no handle and no number.
        """
        return self._operate("add", a, b)

    def maximum(self, a: Operand, b: Operand) -> TensorHandle:
        """The larger of each pair of elements; NaN if one is. Along an axis it is :meth:`max`."""
        return self._operate("max", a, b)

    def minimum(self, a: Operand, b: Operand) -> TensorHandle:
        """The smaller of each pair of elements; NaN if one is."""
        return self._operate("min", a, b)

    def abs(self, x: TensorHandle) -> TensorHandle:
        """Without the sign."""
        return self._operate("abs", x)

    def exp(self, x: TensorHandle) -> TensorHandle:
        """e to the power of each element, of floats."""
        return self._operate("exp", x)

    def log(self, x: TensorHandle) -> TensorHandle:
        """The natural logarithm, of floats."""
        return self._operate("log", x)

    def sqrt(self, x: TensorHandle) -> TensorHandle:
        """The square root, of floats."""
        return self._operate("sqrt", x)

    def rsqrt(self, x: TensorHandle) -> TensorHandle:
        """One over the square root, of floats."""
        return self._operate("rsqrt", x)

    def relu(self, x: TensorHandle) -> TensorHandle:
        """The larger of each element and 0."""
        return self._operate("relu", x)

    def gelu(self, x: TensorHandle) -> TensorHandle:
        """GELU by its tanh form, of floats."""
        return self._operate("gelu", x)

    def where(self, mask: TensorHandle, x: Operand, y: Operand) -> TensorHandle:
        """``x`` where ``mask`` is not 0, else ``y``. ``mask`` is i8, as comparisons give it.

        Two numbers make f32, or i32 if both are ints.

        Raises:
            KernelError: as :meth:`add`; for a mask of another type.
        """
        if not isinstance(mask, TensorHandle) or mask.dtype is not I8:
            what = f"{mask.name} of {mask.dtype}" if isinstance(mask, TensorHandle) else type(mask).__name__
            raise KernelError(f"tl.where takes a mask of i8, not {what}; comparisons such as x > 0 give one")
        dtype = None
        if not isinstance(x, TensorHandle) and not isinstance(y, TensorHandle):
            dtype = I32 if isinstance(x, int) and isinstance(y, int) else F32
        return self._operate("where", x, y, mask=mask, dtype=dtype)

    def sum(self, x: TensorHandle, axis: int | None = None, keep_dims: bool = False) -> TensorHandle:
        """The sum along an axis, or of all elements, in f32 or i32, in the order of a tree."""
        return self._reduce("tl.sum", "sum", x, axis, keep_dims)

    def max(self, x: TensorHandle, axis: int | None = None, keep_dims: bool = False) -> TensorHandle:
        """The largest element along an axis, or of all; of two operands it is :meth:`maximum`."""
        return self._reduce("tl.max", "reduce_max", x, axis, keep_dims)

    def min(self, x: TensorHandle, axis: int | None = None, keep_dims: bool = False) -> TensorHandle:
        """The smallest element along an axis, or of all; of two operands it is :meth:`minimum`."""
        return self._reduce("tl.min", "reduce_min", x, axis, keep_dims)

    def cast(self, x: TensorHandle, dtype: object) -> TensorHandle:
        """The values in another type: rounded to the nearest, ties to even; floats to integers towards zero, within
        the range of the type. A handle of that type is returned as it is.
        """
        task, kind = self._task(), as_dtype(dtype)
        self._check_handle(x, "tl.cast takes a handle")
        if x.dtype is kind:
            return x
        result = TensorHandle(self, None, kind)
        self._submit(Cast(x, result)).wait(task)
        return result

    def trans(self, x: TensorHandle) -> TensorHandle:
        """A matrix with rows and columns exchanged, moved by PE_MATH.

        Raises:
            KernelError: for another number of dimensions than two.
        """
        self._check_handle(x, "tl.trans takes a handle")
        if len(x.shape) != 2:
            raise KernelError(f"tl.trans takes two dimensions, not {_text(x)}; tl.reshape gives it two")
        return self._rearrange("trans", x, (x.shape[1], x.shape[0]))

    def broadcast_to(self, x: TensorHandle, shape: int | Shape) -> TensorHandle:
        """Elements repeated to a shape, by PE_MATH. Operations broadcast by themselves, without the bytes.

        Raises:
            KernelError: where they cannot be.
        """
        self._check_handle(x, "tl.broadcast_to takes a handle")
        dims = as_shape(shape)
        if dims == x.shape:
            return x
        if _broadcast([x.shape, dims]) != dims:
            raise KernelError(f"tl.broadcast_to of {_text(x)} to {list(dims)}: only a size of 1 can be repeated")
        return self._rearrange("broadcast_to", x, dims)

    def reshape(self, x: TensorHandle, shape: int | Shape) -> TensorHandle:
        """The same elements in another shape, in their order. It is a view: no time, and the room of ``x``.

        Raises:
            KernelError: for another number of elements.
        """
        self._check_handle(x, "tl.reshape takes a handle")
        dims = as_shape(shape)
        if math.prod(dims) != math.prod(x.shape):
            raise KernelError(f"tl.reshape of {_text(x)} to {list(dims)}: the number of elements must stay")
        return self._view(x, dims)

    def join(self, parts: Sequence[TensorHandle]) -> TensorHandle:
        """The elements of several handles in one dimension, as one. It is a view: no time, and the room of ``parts``.

        They lie one behind the other since they were made, so each is joined once at most.

        Raises:
            KernelError: for no handles, or of several types; for one that lies elsewhere: a view, a part of another
                join, a message in its slot.
        """
        task = self._task()
        if not parts:
            raise KernelError("tl.join takes handles, one or more")
        for each in parts:
            self._check_handle(each, "tl.join takes handles")
            if each.dtype is not parts[0].dtype:
                raise _mixed("tl.join", tuple(parts))
            if each.is_placed or each.in_slot is not None or each.slot_pa is not None:
                raise KernelError(f"tl.join of {_text(each)}, which lies elsewhere: it is a view, joined, or in a slot")
            each.is_placed = True
        result = TensorHandle(self, None, parts[0].dtype)
        result.is_placed = True
        self._submit(Join(tuple(parts), result)).wait(task)
        return result

    @staticmethod
    def cdiv(a: int, b: int) -> int:
        """``a / b`` rounded up, of ints of Python; it takes no time."""
        return -(-a // b)

    def _operate(
        self, op: str, *operands: Any, mask: TensorHandle | None = None, dtype: DType | None = None
    ) -> TensorHandle:
        """An element-wise operation; ``mask`` is the first operand of ``where``."""
        task = self._task()
        if self._are_alike(operands) and mask is None:
            kind: DType = operands[0].dtype
            if kind.is_float or not OPERATIONS[op].is_of_floats:
                result = TensorHandle(self, None, result_dtype(op, kind))
                self._submit(MathOp(op, operands, result)).wait(task)
                return result
        name = _NAMES.get(op, f"tl.{op}")
        for value in operands:
            if isinstance(value, TensorHandle):
                self._check_handle(value, f"{name} takes handles")
                dtype = dtype or value.dtype
                if value.dtype is not dtype:
                    raise _mixed(name, operands)
        if dtype is None:
            raise KernelError(f"{name} takes a handle, not {type(operands[0]).__name__}; {HANDLES}")
        if OPERATIONS[op].is_of_floats and not dtype.is_float:
            raise KernelError(f"{name} takes floats, and an operand is {dtype}; write tl.cast(x, 'f32')")
        values = tuple([v if isinstance(v, TensorHandle) else as_number(v, dtype, name) for v in operands])
        if mask is not None:
            self._check_handle(mask, "tl.where takes handles")
            values = mask, *values
        result = TensorHandle(self, None, result_dtype(op, dtype))
        command = MathOp(op, values, result, self._dims(name, values), dtype)
        self._submit(command).wait(task)
        return result

    def _are_alike(self, operands: tuple[Any, ...]) -> bool:
        """Whether operands are handles of one type and shape that a command may name: the common case."""
        first = operands[0]
        if not isinstance(first, TensorHandle):
            return False
        for each in operands:
            if each is not first and not (
                isinstance(each, TensorHandle) and each.dtype is first.dtype and each.array.shape == first.array.shape
            ):
                return False
            if each._tl is not self or each.is_released:
                return False
        return True

    @staticmethod
    def _dims(name: str, operands: tuple[Operand, ...]) -> Shape | None:
        """The shape of the result; None where all operands are handles of that shape."""
        shapes = [each.shape for each in operands if isinstance(each, TensorHandle)]
        first = shapes[0]
        if len(shapes) == len(operands) and all(shape == first for shape in shapes):
            return None
        dims = _broadcast(shapes)
        if dims is None:
            some = " and ".join([_text(each) for each in operands if isinstance(each, TensorHandle)])
            raise KernelError(
                f"{name} of {some}: the shapes do not broadcast; from the last dimension on, sizes must be equal or 1 "
                f"(x[:, None] adds a dimension of 1)"
            )
        return dims

    def _reduce(self, name: str, op: str, x: TensorHandle, axis: object, keep_dims: bool) -> TensorHandle:
        task = self._task()
        self._check_handle(x, f"{name} takes a handle")
        shape, at = x.shape, _axis_of(name, x, axis)
        if at is None:
            dims: Shape = (1,) * len(shape) if keep_dims else (1,)
        else:
            dims = (*shape[:at], *((1,) if keep_dims else ()), *shape[at + 1 :]) or (1,)
        result = TensorHandle(self, None, result_dtype(op, x.dtype))
        self._submit(Reduce(op, x, at, dims, result)).wait(task)
        return result

    def _make(self, op: str, dims: Shape, value: Number, dtype: DType) -> TensorHandle:
        task = self._task()
        result = TensorHandle(self, None, dtype)
        self._submit(Make(op, dims, as_number(value, dtype, "tl.full"), result)).wait(task)
        return result

    def _rearrange(self, op: str, x: TensorHandle, dims: Shape) -> TensorHandle:
        task = self._task()
        result = TensorHandle(self, None, x.dtype)
        self._submit(Rearrange(op, x, dims, result)).wait(task)
        return result

    def _view(self, x: TensorHandle, dims: Shape, first: int = 0) -> TensorHandle:
        task = self._task()
        self._check_handle(x, "a view is of a handle")
        result = TensorHandle(self, None, x.dtype)
        result.is_placed = True
        self._submit(View(x, dims, result, first)).wait(task)
        return result


def _mixed(name: str, operands: tuple[Any, ...]) -> KernelError:
    some = [each for each in operands if isinstance(each, TensorHandle)]
    texts = " and ".join(map(_text, some))
    other = next(each for each in some if each.dtype is not some[0].dtype)
    return KernelError(f"{name} of {texts}: the types differ; make them equal, such as by tl.cast(x, '{other.dtype}')")


def _broadcast(shapes: list[Shape]) -> Shape | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _axis_of(name: str, x: TensorHandle, axis: object) -> int | None:
    """An axis of a handle, counted from the first one; negative ones count from the end."""
    if axis is None:
        return None
    if isinstance(axis, TensorHandle):
        raise KernelError(f"{name} reduces along an axis; of two handles, write tl.maximum or tl.minimum")
    count = len(x.shape)
    if type(axis) is not int or not -count <= axis < count:
        raise KernelError(f"{name}: axis {axis!r} does not exist in {_text(x)}; it has {count}: 0 to {count - 1}")
    return axis % count


def _text(x: TensorHandle) -> str:
    return f"{x.dtype}{list(x.shape)}"
