"""Recursive halving and doubling (Thakur, Rabenseifner and Gropp 2005).

An all-reduce is a reduce-scatter (ranks a power of two apart exchange halves of the remaining blocks, first with the
nearest rank, when most data are sent), then an all-gather (they exchange all their blocks, with the nearest rank last).
For G ranks this takes ``2 log2 G`` rounds, half of that for a reduce-scatter or an all-gather alone; if log2 G is not
an integer, its floor and two more rounds. Each participating rank sends ``2 (G - 1) / G`` n for an all-reduce of n
elements, or ``(G - 1)`` n for the others with n per rank; each other rank sends all its data once. On a ring every step
puts the same load on its busiest link, ``n / 2`` or ``G n / 2``: in all up to ``log2 G`` n for an all-reduce.

Use it for tensors of medium size, and on hypercubes or tori whose sides are powers of two. All ranks get the same bits:
each block is combined at one rank and then copied.
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
    """Return one flow."""
    fold, ends = Fold.of(task.size), wiring(task.group)
    if task.collective.cut == VECTOR:
        every: Blocks = tuple(range(fold.members))
        transfers = fold.fold_in(every) + halving(fold, tuple, 1) + doubling(fold, tuple, 1 + fold.levels)
        transfers += fold.fold_out({out: every for out, _ in fold.pairs}, 1 + 2 * fold.levels)
        return [flow_of(1, fold.members, transfers, ends)]
    if not task.collective.combines:
        return [flow_of(1, 1, all_gather(task.size), ends)]
    transfers = fold.fold_in(tuple(range(task.size))) + halving(fold, fold.ranks_of, 1)
    transfers += fold.fold_out({out: (out,) for out, _ in fold.pairs}, 1 + fold.levels)
    return [flow_of(1, 1, transfers, ends)]


def busiest_link(task: Task) -> Fraction | None:
    """Return the elements over the busiest link of a ring whose SIPs are a power of two in number; else None."""
    if not has_load(task.group):
        return None
    levels = range((task.size - 1).bit_length())
    moved = 2 * task.n_elem if task.collective.cut == VECTOR else task.n_elem * task.size
    return exchange_load(task.size, [Fraction(moved, 2 << level) for level in levels])
