"""The table of algorithms that wire themselves."""

from sipsim.ccl.neighbours import NeighbourMap
from sipsim.ccl.tables.base import table


@table("none", self_wired=True)
@table("custom", self_wired=True)
def none(rank: int, size: int) -> NeighbourMap:
    """Nobody: the module's neighbors() says who. ADR-0023 D11 has both words for it, and ADR-0032 D6 uses none."""
    return {}
