"""Which tile is where on a chip: workers, Ethernet cores, DRAM channels, in coordinates of NoC 0."""

from enum import Enum
from typing import NamedTuple

from sipsim.chips.tensix.params import ChipParams


class Kind(Enum):
    """What a tile has."""

    TENSIX = "tensix"
    ETHERNET = "ethernet"
    DRAM = "dram"


class Core(NamedTuple):
    """A tile by its coordinates, which are those of NoC 0 for both NoCs."""

    x: int
    y: int

    def __str__(self) -> str:
        return f"{self.x}-{self.y}"


class FloorPlan:
    """``kinds``: of each tile that has a memory. ``ethernet``, ``dram``: cores by channel. ``workers``: row by row."""

    def __init__(self, params: ChipParams) -> None:
        self.params = params
        self.ethernet = [Core(*each) for each in params.ethernet.cores]
        self.dram = [Core(*each) for each in params.dram.cores]
        tensix = params.tensix
        columns = [x for first, last in tensix.columns for x in range(first, last + 1)]
        rows = [y for first, last in tensix.rows for y in range(first, last + 1)]
        self.workers = [Core(x, y) for y in rows for x in columns]
        self.kinds: dict[Core, Kind] = {
            **dict.fromkeys(self.workers, Kind.TENSIX),
            **dict.fromkeys(self.ethernet, Kind.ETHERNET),
            **dict.fromkeys(self.dram, Kind.DRAM),
        }

    def problem(self) -> str:
        """Why the tiles do not fit on the NoC; empty if they do."""
        noc, every = self.params.noc, [*self.workers, *self.ethernet, *self.dram]
        if len(every) != len(self.kinds):
            twice = next(core for core in every if every.count(core) > 1)
            return f"tile {twice} is named twice among tensix, ethernet and dram"
        outside = [core for core in every if core.x >= noc.width or core.y >= noc.height]
        return f"tile {outside[0]} lies outside of a NoC of {noc.width}x{noc.height}" if outside else ""
