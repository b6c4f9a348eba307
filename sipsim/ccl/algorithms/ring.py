"""A ring in one direction: reduce-scatter and all-gather of 1/G each (Patarasuk and Yuan, JPDC 2009).

In step ``s`` rank ``i`` passes on the block that it got in step ``s - 1``, first adding its own values, then as it is.
A link carries ``2 (G - 1) / G`` of the tensor for an all-reduce, half of that for a reduce-scatter or an all-gather, in
``2 (G - 1)`` or ``G - 1`` steps. Each block is combined in the order of the ring, at one rank after the other, and
then copied: all ranks have the same bits.
"""

from sipsim.ccl.collectives.group import Task
from sipsim.ccl.group import Group
from sipsim.ccl.schedule.kernel import kernel, kernel_args
from sipsim.ccl.schedule.rings import circulate
from sipsim.ccl.schedule.steps import Flow, Schedule, Step, Wiring

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "kernel", "kernel_args", "schedule", "wiring"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
RANK_IDENTICAL = True


def wiring(group: Group) -> Wiring:
    """All ranks in a ring."""
    return group.ring_wiring


def schedule(task: Task) -> Schedule:
    """One flow, in the direction of the ring."""
    group = task.group
    send, recv = group.ring_directions
    places = {rank: place for place, rank in enumerate(group.ring_order)}

    def steps_of(rank: int) -> list[Step]:
        return circulate(task, places[rank], group.ring_order, send, recv)

    return [Flow(1, task.size if task.collective.cut == "vector" else 1, steps_of)]
