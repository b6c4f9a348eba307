"""Tensors of a host script: pages that are interleaved over the DRAM channels of a chip, or over the L1 of its workers.

A page is a tile of 32 x 32 elements where the last two dimensions have whole tiles, row by row inside; else a row, all
of the last dimension. Pages lie in runs: so many next to each other in one channel, the next run in the next channel.
Hardware interleaves page by page, and a packet of several pages names a place for each; here a packet names one.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.noc.floor_plan import Core
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import KernelMisuse

TILE = 32


class Pages(NamedTuple):
    """How an array is cut: ``grid`` of pages, ``page_bytes`` each."""

    grid: tuple[int, ...]
    page_bytes: int
    is_tiled: bool

    @property
    def number(self) -> int:
        """Of all pages."""
        return prod(self.grid)

    def slice(self, dim: int, number: int, of: int) -> list[int]:
        """The pages of slice ``number`` of ``of`` along a dimension, in order."""
        index = np.arange(self.number).reshape(self.grid)
        length = self.grid[dim] // of
        found: list[int] = index.take(range(number * length, (number + 1) * length), axis=dim).ravel().tolist()
        return found


def pages_of(shape: Sequence[int], dtype: DType, is_tiled: bool | None = None) -> Pages:
    """How an array of a shape is cut. ``is_tiled``: into tiles or rows, as the input of its operation is; None: into
    tiles, if it has whole ones.

    Raises:
        KernelMisuse: for one without elements.
    """
    if not shape or not all(shape):
        raise KernelMisuse(f"a tensor of shape {tuple(shape)} has no elements")
    *outer, last = shape
    has_tiles = bool(outer) and outer[-1] % TILE == 0 and last % TILE == 0
    if has_tiles and is_tiled is not False:
        return Pages((*outer[:-1], outer[-1] // TILE, last // TILE), TILE * TILE * dtype.itemsize, True)
    return Pages((*outer, 1), last * dtype.itemsize, False)


class Tensor:
    """``shape`` of ``dtype`` on one chip; made by ``tt.tensor`` and by the operations. ``base``: the first address, on
    each of ``cores``; ``run``: pages that lie side by side; ``slice_pages``: pages after which a new run begins.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: DType,
        pages: Pages,
        memory: str,
        cores: Sequence[Core],
        base: int,
        run: int,
        slice_pages: int,
    ) -> None:
        self.shape = tuple(int(each) for each in shape)
        self.dtype = dtype
        self.memory = memory
        self.pages = pages
        self.cores = cores
        self.base = base
        self.run = run
        self.slice_pages = slice_pages
        self._runs = -(-slice_pages // run)

    def __repr__(self) -> str:
        return f"tensor of {self.shape} {self.dtype} in {self.memory}"

    @property
    def nbytes(self) -> int:
        """Of all pages."""
        return self.pages.number * self.pages.page_bytes

    @property
    def core_bytes(self) -> int:
        """That it takes on each of its tiles."""
        slices = -(-self.pages.number // self.slice_pages)
        return -(-slices * self._runs // len(self.cores)) * self.run * self.pages.page_bytes

    def place(self, page: int) -> NocAddress:
        """Where a page lies."""
        number, within = divmod(page, self.slice_pages)
        run, offset = divmod(within, self.run)
        row, core = divmod(number * self._runs + run, len(self.cores))
        return NocAddress(self.cores[core], self.base + (row * self.run + offset) * self.pages.page_bytes)


class Piece(NamedTuple):
    """Pages that are read, sent and written at once: how many, their bytes, and the place in each of the tensors."""

    pages: int
    nbytes: int
    places: tuple[NocAddress, ...]


def pieces(parts: Sequence[tuple[Tensor, Sequence[int]]], most_bytes: int) -> list[Piece]:
    """Cut pages, which several tensors have in the same order, where they are not side by side in one of them, and into
    no more than ``most_bytes``.
    """
    page_bytes = parts[0][0].pages.page_bytes
    most = max(most_bytes // page_bytes, 1)
    found: list[Piece] = []
    first: tuple[NocAddress, ...] = ()
    count = 0
    for places in _places(parts):
        done = count * page_bytes
        if count and count < most and all(_follows(a, b, done) for a, b in zip(first, places, strict=True)):
            count += 1
            continue
        if count:
            found.append(Piece(count, done, first))
        first, count = places, 1
    return [*found, Piece(count, count * page_bytes, first)] if count else found


def array_of(dtype: DType, data: bytes) -> "np.ndarray[Any, Any]":
    """Elements."""
    return np.frombuffer(data, dtype.numpy)


def add(dtype: DType, parts: Sequence[bytes]) -> bytes:
    """The sum of elements, from the first on, rounded to ``dtype`` at each step; integers wrap."""
    total = array_of(dtype, parts[0])
    for part in parts[1:]:
        total = total + array_of(dtype, part)
    return bytes(total.astype(dtype.numpy).tobytes())


def dtype_of(array: "np.ndarray[Any, Any]") -> DType:
    """The element type of an array.

    Raises:
        KernelMisuse: for one that tensors do not have.
    """
    for dtype in DTYPES.values():
        if dtype.numpy == array.dtype:
            return dtype
    raise KernelMisuse(f"a tensor of {array.dtype}; there are {', '.join(DTYPES)}")


def to_pages(array: "np.ndarray[Any, Any]", pages: Pages) -> bytes:
    """The bytes of all pages, in order."""
    if pages.is_tiled:
        *outer, rows, columns = array.shape
        tiles = array.reshape(*outer, rows // TILE, TILE, columns // TILE, TILE)
        array = np.moveaxis(tiles, -2, -3)
    return np.ascontiguousarray(array).tobytes()


def from_pages(data: bytes, shape: Sequence[int], dtype: DType, pages: Pages) -> "np.ndarray[Any, Any]":
    """The array whose pages these are."""
    array = array_of(dtype, data)
    if pages.is_tiled:
        array = np.moveaxis(array.reshape(*pages.grid, TILE, TILE), -2, -3)
    return array.reshape(shape).copy()


def _places(parts: Sequence[tuple[Tensor, Sequence[int]]]) -> Iterator[tuple[NocAddress, ...]]:
    for each in zip(*(numbers for _, numbers in parts), strict=True):
        yield tuple(tensor.place(page) for (tensor, _), page in zip(parts, each, strict=True))


def _follows(first: NocAddress, place: NocAddress, nbytes: int) -> bool:
    return place.core == first.core and place.address == first.address + nbytes
