"""Ranks in a tree with rank 0 at its root."""

from sipsim.chips.ahbm.collectives.neighbours.base import table
from sipsim.chips.ahbm.collectives.neighbours.neighbours import NeighbourMap


@table("tree_binary")
def tree_binary(rank: int, size: int) -> NeighbourMap:
    """parent, child_left, child_right (ADR-0023 D11), filled level by level: the children of r are 2r+1 and 2r+2."""
    parent = {"parent": (rank - 1) // 2} if rank else {}
    children = {"child_left": 2 * rank + 1, "child_right": 2 * rank + 2}
    return parent | {name: child for name, child in children.items() if child < size}
