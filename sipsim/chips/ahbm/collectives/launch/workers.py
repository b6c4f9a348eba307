"""Which PEs of a SIP work for a collective, and how large its messages are. Pure: alike on all ranks of a group."""

from collections.abc import Sequence
from typing import NamedTuple

Place = tuple[int, int]
"""(cube, PE) of a SIP."""


class WorkerSettings(NamedTuple):
    """``most``: workers of a SIP at most; ``least_bytes``: of a tensor for each, if there are more than shards;
    ``room_bytes``: of what the kernel of one holds.
    """

    most: int
    least_bytes: int
    room_bytes: int


def worker_places(
    holders: Sequence[Place], nbytes: int, n_pes: int, settings: WorkerSettings, allowed: Sequence[int] = ()
) -> list[Place]:
    """The workers of a tensor of ``nbytes``, in the order of its elements.

    One for each shard, up to half of the most, or one for each ``least_bytes`` if those are more. Each shard's own PE
    works for it where there are workers enough; of several shards, that of the middle one; and where there are fewer
    shards than workers, other PEs of the cube help. ``allowed``: the PEs of a cube that may work;
    empty for all.
    """
    pes = list(allowed) or list(range(n_pes))
    cubes = list(dict.fromkeys(cube for cube, _ in holders))
    wanted = max(min(len(holders), settings.most // 2), -(-nbytes // settings.least_bytes))
    count = max(min(settings.most, wanted, len(cubes) * len(pes)), 1)
    taken: list[Place] = []
    for index in range(count):
        cube, pe = holders[(2 * index + 1) * len(holders) // (2 * count)]
        free = [each for each in _from(pe, pes) if (cube, each) not in taken]
        others = ((other, each) for other in cubes for each in pes if (other, each) not in taken)
        taken.append((cube, free[0]) if free else next(others))
    return taken


def _from(first: int, pes: Sequence[int]) -> list[int]:
    """These PEs, the nearest number to the first one first."""
    return sorted(pes, key=lambda pe: (abs(pe - first), pe))
