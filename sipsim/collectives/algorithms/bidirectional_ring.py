"""A ring in both directions at once: half of the elements in each direction, each half as in :mod:`.ring`.

There are as many rounds as in :mod:`.ring`, and a link carries half as much: ``(G - 1) / G`` n for an all-reduce of n
elements, the minimum on a ring; reduce_scatter and all_gather are also minimal. In an all-to-all each block takes the
shorter direction, in ``G / 2`` rounds per direction. A link then carries ``G G / 8`` n for an even number of ranks and
``(G G - 1) / 8`` n for an odd number, also the minimum. A broadcast sends each half, in k pieces, once around the ring:
``n / 2`` over a link and ``G + k - 2`` rounds. A short broadcast or reduction sends all data half way round in both
directions: ``n`` over a link and ``G / 2`` rounds.

Use it on rings. All ranks get the same bits: each block is combined in one order, rank by rank.
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
    """Connect all ranks in a ring."""
    return wiring_of([group.ring])


def schedule(task: Task) -> Schedule:
    """Return one flow per direction, or one flow in both directions for a short broadcast or reduction."""
    if _is_short(task):
        return [_half_way(task)]
    ring, ends = task.group.ring, wiring(task.group)
    if task.collective.name == "all_to_all":
        return [flow_of(1, 2, shortest_all_to_all(ring), ends, True)]
    return [ring_flow(task, path, ends) for path in (ring, ring.reversed)]


def busiest_link(task: Task) -> Fraction | None:
    """Return the elements over the busiest link of a ring of links; None for other groups."""
    if not task.group.is_ring:
        return None
    if task.collective.name == "all_to_all":
        return Fraction(task.size * task.size // 4 * task.n_elem, 2)
    return Fraction(task.n_elem) if _is_short(task) else busiest_ring_link(task) / 2


def _is_short(task: Task) -> bool:
    """Return whether ``(G - 2) / 2`` more rounds would cost more time than sending half the data saves."""
    is_rooted = task.collective.cut == "vector" and task.collective.has_root
    return is_rooted and task.n_elem * task.itemsize < (task.size - 2) * MESSAGE_BYTES


def _half_way(task: Task) -> Flow:
    ring = task.group.ring.starting_at(task.root)
    ahead = task.size // 2 + 1
    halves = (ring._replace(ranks=ring.ranks[:ahead]), ring._replace(ranks=ring.ranks[ahead:] + ring.ranks[:1]))
    tree = Tree(task.root, [edge for half in halves for edge in path_edges(half)])
    transfers = tree.reduce((0,))[0] if task.collective.combines else tree.broadcast((0,))
    return flow_of(1, 1, transfers, wiring(task.group))
