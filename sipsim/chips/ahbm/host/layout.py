"""The layout of a tensor over the cubes and PEs of a SIP, and the sizes that follow from shape, type and layout."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from sipsim.collectives.call import Layout, Range
from sipsim.core.dtypes import DType
from sipsim.core.units import as_whole

Array = np.ndarray[Any, Any]
LAYOUTS = ("row_wise", "column_wise", "replicate")
ROWS, COLUMNS, COPIES = LAYOUTS

Place = tuple[int, int]
"""(cube, PE) of a SIP."""


@dataclass(frozen=True)
class DPPolicy:
    """The elements of a tensor over the first ``num_cubes`` cubes, and over the first ``num_pes`` PEs of each.

    ``row_wise``: the first axis is split in equal parts, in order (ADR-0032 D2). ``column_wise``: the last axis is.
    ``replicate``: a copy on each; with one PE that is the layout of ADR-0032, each cube's block in the HBM of its lead
    PE. Cubes split by rows and PEs by columns, or the other way round, make a grid.

    Each PE has one block, contiguous, row by row, of :meth:`block_shape`, in its own slice of HBM. Blocks follow each
    other in the tensor's addresses in order of cube, then PE: that of PE ``p`` of cube ``c`` begins at
    ``t_ptr + (c * num_pes + p) * block_bytes`` where nothing is replicated. A level that is replicated adds nothing to
    the address: it is ``c * block_bytes`` with PEs replicated, ``p * block_bytes`` with cubes replicated.

    A kernel addresses a copy as it does the tensor: it gets that of its own PE, else the first of its cube, else the
    first of all. The host writes every copy and reads the first (``Tensor.copies`` has all).

    Raises:
        ValueError: for a layout that does not exist.
        TypeError: for a number of cubes or PEs that is no whole number.
    """

    cube: str = ROWS
    pe: str = COPIES
    num_cubes: int = 16
    num_pes: int = 1

    def __post_init__(self) -> None:
        for name, value in (("cube", self.cube), ("pe", self.pe)):
            if value not in LAYOUTS:
                raise ValueError(f"DPPolicy {name}={value!r} is not available; allowed: {', '.join(LAYOUTS)}")
        for name, count in (("num_cubes", self.num_cubes), ("num_pes", self.num_pes)):
            if whole(f"DPPolicy {name}", count) < 1:
                raise ValueError(f"DPPolicy {name}={count}: must be at least 1")

    def holders(self) -> list[list[Place]]:
        """Of each block, in the order of addresses, the PEs with a copy of it; the first has copy 0."""
        cubes, pes = _groups(self.cube, self.num_cubes), _groups(self.pe, self.num_pes)
        return [[(cube, pe) for cube in some_cubes for pe in some_pes] for some_cubes in cubes for some_pes in pes]

    def places(self) -> list[Place]:
        """All PEs that hold a part of the tensor."""
        return [(cube, pe) for cube in range(self.num_cubes) for pe in range(self.num_pes)]

    def cube_blocks(self) -> int:
        """How many cubes' parts make the tensor."""
        return len(_groups(self.cube, self.num_cubes))

    def parts(self, layout: str) -> int:
        """How many parts the rows (the columns) are split in."""
        levels = ((self.cube, self.num_cubes), (self.pe, self.num_pes))
        return prod(count for its_layout, count in levels if its_layout == layout)

    def splits(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """How cubes, and how PEs share a tensor: layout and number. One part is a copy, however it is named."""
        levels = ((self.cube, self.num_cubes), (self.pe, self.num_pes))
        cube, pe = ((layout if count > 1 else COPIES, count) for layout, count in levels)
        return cube, pe

    def is_replicated_on(self, other: "DPPolicy") -> bool:
        """Whether each PE of another layout has a copy."""
        (cube, cubes), (pe, pes) = self.splits()
        return cube == pe == COPIES and (cubes, pes) == (other.num_cubes, other.num_pes)

    def blocks(self) -> int:
        """How many blocks make the tensor, copies not counted."""
        return len(self.holders())

    def part(self, blocks: int) -> "PartLayout":
        """The layout of ``blocks`` blocks of such tensors."""
        return PartLayout(num_cubes=self.num_cubes, num_pes=self.num_pes, count=blocks)

    def block_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a PE's block of a tensor.

        Raises:
            ValueError: when rows or columns cannot be split equally, or there are no columns.
        """
        sizes = list(shape)
        for layout, axis, what in ((ROWS, 0, "row"), (COLUMNS, -1, "column")):
            parts = self.parts(layout)
            if layout == COLUMNS and parts > 1 and len(shape) < 2:
                raise ValueError(
                    f"a tensor of shape {shape} has no columns to split; give it two sizes, or split its rows"
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
        """The elements of a tensor as its blocks in order: shape (blocks, \\*block_shape)."""
        shape, columns = self.block_shape(array.shape), self.parts(COLUMNS)
        if columns == 1:
            return array.reshape(-1, *shape)
        grid = array.reshape(-1, *shape[:-1], columns, shape[-1])
        return self._swapped(np.moveaxis(grid, -2, 1)).reshape(-1, *shape)

    def from_blocks(self, blocks: Array, shape: tuple[int, ...]) -> Array:
        """The elements of a tensor of ``shape`` from its blocks in order."""
        rows, columns = self.parts(ROWS), self.parts(COLUMNS)
        if columns == 1:
            return blocks.reshape(shape)
        sizes = (columns, rows) if self.cube == COLUMNS else (rows, columns)
        grid = self._swapped(blocks.reshape(*sizes, *self.block_shape(shape)))
        return np.moveaxis(grid, 1, -2).reshape(shape)

    def _swapped(self, grid: Array) -> Array:
        """Rows by columns of blocks, from or to the order of addresses: there cubes come before PEs."""
        return grid.swapaxes(0, 1) if self.cube == COLUMNS else grid

    def _sharers(self, layout: str) -> str:
        """Who shares the rows (the columns), in words."""
        cubes = f"{self.num_cubes} cubes" if self.cube == layout else ""
        pes = f"{self.num_pes} PEs" if self.pe == layout and self.num_pes > 1 else ""
        return " of ".join(filter(None, (cubes, pes)))


def _groups(layout: str, count: int) -> list[list[int]]:
    """Those with the same elements, in the order of addresses."""
    return [list(range(count))] if layout == COPIES else [[each] for each in range(count)]


@dataclass(frozen=True)
class PartLayout(DPPolicy):
    """Layout of rows of a tensor, or of several tensors as one: ``count`` blocks on PEs of the whole tensor.

    ``num_cubes`` and ``num_pes`` are those of the whole, so that all its parts have the same workers on every rank.
    """

    cube: str = "part"
    pe: str = "part"
    count: int = 1

    def __post_init__(self) -> None:
        """Nothing to check: the layout of the whole tensor was checked."""

    def blocks(self) -> int:
        """How many blocks make the part."""
        return self.count

    def cube_blocks(self) -> int:
        """Always one, as a part may lie on one cube or on several."""
        return 1


NO_NUMBERS = "OUSMm"
"""Kinds of NumPy's types whose elements are objects, texts or times."""


class TensorBase:
    """``shape`` elements of ``dtype`` at addresses of a SIP, laid out by ``dp``: a tensor, rows of one, or several.

    As an argument of a kernel it stands for its address.
    """

    shape: tuple[int, ...]
    dtype: DType
    dp: Layout

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

    def pointer(self) -> Any:
        """The kernel's argument: a typed address, or several."""
        raise NotImplementedError("a tensor without addresses")

    def ranges(self) -> list[Range]:
        """The range of its virtual addresses, as a list of one."""
        start = int(self.pointer())
        return [(start, start + self.nbytes)]

    def numpy(self) -> Array:
        """A copy on the host."""
        raise NotImplementedError("a tensor without data")


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
