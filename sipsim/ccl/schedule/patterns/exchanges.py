"""Between all pairs of ranks, straight over the route of fewest links."""

from collections.abc import Callable
from fractions import Fraction

from sipsim.ccl.group import Group, pairwise_wiring, towards
from sipsim.ccl.schedule.patterns.paths import Blocks
from sipsim.ccl.schedule.steps import REPLACE, Transfer, Wiring


def pairs_wiring(group: Group) -> Wiring:
    """A queue pair between all ranks."""
    return pairwise_wiring({(a, b) for b in range(group.size) for a in range(b)})


def all_pairs(size: int, blocks_of: Callable[[int, int], Blocks], first: int, combine: int = REPLACE) -> list[Transfer]:
    """In each round a rank sends to the rank so many behind it as all do: to neighbours in a ring first, so that what
    comes from the farthest is taken last. ``blocks_of``: source and destination.
    """
    shifts = sorted(range(1, size), key=lambda shift: (min(shift, size - shift), shift))
    return [
        Transfer(first + turn, rank, towards((rank + shift) % size), blocks_of(rank, (rank + shift) % size), combine)
        for rank in range(size)
        for turn, shift in enumerate(shifts, 1)
    ]


def busiest_ring_load(group: Group) -> Fraction | None:
    """Messages over the busiest link of a ring of neighbours when each rank sends one to each other; None elsewhere.

    Those for a rank ``d`` links on pass ``d`` links, up to half way round; exactly half way they go by port E.
    """
    if not group.is_ring or group.grid[1] != 1:
        return None
    half = group.size // 2
    return Fraction(half * (half + 1), 2)
