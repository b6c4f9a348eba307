"""Recursive doubling: in each step ranks a power of two apart exchange all that they have (Thakur, Rabenseifner and
Gropp 2005).

``log2 G`` rounds for G ranks; if that is no whole number, its floor and two more. Each rank that takes part sends
``log2 G`` n for an all-reduce of n elements, ``(G - 1)`` n for an all-gather of n a rank. The path of a step 2^k ranks
wide is as long as those ranks are apart: ``G / 2`` links for the last one in a ring, which is its busiest step.
Latency is a message a step, and ``G - 1`` links of a ring in all. Use it for small tensors.

All ranks have the same bits: when ranks have exchanged with those that differ in the lowest ``k`` bits, all that differ
in these only have the same; of two that exchange, both combine the values of the lower with those of the higher, in
this order.
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
    """One flow of whole vectors, or of all blocks that a rank has."""
    is_vector = task.collective.cut == VECTOR
    transfers = _all_reduce(Fold.of(task.size)) if is_vector else all_gather(task.size)
    return [flow_of(1, 1, transfers, wiring(task.group))]


def _all_reduce(fold: Fold) -> list[Transfer]:
    transfers = fold.hand_over((0,))
    for level in range(fold.levels):
        for bit, combine in ((0, ARRIVED_FIRST), (1, OWN_FIRST)):
            places = [place for place in range(fold.members) if place >> level & 1 == bit]
            transfers += fold.exchange(level, dict.fromkeys(places, (0,)), 1 + level, combine)
    return transfers + fold.hand_back({out: (0,) for out, _ in fold.pairs}, 1 + fold.levels)


def busiest_link(task: Task) -> Fraction | None:
    """Elements over the busiest link of a ring of a power of two of SIPs; None elsewhere."""
    if not has_load(task.group):
        return None
    levels = range((task.size - 1).bit_length())
    if task.collective.cut == VECTOR:
        return exchange_load(task.size, [Fraction(task.n_elem) for _ in levels])
    return exchange_load(task.size, [Fraction(task.n_elem * task.size, 2 << level) for level in levels])
