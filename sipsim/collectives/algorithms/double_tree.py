"""Two binary trees at once, each with half of the data (Sanders, Speck and Traeff, Parallel Computing 2009).

Ranks with children in one tree are leaves of the other. For an even number of ranks the second tree mirrors the first;
for an odd number each rank takes the place of its predecessor. For G ranks and n elements in k pieces:

* all_reduce: ``4 log2 G + 3 k`` rounds; a rank sends and receives at most 2 n: ``3 n / 2`` in one tree and ``n / 2``
  in the other.
* broadcast and reduce: ``2 (2 log2 G + k)`` rounds; each rank except the root sends and receives at most 3 n / 2. Both
  trees are rooted at the call's root without changing their edges, so the root may have four neighbours: 2 n.

On a ring a message passes up to ``G / 2`` links. The latency is ``2 log2 G`` messages, twice that for an all-reduce.
Use it for tensors of medium size on many ranks that are not in a ring or grid. All ranks get the same bits: the root of
each tree completes the combination, other ranks copy it.
"""

from sipsim.collectives.patterns.pairs import edges_of
from sipsim.collectives.patterns.pairs import powers_wiring as wiring
from sipsim.collectives.patterns.trees import Tree, complementary, in_order, tree_flow
from sipsim.collectives.schedule import Schedule, pieces_of
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "RANK_IDENTICAL", "most_moved", "schedule", "wiring"]

COLLECTIVES = ("all_reduce", "broadcast", "reduce")
RANK_IDENTICAL = True


def schedule(task: Task) -> Schedule:
    """Return one flow per tree."""
    size, ends = task.size, wiring(task.group)
    copies = pieces_of(task.n_elem * task.itemsize // 2, 2 * size.bit_length(), workers=-(-task.workers // 2))
    flows = []
    for pairs in (in_order(size), complementary(size)):
        children = {child for _, child in pairs}
        top = next(rank for rank in range(size) if rank not in children)
        tree = Tree(task.root if task.collective.has_root else top, edges_of(pairs))
        flows.append(tree_flow(task, tree, 1, ends, copies))
    return flows


def most_moved(task: Task) -> int:
    """Return the most elements that any rank sends or receives, for an even ``n_elem``."""
    return 2 * task.n_elem
