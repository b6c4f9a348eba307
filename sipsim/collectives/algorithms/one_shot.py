"""An all-reduce in one exchange: each rank sends its whole tensor straight to each other one, and combines all of them.

For G ranks and n elements ``G - 1`` rounds, of which none waits for another: what is sent is what a rank had before.
Each rank sends ``(G - 1)`` n. The busiest link of a ring of an even number of SIPs carries ``G (G + 2) / 8`` n, of an
odd one ``(G G - 1) / 8`` n, as in :mod:`.direct`. Latency is one path, which is the least that any algorithm can have,
and the cost of ``G - 1`` messages. Use it for the smallest tensors on few ranks.

From three ranks on, ranks may differ in the last bits of floating types: each begins with its own values and combines
them with those of the others in the order of :mod:`.direct`, the one before it first.
"""

from fractions import Fraction

from sipsim.collectives.patterns.pairs import all_pairs, busiest_ring_load
from sipsim.collectives.patterns.pairs import pairs_wiring as wiring
from sipsim.collectives.schedule import OWN_FIRST, Schedule, flow_of, original
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "busiest_link", "schedule", "wiring"]

COLLECTIVES = ("all_reduce",)
RANK_IDENTICAL = False


def schedule(task: Task) -> Schedule:
    """One flow."""
    transfers = all_pairs(task, lambda src, dst: (original(0),), 0, OWN_FIRST)
    return [flow_of(1, 1, transfers, wiring(task.group))]


def busiest_link(task: Task) -> Fraction | None:
    """Elements over the busiest link of a ring of neighbours; None elsewhere."""
    load = busiest_ring_load(task.group)
    return None if load is None else load * task.n_elem
