"""Tensors of a host script: pages in the DRAM channels of a chip, or in the L1 of the chip's workers.

A page is a tile of 32 x 32 elements in row-major order, or a row of the last dimension; in a shard, the shard's part of
this row. In an interleaved tensor, adjacent pages form a run on one core; the next run is on the next core.
Hardware interleaves single pages and states an address per page in a packet; here a packet states only one address.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.tensix.arguments import one_of, whole
from sipsim.chips.tensix.ccl.placement import (
    INTERLEAVED,
    Extent,
    Interleaved,
    MemoryConfig,
    Placement,
    Sharded,
    core_grids,
    cores_of,
    kept,
    shards_of,
)
from sipsim.chips.tensix.dataflow import NocAddress
from sipsim.chips.tensix.formats import Format
from sipsim.chips.tensix.noc import FloorPlan
from sipsim.chips.tensix.params import ChipParams
from sipsim.collectives.call import WORLD, GroupCall, OpenCall
from sipsim.core.errors import KernelMisuse
from sipsim.core.task import Task

TILE = 32
LAYOUTS = ("tile", "row_major")
NOC_ALIGNED = 16
"""Bytes of a word of the NoC: long rows are cut at its multiples."""


class Pages(NamedTuple):
    """Partition of an array into a ``grid`` of pages of ``page_bytes``: tiles, or ``columns`` elements of a row."""

    grid: tuple[int, ...]
    page_bytes: int
    is_tiled: bool
    columns: int = TILE

    @property
    def n_pages(self) -> int:
        """The number of pages."""
        return prod(self.grid)


def pages_of(shape: Sequence[int], dtype: Format, layout: str | None = None, across: int = 1) -> Pages:
    """Return the partition of an array of a shape. ``layout``: pages are tiles (``tile``) or rows (``row_major``); by
    default tiles if the shape divides into whole tiles. ``across``: pages in a row of elements.

    Raises:
        KernelMisuse: if the shape has no elements, or no whole tiles as ``layout`` wants, or if the pages would be rows
            of a format that has tiles alone.
    """
    if not shape or not all(shape):
        raise KernelMisuse(f"a tensor of shape {tuple(shape)} has no elements or no dimension; give 1 or more of each")
    if layout is not None:
        one_of("layout", layout, LAYOUTS)
    *outer, last = shape
    has_tiles = bool(outer) and outer[-1] % TILE == 0 and last % TILE == 0
    if layout == "tile" and not has_tiles:
        what = f"the last two dimensions of shape {tuple(shape)} are no multiples of {TILE}"
        raise KernelMisuse(f"layout='tile': {what}; pad the array, or give layout='row_major'")
    if has_tiles and layout != "row_major":
        return Pages((*outer[:-1], outer[-1] // TILE, last // TILE), dtype.nbytes(TILE * TILE), True)
    if not dtype.has_rows:
        what = f"a tensor of shape {tuple(shape)} in rows cannot have dtype {dtype}, a format of tiles"
        raise KernelMisuse(f"{what}; give layout='tile', and last two dimensions that are multiples of {TILE}")
    columns = last // across
    return Pages((*outer, across), dtype.nbytes(columns), False, columns)


def extent_of(pages: Pages) -> Extent:
    """Return the extent of an array for shards: in tiles or, for whole rows, in elements; ``least``: of a word."""
    rows = pages.n_pages // pages.grid[-1]
    if pages.is_tiled:
        return Extent(rows, pages.grid[-1], "tiles")
    element = pages.page_bytes // pages.columns
    return Extent(rows, pages.columns, "elements", NOC_ALIGNED // gcd(NOC_ALIGNED, element))


class Tensor:
    """Tensor on one chip, made by ``tt.tensor`` and by operations. ``base``: the tensor's first address, the same on
    each core of ``placement``. ``memory_config``: of a sharded tensor, with the grid of cores.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: Format,
        pages: Pages,
        memory_config: MemoryConfig,
        placement: Placement,
        base: int,
    ) -> None:
        self.shape = tuple(int(each) for each in shape)
        self.dtype = dtype
        self.pages = pages
        self.memory_config = memory_config
        self.placement = placement
        self.base = base

    def __repr__(self) -> str:
        return f"tensor of {self.shape} {self.dtype} in {self.memory_config}"

    @property
    def layout(self) -> str:
        """The layout of elements, ``tile`` or ``row_major``."""
        return LAYOUTS[0] if self.pages.is_tiled else LAYOUTS[1]

    @property
    def nbytes(self) -> int:
        """The size of all pages in bytes."""
        return self.pages.n_pages * self.pages.page_bytes

    @property
    def core_bytes(self) -> int:
        """The bytes that the tensor takes on each of its cores."""
        return self.placement.core_pages * self.pages.page_bytes

    def place(self, page: int) -> NocAddress:
        """Return the address of a page."""
        core, index = self.placement.slot(page)
        return NocAddress(core, self.base + index * self.pages.page_bytes)

    @property
    def segments(self) -> "Segments":
        """The pages as segments."""
        return Segments(self, self.pages.grid, self.pages.page_bytes, 1)

    def parts_along(self, dim: int) -> int:
        """Return the number of tiles, or of elements of a tensor in rows, along a dimension; no operation cuts one."""
        return self.pages.grid[dim] if self.pages.is_tiled else self.shape[dim]

    def dim(self, dim: int, slices: int) -> int:
        """Return a dimension, which may be counted from the end, as a number from 0 on.

        Raises:
            KernelMisuse: if the tensor has no such dimension, or it does not divide into ``slices``.
        """
        rank = len(self.shape)
        dim = whole(f"{self}: dim", dim, -rank, rank - 1) % rank
        count = self.parts_along(dim)
        if count % slices:
            is_tiled = self.pages.is_tiled
            what, advice = "tiles" if is_tiled else "elements", ", or another dimension"
            if is_tiled and self.dtype.has_rows:
                advice = ", another dimension, or layout='row_major'"
            what = f"{self}: {count} {what} along dimension {dim} cannot be cut into {slices} slices"
            raise KernelMisuse(f"{what}; give a multiple of {slices}{advice}")
        return dim


class Segments(NamedTuple):
    """Tensor as a ``grid`` of segments of ``nbytes``, ``per_page`` in each page, numbered in the order of elements.

    A segment is the unit of an operation: a tile, or elements of a row that are adjacent in all of its tensors.
    """

    tensor: Tensor
    grid: tuple[int, ...]
    nbytes: int
    per_page: int

    def all(self) -> range:
        """Return the numbers of all segments."""
        return range(prod(self.grid))

    def slice(self, dim: int, index: int, n_slices: int) -> list[int]:
        """Return the numbers of the segments in slice ``index`` of ``n_slices`` along a dimension, in order."""
        segments = np.arange(prod(self.grid)).reshape(self.grid)
        length = self.grid[dim] // n_slices
        numbers: list[int] = segments.take(range(index * length, (index + 1) * length), axis=dim).ravel().tolist()
        return numbers

    def place(self, segment: int) -> NocAddress:
        """Return the address of a segment."""
        page, part = divmod(segment, self.per_page)
        core, address = self.tensor.place(page)
        return NocAddress(core, address + part * self.nbytes)


def segments_of(tensors: Sequence[Tensor], dim: int, slices: int) -> list[Segments]:
    """Return the segments of all tensors of an operation that cuts the first one into slices along a dimension."""
    first = tensors[0]
    last = len(first.shape) - 1
    length = first.shape[last] // slices if dim == last else first.shape[last]
    columns = gcd(length, *(each.pages.columns for each in tensors))
    found = []
    for tensor in tensors:
        pages, per_page = tensor.pages, tensor.pages.columns // columns
        grid = (*pages.grid[:-1], pages.grid[-1] * per_page)
        found.append(Segments(tensor, grid, pages.page_bytes // per_page, per_page))
    return found


class PageGroup(NamedTuple):
    """Pages or parts of pages that are read, sent and written at once. ``places``: first address in each tensor."""

    pages: int
    nbytes: int
    places: tuple[NocAddress, ...]


Part = tuple[Segments, Sequence[int]]
"""Segments of a tensor, by number."""


def pieces(parts: Sequence[Part], most_bytes: int) -> list[PageGroup]:
    """Return groups of at most ``most_bytes`` of the segments that several tensors have in the same order. A group ends
    where segments are not adjacent in one of the tensors. A segment longer than ``most_bytes`` is cut.
    """
    nbytes, per_page = parts[0][0].nbytes, min(segments.per_page for segments, _ in parts)
    if nbytes > most_bytes:
        return list(_cut(parts, nbytes, most_bytes - most_bytes % NOC_ALIGNED))
    limit = most_bytes // nbytes
    groups: list[PageGroup] = []
    first: tuple[NocAddress, ...] = ()
    count = 0

    def group() -> PageGroup:
        return PageGroup(-(-count // per_page), count * nbytes, first)

    for places in _places(parts):
        done = count * nbytes
        if count and count < limit and all(_follows(a, b, done) for a, b in zip(first, places, strict=True)):
            count += 1
            continue
        if count:
            groups.append(group())
        first, count = places, 1
    return [*groups, group()] if count else groups


def _cut(parts: Sequence[Part], nbytes: int, step: int) -> Iterator[PageGroup]:
    for places in _places(parts):
        for start in range(0, nbytes, step):
            moved = tuple(NocAddress(core, address + start) for core, address in places)
            yield PageGroup(1, min(step, nbytes - start), moved)


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


def _places(parts: Sequence[Part]) -> Iterator[tuple[NocAddress, ...]]:
    for each in zip(*(numbers for _, numbers in parts), strict=True):
        yield tuple(segments.place(number) for (segments, _), number in zip(parts, each, strict=True))


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
        self._grids = core_grids(plan.workers, plan.dram)
        self._cores = {"dram": plan.dram, "l1": plan.workers}
        self._next = {"dram": 0, "l1": l1_base + BUFFER_BYTES}
        self._end = {"dram": params.dram.channel_MiB * MIB, "l1": params.tensix.l1_KiB * KIB - KEPT_BYTES}
        self._scratch: dict[tuple[object, ...], Tensor] = {}
        self._packet_bytes = params.ccl.packet_bytes

    def make(
        self, shape: Sequence[int], dtype: Format, config: MemoryConfig, slices: int = 1, layout: str | None = None
    ) -> Tensor:
        """Allocate a tensor. ``slices``: each begins a new run, if interleaved. ``layout``: as in :func:`pages_of`.

        Raises:
            KernelMisuse: for a layout or config that the shape cannot have, or a tensor that does not fit.
        """
        pages, memory = pages_of(shape, dtype, layout), config.buffer_type
        placement: Placement
        if config.memory_layout == INTERLEAVED:
            slice_pages = pages.n_pages // slices if pages.n_pages % slices == 0 else pages.n_pages
            run = min(max(self._packet_bytes // pages.page_bytes, 1), slice_pages)
            placement = Interleaved(self._cores[memory], pages.n_pages, run, slice_pages)
        else:
            shards = shards_of(config, extent_of(pages), self._grids[memory])
            config = config._replace(core_grid=shards.core_grid)
            pages = pages if pages.is_tiled else pages_of(shape, dtype, layout or "row_major", shards.across)
            columns = pages.grid[-1]
            height, width = pages.n_pages // columns // shards.down, columns // shards.across
            placement = Sharded(cores_of(shards.core_grid, self._grids[memory]), columns, height, width)
        base = self._next[memory]
        tensor = Tensor(shape, dtype, pages, config, placement, base)
        end = base + -(-tensor.core_bytes // ALIGNED) * ALIGNED
        if end > self._end[memory]:
            what = f"{tensor}: {tensor.nbytes} B do not fit into {memory} of a SIP"
            raise KernelMisuse(f"{what}; use smaller or fewer tensors, as none is freed")
        self._next[memory] = end
        return tensor

    def like(self, other: Tensor, shape: Sequence[int], slices: int = 1, config: MemoryConfig | None = None) -> Tensor:
        """Allocate a tensor with the type and layout of ``other``. ``config``: by default that of ``other``.
        ``slices``: as in :meth:`make`.
        """
        if config is None:
            config = kept(other.memory_config, extent_of(pages_of(shape, other.dtype, other.layout)))
        return self.make(shape, other.dtype, config, slices, other.layout)

    def gathered(self, tensor: Tensor, dim: int, config: MemoryConfig | None, size: int) -> tuple[int, Tensor]:
        """Return the dimension of a gather from ``size`` chips, from 0 on, and a new tensor for the output."""
        dim = tensor.dim(dim, 1)
        shape = list(tensor.shape)
        shape[dim] *= size
        return dim, self.like(tensor, shape, size if dim == 0 else 1, config)

    def scattered(self, tensor: Tensor, dim: int, config: MemoryConfig | None, size: int) -> tuple[int, Tensor]:
        """Return the dimension of a scatter to ``size`` chips, from 0 on, and a new tensor for the output."""
        dim = tensor.dim(dim, size)
        shape = list(tensor.shape)
        shape[dim] //= size
        return dim, self.like(tensor, shape, config=config)

    def scratch(self, name: str, fabric: int, like: Tensor, slices: int) -> Tensor:
        """Return the scratch tensor ``name`` of an operation on a fabric. All calls share this tensor: since the chips
        of the fabric wait for one another when a call begins, no earlier call still uses the tensor.
        """
        key = (name, fabric, like.shape, like.dtype, like.memory_config, slices, like.layout)
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
