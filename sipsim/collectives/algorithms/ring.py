"""A ring in one direction: reduce-scatter and all-gather of 1/G each (Patarasuk and Yuan, JPDC 2009), and chains.

In step ``s`` rank ``i`` passes on the block that it got in step ``s - 1``, first adding its own values, then as it is.
For G ranks and units of n elements, in rounds and elements over the busiest link of a ring of neighbours:

* all_reduce: ``2 (G - 1)`` rounds, ``2 (G - 1) / G`` n; reduce_scatter and all_gather: ``G - 1`` rounds, ``(G - 1)`` n.
* broadcast and reduce: a chain from or to the root in k pieces, ``G + k - 2`` rounds, n.
* gather and scatter: along the same chain, ``G - 1`` rounds, ``(G - 1)`` n.
* all_to_all: each block goes on hop by hop, ``G - 1`` rounds, ``G (G - 1) / 2`` n.

Each round costs one message and its path. Use it where links are used in one direction only, or as a measure of the
others. Each block is combined in the order of the ring, at one rank after the other, and then copied: all ranks have
the same bits.
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
    """All ranks in a ring."""
    return wiring_of([group.ring])


def schedule(task: Task) -> Schedule:
    """One flow, in the direction of the ring."""
    return [ring_flow(task, task.group.ring, wiring(task.group))]


def busiest_link(task: Task) -> Fraction | None:
    """Elements over the busiest link of a ring of links; None elsewhere."""
    return busiest_ring_link(task) if task.group.is_ring else None
