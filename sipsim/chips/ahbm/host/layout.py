"""Layout of a tensor over the cubes and PEs of a SIP; sizes that follow from shape, type and layout."""

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from sipsim.collectives.call import Range, TensorLayout
from sipsim.core.dtypes import DType
from sipsim.core.units import as_whole

Array = np.ndarray[Any, Any]
LAYOUTS = ("row_wise", "column_wise", "replicate")
ROWS, COLUMNS, COPIES = LAYOUTS

Place = tuple[int, int]
"""(cube, PE) of a SIP."""


class AtMost(int):
    """Number of cubes of a :class:`DPPolicy` whose script names none: this many, or as many as share the tensor."""


@dataclass(frozen=True)
class DPPolicy:
    """Layout of a tensor over the first ``num_cubes`` cubes of a SIP, and over the first ``num_pes`` PEs of each.

    ``cube``, ``pe``: how cubes, and PEs of a cube, share the tensor. ``row_wise``: the first axis is split into equal
    parts, in order (ADR-0032 D2). ``column_wise``: the last axis is split. ``replicate``: each cube (PE) has a copy;
    with one PE per cube this is the layout of ADR-0032, in which a cube's block lies in the HBM of its lead PE. Cubes
    split by rows and PEs by columns, or the reverse, make a grid.

    Without ``num_cubes``, a tensor lies on the most cubes that share it equally: 16 (ADR-0032 D2), if the SIP has them.

    Each PE has one contiguous block of :meth:`block_shape` in its slice of HBM, row by row. Without copies the block of
    PE ``p`` of cube ``c`` begins at ``t_ptr + (c * num_pes + p) * block_bytes``. A replicated level adds nothing to the
    address: the offset is ``c * block_bytes`` with replicated PEs, and ``p * block_bytes`` with replicated cubes.

    All copies have one address. A kernel accesses the copy of its PE, else the first copy of its cube, else the first
    of all. The host writes every copy and reads the first one (``Tensor.copies`` reads all).

    Raises:
        ValueError: for an unknown layout, or a number of cubes or PEs below 1.
        TypeError: for a number of cubes or PEs that is not a whole number.
    """

    cube: str = ROWS
    pe: str = COPIES
    num_cubes: int = AtMost(16)
    num_pes: int = 1

    def __post_init__(self) -> None:
        for name, value in (("cube", self.cube), ("pe", self.pe)):
            if value not in LAYOUTS:
                raise ValueError(f"DPPolicy {name}={value!r} is not available; allowed: {', '.join(LAYOUTS)}")
        for name, count in (("num_cubes", self.num_cubes), ("num_pes", self.num_pes)):
            if whole(f"DPPolicy {name}", count) < 1:
                raise ValueError(f"DPPolicy {name}={count}: must be at least 1")

    def fitted(self, shape: tuple[int, ...], n_cubes: int) -> "DPPolicy":
        """Return the layout for a tensor of ``shape`` on a SIP of ``n_cubes``: with a number of cubes if it has none.

        If no number of cubes fits, it is the largest, for :meth:`block_shape` to refuse.
        """
        if not isinstance(self.num_cubes, AtMost):
            return self
        most = min(self.num_cubes, n_cubes)
        layouts = [replace(self, num_cubes=count) for count in range(most, 0, -1)]
        return next((each for each in layouts if each.is_equal_split(shape)), layouts[0])

    def is_equal_split(self, shape: tuple[int, ...]) -> bool:
        """Return whether rows and columns of a tensor of ``shape`` can be split equally."""
        return shape[0] % self.parts(ROWS) == shape[-1] % self.parts(COLUMNS) == 0

    def holders(self) -> list[list[Place]]:
        """Return, for each block in the order of addresses, the PEs that have a copy; the first PE has copy 0."""
        cubes, pes = _groups(self.cube, self.num_cubes), _groups(self.pe, self.num_pes)
        return [[(cube, pe) for cube in of_cubes for pe in of_pes] for of_cubes in cubes for of_pes in pes]

    def places(self) -> list[Place]:
        """Return all PEs that hold a part of the tensor, as (cube, PE)."""
        return [(cube, pe) for cube in range(self.num_cubes) for pe in range(self.num_pes)]

    def cube_blocks(self) -> int:
        """Return the number of different blocks of cubes: 1 if cubes have copies, else ``num_cubes``."""
        return len(_groups(self.cube, self.num_cubes))

    def parts(self, layout: str) -> int:
        """Return the number of parts into which rows (``layout`` row_wise) or columns (column_wise) are split."""
        levels = ((self.cube, self.num_cubes), (self.pe, self.num_pes))
        return prod(count for level, count in levels if level == layout)

    def splits(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """Return (layout, number) of cubes, and of PEs. A level of one cube or PE always counts as replicated."""
        levels = ((self.cube, self.num_cubes), (self.pe, self.num_pes))
        cube, pe = ((layout if count > 1 else COPIES, count) for layout, count in levels)
        return cube, pe

    def is_replicated_on(self, other: "DPPolicy") -> bool:
        """Return whether each PE of the ``other`` layout has a copy of a tensor with this layout."""
        (cube, cubes), (pe, pes) = self.splits()
        return cube == pe == COPIES and (cubes, pes) == (other.num_cubes, other.num_pes)

    def blocks(self) -> int:
        """Return the number of blocks of the tensor; copies count once."""
        return len(self.holders())

    def part(self, blocks: int) -> "PartLayout":
        """Return the layout of ``blocks`` blocks of one or several tensors with this layout."""
        return PartLayout(num_cubes=self.num_cubes, num_pes=self.num_pes, count=blocks)

    def block_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a PE's block of a tensor of ``shape``.

        Raises:
            ValueError: when rows or columns cannot be split equally, or the shape has no columns to split.
        """
        sizes = list(shape)
        for layout, axis, what in ((ROWS, 0, "row"), (COLUMNS, -1, "column")):
            parts = self.parts(layout)
            if layout == COLUMNS and parts > 1 and len(shape) < 2:
                raise ValueError(
                    f"a tensor of shape {shape} has no columns to split; give two dimensions, or split the rows"
                )
            if shape[axis] % parts:
                has = f"{shape[axis]} {what}{'s' * (shape[axis] != 1)}"
                raise ValueError(
                    f"a tensor of shape {shape} has {has}, which {self._sharers(layout)} cannot share equally; "
                    f"use a multiple of {parts} {what}s, or another DPPolicy(num_cubes=..., num_pes=...)"
                )
            sizes[axis] //= parts
        return tuple(sizes)

    def to_blocks(self, array: Array) -> Array:
        """Split a whole tensor into blocks, in the order of addresses: the first axis counts blocks."""
        shape, columns = self.block_shape(array.shape), self.parts(COLUMNS)
        if columns == 1:
            return array.reshape(-1, *shape)
        grid = array.reshape(-1, *shape[:-1], columns, shape[-1])
        return self._swapped(np.moveaxis(grid, -2, 1)).reshape(-1, *shape)

    def from_blocks(self, blocks: Array, shape: tuple[int, ...]) -> Array:
        """Join blocks, in the order of addresses, into a tensor of ``shape``."""
        rows, columns = self.parts(ROWS), self.parts(COLUMNS)
        if columns == 1:
            return blocks.reshape(shape)
        sizes = (columns, rows) if self.cube == COLUMNS else (rows, columns)
        grid = self._swapped(blocks.reshape(*sizes, *self.block_shape(shape)))
        return np.moveaxis(grid, 1, -2).reshape(shape)

    def _swapped(self, grid: Array) -> Array:
        """Swap rows and columns of a grid of blocks where cubes split columns: addresses count cubes before PEs."""
        return grid.swapaxes(0, 1) if self.cube == COLUMNS else grid

    def _sharers(self, layout: str) -> str:
        """Return the cubes and PEs that share the rows (columns), as text for messages."""
        cubes = f"{self.num_cubes} cubes" if self.cube == layout else ""
        pes = f"{self.num_pes} PEs" if self.pe == layout and self.num_pes > 1 else ""
        return " of ".join(filter(None, (cubes, pes)))


def _groups(layout: str, count: int) -> list[list[int]]:
    """Return the numbers of the cubes (PEs) in groups with equal elements, in the order of addresses."""
    return [list(range(count))] if layout == COPIES else [[each] for each in range(count)]


@dataclass(frozen=True)
class PartLayout(DPPolicy):
    """Layout of some rows of a tensor, or of several tensors as one: ``count`` blocks on PEs of the whole tensor.

    ``num_cubes`` and ``num_pes`` are copied from the whole tensor, so all views of a tensor have the same workers on
    every rank.
    """

    cube: str = "part"
    pe: str = "part"
    count: int = 1

    def __post_init__(self) -> None:
        """Skip the checks: the layout of the whole tensor has passed them."""

    def blocks(self) -> int:
        """Number of blocks."""
        return self.count

    def cube_blocks(self) -> int:
        """Always 1: the blocks may lie on one cube or on several."""
        return 1


NO_NUMBERS = "OUSMm"
"""``dtype.kind`` of NumPy types that are not numbers: objects, texts, times."""


class TensorBase:
    """Base class of tensors on the device: ``shape`` elements of ``dtype`` with layout ``dp``.

    A kernel gets the address (:meth:`pointer`) of a tensor among its arguments.
    """

    shape: tuple[int, ...]
    dtype: DType
    dp: TensorLayout

    @property
    def nbytes(self) -> int:
        """Bytes of all elements on this rank; copies count once."""
        return self.numel() * self.dtype.itemsize

    def numel(self) -> int:
        """Number of elements on this rank; copies count once."""
        return prod(self.shape)

    def elements_per_cube(self) -> int:
        """Number of elements per cube."""
        return self.numel() // self.dp.cube_blocks()

    def pointer(self) -> Any:
        """Return the tensor as a kernel's argument: a ``Pointer``, or a ``PointerList`` for a list of tensors."""
        raise NotImplementedError(f"{type(self).__name__} does not define pointer()")

    def ranges(self) -> list[Range]:
        """Return the ranges of virtual addresses, in the order of elements."""
        start = int(self.pointer())
        return [(start, start + self.nbytes)]

    def storages(self) -> tuple[object, ...]:
        """Return the owners of the tensor's memory."""
        raise NotImplementedError(f"{type(self).__name__} does not define storages()")

    def peek(self) -> Array:
        """Return a copy of all elements, read in no simulated time."""
        raise NotImplementedError(f"{type(self).__name__} does not define peek()")


class HostTensor:
    """Tensor in the host's memory, as ``torch.from_numpy`` returns it."""

    def __init__(self, array: Array) -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def numpy(self) -> Array:
        """Return the array itself, not a copy."""
        return self.array


def whole(name: str, value: Any) -> int:
    """Return ``value``, an argument of a script, if it is a whole number of Python or NumPy. ``name``: for messages.

    Raises:
        TypeError: for anything else, including a bool.
    """
    number = as_whole(value)
    if number is None:
        raise TypeError(f"{name}={value!r}: give a whole number")
    return number


def array_for(shape: tuple[int, ...], source: Any) -> Array:
    """Return the elements of ``source``, to be copied into a tensor of ``shape``.

    Raises:
        TypeError: when ``source`` is not a tensor of numbers.
        ValueError: when the shapes differ.
    """
    array: Array | None = source.numpy() if hasattr(source, "numpy") else None
    if array is None or array.dtype.kind in NO_NUMBERS:
        raise TypeError(f"cannot copy {source!r} into a tensor; give a tensor, such as torch.from_numpy(array)")
    if tuple(array.shape) != shape:
        raise ValueError(f"cannot copy a tensor of shape {tuple(array.shape)} into one of shape {shape}")
    return array
