"""Recursive doubling: in each step, ranks a power of two apart exchange all their data (Thakur, Rabenseifner and
Gropp 2005).

``log2 G`` rounds for G ranks; if log2 G is not an integer, its floor and two more rounds. Each participating rank sends
``log2 G`` n for an all-reduce of n elements, ``(G - 1)`` n for an all-gather of n per rank. In the step between ranks
2^k apart a message passes 2^k links of a ring: ``G / 2`` links in the last step, the busiest one. The latency is one
message per step and, on a ring, ``G - 1`` links in total. Use it for small tensors.

All ranks get the same bits: both ranks of an exchange combine the values of the lower rank with those of the higher
rank, in this order. So after ``k`` steps, ranks whose numbers differ only in the lowest ``k`` bits have equal values.
"""

from fractions import Fraction

from sipsim.collectives.patterns.pairs import Fold, all_gather, exchange_load, has_load
from sipsim.collectives.patterns.pairs import exchange_wiring as wiring
from sipsim.collectives.schedule import ARRIVED_FIRST, OWN_FIRST, VECTOR, Schedule, Transfer, flow_of
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "busiest_link", "schedule", "wiring"]

COLLECTIVES = ("all_reduce", "all_gather")
RANK_IDENTICAL = True


def schedule(task: Task) -> Schedule:
    """Return one flow, of whole vectors or of all blocks that a rank has."""
    is_vector = task.collective.cut == VECTOR
    transfers = _all_reduce(Fold.of(task.size)) if is_vector else all_gather(task.size)
    return [flow_of(1, 1, transfers, wiring(task.group))]


def _all_reduce(fold: Fold) -> list[Transfer]:
    transfers = fold.fold_in((0,))
    for level in range(fold.levels):
        for bit, combine in ((0, ARRIVED_FIRST), (1, OWN_FIRST)):
            places = [place for place in range(fold.members) if place >> level & 1 == bit]
            transfers += fold.exchange(level, dict.fromkeys(places, (0,)), 1 + level, combine)
    return transfers + fold.fold_out({out: (0,) for out, _ in fold.pairs}, 1 + fold.levels)


def busiest_link(task: Task) -> Fraction | None:
    """Return the elements over the busiest link of a ring whose SIPs are a power of two in number; else None."""
    if not has_load(task.group):
        return None
    levels = range((task.size - 1).bit_length())
    if task.collective.cut == VECTOR:
        return exchange_load(task.size, [Fraction(task.n_elem) for _ in levels])
    return exchange_load(task.size, [Fraction(task.n_elem * task.size, 2 << level) for level in levels])
