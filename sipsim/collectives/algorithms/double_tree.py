"""Two binary trees at once, half of the data each (Sanders, Speck and Traeff, Parallel Computing 2009).

Ranks with children in one tree are leaves of the other: for an even number of ranks the second tree is the mirror image
of the first, for an odd one each rank takes the place of the one before it. For G ranks and n elements in k pieces:

* all_reduce: ``4 log2 G + 3 k`` rounds; a rank sends and receives 2 n at most, three halves in one tree and one in
  the other.
* broadcast and reduce: ``2 (2 log2 G + k)`` rounds; each rank but the root sends and receives 3 n / 2 at most. The
  trees stay the same and hang from the root of the call, which therefore has up to four neighbours in both: 2 n.

On a ring a message passes up to ``G / 2`` links. Latency is ``2 log2 G`` messages, twice for an all-reduce. Use it for
tensors of middle size on many ranks that are not in a ring or grid. All ranks have the same bits: the root of each tree
combines, others copy.
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
    """A flow for each tree."""
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
    """Elements that a rank sends or receives at most, of an even number."""
    return 2 * task.n_elem
