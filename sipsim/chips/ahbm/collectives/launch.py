"""Launch planning of a collective on one rank: the workers, and the programs of the workers. No side effects."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.programs import Program, Shards, coalesced, farthest_first, programs
from sipsim.collectives.call import Call
from sipsim.collectives.group import Group, route
from sipsim.collectives.schedule import RANKS, Wiring, ahead_of
from sipsim.collectives.semantics import Collective, Task

Place = tuple[int, int]
"""(cube, PE) of a SIP."""


class WorkerSettings(NamedTuple):
    """Settings of workers. ``most``: maximum number of workers per SIP. ``least_bytes``: least tensor bytes per worker
    if there are more workers than shards. ``room_bytes``: TCM bytes for the kernel's values on each worker.
    """

    most: int
    least_bytes: int
    room_bytes: int


def worker_places(
    holders: Sequence[Place], nbytes: int, n_pes: int, settings: WorkerSettings, allowed: Sequence[int] = ()
) -> list[Place]:
    """Return the workers of a tensor of ``nbytes``, in the order of its elements.

    Their number is one per shard (at most ``most // 2``) or one per ``least_bytes``, whichever is larger, up to
    ``most``. A worker is the PE that holds its shard, or the middle shard of several; if there are more workers than
    shards, further PEs of the cube work, too. ``allowed``: PEs of a cube that may work; if empty, all PEs may.
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
    """Return the PEs sorted by distance of their number from ``first``."""
    return sorted(pes, key=lambda pe: (abs(pe - first), pe))


class PlannedCall(NamedTuple):
    """Planned call. ``task``: input of the algorithm. ``places``: the workers on each SIP. ``shards``: elements per
    shard. ``spans``: number of elements of this rank's tensors that are contiguous in one memory.
    """

    task: Task
    places: tuple[Place, ...]
    shards: Shards
    spans: Shards


def plan_call(
    collective: Collective,
    call: Call,
    group: Group,
    n_pes: int,
    settings: WorkerSettings,
    allowed: tuple[int, ...],
) -> PlannedCall:
    """Plan a call: its task and workers, equal on all ranks that call with tensors of the same layout."""
    size = group.size
    of_source, of_result = collective.elements(1, size)
    present = call.tensors()
    n_elem = present[0].numel() // (of_source if call.source is present[0] else of_result)
    itemsize = present[0].dtype.itemsize
    places = worker_places(
        present[0].dp.places(), max(of_source, of_result) * n_elem * itemsize, n_pes, settings, allowed
    )
    # A tensor that only the root has is assumed to have the layout of this rank's tensor; otherwise the calls differ.
    whole = (of_source * n_elem, of_result * n_elem)
    layouts = [present[0].dp if tensor is None else tensor.dp for tensor in (call.source, call.result)]
    shards = spans = Shards(*(n // layout.blocks() for n, layout in zip(whole, layouts, strict=True)))
    if collective.cut == RANKS:
        # Shards of the smaller tensor, which every rank has: the larger one may be a list of tensors of this layout.
        shards = Shards(*[n_elem // layouts[0 if collective.gathers else 1].blocks()] * 2)
    root = call.values[0] if collective.has_root else 0
    task = Task(collective, group, n_elem, itemsize, root, call.source is call.result, len(places), settings.room_bytes)
    return PlannedCall(task, tuple(places), shards, spans)


def worker_programs(
    algorithm: Algorithm, wiring: Wiring, planned: PlannedCall, rank: int, n_slots: int, slot_bytes: int
) -> dict[Place, Program]:
    """Return the program of each worker of a rank. ``wiring``: the algorithm's wiring of the group.

    A message has at most ``slot_bytes``, one of the ``n_slots`` slots of a ring. No tile crosses the end of a shard.
    """
    task, group = planned.task, planned.task.group
    assert algorithm.schedule is not None
    tile = max(slot_bytes // task.itemsize, 1)
    schedule = algorithm.schedule(task)
    ahead = ahead_of(schedule).within(n_slots)
    instructions = programs(task, schedule, rank, len(planned.places), planned.shards, tile, ahead.sends)

    @cache
    def links_to(direction: str) -> int:
        return sum(1 for _ in route(group, rank, wiring[rank, direction][0], direction))

    ordered = (farthest_first(program, n_slots, links_to) for program in instructions)
    coalesced_programs = (Program(coalesced(program, planned.spans, task.itemsize), ahead) for program in ordered)
    return dict(zip(planned.places, coalesced_programs, strict=True))
