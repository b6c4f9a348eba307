"""Rings along the rows and along the columns of a grid at once: the multi-dimensional ring, or bucket, algorithm
(Jain and Sabharwal, EuroMPI 2010; Sack and Gropp, EuroMPI 2012). On a mesh, lines replace the rings.

A flow reduce-scatters along one axis, then along the other, and gathers in the reverse order; a second flow begins with
the other axis. On a torus each flow exists twice, once per direction. The shares of the flows put the same load on all
links. For a grid of W x H ranks, G = W H, and units of n elements, over every link of a torus and of a mesh:

* all_reduce: ``(G - 1) / (2 G)`` n and ``(G - 1) / (2 G - W - H)`` n, the minimum for the total of all links, in
  ``2 (W + H - 2)`` and ``4 (W + H - 2)`` rounds.
* reduce_scatter and all_gather: half as many rounds; ``(G - 1) / 4`` n over every link of a torus. On a mesh the links
  at one end carry most.
* broadcast and reduce: four trees without a common link on a torus, ``n / 4`` over a link; two on a mesh, ``n / 2``; in
  k pieces and ``W + H + k - 2`` rounds on a torus.

Use it for large tensors on grids. Groups in one row or column have one axis. All ranks get the same bits: a block is
combined in one order and then copied.
"""

from fractions import Fraction

from sipsim.collectives.group import Group, wiring_of
from sipsim.collectives.patterns.grids import (
    Axis,
    balanced_weights,
    disjoint_trees,
    grid_flow,
    link_share,
    reversed_axis,
    rounds_of,
)
from sipsim.collectives.patterns.trees import tree_flow
from sipsim.collectives.schedule import VECTOR, Flow, Schedule, Wiring, pieces_of, staggered
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "busiest_link", "schedule", "wiring"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
RANK_IDENTICAL = True


def wiring(group: Group) -> Wiring:
    """Connect the ranks along rows and along columns."""
    return wiring_of([*group.rows, *group.columns])


def schedule(task: Task) -> Schedule:
    """Return the flows: one per first axis and direction, or one per tree with a root."""
    axes, ends = _axes(task.group), wiring(task.group)
    if not axes:
        return [Flow(1, 1, lambda rank: [])]
    if task.collective.has_root:
        trees = disjoint_trees(axes, task.root)
        share, depth = task.n_elem * task.itemsize // len(trees), max(tree.height[task.root] for tree in trees)
        copies = pieces_of(share, depth, workers=-(-task.workers // len(trees)))
        return [tree_flow(task, tree, 1, ends, copies) for tree in trees]
    flows = []
    for weight, order in _orders(task, axes):
        directed = [order, [*map(reversed_axis, order)]] if any(axis[0].closed for axis in order) else [order]
        flows += [grid_flow(task, each, 2 * weight // len(directed), ends) for each in directed]
    return flows if _is_even(axes) else [_overlapped(task, axes, flow, flows) for flow in flows]


def _axes(group: Group) -> list[Axis]:
    return [axis for axis in (group.rows, group.columns) if axis]


def _orders(task: Task, axes: list[Axis]) -> list[tuple[int, list[Axis]]]:
    """Return the orders of the axes, each with the weight of its flows."""
    if len(axes) < 2:
        return [(1, axes)]
    weights = balanced_weights(task, *axes)
    return [(weight, order) for weight, order in zip(weights, (axes, axes[::-1]), strict=True) if weight]


def _is_even(axes: list[Axis]) -> bool:
    """Return whether all links carry the same load in every round: all axes are rings of equal length."""
    return all(axis[0].closed and len(axis[0].ranks) == len(axes[0][0].ranks) for axis in axes)


def _overlapped(task: Task, axes: list[Axis], flow: Flow, flows: Schedule) -> Flow:
    """Pipeline a flow in pieces, so that links which idle in half of one piece's rounds carry the next piece."""
    whole = sum(each.weight for each in flows)
    unit = task.n_elem if task.collective.cut == VECTOR else task.n_elem * task.size
    rounds = sum(rounds_of(axis[0]) for axis in axes) * (2 if task.collective.name == "all_reduce" else 1)
    nbytes = unit * task.itemsize * flow.weight // whole
    pieces = pieces_of(nbytes, rounds, task.size, -(-task.workers // len(flows)))
    return staggered(flow, pieces, max(rounds // 2, 1))


def busiest_link(task: Task) -> Fraction | None:
    """Return the elements over the busiest link of a grid of links; None for other groups."""
    axes = _axes(task.group)
    if not axes or not all(axis[0].has_links for axis in axes):
        return None
    if task.collective.has_root:
        trees = 2 * len(axes) if all(axis[0].closed for axis in axes) else len(axes)
        return Fraction(task.n_elem, trees)
    whole = task.n_elem if task.collective.name == "all_reduce" else task.n_elem * task.size
    if len(axes) == 1:
        return link_share(task, axes[0]) * whole
    a, b = balanced_weights(task, *axes)
    return link_share(task, axes[0]) * (a + Fraction(b, len(axes[1][0].ranks))) / (a + b) * whole
