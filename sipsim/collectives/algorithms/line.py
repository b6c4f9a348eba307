"""A line in both directions at once, for groups whose last rank has no link to the first.

Number of rounds, and elements over the busiest link, for G ranks and units of n elements:

* all_reduce: a reduction from both ends to the middle and a broadcast back, in k pieces, ``2 (G / 2 + k)`` rounds, n:
  pieces of the broadcast and of the reduction overlap. Each link must carry n in both directions, so n is minimal.
* broadcast and reduce: in both directions from the root, ``G + k`` rounds (``G / 2 + 2 k`` for a middle root), n.
* all_gather and reduce_scatter: every block in both directions, or combined from both ends towards its rank,
  ``2 (G - 1)`` rounds, one direction per round, ``(G - 1)`` n, the minimum at the end links.
* gather and scatter: on both sides of the root, in separate rounds; n per rank on the longer side.

Use it on lines; on a ring one link stays idle. All ranks get the same bits: each block is combined at one rank, in one
order, then copied.
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
    """Connect all ranks in a line."""
    return wiring_of([group.line])


def schedule(task: Task) -> Schedule:
    """Return one flow in both directions."""
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


def _one_side(task: Task, path: Path, parity: int) -> Sends:
    """Return the transfers on one side of the root, in rounds of a parity (0: even, 1: odd)."""
    place = path.ranks.index(task.root)
    if task.collective.name == "gather":
        side = path._replace(ranks=path.ranks[: place + 1])
        found = gather(side, [(rank,) for rank in side.ranks])
    else:
        side = path._replace(ranks=path.ranks[place:])
        found = scatter(side, [(rank,) for rank in side.ranks])
    return lambda rank: (transfer._replace(round=2 * transfer.round + parity) for transfer in found(rank))


def busiest_link(task: Task) -> Fraction | None:
    """Return the elements over the busiest link of a line of links; None for other groups."""
    if not task.group.is_line:
        return None
    if task.collective.cut == VECTOR:
        return Fraction(task.n_elem)
    if not task.collective.has_root:
        return Fraction((task.size - 1) * task.n_elem)
    place = task.group.line.ranks.index(task.root)
    return Fraction(max(place, task.size - 1 - place) * task.n_elem)
