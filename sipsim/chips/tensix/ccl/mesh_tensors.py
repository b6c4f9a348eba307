"""Tensor over many chips, as the mesh tensor of the CCL developer guide: a part on each chip, cut along axes. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.tensix.ccl.tensors import Tensor
from sipsim.core.errors import KernelMisuse

AXES = (0, 1)
"""Axes of a mesh: along 0, down a column, the row changes; along 1, along a row, the column."""
Dims = tuple[int | None, int | None]


def line_along(rows: Sequence[Sequence[int]], rank: int, axis: int) -> tuple[int, ...]:
    """Return the chips of a chip's column (axis 0) or row (axis 1) of a mesh, in order."""
    return next(line for line in lines_along(rows, axis) if rank in line)


def lines_along(rows: Sequence[Sequence[int]], axis: int) -> list[tuple[int, ...]]:
    """Return the columns (axis 0) or rows (axis 1) of a mesh."""
    return [tuple(line) for line in (rows if axis else zip(*rows, strict=True))]


class MeshTensor:
    """Tensor over the chips of a mesh, made by ``tt.mesh_tensor``: ``local`` is this chip's part.

    ``rows``: ranks of the mesh, row by row, or one row for a line. ``dims``: by axis of the mesh, the dimension that is
    cut along this axis; None where the parts along an axis have the whole dimension, as copies or as summands.
    """

    def __init__(self, local: Tensor, rows: Sequence[Sequence[int]], dims: Dims, is_line: bool) -> None:
        self.local = local
        self.rows = tuple(tuple(row) for row in rows)
        self.dims = dims
        self.is_line = is_line

    def __repr__(self) -> str:
        return f"mesh tensor of {self.shape} {self.local.dtype}, {self.local.shape} of it on this chip"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole tensor."""
        shape, sizes = list(self.local.shape), _sizes(self.rows)
        for dim, size in zip(self.dims, sizes, strict=True):
            if dim is not None:
                shape[dim] *= size
        return tuple(shape)

    def axis(self, given: int | None) -> int:
        """Return the axis of an operation: the given one, or the only axis of a line.

        Raises:
            KernelMisuse: if an axis must be given, or must not.
        """
        if self.is_line and given is not None:
            raise KernelMisuse(f"cluster_axis={given}: {self} lies on a line of chips; leave cluster_axis out")
        if not self.is_line and given is None:
            raise KernelMisuse(f"{self} lies on a mesh; give cluster_axis=0 (along columns) or 1 (along rows)")
        return 1 if given is None else given

    def after(self, result: Tensor, axis: int, dim: int | None) -> "MeshTensor":
        """Return the mesh tensor of an operation's results. ``dim``: the dimension that is now cut along ``axis``.

        Raises:
            KernelMisuse: if the other axis cuts this dimension.
        """
        dims = list(self.dims)
        dims[axis] = None if dim is None else dim % len(result.shape)
        _check_apart((dims[0], dims[1]))
        return MeshTensor(result, self.rows, (dims[0], dims[1]), self.is_line)


def local_of(tensor: Tensor | MeshTensor) -> Tensor:
    """Return a tensor's part on this chip."""
    return tensor.local if isinstance(tensor, MeshTensor) else tensor


def result_for(given: Tensor | MeshTensor, result: Tensor, axis: int | None, dim: int | None) -> Tensor | MeshTensor:
    """Return an operation's result as a tensor of the kind of its operand. ``dim``: the dimension that is now cut."""
    return given.after(result, given.axis(axis), dim) if isinstance(given, MeshTensor) else result


class Part(NamedTuple):
    """Part of an array for one chip of a mesh: the chip's elements, and the dimensions cut by axis."""

    array: "np.ndarray[Any, Any]"
    dims: Dims


def part_of(array: "np.ndarray[Any, Any]", dims: Dims, rows: Sequence[Sequence[int]], rank: int) -> Part:
    """Return the part of an array for a chip. ``dims``: by axis of the mesh, the dimension to cut, or None.

    Raises:
        KernelMisuse: for a dimension that does not exist, that both axes cut, or that cannot be cut into equal parts.
    """
    for dim in dims:
        if dim is not None and not -array.ndim <= dim < array.ndim:
            raise KernelMisuse(f"dims={dims}: an array of shape {array.shape} has no dimension {dim}")
    first, second = (None if dim is None else dim % array.ndim for dim in dims)
    _check_apart((first, second))
    place = next((y, x) for y, row in enumerate(rows) for x, chip in enumerate(row) if chip == rank)
    for dim, size, index in zip((first, second), _sizes(rows), place, strict=True):
        if dim is None:
            continue
        if array.shape[dim] % size:
            what = f"dimension {dim} of shape {array.shape} cannot be cut into {size} equal parts"
            raise KernelMisuse(f"dims={dims}: {what}; give a multiple of {size}")
        array = np.split(array, size, dim)[index]
    return Part(array, (first, second))


def _sizes(rows: Sequence[Sequence[int]]) -> tuple[int, int]:
    return len(rows), len(rows[0])


def _check_apart(dims: Dims) -> None:
    if dims[0] is not None and dims[0] == dims[1]:
        raise KernelMisuse(f"both axes of the mesh would cut dimension {dims[0]}; take another dimension for one axis")
