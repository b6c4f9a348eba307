"""A line in both directions at once, for groups whose last rank has no link to the first.

For G ranks and units of n elements, in rounds and elements over the busiest link:

* all_reduce: a reduction from both ends to the middle and a broadcast back, in k pieces, ``2 (G / 2 + k)`` rounds, n:
  pieces go out while others come in. Each link must carry n both ways, so that is the least that a line allows.
* broadcast and reduce: from or to the root both ways, ``G + k`` rounds or, from the middle, ``G / 2 + 2 k``; n.
* all_gather and reduce_scatter: every block both ways, or combined from both ends towards its rank, ``2 (G - 1)``
  rounds, one way in each; ``(G - 1)`` n, the least at the ends.
* gather and scatter: from both sides of the root, each in a flow of its own rounds; n for each rank of the longer side.

Use it on lines; in a ring of links it leaves one of them idle. All ranks have the same bits: each block is combined at
one rank, in one order, then copied.
"""

from fractions import Fraction

from sipsim.collectives.group import Group, wiring_of
from sipsim.collectives.patterns.lines import Path, gather, line_all_gather, line_reduce_scatter, scatter
from sipsim.collectives.patterns.trees import Tree, path_edges, tree_flow
from sipsim.collectives.schedule import VECTOR, Schedule, Sends, Wiring, flow_of, joined, pieces_of
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "busiest_link", "schedule", "wiring"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter")
RANK_IDENTICAL = True


def wiring(group: Group) -> Wiring:
    """All ranks in a row."""
    return wiring_of([group.line])


def schedule(task: Task) -> Schedule:
    """One flow, in both directions."""
    line, ends = task.group.line, wiring(task.group)
    if task.collective.cut == VECTOR:
        root = task.root if task.collective.has_root else line.ranks[task.size // 2]
        tree = Tree(root, path_edges(line))
        pieces = pieces_of(task.n_elem * task.itemsize, tree.height[root], workers=task.workers)
        return [tree_flow(task, tree, 1, ends, pieces)]
    return [flow_of(1, 1, _transfers(task, line), ends)]


def _transfers(task: Task, line: Path) -> Sends:
    if task.collective.has_root:
        return joined(_one_side(task, line, 0), _one_side(task, line.reversed, 1))
    blocks = [(rank,) for rank in line.ranks]
    return (line_reduce_scatter if task.collective.combines else line_all_gather)(line, blocks)


def _one_side(task: Task, path: Path, way: int) -> Sends:
    """One side of the root in even rounds, the other in odd ones."""
    place = path.ranks.index(task.root)
    if task.collective.name == "gather":
        side = path._replace(ranks=path.ranks[: place + 1])
        found = gather(side, [(rank,) for rank in side.ranks])
    else:
        side = path._replace(ranks=path.ranks[place:])
        found = scatter(side, [(rank,) for rank in side.ranks])
    return lambda rank: (transfer._replace(round=2 * transfer.round + way) for transfer in found(rank))


def busiest_link(task: Task) -> Fraction | None:
    """Elements over the busiest link of a line of links; None elsewhere."""
    if not task.group.is_line:
        return None
    if task.collective.cut == VECTOR:
        return Fraction(task.n_elem)
    if not task.collective.has_root:
        return Fraction((task.size - 1) * task.n_elem)
    place = task.group.line.ranks.index(task.root)
    return Fraction(max(place, task.size - 1 - place) * task.n_elem)
