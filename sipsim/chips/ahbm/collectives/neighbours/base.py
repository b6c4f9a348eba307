"""The interface of a built-in neighbour table: a function from a rank and the number of ranks to ``{direction: rank}``.

A rank is a PE in the wiring (``Plan.pe_of_rank``). No table makes a rank its own neighbour.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.neighbours.neighbours import NeighbourMap
from sipsim.core.registry.registry import Registry

Builder = Callable[[int, int], NeighbourMap]


class Table(NamedTuple):
    """``build(rank, size)`` returns the neighbours of one rank.

    ``square``: takes square numbers of ranks only. ``one_way``: a direction's opposite only ever receives.
    ``self_wired``: it is empty, and the algorithm must export ``neighbors()``.
    """

    build: Builder
    square: bool = False
    one_way: bool = False
    self_wired: bool = False

    def refuses(self, size: int, most: int) -> str | None:
        """Why the table cannot wire ``size`` ranks, with the nearest numbers up to ``most`` that it can; else None."""
        side = math.isqrt(size)
        if not self.square or side * side == size:
            return None
        squares = [str(n * n) for n in (side, side + 1) if n * n <= most]
        return f"needs a square number of ranks, and there are {size}; set world_size to {' or '.join(squares)}"


TABLES: Registry[Table] = Registry(
    "neighbour table",
    {
        "sipsim.chips.ahbm.collectives.neighbours.grids": (
            "torus_2d",
            "mesh_2d",
            "mesh_2d_no_wrap",
        ),
        "sipsim.chips.ahbm.collectives.neighbours.none": (
            "custom",
            "none",
        ),
        "sipsim.chips.ahbm.collectives.neighbours.rings": (
            "ring_1d",
            "ring_1d_unidir",
        ),
        "sipsim.chips.ahbm.collectives.neighbours.trees": ("tree_binary",),
    },
)


def table(
    name: str, *, square: bool = False, one_way: bool = False, self_wired: bool = False
) -> Callable[[Builder], Builder]:
    """Decorator that registers a builder as the table ``name``; two names are two decorators."""

    def add(build: Builder) -> Builder:
        TABLES.register(name, build)(Table(build, square, one_way, self_wired))
        return build

    return add
