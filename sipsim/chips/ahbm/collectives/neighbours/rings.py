"""All ranks in a ring."""

from sipsim.chips.ahbm.collectives.neighbours.base import table
from sipsim.chips.ahbm.collectives.neighbours.neighbours import NeighbourMap


@table("ring_1d")
def ring_1d(rank: int, size: int) -> NeighbourMap:
    """E to the next rank, W to the one before (ADR-0023 D3). Two ranks are joined twice; one alone has none."""
    return {"E": (rank + 1) % size, "W": (rank - 1) % size} if size > 1 else {}


@table("ring_1d_unidir", one_way=True)
def ring_1d_unidir(rank: int, size: int) -> NeighbourMap:
    """E to the next rank (ADR-0023 D11). A rank receives in W and cannot send there."""
    return {"E": (rank + 1) % size} if size > 1 else {}
