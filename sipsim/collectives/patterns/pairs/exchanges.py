"""Between all pairs of ranks, straight over the route of fewest links."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache

from sipsim.collectives.group.group import Group, pairwise_wiring, towards
from sipsim.collectives.patterns.lines.paths import Blocks
from sipsim.collectives.schedule.steps import REPLACE, Sends, Transfer, Wiring
from sipsim.collectives.semantics.group import Task

FEW_BYTES = 2048
"""A link carries them in as long as its latency."""


def pairs_wiring(group: Group) -> Wiring:
    """A queue pair between all ranks."""
    return pairwise_wiring({(a, b) for b in range(group.size) for a in range(b)})


def all_pairs(task: Task, blocks_of: Callable[[int, int], Blocks], first: int, combine: int = REPLACE) -> Sends:
    """In a round a rank sends to the rank so many behind it as all do: to neighbours in a ring first, so that what
    comes from the farthest is taken last. ``blocks_of``: source and destination.

    With few bytes those of a round send as many links far, too, and fewer in earlier rounds. More bytes would meet on
    the links, which are in use all the time when ranks send to all distances at once.
    """
    size = task.size
    shifts = sorted(range(1, size), key=lambda shift: (min(shift, size - shift), shift))
    few = task.n_elem * task.itemsize <= FEW_BYTES

    @cache
    def numbers() -> dict[tuple[int, int], int]:
        far = {(links(src, shift), turn) for turn, shift in enumerate(shifts, 1) for src in range(size)}
        return {key: number for number, key in enumerate(sorted(far), 1)}

    def links(src: int, shift: int) -> int:
        return task.group.distances[src][(src + shift) % size]

    def sends(src: int) -> Iterator[Transfer]:
        for turn, shift in enumerate(shifts, 1):
            number, dst = numbers()[links(src, shift), turn] if few else turn, (src + shift) % size
            yield Transfer(first + number, src, towards(dst), blocks_of(src, dst), combine)

    return sends


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
