"""Small pieces that one command loads or stores. That the values are the same: ``test_schedules.py``."""

import pytest
from schedules import group_of, task_of

from sipsim.chips.ahbm.collectives.programs import COALESCED_BYTES, NOWHERE, Instruction, Shards, coalesced, programs
from sipsim.collectives.algorithms import direct

RING = group_of("ring_1d", (4, 1))
WHOLE = Shards(0, 0)
MOST = COALESCED_BYTES // 4


def sent(*places: tuple[int, int], **more: int) -> list[Instruction]:
    """Pieces that are loaded and sent: their places and lengths."""
    return [Instruction((at,), length, load_at=at, send="to1", **more) for at, length in places]


def received(*places: tuple[int, int]) -> list[Instruction]:
    return [Instruction((at,), length, recv="to1", store_at=at) for at, length in places]


def commands(program: list[Instruction], spans: Shards = WHOLE) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What is loaded and what is stored, in the order of commands: the places and lengths."""
    loads, stores = [], []
    for each in coalesced(program, spans, 4):
        if each.load_at != NOWHERE and (each.load_with is None or each.load_with.is_first):
            loads.append((each.load_at, each.length) if each.load_with is None else each.load_with[:2])
        if each.store_at != NOWHERE and (each.store_with is None or each.store_with.is_last):
            stores.append((each.store_at, each.length) if each.store_with is None else each.store_with[:2])
    return loads, stores


@pytest.mark.parametrize(
    ("program", "spans", "loads", "stores"),
    [
        (sent((8, 4), (0, 4), (4, 4)), WHOLE, [(0, 12)], []),
        (sent((0, 4), (9, 4)), WHOLE, [(0, 13)], []),
        (sent((0, 4), (4, 4), (8, 4)), Shards(8, 0), [(0, 8), (8, 4)], []),
        (sent((0, 4), (MOST - 4, 4)), WHOLE, [(0, MOST)], []),
        (sent((0, 4), (MOST - 3, 4)), WHOLE, [(0, 4), (MOST - 3, 4)], []),
        (sent((0, 4), (0, 4)), WHOLE, [(0, 4), (0, 4)], []),
        (sent((0, 4), (4, 4), store_at=0), WHOLE, [(0, 4), (4, 4)], [(0, 4), (0, 4)]),
        (received((8, 4), (0, 4), (4, 4)), WHOLE, [], [(0, 12)]),
        (received((0, 4), (9, 4)), WHOLE, [], [(0, 4), (9, 4)]),
        (received((0, 4), (4, 4), (8, 4)), Shards(0, 8), [], [(0, 8), (8, 4)]),
    ],
)
def test_what_one_command_takes(
    program: list[Instruction], spans: Shards, loads: list[tuple[int, int]], stores: list[tuple[int, int]]
) -> None:
    """Gaps are loaded, and not stored; no span's end is crossed; what is loaded and stored has a load of its own."""
    assert commands(program, spans) == (loads, stores)


@pytest.mark.parametrize(
    ("collective", "loads", "stores"),
    [("all_gather", 1, 1), ("reduce_scatter", 1, 1), ("all_to_all", 2, 1), ("all_reduce", 1, 1)],
)
def test_commands_of_a_rank(collective: str, loads: int, stores: int) -> None:
    """Of four pieces each way; an all-to-all loads its own apart, to store it with the others."""
    task = task_of(collective, RING, 16)
    (program,) = programs(task, direct.schedule(task), 1, 1, WHOLE, 1024, 1)
    found = commands(program)
    assert (len(found[0]), len(found[1])) == (loads, stores)
