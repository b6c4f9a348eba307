"""The least time of a call with few bytes, from the one message that goes farthest. Pure.

What a rank ends with depends on what another had. So some value of the other is loaded, leaves in a message, passes
the way between both SIPs, is taken from its slot, combined if the collective combines, and stored; in this order, each
behind the one before, by whatever algorithm and however many ranks pass it on. The bound is the sum of these for the
two ranks that are farthest apart, for one element, where nothing else is under way, no credit is waited for, and no
page or row of a memory is missed. A PE that has something to do until the message comes needs no wake-up, so there is
none in it. Messages go by the system's routes, from and to the PEs at the same place; these have the fewest links, so
with links of more than one kind a relay may be faster, and there is no bound.
"""

from typing import NamedTuple

from sipsim.chips.ahbm.collectives.cost import Commands
from sipsim.chips.ahbm.collectives.launch import Place
from sipsim.collectives.group import route, towards
from sipsim.collectives.schedule import units
from sipsim.collectives.semantics import Task

Ps = int


class LatencyBound(NamedTuple):
    """In ps: the value's ``load``; the ``send``, the ``way`` and the ``latch`` of the message; what is ``combined``, 0
    if nothing is; and the ``store``. ``ranks``: where from and to.
    """

    ranks: tuple[int, int]
    load: Ps
    send: Ps
    way: Ps
    latch: Ps
    combined: Ps
    store: Ps

    @property
    def ps(self) -> Ps:
        """All of it."""
        return sum(self[1:])


def latency_bound(task: Task, place: Place, commands: Commands) -> LatencyBound | None:
    """Of a task whose worker is at ``place`` on each SIP; None where no rank needs what another has, or where links are
    of several kinds.
    """
    nbytes = task.itemsize

    def way_ps(ranks: tuple[int, int]) -> Ps:
        ways = tuple(route(task.group, *ranks, towards(ranks[1])))
        return commands.head_ps(place, ways) + commands.drain_ps(place, ways, nbytes)

    pairs = dependences(task)
    if not pairs or len(set(task.group.system.link_kinds)) > 1:
        return None
    farthest = max(pairs, key=way_ps)
    return LatencyBound(
        farthest,
        commands.issue_ps + sum(commands.load_ps(nbytes)),
        commands.issue_ps,
        way_ps(farthest),
        commands.latch_ps(nbytes),
        commands.issue_ps + commands.math_ps(nbytes) if task.collective.combines else 0,
        commands.issue_ps + commands.store_ps(nbytes),
    )


def dependences(task: Task) -> list[tuple[int, int]]:
    """The pairs of ranks of which the second one's result depends on what the first one has, in order."""
    collective, size, root = task.collective, task.size, task.root
    found: set[tuple[int, int]] = set()
    for unit in range(units(collective.cut, size)):
        holders = [rank for rank in range(size) if collective.holds(unit, rank, size, root)]
        for rank in range(size):
            is_own = rank in holders and not collective.combines
            if collective.needs(unit, rank, size, root) and not is_own:
                found.update((holder, rank) for holder in holders if holder != rank)
    return sorted(found)
