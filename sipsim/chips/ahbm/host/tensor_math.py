"""Operations of tensors: each launches a kernel on the PEs that hold the tensors, and waits in simulated time.

The kernels compute with words of ``tl`` (:mod:`sipsim.core.arithmetic`). The result is a new tensor with the layout of
the operands, or for a product of :func:`product_layout`. Its allocation takes the time of ``torch.empty``.
"""

import math
import operator
from collections.abc import Callable, Collection
from functools import partial
from itertools import product
from math import prod
from typing import Any, Protocol, TypeVar

from sipsim.chips.ahbm.host import tensor_kernels as kernels
from sipsim.chips.ahbm.host.layout import COLUMNS, COPIES, ROWS, DPPolicy, PartLayout, Place, TensorBase
from sipsim.chips.ahbm.host.tensor_kernels import BlockStrides, CopyRange
from sipsim.chips.ahbm.tl.arguments import as_number
from sipsim.core.dtypes import DType, dtype_of
from sipsim.core.errors import KernelError


def blocks_of(dp: DPPolicy, block_bytes: int) -> BlockStrides:
    """Return the address strides of a tensor's blocks of ``block_bytes``."""
    of_cube = 1 if dp.pe == COPIES else dp.num_pes
    return BlockStrides(0 if dp.cube == COPIES else of_cube * block_bytes, 0 if dp.pe == COPIES else block_bytes)


def product_layout(a: DPPolicy, b: DPPolicy) -> DPPolicy:
    """Return the layout of ``a @ b``: rows laid out as in ``a``, columns as in ``b``.

    Raises:
        ValueError: when the operands lie on different PEs, or a PE lacks elements that its block of the result needs.
    """
    if (a.num_cubes, a.num_pes) != (b.num_cubes, b.num_pes):
        raise ValueError(
            f"a @ b: a has num_cubes={a.num_cubes}, num_pes={a.num_pes}, b has num_cubes={b.num_cubes}, "
            f"num_pes={b.num_pes}; give both the same num_cubes and num_pes, and replicate an operand that all PEs need"
        )
    levels = zip(("cube", "pe"), a.splits(), b.splits(), strict=True)
    cube, pe = (_level(name, of_a, of_b) for name, (of_a, _), (of_b, _) in levels)
    return DPPolicy(cube, pe, a.num_cubes, a.num_pes)


def _level(name: str, a: str, b: str) -> str:
    layout = {(ROWS, COPIES): ROWS, (COPIES, COLUMNS): COLUMNS, (COPIES, COPIES): COPIES}.get((a, b))
    if layout is None:
        raise ValueError(
            f"a @ b: with {name}={a!r} of a and {name}={b!r} of b no {name} has all elements for its part; "
            f"allowed for a and b: row_wise and replicate, replicate and column_wise, or replicate and replicate"
        )
    return layout


def row_copies(
    source: DPPolicy, shape: tuple[int, ...], target: DPPolicy, rows: list[int], itemsize: int
) -> dict[Place, list[CopyRange]]:
    """Return, for each PE of the target, the copies that fill its rows from the source; adjacent rows are one copy.

    ``rows``: source row of each target row, in order. Both layouts must split the columns equally.
    """
    of_source, of_target = source.block_shape(shape), target.block_shape((len(rows), *shape[1:]))
    nbytes = prod(of_source[1:]) * itemsize
    read, written = (blocks_of(dp, nbytes * block[0]) for dp, block in ((source, of_source), (target, of_target)))
    copies: dict[Place, list[CopyRange]] = {}
    for cube, pe in product(range(target.num_cubes), range(target.num_pes)):
        first, ranges = _part(target, cube, pe) * of_target[0], copies.setdefault((cube, pe), [])
        end = cube * written.cube_bytes + pe * written.pe_bytes
        for row in rows[first : first + of_target[0]]:
            part, within = divmod(row, of_source[0])
            at_cube, at_pe = _place(source, part, cube, pe)
            begin = at_cube * read.cube_bytes + at_pe * read.pe_bytes + within * nbytes
            last = ranges[-1] if ranges else None
            if last is not None and within and last.begin + last.nbytes == begin:
                ranges[-1] = last._replace(nbytes=last.nbytes + nbytes)
            else:
                ranges.append(CopyRange(begin, end, nbytes))
            end += nbytes
    return copies


def _part(dp: DPPolicy, cube: int, pe: int) -> int:
    """Return the number of the part of the rows that a PE has."""
    part = cube if dp.cube == ROWS else 0
    return part * dp.num_pes + pe if dp.pe == ROWS else part


def _place(dp: DPPolicy, part: int, cube: int, pe: int) -> Place:
    """Return the PE that has a part of the rows and the same columns as PE ``pe`` of cube ``cube``."""
    if dp.pe == ROWS:
        part, pe = divmod(part, dp.num_pes)
    return (part if dp.cube == ROWS else cube), pe


Shape = tuple[int, ...]
T = TypeVar("T", bound="TensorMath")
Number = int | float
Kernel = Callable[..., None]


class Device(Protocol):
    """Interface of the SIP on which tensors lie."""

    def empty(self, *shape: Any, dtype: object, dp: DPPolicy | None) -> Any:
        """Allocate a tensor on this SIP."""

    def launch(self, kernel: Callable[..., None], *args: object, cubes: Any, pes: Any) -> object:
        """Run a kernel on PEs and wait for its end."""


class TensorMath(TensorBase):
    """Operations of a tensor. ``device``: the SIP on which the tensor lies."""

    device: Device
    shard_shape: Shape
    dp: DPPolicy

    def __matmul__(self: T, other: T) -> T:
        """Product of two matrices of one type, (M, K) and (K, N), in the same type; sums accumulate in f32 or i32.

        On each level of the layout, ``self`` is split by rows and ``other`` replicated, or ``self`` is replicated and
        ``other`` split by columns, or both are replicated.

        Raises:
            TypeError: when ``other`` is not a tensor of the same type.
            ValueError: for shapes or layouts that do not fit.
        """
        _check_type("@", self, other)
        if len(self.shape) != 2 or len(other.shape) != 2 or self.shape[1] != other.shape[0]:
            raise ValueError(f"a @ b takes an (M, K) and a (K, N) tensor, not {self.shape} and {other.shape}")
        result = self._new((self.shape[0], other.shape[1]), product_layout(self.dp, other.dp))
        shape = self.shard_shape[0], self.shape[1], other.shard_shape[1]
        tensors = self, other, result
        _launch("matmul", partial(kernels.matmul, _blocks(tensors), shape), tensors)
        return result

    matmul = __matmul__

    def __add__(self: T, other: T | Number) -> T:
        """Elementwise sum. ``other``: a tensor of the same shape and layout, a replicated row for all rows, or a
        number, which is rounded to the type.
        """
        return self._joined("+", operator.add, other)

    def __radd__(self: T, other: Number) -> T:
        return self._joined("+", operator.add, other)

    def __sub__(self: T, other: T | Number) -> T:
        return self._joined("-", operator.sub, other)

    def __rsub__(self: T, other: Number) -> T:
        return self._joined("-", lambda x, y: y - x, other)

    def __mul__(self: T, other: T | Number) -> T:
        return self._joined("*", operator.mul, other)

    def __rmul__(self: T, other: Number) -> T:
        return self._joined("*", operator.mul, other)

    def relu(self: T) -> T:
        """Elementwise maximum of the tensor and 0."""
        return self._mapped("relu", lambda tl, x: tl.relu(x), self._new(self.shape, self.dp))

    def gelu(self: T) -> T:
        """GELU of each element, in the tanh form.

        Raises:
            TypeError: for integers.
        """
        self._check_floats("gelu")
        return self._mapped("gelu", lambda tl, x: tl.gelu(x), self._new(self.shape, self.dp))

    def softmax(self: T, dim: int = -1) -> T:
        """Softmax along the last dimension, computed in f32 and rounded to the tensor's type.

        Raises:
            TypeError: for integers.
            ValueError: for another dimension, or where columns are split.
        """
        self._check_floats("softmax")
        if dim not in (-1, len(self.shape) - 1):
            raise ValueError(f"softmax(dim={dim}) is not available; give dim=-1, the last dimension")
        return self._by_rows("softmax", kernels.softmax)

    def to(self: T, dtype: object) -> T:
        """Convert to another type, rounded as by ``tl.cast``; return the tensor itself for its own type."""
        kind = dtype_of(dtype)
        if kind is self.dtype:
            return self
        return self._mapped("to", lambda tl, x: tl.cast(x, kind), self._new(self.shape, self.dp, kind))

    def __getitem__(self: T, index: object) -> T:
        """Copy rows into a new tensor: one row (replicated, without the first dimension), a slice, or a list.

        Several rows get the tensor's layout if it can split their number; else they are replicated.

        Raises:
            TypeError: for an index of another kind.
            IndexError: for a row that does not exist, or an empty selection.
        """
        _check_whole(self)
        rows, is_one = _rows_of(index, self.shape[0]), not isinstance(index, slice | Collection)
        dp = self._layout_of_rows(rows, is_one)
        result = self._new(self.shape[1:] if is_one and self.shape[1:] else (len(rows), *self.shape[1:]), dp)
        copies = row_copies(self.dp, self.shape, dp, rows, self.dtype.itemsize)
        _launch("rows", partial(kernels.copy, copies), (self, result))
        return result

    def _new(self: T, shape: Shape, dp: DPPolicy, dtype: DType | None = None) -> T:
        _check_whole(self)
        tensor: T = self.device.empty(shape, dtype=dtype or self.dtype, dp=dp)
        return tensor

    def _mapped(self: T, name: str, function: Callable[..., Any], result: T) -> T:
        _launch_elementwise(name, function, (self, result))
        return result

    def _joined(self: T, name: str, function: Callable[..., Any], other: T | Number) -> T:
        if not isinstance(other, TensorMath):
            number = _number(name, other, self.dtype)
            return self._mapped(name, lambda _tl, x: function(x, number), self._new(self.shape, self.dp))
        _check_type(name, self, other)
        if other.shape == self.shape and other.dp.splits() == self.dp.splits():
            result = self._new(self.shape, self.dp)
            _launch_elementwise(name, lambda _tl, x, y: function(x, y), (self, other, result))
            return result
        if other.shape == self.shape[-1:] and other.dp.is_replicated_on(self.dp):
            return self._by_rows(name, lambda _tl, x, row: function(x, row), other)
        raise ValueError(
            f"a {name} b of {_text(self)} and {_text(other)}: give b the same shape and layout, or make it a "
            f"replicated row of {self.shape[-1]} elements on the same PEs"
        )

    def _by_rows(self: T, name: str, function: Callable[..., Any], *rows: T) -> T:
        if self.dp.parts(ROWS if len(self.shape) == 1 else COLUMNS) > 1:
            raise ValueError(f"{name} needs whole rows, which {_text(self)} splits; use another DPPolicy")
        result, columns = self._new(self.shape, self.dp), self.shard_shape[-1]
        shape = math.prod(self.shard_shape) // columns, columns
        _launch(name, partial(kernels.by_rows, function, _blocks((self, result)), shape), (self, *rows, result))
        return result

    def _check_floats(self, name: str) -> None:
        if not self.dtype.is_float:
            raise TypeError(f"{name} takes floats, not {self.dtype}; write tensor.to('f32')")

    def _layout_of_rows(self, rows: list[int], is_one: bool) -> DPPolicy:
        """Return the layout of selected rows: the tensor's, with rows replicated if their number cannot be split."""
        if is_one and self.dp.parts(COLUMNS) > 1:
            raise ValueError(f"the columns of {_text(self)} are split; write tensor[{rows[0]}:{rows[0] + 1}]")
        if not is_one and len(rows) % self.dp.parts(ROWS) == 0:
            return self.dp
        cube, pe = (COPIES if each == ROWS else each for each in (self.dp.cube, self.dp.pe))
        return DPPolicy(cube, pe, self.dp.num_cubes, self.dp.num_pes)


def _blocks(tensors: tuple[TensorMath, ...]) -> tuple[BlockStrides, ...]:
    return tuple(blocks_of(each.dp, math.prod(each.shard_shape) * each.dtype.itemsize) for each in tensors)


def _launch_elementwise(name: str, function: Callable[..., Any], tensors: tuple[TensorMath, ...]) -> None:
    n_elem = math.prod(tensors[0].shard_shape)
    _launch(name, partial(kernels.elementwise, function, _blocks(tensors), n_elem), tensors)


def _launch(name: str, kernel: Kernel, tensors: tuple[TensorMath, ...]) -> None:
    """Run a kernel on the PEs of the last tensor, which is the result. ``name``: name of the launch in reports."""

    def run(*args: object) -> None:
        kernel(*args)

    run.__name__ = name
    result = tensors[-1]
    result.device.launch(run, *tensors, cubes=range(result.dp.num_cubes), pes=range(result.dp.num_pes))


def _check_whole(tensor: TensorMath) -> None:
    if isinstance(tensor.dp, PartLayout):
        raise TypeError(f"{tensor!r} is a view, which has no operations; copy_ it into a tensor of torch.zeros")


def _check_type(name: str, a: TensorMath, b: object) -> None:
    if not isinstance(b, TensorMath):
        raise TypeError(f"a {name} b takes device tensors, not {type(b).__name__}; copy_ the values into a tensor")
    for each in (a, b):
        _check_whole(each)
    if a.dtype is not b.dtype:
        raise TypeError(f"a {name} b takes tensors of one type, not {a.dtype} and {b.dtype}; write b.to('{a.dtype}')")


def _number(name: str, value: object, dtype: DType) -> Number:
    """Return ``value`` as a number of the type."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"a {name} b takes a tensor of the device or a number, not {type(value).__name__}")
    try:
        return as_number(value, dtype, f"a {name} b")
    except KernelError as error:
        raise TypeError(str(error)) from None


def _rows_of(index: object, count: int) -> list[int]:
    """Return the row numbers, from 0, that an index of a tensor of ``count`` rows selects."""
    if isinstance(index, slice):
        rows = list(range(*index.indices(count)))
    else:
        is_list = isinstance(index, Collection) and not isinstance(index, str | tuple)
        given: list[Any] = list(index) if is_list else [index]  # type: ignore[call-overload]
        if not all(hasattr(each, "__index__") and not isinstance(each, bool) for each in given):
            raise TypeError(f"tensor[{index!r}]: give a row, a slice of rows, or a list of rows")
        rows = [operator.index(each) for each in given]
    if not rows:
        raise IndexError(f"tensor[{index!r}] selects no row; select at least one row")
    for row in rows:
        if not -count <= row < count:
            raise IndexError(f"tensor[{index!r}]: row {row} does not exist; the rows are 0 to {count - 1}")
    return [row % count for row in rows]


def _text(tensor: TensorMath) -> str:
    dp = tensor.dp
    return f"{tensor.dtype}{list(tensor.shape)} with cube={dp.cube!r} x {dp.num_cubes}, pe={dp.pe!r} x {dp.num_pes}"
