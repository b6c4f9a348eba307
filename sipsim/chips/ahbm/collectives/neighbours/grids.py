"""Ranks in a square, row by row from the north-west: rank = row * width + column."""

import math

from sipsim.chips.ahbm.collectives.neighbours.base import table
from sipsim.chips.ahbm.collectives.neighbours.neighbours import NeighbourMap

STEPS = {"N": (0, -1), "S": (0, 1), "E": (1, 0), "W": (-1, 0)}


@table("mesh_2d", square=True)
@table("torus_2d", square=True)
def wrapping_grid(rank: int, size: int) -> NeighbourMap:
    """N, S, E, W around both dimensions; ADR-0023 D3 wraps its mesh. In 2 x 2 each neighbour is joined twice."""
    side = math.isqrt(size)
    x, y = rank % side, rank // side
    if side == 1:
        return {}
    return {name: (y + dy) % side * side + (x + dx) % side for name, (dx, dy) in STEPS.items()}


@table("mesh_2d_no_wrap", square=True)
def mesh_2d_no_wrap(rank: int, size: int) -> NeighbourMap:
    """N, S, E, W; a rank at an edge has no neighbour beyond it."""
    side = math.isqrt(size)
    x, y = rank % side, rank // side
    steps = {name: (x + dx, y + dy) for name, (dx, dy) in STEPS.items()}
    return {name: v * side + u for name, (u, v) in steps.items() if 0 <= u < side and 0 <= v < side}
