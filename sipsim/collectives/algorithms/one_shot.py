"""An all-reduce in one exchange: each rank sends its whole tensor directly to each other rank and combines all tensors.

For G ranks and n elements: ``G - 1`` rounds that do not depend on each other, since original values are sent. Each rank
sends ``(G - 1)`` n. On a ring the busiest link carries ``G (G + 2) / 8`` n for an even number of SIPs and
``(G G - 1) / 8`` n for an odd number, as in :mod:`.direct`. The latency is one path, the minimum for any algorithm,
plus the cost of ``G - 1`` messages. Use it for the smallest tensors on few ranks.

With three or more ranks, results of floating types may differ between ranks in the last bits: each rank combines its
own values with the received values in the order of :mod:`.direct`, its predecessor first.
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
    """Return one flow."""
    transfers = all_pairs(task, lambda src, dst: (original(0),), 0, OWN_FIRST)
    return [flow_of(1, 1, transfers, wiring(task.group))]


def busiest_link(task: Task) -> Fraction | None:
    """Return the elements over the busiest link of a ring of neighbours; None for other groups."""
    load = busiest_ring_load(task.group)
    return None if load is None else load * task.n_elem
