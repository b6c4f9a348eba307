"""Trees of ranks, and transfers from the leaves to the root or from the root to the leaves."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple

from sipsim.collectives.patterns.lines import Blocks, Path
from sipsim.collectives.schedule import OWN_FIRST, REPLACE, End, Flow, Transfer, Wiring, flow_of, staggered
from sipsim.collectives.semantics import Task

Edge = tuple[End, End]
"""Undirected edge of a tree: two ranks, each with its direction to the other."""
Pair = tuple[int, int]


class Branch(NamedTuple):
    """Edge to a child: the child's rank, the parent's direction to the child, and the child's direction back."""

    child: int
    down: str
    up: str


class Tree:
    """Tree of ``edges`` rooted at ``root``. ``branches``: children of each rank; ``below``: ranks of its subtree."""

    def __init__(self, root: int, edges: Iterable[Edge]) -> None:
        joined: defaultdict[int, list[Branch]] = defaultdict(list)
        for (a, to_b), (b, to_a) in edges:
            joined[a].append(Branch(b, to_b, to_a))
            joined[b].append(Branch(a, to_a, to_b))
        self.root = root
        self.branches: dict[int, list[Branch]] = {}
        self.ranks = [root]
        for rank in self.ranks:
            self.branches[rank] = [branch for branch in joined[rank] if branch.child not in self.branches]
            self.ranks += [branch.child for branch in self.branches[rank]]
        self.below: dict[int, Blocks] = {}
        self.height: dict[int, int] = {}
        for rank in reversed(self.ranks):
            children = [branch.child for branch in self.branches[rank]]
            self.below[rank] = (rank, *(each for child in children for each in self.below[child]))
            self.height[rank] = max((self.height[child] + 1 for child in children), default=0)

    def reduce(self, blocks: Blocks) -> tuple[list[Transfer], int]:
        """Send blocks of all ranks to the root; each rank combines them. Return (transfers, number of rounds)."""
        return self._upwards(lambda child: blocks, OWN_FIRST)

    def gather(self, blocks_of: Callable[[Blocks], Blocks]) -> tuple[list[Transfer], int]:
        """Send ``blocks_of(ranks)`` of every subtree to the root. Return (transfers, number of rounds)."""
        return self._upwards(lambda child: blocks_of(self.below[child]), REPLACE)

    def broadcast(self, blocks: Blocks, first: int = 0) -> list[Transfer]:
        """Send blocks of the root to all ranks, from round ``first`` on."""
        return self._downwards(lambda child: blocks, first)

    def scatter(self, blocks_of: Callable[[Blocks], Blocks]) -> list[Transfer]:
        """Send ``blocks_of(ranks)`` of every subtree from the root."""
        return self._downwards(lambda child: blocks_of(self.below[child]), 0)

    def _upwards(self, blocks_of: Callable[[int], Blocks], combine: int) -> tuple[list[Transfer], int]:
        """Schedule transfers to the root: a rank receives from one child per round, the earliest first, then sends."""
        transfers: list[Transfer] = []
        ready: dict[int, int] = {}
        for rank in reversed(self.ranks):
            round_number = 0
            for branch in sorted(self.branches[rank], key=lambda each: ready[each.child]):
                start = max(round_number, ready[branch.child])
                transfers.append(Transfer(start, branch.child, branch.up, blocks_of(branch.child), combine))
                round_number = start + 1
            ready[rank] = round_number
        return transfers, ready[self.root]

    def _downwards(self, blocks_of: Callable[[int], Blocks], first: int) -> list[Transfer]:
        """Schedule transfers from the root: a rank sends to one child per round, the highest subtree first."""
        transfers, ready = [], {self.root: first}
        for rank in self.ranks:
            branches = sorted(self.branches[rank], key=lambda each: -self.height[each.child])
            for start, branch in enumerate(branches, ready[rank]):
                transfers.append(Transfer(start, rank, branch.down, blocks_of(branch.child)))
                ready[branch.child] = start + 1
        return transfers


def tree_flow(task: Task, tree: Tree, weight: int, wiring: Wiring, copies: int) -> Flow:
    """Return a flow, pipelined in ``copies`` pieces: a reduction to the root, a broadcast, or both (all-reduce).

    The lag between pieces, in rounds, is the largest number of transfers per piece that any rank sends or receives.
    """
    transfers, rounds = tree.reduce((0,)) if task.collective.combines else ([], 0)
    if not task.collective.combines or not task.collective.has_root:
        transfers = transfers + tree.broadcast((0,), rounds)
    sent = Counter(transfer.src for transfer in transfers)
    received = Counter(wiring[transfer.src, transfer.send][0] for transfer in transfers)
    lag = max([1, *sent.values(), *received.values()])
    return staggered(flow_of(weight, 1, transfers, wiring), copies, lag)


def path_edges(path: Path) -> list[Edge]:
    """Return the edges between successive ranks of a path, without a closing edge."""
    return [((a, path.ahead), (b, path.back)) for a, b in pairwise(path.ranks)]


def binomial(size: int, root: int) -> list[Pair]:
    """Return (parent, child) pairs of a binomial tree: clear the child's lowest set bit, counted from the root."""
    return [((root + (place & (place - 1))) % size, (root + place) % size) for place in range(1, size)]


def in_order(size: int) -> list[Pair]:
    """Return (parent, child) pairs of a binary tree with leaves 0, 2, 4, ...; each subtree is a range of ranks."""
    return _in_order(1, size)[1]


def _in_order(first: int, last: int) -> tuple[int, list[Pair]]:
    """Return the root (counted from 0) and the edges of the places ``first`` to ``last`` (counted from 1)."""
    size = last - first + 1
    if size <= 0:
        return -1, []
    root = first - 1 + (1 << (size.bit_length() - 1))
    pairs = []
    for low, high in ((first, root - 1), (root + 1, last)):
        top, below = _in_order(low, high)
        if below or high >= low:
            pairs += [(root - 1, top), *below]
    return root - 1, pairs


def complementary(size: int) -> list[Pair]:
    """Return a tree whose inner ranks are leaves of :func:`in_order` (Sanders, Speck, Traeff 2009).

    For an even number of ranks, the tree is its mirror image; for an odd number, a rank takes its predecessor's place.
    """
    if size % 2 == 0:
        return [(size - 1 - parent, size - 1 - child) for parent, child in in_order(size)]
    return [((parent + 1) % size, (child + 1) % size) for parent, child in in_order(size)]
