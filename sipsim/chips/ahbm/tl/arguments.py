"""Checks of the arguments of kernel operations: each returns what a command takes, or raises ``KernelError``."""

import math
from typing import Any

import numpy as np

from sipsim.chips.ahbm.gemm.commands import BIAS, SCALE, UNARY
from sipsim.chips.ahbm.gemm.tiling import Product
from sipsim.chips.ahbm.pe.commands import Number
from sipsim.chips.ahbm.tl.values import HANDLES, Pointer, Shape, TensorHandle, as_bytes
from sipsim.core.arithmetic.operations import cast as round_to
from sipsim.core.dtypes import DTYPES, DType, named_dtype
from sipsim.core.errors import KernelError

ALLOWED = f"{', '.join(UNARY)}, ('{SCALE}', number), ('{BIAS}', address of a row)"
F32, I32, I8 = DTYPES["f32"], DTYPES["i32"], DTYPES["i8"]
HandleOrNumber = TensorHandle | Number
NAMES = {"sub": "-", "mul": "*", "div": "/", "neg": "-", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=="}
NAMES |= {"ne": "!=", "max": "tl.maximum", "min": "tl.minimum"}
LONGEST_NAME = 60
SEPARATOR = " / "
LONGEST_DELAY_NS = 10**9
AXES = ("PE in its cube", "cube in its SIP", "SIP")


def as_number(value: Any, dtype: DType, name: str) -> int | float:
    """Return a number, rounded to a type, as a Python int or float. ``name``: the operation that takes it.

    Raises:
        KernelError: if ``value`` is no number, no integer for an integer type, or outside the type's range.
    """
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | Pointer)
    if not is_number:
        what = "a number" if name == "tl.full" else "handles and numbers"
        raise KernelError(f"{name} takes {what}, not {type(value).__name__}; {HANDLES}")
    if not dtype.is_float:
        if not isinstance(value, int | np.integer):
            raise KernelError(f"{name}: {value!r} is no int, but other operands are {dtype}; write tl.cast(x, 'f32')")
        limits = np.iinfo(dtype.numpy)
        if not limits.min <= value <= limits.max:
            raise KernelError(f"{name}: {dtype} does not hold {value}; write tl.cast(x, 'i32'), or 'f32'")
        return int(value)
    try:
        exact = float(value)
    except OverflowError:
        raise KernelError(f"{name}: {dtype} does not hold {value}; use a smaller number") from None
    rounded = float(round_to(np.array(exact), dtype))
    if math.isinf(rounded) and not math.isinf(exact):
        raise KernelError(f"{name}: {dtype} does not hold {value}; write tl.cast(x, 'f32')")
    return rounded


def as_dtype(dtype: object) -> DType:
    """Return a type, given by its name (``"f16"``) or as a ``DType``.

    Raises:
        KernelError: for an unknown type; the message lists the types.
    """
    named = named_dtype(dtype)
    if named is not None:
        return named
    raise KernelError(f"dtype {dtype!r} is not known; allowed: {', '.join(DTYPES)}")


def as_shape(shape: object) -> Shape:
    """Return a shape, given as an int or a sequence of ints, all at least 1.

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
    """Return the type of the elements at an address: ``dtype`` if given, else the type of the pointer.

    Raises:
        KernelError: if ``dtype`` is None and the address has no type.
    """
    address = as_bytes(ptr)
    if dtype is not None:
        return as_dtype(dtype)
    if isinstance(ptr, Pointer):
        return ptr.dtype
    raise KernelError(f"address {address:#x} has no type; give dtype=")


def product_of(word: str, shape: object) -> Product:
    """Return the checked shape (M, K, N) of a matrix product; ``word``: the operation, for messages."""
    sizes = tuple(shape) if isinstance(shape, tuple | list) else ()
    if len(sizes) != 3 or not all(type(each) is int and each >= 1 for each in sizes):
        raise KernelError(f"{word}: shape {shape!r} is not (M, K, N); give three sizes of at least 1")
    return Product(*sizes)


def pitches_of(word: str, strides: object) -> tuple[int | None, ...]:
    """Return the strides of the matrices a, b and c, in elements from row to row; None for contiguous rows."""
    given = (None, None, None) if strides is None else strides
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise KernelError(f"{word}: strides {strides!r} must be three numbers of elements, of a, b and c")
    if not all(each is None or (type(each) is int and each >= 1) for each in given):
        raise KernelError(f"{word}: strides {strides!r} must be numbers of elements of at least 1, or None")
    return tuple(given)


def types_of(word: str, pointers: tuple[int, int, int], dtype: object, out_dtype: object) -> tuple[DType, DType]:
    """Return the element type of the matrices a and b, and the element type of c."""
    a, b = pointee(pointers[0], dtype), pointee(pointers[1], dtype)
    if a is not b:
        raise KernelError(f"{word} takes a and b of one type, not {a} and {b}; convert one")
    if out_dtype is None and not isinstance(pointers[2], Pointer):
        raise KernelError(f"{word}: the address of c has no type; give out_dtype=")
    return a, pointee(pointers[2], out_dtype)


def mixed(name: str, operands: tuple[Any, ...]) -> KernelError:
    """Return the error for operands of several types."""
    handles = [each for each in operands if isinstance(each, TensorHandle)]
    texts = " and ".join(map(text_of, handles))
    other = next(each for each in handles if each.dtype is not handles[0].dtype)
    return KernelError(f"{name} of {texts}: the types differ; make them equal, such as by tl.cast(x, '{other.dtype}')")


def broadcast(shapes: list[Shape]) -> Shape | None:
    """Return the shape that ``shapes`` broadcast to; None if they do not broadcast."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def axis_of(name: str, x: TensorHandle, axis: object) -> int | None:
    """Return an axis of a handle, counted from the first; a negative ``axis`` counts from the end."""
    if axis is None:
        return None
    if isinstance(axis, TensorHandle):
        raise KernelError(f"{name} reduces along an axis; for two handles use tl.maximum or tl.minimum")
    count = len(x.shape)
    if type(axis) is not int or not -count <= axis < count:
        raise KernelError(f"{name}: axis {axis!r} does not exist in {text_of(x)}; give 0 to {count - 1}")
    return axis % count


def text_of(x: TensorHandle) -> str:
    """Return type and shape of a handle, for messages."""
    return f"{x.dtype}{list(x.shape)}"


def rows_of(word: str, dims: Shape, dtype: DType, stride: object) -> tuple[int, int, int]:
    """Return the number of rows, bytes per row, and bytes from row to row of a matrix with rows ``stride`` elements
    apart; contiguous rows count as one.

    Raises:
        KernelError: unless there are two dimensions, and for rows that overlap.
    """
    if len(dims) != 2:
        raise KernelError(f"{word} with stride= takes two dimensions, rows and columns, not {list(dims)}")
    rows, columns = dims
    if type(stride) is not int or stride < columns:
        raise KernelError(
            f"{word}: stride={stride!r} is too small for rows of {columns} elements; give {columns} elements or more"
        )
    if rows == 1 or stride == columns:
        return 1, rows * columns * dtype.itemsize, rows * columns * dtype.itemsize
    return rows, columns * dtype.itemsize, stride * dtype.itemsize


def check_name(name: object) -> str:
    """Return the name of a phase, stripped.

    Raises:
        KernelError: for anything but a short line of text.
    """
    if isinstance(name, str) and name.isprintable() and 0 < len(name.strip()) <= LONGEST_NAME:
        return name.strip()
    raise KernelError(f"tl.phase takes a name of 1 to {LONGEST_NAME} printable characters, not {name!r:.80}")
