"""A tree: binomial for data in one piece, binary and pipelined for data in several pieces.

Rounds, and elements that the busiest rank sends or receives, for G ranks and units of n elements:

* broadcast and reduce: binomial ``log2 G``, ``log2 G`` n; binary in k pieces ``2 (log2 G + k)``, 2 n.
* all_reduce, a reduction to a middle rank and a broadcast from this rank: binomial ``2 log2 G``, ``log2 G`` n; binary
  in k pieces ``4 log2 G + 3 k``, 3 n: the reduction of later pieces overlaps the broadcast of earlier ones.
* gather and scatter: binomial, each message with all blocks of a subtree, ``log2 G``, ``(G - 1)`` n.

In the binomial tree, ranks are numbered from the root; a rank's parent is its number without the lowest set bit. The
binary tree is in the order of ranks. On a ring a message passes up to ``G / 2`` links. The latency is ``log2 G``
messages and their paths. Use it for small tensors with a root, and for groups that are spread over the system. All
ranks get the same bits: the root completes the combination, other ranks copy it.
"""

from sipsim.collectives.patterns.pairs import edges_of
from sipsim.collectives.patterns.pairs import powers_wiring as wiring
from sipsim.collectives.patterns.trees import Tree, binomial, in_order, tree_flow
from sipsim.collectives.schedule import Flow, Schedule, flow_of, pieces_of
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "most_moved", "schedule", "wiring"]

COLLECTIVES = ("all_reduce", "broadcast", "reduce", "gather", "scatter")
RANK_IDENTICAL = True


def schedule(task: Task) -> Schedule:
    """Return one flow."""
    return [_flow(task)]


def _flow(task: Task) -> Flow:
    ends = wiring(task.group)
    if task.collective.name in ("gather", "scatter"):
        tree = Tree(task.root, edges_of(binomial(task.size, task.root)))
        transfers = tree.gather(tuple)[0] if task.collective.name == "gather" else tree.scatter(tuple)
        return flow_of(1, 1, transfers, ends)
    root = task.root if task.collective.has_root else task.size // 2
    if _copies(task) == 1:
        return tree_flow(task, Tree(root, edges_of(binomial(task.size, root))), 1, ends, 1)
    return tree_flow(task, Tree(root, edges_of(in_order(task.size))), 1, ends, _copies(task))


def _copies(task: Task) -> int:
    return pieces_of(task.n_elem * task.itemsize, task.size.bit_length(), workers=task.workers)


def most_moved(task: Task) -> int:
    """Return the most elements that any rank sends or receives."""
    name, n_elem, size = task.collective.name, task.n_elem, task.size
    if name in ("gather", "scatter"):
        return (size - 1) * n_elem
    if _copies(task) == 1:
        return (size - 1).bit_length() * n_elem
    return 3 * n_elem
