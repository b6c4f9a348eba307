"""A ring in one direction: reduce-scatter and all-gather of 1/G each (Patarasuk and Yuan, JPDC 2009), and chains.

In step ``s`` each rank forwards the block received in step ``s - 1``: combined with its values in the reduce-scatter,
unchanged in the all-gather. Rounds, and elements over the busiest link of a ring of neighbours, for G ranks and units
of n elements:

* all_reduce: ``2 (G - 1)`` rounds, ``2 (G - 1) / G`` n; reduce_scatter and all_gather: ``G - 1`` rounds, ``(G - 1)`` n.
* broadcast and reduce: a chain from or to the root in k pieces, ``G + k - 2`` rounds, n.
* gather and scatter: along the same chain, ``G - 1`` rounds, ``(G - 1)`` n.
* all_to_all: each block is forwarded hop by hop, ``G - 1`` rounds, ``G (G - 1) / 2`` n.

Each round costs one message and its path. Use it where links carry data in one direction only, or as a baseline. All
ranks get the same bits: each block is combined in the order of the ring, rank by rank, and then copied.
"""

from fractions import Fraction

from sipsim.collectives.group import Group, wiring_of
from sipsim.collectives.patterns.grids import busiest_ring_link, ring_flow
from sipsim.collectives.patterns.lines import EVERY as COLLECTIVES
from sipsim.collectives.schedule import Schedule, Wiring
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "busiest_link", "schedule", "wiring"]

RANK_IDENTICAL = True


def wiring(group: Group) -> Wiring:
    """Connect all ranks in a ring."""
    return wiring_of([group.ring])


def schedule(task: Task) -> Schedule:
    """Return one flow, in the direction of the ring."""
    return [ring_flow(task, task.group.ring, wiring(task.group))]


def busiest_link(task: Task) -> Fraction | None:
    """Return the elements over the busiest link of a ring of links; None for other groups."""
    return busiest_ring_link(task) if task.group.is_ring else None
