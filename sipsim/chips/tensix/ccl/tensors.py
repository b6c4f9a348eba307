"""Tensors of a host script: pages interleaved over the DRAM channels of a chip, or over the L1 of its workers.

A page is a tile of 32 x 32 elements where the last two dimensions have whole tiles, row by row inside; else a row, all
of the last dimension. Pages lie in runs: so many next to each other in one channel, the next run in the next channel.
Hardware interleaves page by page, and a packet of several pages names a place for each; here a packet names one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.tensix.arguments import one_of
from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.noc import Core, FloorPlan
from sipsim.chips.tensix.params import ChipParams
from sipsim.collectives.call import WORLD, GroupCall, OpenCall
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import KernelMisuse
from sipsim.core.task import Task

TILE = 32


class Pages(NamedTuple):
    """How an array is cut: ``grid`` of pages, ``page_bytes`` each. ``run``: those that lie side by side;
    ``slice_pages``: those after which a new run begins.
    """

    grid: tuple[int, ...]
    page_bytes: int
    is_tiled: bool
    run: int = 1
    slice_pages: int = 1

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
    each of ``cores``.
    """

    def __init__(
        self, shape: Sequence[int], dtype: DType, pages: Pages, memory: str, cores: Sequence[Core], base: int
    ) -> None:
        self.shape = tuple(int(each) for each in shape)
        self.dtype = dtype
        self.memory = memory
        self.pages = pages
        self.cores = cores
        self.base = base
        self._runs = -(-pages.slice_pages // pages.run)

    def __repr__(self) -> str:
        return f"tensor of {self.shape} {self.dtype} in {self.memory}"

    @property
    def nbytes(self) -> int:
        """Of all pages."""
        return self.pages.number * self.pages.page_bytes

    @property
    def core_bytes(self) -> int:
        """That it takes on each of its tiles."""
        pages = self.pages
        slices = -(-pages.number // pages.slice_pages)
        return -(-slices * self._runs // len(self.cores)) * pages.run * pages.page_bytes

    def place(self, page: int) -> NocAddress:
        """Where a page lies."""
        pages = self.pages
        number, within = divmod(page, pages.slice_pages)
        run, offset = divmod(within, pages.run)
        row, core = divmod(number * self._runs + run, len(self.cores))
        return NocAddress(self.cores[core], self.base + (row * pages.run + offset) * pages.page_bytes)


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


KIB, MIB = 2**10, 2**20
ALIGNED = 64
CONNECTION_BYTES, SEMAPHORE_BYTES = 16 * KIB, 16 * KIB
KEPT_BYTES = CONNECTION_BYTES + SEMAPHORE_BYTES
"""At the end of a worker's L1: connections to the fabric, and below them the semaphores of operations, by fabric."""
BUFFER_BYTES = 512 * KIB
"""Of a worker's L1, from its first free address on: circular buffers of operations."""


class Store:
    """Where the tensors of one chip lie: the same addresses on all chips whose host scripts make the same calls.

    Nothing is freed but scratch. ``l1_base``: the first address of a worker that programs have.
    """

    def __init__(self, plan: FloorPlan, params: ChipParams, l1_base: int) -> None:
        self._cores = {"dram": plan.dram, "l1": plan.workers}
        self._next = {"dram": 0, "l1": l1_base + BUFFER_BYTES}
        self._end = {"dram": params.dram.channel_MiB * MIB, "l1": params.tensix.l1_KiB * KIB - KEPT_BYTES}
        self._scratch: dict[tuple[object, ...], Tensor] = {}
        self._packet_bytes = params.ccl.packet_bytes

    def make(
        self, shape: Sequence[int], dtype: DType, memory: str, slices: int = 1, is_tiled: bool | None = None
    ) -> Tensor:
        """A tensor whose slices begin new runs. ``is_tiled``: as of :func:`pages_of`.

        Raises:
            KernelMisuse: for a memory that there is not, or without room.
        """
        one_of("memory", memory, self._cores)
        pages = pages_of(shape, dtype, is_tiled)
        slice_pages = pages.number // slices if pages.number % slices == 0 else pages.number
        run = max(self._packet_bytes // pages.page_bytes, 1)
        pages = pages._replace(run=run, slice_pages=max(slice_pages, 1))
        base = self._next[memory]
        found = Tensor(shape, dtype, pages, memory, self._cores[memory], base)
        end = base + -(-found.core_bytes // ALIGNED) * ALIGNED
        if end > self._end[memory]:
            raise KernelMisuse(f"{found}: {memory} of SIPs has no room for its {found.nbytes} B")
        self._next[memory] = end
        return found

    def like(self, other: Tensor, shape: Sequence[int], slices: int = 1) -> Tensor:
        """A tensor with the type, the memory and the kind of pages of another."""
        return self.make(shape, other.dtype, other.memory, slices, other.pages.is_tiled)

    def scratch(self, name: str, fabric: int, like: Tensor, slices: int) -> Tensor:
        """Room for what an operation on a fabric keeps for itself, the same in every call. It is free when a call
        begins, as all chips of the fabric wait for one another then.
        """
        key = (name, fabric, like.shape, like.dtype, like.memory, slices, like.pages.is_tiled)
        found = self._scratch.get(key)
        if found is None:
            found = self._scratch[key] = self.like(like, like.shape, slices)
        return found


class Called:
    """The operations that the host script of one chip has called, for reports on ranks that have called others.

    ``calls``: all, in order.
    """

    def __init__(self) -> None:
        self.calls: list[GroupCall] = []
        self._counts: Counter[int] = Counter()
        self._open: list[tuple[OpenCall, Sequence[Task]]] = []

    def note(self, text: str, group: int, chips: tuple[int, ...], tasks: Sequence[Task]) -> None:
        """Note a call that all chips of a group make; ``tasks``: its kernels on this chip."""
        self._counts[group] += 1
        self.calls.append(GroupCall(text, group, () if group == WORLD else chips))
        self._open = [each for each in self._open if _runs(each[1])]
        self._open.append((OpenCall(group, chips, self._counts[group], text), tasks))

    def open_calls(self) -> Iterable[OpenCall]:
        """The calls whose kernels have not all ended."""
        return [call for call, tasks in self._open if _runs(tasks)]


def _runs(tasks: Sequence[Task]) -> bool:
    return any(not task.ended for task in tasks)
