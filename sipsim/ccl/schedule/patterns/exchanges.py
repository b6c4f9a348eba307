"""Between all pairs of ranks, straight over the route of fewest links."""

from collections.abc import Callable
from fractions import Fraction

from sipsim.ccl.collectives.group import Task
from sipsim.ccl.group import Group, pairwise_wiring, towards
from sipsim.ccl.schedule.patterns.paths import Blocks
from sipsim.ccl.schedule.steps import REPLACE, Transfer, Wiring

FEW_BYTES = 2048
"""A link carries them in as long as its latency."""


def pairs_wiring(group: Group) -> Wiring:
    """A queue pair between all ranks."""
    return pairwise_wiring({(a, b) for b in range(group.size) for a in range(b)})


def all_pairs(
    task: Task, blocks_of: Callable[[int, int], Blocks], first: int, combine: int = REPLACE
) -> list[Transfer]:
    """In a round a rank sends to the rank so many behind it as all do: to neighbours in a ring first, so that what
    comes from the farthest is taken last. ``blocks_of``: source and destination.

    With few bytes those of a round send as many links far, too, and fewer in earlier rounds. More bytes would meet on
    the links, which are in use all the time when ranks send to all distances at once.
    """
    size = task.size
    shifts = sorted(range(1, size), key=lambda shift: (min(shift, size - shift), shift))
    pairs = [(turn, rank, (rank + shift) % size) for rank in range(size) for turn, shift in enumerate(shifts, 1)]
    if task.n_elem * task.itemsize > FEW_BYTES:
        return [Transfer(first + turn, src, towards(dst), blocks_of(src, dst), combine) for turn, src, dst in pairs]
    far = [(task.group.distances[src][dst], turn, src, dst) for turn, src, dst in pairs]
    numbers = {turn: number for number, turn in enumerate(sorted({each[:2] for each in far}), 1)}
    return [
        Transfer(first + numbers[links, turn], src, towards(dst), blocks_of(src, dst), combine)
        for links, turn, src, dst in far
    ]


def rounds_of_all_pairs(task: Task) -> int:
    """No round of :func:`all_pairs` that starts from 0 is behind this one."""
    return task.size * task.size


def nearest_first(group: Group, root: int) -> list[int]:
    """The other ranks, that of the fewest links to ``root`` first, and of these the next one."""
    others = [(root + shift) % group.size for shift in range(1, group.size)]
    return sorted(others, key=lambda rank: group.distances[rank][root])


def busiest_ring_load(group: Group) -> Fraction | None:
    """Messages over the busiest link of a ring of neighbours when each rank sends one to each other; None elsewhere.

    Those for a rank ``d`` links on pass ``d`` links, up to half way round; exactly half way they go by port E.
    """
    if not group.is_ring or group.grid[1] != 1:
        return None
    half = group.size // 2
    return Fraction(half * (half + 1), 2)
