"""Tensors of a host script: pages interleaved over the DRAM channels of a chip, or over the L1 of the chip's workers.

A page is a tile of 32 x 32 elements in row-major order if the last two dimensions divide into whole tiles. Otherwise a
page is a row of the last dimension. Adjacent pages form a run in one channel; the next run is in the next channel.
Hardware interleaves single pages and states an address per page in a packet; here a packet states only one address.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.tensix.arguments import one_of
from sipsim.chips.tensix.ccl.formats import Format
from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.noc import Core, FloorPlan
from sipsim.chips.tensix.params import ChipParams
from sipsim.collectives.call import WORLD, GroupCall, OpenCall
from sipsim.core.errors import KernelMisuse
from sipsim.core.task import Task

TILE = 32


class Pages(NamedTuple):
    """Partition of an array into a ``grid`` of pages of ``page_bytes``. ``run``: number of pages that are adjacent in
    memory. ``slice_pages``: number of pages per slice; each slice begins a new run.
    """

    grid: tuple[int, ...]
    page_bytes: int
    is_tiled: bool
    run: int = 1
    slice_pages: int = 1

    @property
    def n_pages(self) -> int:
        """The number of pages."""
        return prod(self.grid)

    def slice(self, dim: int, index: int, n_slices: int) -> list[int]:
        """Return the numbers of the pages in slice ``index`` of ``n_slices`` along a dimension, in order."""
        pages = np.arange(self.n_pages).reshape(self.grid)
        length = self.grid[dim] // n_slices
        numbers: list[int] = pages.take(range(index * length, (index + 1) * length), axis=dim).ravel().tolist()
        return numbers


def pages_of(shape: Sequence[int], dtype: Format, is_tiled: bool | None = None) -> Pages:
    """Return the partition of an array of a shape. Its pages are tiles if the shape divides into whole tiles,
    unless ``is_tiled`` is False, as for an operation whose input is in rows; otherwise its pages are rows.

    Raises:
        KernelMisuse: if the shape has no elements, or its pages would be rows of a format that has tiles alone.
    """
    if not shape or not all(shape):
        raise KernelMisuse(f"a tensor of shape {tuple(shape)} has no elements; give dimensions of 1 or more")
    *outer, last = shape
    has_tiles = bool(outer) and outer[-1] % TILE == 0 and last % TILE == 0
    if has_tiles and is_tiled is not False:
        return Pages((*outer[:-1], outer[-1] // TILE, last // TILE), dtype.nbytes(TILE * TILE), True)
    if not dtype.has_rows:
        what = f"a tensor of shape {tuple(shape)} in rows cannot have dtype {dtype}, a format of tiles"
        raise KernelMisuse(f"{what}; give last two dimensions that are multiples of {TILE}")
    return Pages((*outer, 1), dtype.nbytes(last), False)


class Tensor:
    """Tensor on one chip, made by ``tt.tensor`` and by operations. ``base``: the tensor's first address, the same on
    each tile of ``cores``. ``memory``: ``dram`` or ``l1``.
    """

    def __init__(
        self, shape: Sequence[int], dtype: Format, pages: Pages, memory: str, cores: Sequence[Core], base: int
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
        """The size of all pages in bytes."""
        return self.pages.n_pages * self.pages.page_bytes

    @property
    def core_bytes(self) -> int:
        """The bytes that the tensor takes on each of its cores."""
        pages = self.pages
        slices = -(-pages.n_pages // pages.slice_pages)
        return -(-slices * self._runs // len(self.cores)) * pages.run * pages.page_bytes

    def place(self, page: int) -> NocAddress:
        """Return the address of a page."""
        pages = self.pages
        slice_index, within = divmod(page, pages.slice_pages)
        run, offset = divmod(within, pages.run)
        row, core = divmod(slice_index * self._runs + run, len(self.cores))
        return NocAddress(self.cores[core], self.base + (row * pages.run + offset) * pages.page_bytes)


class PageGroup(NamedTuple):
    """Pages that are read, sent and written at once. ``places``: address of the first page in each tensor."""

    pages: int
    nbytes: int
    places: tuple[NocAddress, ...]


def pieces(parts: Sequence[tuple[Tensor, Sequence[int]]], most_bytes: int) -> list[PageGroup]:
    """Return the pages that several tensors have in the same order, in groups of at most ``most_bytes``. A group ends
    where the pages are not adjacent in one of the tensors.
    """
    page_bytes = parts[0][0].pages.page_bytes
    limit = max(most_bytes // page_bytes, 1)
    groups: list[PageGroup] = []
    first: tuple[NocAddress, ...] = ()
    count = 0
    for places in _places(parts):
        done = count * page_bytes
        if count and count < limit and all(_follows(a, b, done) for a, b in zip(first, places, strict=True)):
            count += 1
            continue
        if count:
            groups.append(PageGroup(count, done, first))
        first, count = places, 1
    return [*groups, PageGroup(count, count * page_bytes, first)] if count else groups


def to_pages(array: "np.ndarray[Any, Any]", dtype: Format, pages: Pages) -> bytes:
    """Return the bytes of all pages of an array, in order."""
    if pages.is_tiled:
        *outer, rows, columns = array.shape
        tiles = array.reshape(*outer, rows // TILE, TILE, columns // TILE, TILE)
        array = np.moveaxis(tiles, -2, -3)
    return dtype.encode(array)


def from_pages(data: bytes, shape: Sequence[int], dtype: Format, pages: Pages) -> "np.ndarray[Any, Any]":
    """Return an array of ``shape`` from the bytes of the array's pages."""
    array = dtype.decode(data)
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
"""Bytes reserved at the end of a worker's L1: semaphores of operations by fabric, then connections to fabrics."""
BUFFER_BYTES = 512 * KIB
"""Bytes reserved for the circular buffer of operations, from the first free address of a worker's L1 on."""


class Store:
    """Allocator of the tensors of one chip. Chips whose host scripts make the same calls get the same addresses.

    Calls share scratch tensors; no tensor is freed. ``l1_base``: the first address of a worker that programs may use.
    """

    def __init__(self, plan: FloorPlan, params: ChipParams, l1_base: int) -> None:
        self._cores = {"dram": plan.dram, "l1": plan.workers}
        self._next = {"dram": 0, "l1": l1_base + BUFFER_BYTES}
        self._end = {"dram": params.dram.channel_MiB * MIB, "l1": params.tensix.l1_KiB * KIB - KEPT_BYTES}
        self._scratch: dict[tuple[object, ...], Tensor] = {}
        self._packet_bytes = params.ccl.packet_bytes

    def make(
        self, shape: Sequence[int], dtype: Format, memory: str, slices: int = 1, is_tiled: bool | None = None
    ) -> Tensor:
        """Allocate a tensor in which each of ``slices`` begins a new run. ``is_tiled``: as in :func:`pages_of`.

        Raises:
            KernelMisuse: for an unknown memory, or a tensor that does not fit.
        """
        one_of("memory", memory, self._cores)
        pages = pages_of(shape, dtype, is_tiled)
        slice_pages = pages.n_pages // slices if pages.n_pages % slices == 0 else pages.n_pages
        run = max(self._packet_bytes // pages.page_bytes, 1)
        pages = pages._replace(run=run, slice_pages=max(slice_pages, 1))
        base = self._next[memory]
        tensor = Tensor(shape, dtype, pages, memory, self._cores[memory], base)
        end = base + -(-tensor.core_bytes // ALIGNED) * ALIGNED
        if end > self._end[memory]:
            raise KernelMisuse(f"{tensor}: {tensor.nbytes} B do not fit into {memory} of a SIP; use smaller tensors")
        self._next[memory] = end
        return tensor

    def like(self, other: Tensor, shape: Sequence[int], slices: int = 1) -> Tensor:
        """Allocate a tensor with the type, memory and kind of pages of ``other``. ``slices``: as in :meth:`make`."""
        return self.make(shape, other.dtype, other.memory, slices, other.pages.is_tiled)

    def scratch(self, name: str, fabric: int, like: Tensor, slices: int) -> Tensor:
        """Return the scratch tensor ``name`` of an operation on a fabric. All calls share this tensor: since the chips
        of the fabric wait for one another when a call begins, no earlier call still uses the tensor.
        """
        key = (name, fabric, like.shape, like.dtype, like.memory, slices, like.pages.is_tiled)
        tensor = self._scratch.get(key)
        if tensor is None:
            tensor = self._scratch[key] = self.like(like, like.shape, slices)
        return tensor


class CallLog:
    """Log of the operations that one chip's host script has called, for the report on ranks whose calls differ.

    ``calls``: all calls, in order.
    """

    def __init__(self) -> None:
        self.calls: list[GroupCall] = []
        self._counts: Counter[int] = Counter()
        self._open: list[tuple[OpenCall, Sequence[Task]]] = []

    def note(self, text: str, group: int, chips: tuple[int, ...], tasks: Sequence[Task]) -> None:
        """Add a call that all chips of a group must make. ``tasks``: the tasks of the call's kernels on this chip."""
        self._counts[group] += 1
        self.calls.append(GroupCall(text, group, () if group == WORLD else chips))
        self._open = [each for each in self._open if _any_runs(each[1])]
        self._open.append((OpenCall(group, chips, self._counts[group], text), tasks))

    def number(self, group: int) -> int:
        """Return the number of the calls of a group so far."""
        return self._counts[group]

    def open_calls(self) -> Iterable[OpenCall]:
        """The calls whose kernels have not all ended."""
        return [call for call, tasks in self._open if _any_runs(tasks)]


def _any_runs(tasks: Sequence[Task]) -> bool:
    return any(not task.ended for task in tasks)
