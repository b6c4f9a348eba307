"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005).

An all-reduce is a reduce-scatter in which ranks a power of two apart exchange halves of what they are still to combine,
the nearest first and most, then an all-gather in which they exchange all that they have, the nearest last. For G ranks,
``2 log2 G`` rounds, or half of them for a reduce-scatter or an all-gather alone; if log2 G is no whole number, the
floor of it and two more rounds. Each rank that takes part sends ``2 (G - 1) / G`` n for an all-reduce of n elements and
``(G - 1)`` n for the others of n a rank; each rank that does not sends all it has once. On a ring a step loads its
busiest link alike whatever its distance, with ``n / 2`` or ``G n / 2``: in all up to ``log2 G`` n for an all-reduce.

Use it for tensors of middle size, and where ranks are joined by a hypercube or a torus of sides that are powers of two.
All ranks have the same bits: each block is combined at one rank and then copied.
"""

from fractions import Fraction

from sipsim.collectives.patterns.lines import Blocks
from sipsim.collectives.patterns.pairs import Fold, all_gather, doubling, exchange_load, halving, has_load
from sipsim.collectives.patterns.pairs import exchange_wiring as wiring
from sipsim.collectives.schedule import VECTOR, Schedule, flow_of
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "busiest_link", "schedule", "wiring"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
RANK_IDENTICAL = True


def schedule(task: Task) -> Schedule:
    """One flow."""
    fold, ends = Fold.of(task.size), wiring(task.group)
    if task.collective.cut == VECTOR:
        every: Blocks = tuple(range(fold.members))
        transfers = fold.hand_over(every) + halving(fold, tuple, 1) + doubling(fold, tuple, 1 + fold.levels)
        transfers += fold.hand_back({out: every for out, _ in fold.pairs}, 1 + 2 * fold.levels)
        return [flow_of(1, fold.members, transfers, ends)]
    if not task.collective.combines:
        return [flow_of(1, 1, all_gather(task.size), ends)]
    transfers = fold.hand_over(tuple(range(task.size))) + halving(fold, fold.ranks_of, 1)
    transfers += fold.hand_back({out: (out,) for out, _ in fold.pairs}, 1 + fold.levels)
    return [flow_of(1, 1, transfers, ends)]


def busiest_link(task: Task) -> Fraction | None:
    """Elements over the busiest link of a ring of a power of two of SIPs; None elsewhere."""
    if not has_load(task.group):
        return None
    levels = range((task.size - 1).bit_length())
    moved = 2 * task.n_elem if task.collective.cut == VECTOR else task.n_elem * task.size
    return exchange_load(task.size, [Fraction(moved, 2 << level) for level in levels])
