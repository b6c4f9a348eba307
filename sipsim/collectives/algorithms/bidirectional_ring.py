"""A ring in both directions at once: half of the elements each way, each as in :mod:`.ring`.

Rounds are those of :mod:`.ring`, and a link carries half as much: ``(G - 1) / G`` n for an all-reduce of n elements.
For all_reduce, reduce_scatter and all_gather that is the least that a ring allows. In an all-to-all each block goes the
shorter way, in ``G / 2`` rounds each way, ``G G / 8`` n over a link for an even number of ranks and ``(G G - 1) / 8`` n
for an odd one, the least again. A broadcast goes by halves all the way round both ways, ``n / 2`` over a link and
``G + k - 2`` rounds; a short one goes whole half way round each way, ``n`` over a link and ``G / 2`` rounds, and so
does a short reduction.

Use it on rings. All ranks have the same bits: what is combined is combined in one order, at one rank after the other.
"""

from fractions import Fraction

from sipsim.collectives.group import Group, wiring_of
from sipsim.collectives.patterns.grids import busiest_ring_link, ring_flow
from sipsim.collectives.patterns.lines import EVERY as COLLECTIVES
from sipsim.collectives.patterns.lines import shortest_all_to_all
from sipsim.collectives.patterns.trees import Tree, path_edges
from sipsim.collectives.schedule import MESSAGE_BYTES, Flow, Schedule, Wiring, flow_of
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "busiest_link", "schedule", "wiring"]

RANK_IDENTICAL = True


def wiring(group: Group) -> Wiring:
    """All ranks in a ring."""
    return wiring_of([group.ring])


def schedule(task: Task) -> Schedule:
    """A flow each way, or for a short broadcast or reduction one flow that goes both ways."""
    if _goes_half_way(task):
        return [_half_way(task)]
    ring, ends = task.group.ring, wiring(task.group)
    if task.collective.name == "all_to_all":
        return [flow_of(1, 2, shortest_all_to_all(ring), ends, True)]
    return [ring_flow(task, path, ends) for path in (ring, ring.reversed)]


def busiest_link(task: Task) -> Fraction | None:
    """Elements over the busiest link of a ring of links; None elsewhere."""
    if not task.group.is_ring:
        return None
    if task.collective.name == "all_to_all":
        return Fraction(task.size * task.size // 4 * task.n_elem, 2)
    return Fraction(task.n_elem) if _goes_half_way(task) else busiest_ring_link(task) / 2


def _goes_half_way(task: Task) -> bool:
    """The other half of the ring costs more messages than halves of the data save: ``(G - 2) / 2`` > n / 2."""
    is_rooted = task.collective.cut == "vector" and task.collective.has_root
    return is_rooted and task.n_elem * task.itemsize < (task.size - 2) * MESSAGE_BYTES


def _half_way(task: Task) -> Flow:
    ring = task.group.ring.starting_at(task.root)
    ahead = task.size // 2 + 1
    ways = (ring._replace(ranks=ring.ranks[:ahead]), ring._replace(ranks=ring.ranks[ahead:] + ring.ranks[:1]))
    tree = Tree(task.root, [edge for way in ways for edge in path_edges(way)])
    transfers = tree.reduce((0,))[0] if task.collective.combines else tree.broadcast((0,))
    return flow_of(1, 1, transfers, wiring(task.group))
