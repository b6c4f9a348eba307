"""Direct exchange: each rank sends to each other rank, over the route with the fewest links.

In round ``s`` rank ``i`` sends to ``i + s`` and receives from ``i - s``, so that no two ranks send to the same rank;
with a root, one rank per round. For G ranks and units of n elements: ``G - 1`` rounds, ``2 (G - 1)`` for an all-reduce
(a reduce-scatter and an all-gather). Each rank sends ``(G - 1)`` n, or ``2 (G - 1) / G`` n for an all-reduce. On a ring
the busiest link carries ``G (G + 2) / 8`` units for an even number of SIPs and ``(G G - 1) / 8`` for an odd number:
near the minimum for an all-to-all, more than :mod:`.ring` for others.

No message depends on a received message, so the latency is one path and G - 1 messages per rank. Use it for all_to_all
and for small tensors. All ranks get the same bits: each block is combined at one rank, in one order, then copied.
"""

from fractions import Fraction

from sipsim.collectives.group import towards
from sipsim.collectives.patterns.lines import EVERY as COLLECTIVES
from sipsim.collectives.patterns.pairs import all_pairs, busiest_ring_load, nearest_first, rounds_of_all_pairs
from sipsim.collectives.patterns.pairs import pairs_wiring as wiring
from sipsim.collectives.schedule import OWN_FIRST, REPLACE, VECTOR, Schedule, Transfer, flow_of, joined
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "busiest_link", "schedule", "wiring"]

RANK_IDENTICAL = True


def schedule(task: Task) -> Schedule:
    """Return one flow."""
    size = task.size
    pieces = size if task.collective.name == "all_reduce" else 1
    ends = wiring(task.group)
    if task.collective.has_root:
        return [flow_of(1, pieces, _with_root(task), ends)]
    if task.collective.name == "all_to_all":
        return [flow_of(1, pieces, all_pairs(task, lambda src, dst: (src * size + dst,), 0), ends)]
    phases = [all_pairs(task, lambda src, dst: (dst,), 0, OWN_FIRST)] if task.collective.combines else []
    if task.collective.name != "reduce_scatter":
        phases.append(all_pairs(task, lambda src, dst: (src,), rounds_of_all_pairs(task)))
    return [flow_of(1, pieces, joined(*phases), ends)]


def _with_root(task: Task) -> list[Transfer]:
    """Return transfers between the root and one other rank per round, the nearest rank first."""
    name, root, combine = task.collective.name, task.root, OWN_FIRST if task.collective.combines else REPLACE
    transfers = []
    for turn, rank in enumerate(nearest_first(task.group, root), 1):
        block = 0 if task.collective.cut == VECTOR else rank
        src, dst = (root, rank) if name in ("broadcast", "scatter") else (rank, root)
        transfers.append(Transfer(turn, src, towards(dst), (block,), combine))
    return transfers


def busiest_link(task: Task) -> Fraction | None:
    """Return the elements over the busiest link of a ring of neighbours; None for other groups and with a root."""
    load = None if task.collective.has_root else busiest_ring_load(task.group)
    if load is None:
        return None
    return load * (Fraction(2 * task.n_elem, task.size) if task.collective.cut == VECTOR else task.n_elem)
