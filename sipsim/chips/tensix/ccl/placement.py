"""Memory configs of tensors, with names as in ``ttnn``, and the placement of pages that follows from a config. Pure."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from sipsim.chips.tensix.arguments import one_of, whole
from sipsim.chips.tensix.noc import Core
from sipsim.core.errors import KernelMisuse

INTERLEAVED = "interleaved"
SHARDED = ("width_sharded", "height_sharded", "block_sharded")
BUFFERS = ("dram", "l1")
Grid = Sequence[Sequence[Core]]
"""Cores of a memory, row by row: the workers, or one row of all DRAM channels."""


class MemoryConfig(NamedTuple):
    """Memory of a tensor and division of the tensor over the cores of that memory.

    ``memory_layout``: ``interleaved``, ``width_sharded``, ``height_sharded`` or ``block_sharded``. ``buffer_type``:
    ``l1`` of the workers or ``dram``. ``core_grid``: rows and columns of the rectangle of cores, from the first core
    on, that have a shard each; None for the most cores that get equal shards.
    """

    memory_layout: str = INTERLEAVED
    buffer_type: str = "l1"
    core_grid: tuple[int, int] | None = None

    def __str__(self) -> str:
        if self.memory_layout == INTERLEAVED:
            return self.buffer_type
        grid = f" of {self.core_grid[0]}x{self.core_grid[1]} cores" if self.core_grid else ""
        return f"{self.buffer_type} {self.memory_layout}{grid}"


def memory_config_of(value: Any) -> MemoryConfig:
    """Return the memory config for an argument: a config, ``dram`` or ``l1`` for an interleaved tensor, or the memory
    layout of a tensor sharded over workers.

    Raises:
        KernelMisuse: for an unknown memory, memory layout or buffer type, or a grid that is none.
    """
    if not isinstance(value, MemoryConfig):
        every = *BUFFERS, *SHARDED
        if not isinstance(value, str) or value not in every:
            raise KernelMisuse(f"memory_config={value!r}: give one of {', '.join(every)}, or a tt.MemoryConfig")
        return MemoryConfig(INTERLEAVED, value) if value in BUFFERS else MemoryConfig(value)
    one_of("memory_layout", value.memory_layout, (INTERLEAVED, *SHARDED))
    one_of("buffer_type", value.buffer_type, BUFFERS)
    grid: Any = value.core_grid
    if grid is None:
        return value
    if value.memory_layout == INTERLEAVED:
        raise KernelMisuse(f"core_grid={grid!r}: an interleaved tensor is on all cores; leave core_grid out")
    if not isinstance(grid, Sequence) or isinstance(grid, str) or len(grid) != 2:
        raise KernelMisuse(f"core_grid={grid!r}: give a pair, the rows and columns of cores")
    rows, columns = (whole("core_grid", each, 1) for each in grid)
    return value._replace(core_grid=(rows, columns))


class Interleaved(NamedTuple):
    """Placement of runs of ``run`` adjacent pages on the cores in turn. Each slice of pages begins a new run."""

    cores: Sequence[Core]
    n_pages: int
    run: int
    slice_pages: int

    def __str__(self) -> str:
        return f"slices of {self.slice_pages} pages"

    @property
    def core_pages(self) -> int:
        """The pages for which each core has room."""
        slices = -(-self.n_pages // self.slice_pages)
        return -(-slices * self._runs // len(self.cores)) * self.run

    def slot(self, page: int) -> tuple[Core, int]:
        """Return the core of a page, and the page's index on this core."""
        slice_index, within = divmod(page, self.slice_pages)
        run, offset = divmod(within, self.run)
        row, core = divmod(slice_index * self._runs + run, len(self.cores))
        return self.cores[core], row * self.run + offset

    @property
    def _runs(self) -> int:
        return -(-self.slice_pages // self.run)


class Sharded(NamedTuple):
    """Placement of shards of ``height`` x ``width`` pages on the cores in turn, shards and pages row by row.

    ``columns``: pages in a row of the whole tensor.
    """

    cores: Sequence[Core]
    columns: int
    height: int
    width: int

    def __str__(self) -> str:
        return f"shards of {self.height}x{self.width} pages"

    @property
    def core_pages(self) -> int:
        """The pages of a shard."""
        return self.height * self.width

    def slot(self, page: int) -> tuple[Core, int]:
        """Return the core of a page, and the page's index in the shard on this core."""
        row, column = divmod(page, self.columns)
        (down, row), (across, column) = divmod(row, self.height), divmod(column, self.width)
        return self.cores[down * (self.columns // self.width) + across], row * self.width + column


Placement = Interleaved | Sharded
"""A function from the number of a page to a core, and to the page's index among the pages on this core."""


class Shards(NamedTuple):
    """Division of a tensor into equal shards, ``down`` x ``across``, one on each core of a ``core_grid``."""

    core_grid: tuple[int, int]
    down: int
    across: int


class Extent(NamedTuple):
    """Size of a tensor in units that shards do not cut: ``rows`` x ``columns``. ``of``: ``tiles`` or ``elements``.

    ``least``: the width of each shard is a multiple of this number of columns, if the config has no core grid.
    """

    rows: int
    columns: int
    of: str
    least: int = 1

    def has(self, shards: Shards) -> bool:
        """Whether the shards are equal."""
        return self.rows % shards.down == 0 and self.columns % shards.across == 0


def shards_of(config: MemoryConfig, extent: Extent, grid: Grid) -> Shards:
    """Return the division of a tensor by a sharded config: on its core grid or, if it has none, on the most cores.

    Raises:
        KernelMisuse: if there are no such cores, or no equal shards.
    """
    if config.core_grid is None:
        every = (_shards(config.memory_layout, each) for each in product(_to(len(grid)), _to(len(grid[0]))))
        equal = [each for each in every if extent.has(each)]
        aligned = (each for each in equal if each.across == 1 or extent.columns // each.across % extent.least == 0)
        return max(aligned, key=lambda each: each.down * each.across)
    height, width = config.core_grid
    if height > len(grid) or width > len(grid[0]):
        what = f"the cores of {config.buffer_type} have {len(grid)} rows and {len(grid[0])} columns"
        raise KernelMisuse(f"core_grid={config.core_grid}: {what}; give a grid of at most {len(grid)}x{len(grid[0])}")
    found = _shards(config.memory_layout, config.core_grid)
    if not extent.has(found):
        count = f"{found.down} x {found.across}"
        what = f"{extent.rows} x {extent.columns} {extent.of} cannot be cut into {count} equal shards"
        raise KernelMisuse(f"core_grid={config.core_grid}: {what}; give a grid with equal shards, or no core_grid")
    return found


def kept(config: MemoryConfig, extent: Extent) -> MemoryConfig:
    """Return the config of an operation's result: the operand's, on other cores if its cores get no equal shards."""
    grid = config.core_grid
    is_equal = grid is None or extent.has(_shards(config.memory_layout, grid))
    return config if is_equal else config._replace(core_grid=None)


def config_or_none(given: str | MemoryConfig | None) -> MemoryConfig | None:
    """Return the memory config for an argument of an operation, None if it is not given."""
    return None if given is None else memory_config_of(given)


def _shards(memory_layout: str, core_grid: tuple[int, int]) -> Shards:
    height, width = core_grid
    if memory_layout == "block_sharded":
        return Shards(core_grid, height, width)
    count = height * width
    return Shards(core_grid, count, 1) if memory_layout == "height_sharded" else Shards(core_grid, 1, count)


def _to(count: int) -> range:
    return range(1, count + 1)


def cores_of(core_grid: tuple[int, int], grid: Grid) -> list[Core]:
    """Return the cores of a rectangle that begins at the first core, row by row."""
    return [core for row in grid[: core_grid[0]] for core in row[: core_grid[1]]]


def core_grids(workers: Sequence[Core], dram: Sequence[Core]) -> Mapping[str, Grid]:
    """Return the cores of each buffer type, row by row. ``workers``: row by row."""
    rows = sorted({core.y for core in workers})
    return {"dram": [list(dram)], "l1": [[core for core in workers if core.y == y] for y in rows]}
