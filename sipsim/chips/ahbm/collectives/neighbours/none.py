"""The empty table, for algorithms that export ``neighbors()``."""

from sipsim.chips.ahbm.collectives.neighbours.base import table
from sipsim.chips.ahbm.collectives.neighbours.neighbours import NeighbourMap


@table("none", self_wired=True)
@table("custom", self_wired=True)
def none(rank: int, size: int) -> NeighbourMap:
    """No neighbours: the module's neighbors() must return them. ADR-0023 D11 has both names, ADR-0032 D6 uses none."""
    return {}
