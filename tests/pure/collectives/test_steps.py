"""What schedules rest on: steps in rounds, their evaluation, pieces behind each other, sends ahead, groups in grids."""

import operator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from schedules import MODULES, carry_out, group_of, sources_of, task_of

from sipsim.chips.ahbm.collectives.programs import Instruction, farthest_first, hoisted_sends
from sipsim.collectives.evaluate import ScheduleDeadlock, evaluate
from sipsim.collectives.group import pairwise_wiring, wiring_of
from sipsim.collectives.patterns.lines import Path
from sipsim.collectives.patterns.trees import Tree, binomial
from sipsim.collectives.schedule import (
    MOST_PIECES,
    OWN_FIRST,
    Flow,
    ScheduleError,
    Step,
    mutual,
    number_of,
    original,
    pieces_of,
    staggered,
)

PAIR = pairwise_wiring({(0, 1)})


def carried(steps: list[list[Step]], n_slots: int | None = None) -> list[dict[int, list[int]]]:
    values = [{0: np.array([1, 2, 3]), 1: np.array([4, 5, 6])}, {0: np.array([10, 20, 30])}]
    found = evaluate(steps, PAIR, values, operator.add, n_slots)
    return [{block: array.tolist() for block, array in own.items()} for own in found]


def test_a_step_exchanges_and_combines() -> None:
    left = carried([[Step(0, "to1", (0,), "to1", (0,), OWN_FIRST)], [Step(0, "to0", (0,), "to0", (0,), OWN_FIRST)]], 1)
    assert left[0][0] == left[1][0] == [11, 22, 33]


def test_a_block_can_be_sent_as_it_was() -> None:
    exchange = [Step(0, "to1", (0,), "to1", (0,), OWN_FIRST), Step(1, "to1", (original(0),))]
    left = carried([exchange, [Step(0, "to0", (0,), "to0", (0,), OWN_FIRST), Step(1, "", (), "to0", (0,))]])
    assert left[0][0] == [11, 22, 33]
    assert left[1][0] == [1, 2, 3]


@pytest.mark.parametrize(
    ("steps", "error", "text"),
    [
        ([[Step(0, "", (), "to1", (0,))], [Step(0, "", (), "to0", (0,))]], ScheduleDeadlock, "rank 0 waits in round 0"),
        ([[Step(0, "to1", (0, 1))], []], ScheduleDeadlock, "for a slot in direction to1"),
        ([[Step(0, "to1", (0,))], [Step(1, "", (), "to0", (0,))]], ScheduleError, "rank 1 .* where block 0 of round 1"),
        ([[Step(0, "to1", (0,))], [Step(0, "", (), "to0", (1,))]], ScheduleError, "rank 1 .* where block 1 of round 0"),
        ([[Step(0, "to1", (0,))], []], ScheduleError, "rank 1 never receives block 0"),
        ([[], [Step(0, "to0", (1,))]], ScheduleError, "rank 1 sends block 1 in round 0"),
        ([[Step(0, "to1", (1,))], [Step(0, "", (), "to0", (1,), OWN_FIRST)]], ScheduleError, "rank 1 combines"),
    ],
)
def test_steps_that_cannot_be_carried_out(steps: list[list[Step]], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        carried(steps, 1)


@pytest.mark.parametrize("name", ["ring", "recursive_doubling", "one_shot", "double_tree"])
def test_evaluation_and_programs_agree(name: str) -> None:
    task = task_of("all_reduce", group_of("ring_1d", (5, 1)), 30)
    (flow, *_), sources = MODULES[name].schedule(task), sources_of(task)
    cuts = [30 * piece // flow.pieces for piece in range(flow.pieces + 1)]
    values = [{piece: source[cuts[piece] : cuts[piece + 1]] for piece in range(flow.pieces)} for source in sources]
    found = evaluate(
        [flow.steps_of(rank) for rank in range(5)],
        MODULES[name].wiring(task.group),
        values,
        np.add,
        1,
    )
    single = cast(Any, SimpleNamespace(wiring=MODULES[name].wiring, schedule=lambda task: [flow]))
    for own, result in zip(found, carry_out(single, task, sources), strict=True):
        assert np.array_equal(np.concatenate([own[piece] for piece in range(flow.pieces)]), result)


def test_a_direction_leads_to_one_place() -> None:
    with pytest.raises(ValueError, match="direction a of rank 0 leads to"):
        mutual({(0, "a"): (1, "b"), (2, "c"): (0, "a")})


def test_pieces_follow_each_other() -> None:
    flow = Flow(2, 3, lambda rank: [Step(0, "x", (4,)), Step(1, "", (), "y", (original(5),))])
    found = staggered(flow, 2, 1)
    assert (found.weight, found.pieces) == (2, 6)
    steps = found.steps_of(0)
    assert [step.round for step in steps] == [0, 2, 3, 5]
    assert [step.sends for step in steps] == [(8,), (), (9,), ()]
    assert [tuple(map(number_of, step.recvs)) for step in steps] == [(), (10,), (), (11,)]


@pytest.mark.parametrize(
    ("nbytes", "transfers", "blocks", "workers", "pieces"),
    [
        (2**20, 1, 1, 1, 1),
        (100, 9, 1, 1, 1),
        (2**20, 5, 1, 1, 22),
        (2**30, 9, 1, 1, MOST_PIECES),
        (2**20, 5, 32, 1, 4),
        (2**20, 5, 32, 8, 1),
        (2**20, 5, 1, 16, 16),
    ],
)
def test_pieces_of_some_sizes(nbytes: int, transfers: int, blocks: int, workers: int, pieces: int) -> None:
    assert pieces_of(nbytes, transfers, blocks, workers) == pieces


@pytest.mark.parametrize(
    ("steps", "ahead", "found"),
    [
        ("ra rb sc", 0, "ra rb sc"),
        ("ra rb sc", 1, "ra sc rb"),
        ("ra rb sc", 2, "sc ra rb"),
        ("ra Rb sc", 1, "ra Rb sc"),
        ("ra Rb sc", 2, "ra sc Rb"),
        ("ra Rb sc", 3, "sc ra Rb"),
        ("ra sa", 2, "ra sa"),
        ("ra rb sa", 2, "ra sa rb"),
        ("ra sb sc", 1, "sb sc ra"),
        ("rax rby sc", 1, "sc rax rby"),
        ("rax rbx rcy sd", 1, "rax sd rbx rcy"),
    ],
)
def test_sends_pass_receives_that_they_do_not_need(steps: str, ahead: int, found: str) -> None:
    """``s`` sends, ``r`` receives one message, ``R`` two; then the tile, and the direction."""
    each = steps.split()
    made = hoisted_sends(
        each, ahead, lambda step: step[0] == "s", lambda step: (step[2:], " rR".index(step[0])), same_tile
    )
    assert " ".join(made) == found


def same_tile(send: str, other: str) -> bool:
    return send[1] == other[1]


def test_sends_too_far_ahead_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks that exchange: with as many sends ahead as slots, and no less, each waits for the other's slot."""
    task = task_of("all_reduce", group_of("mesh_2d_no_wrap", (2, 1)), 40)
    ring, sources = MODULES["ring"], sources_of(task)
    import schedules

    programs = schedules.programs
    monkeypatch.setattr(schedules, "programs", lambda *args: programs(*args[:-1], args[-1] + 1))
    with pytest.raises(RuntimeError, match="deadlock of worker 0 of ranks \\[0, 1\\]"):
        carry_out(ring, task, sources, n_slots=3, tile=2)


def test_the_first_sends_leave_for_the_farthest_rank_first() -> None:
    """A value that three sends share is loaded and stored by whichever of them comes first, and held until the last."""
    near, middle, far = (Instruction((1,), 4, send=way, keeps=True) for way in ("near", "middle", "far"))
    program = [
        near._replace(load_at=8, store_at=6),
        middle,
        far._replace(keeps=False),
        Instruction((2,), 4, load_at=0, send="far"),
        Instruction((3,), 4, recv="far"),
        Instruction((4,), 4, load_at=4, send="far"),
    ]
    links = {"near": 1, "middle": 2, "far": 3}
    assert farthest_first(program, 2, links.__getitem__) == [
        far._replace(load_at=8, store_at=6),
        program[3],
        middle,
        near._replace(keeps=False),
        *program[4:],
    ]
    ordered = farthest_first(program, 1, links.__getitem__)
    assert [each.key for each in ordered] == [(1,), (1,), (1,), (2,), (3,), (4,)], "one slot: the second waits for it"
    assert [each.send for each in ordered] == ["far", "middle", "near", "far", "", "far"]


ORDERS: list[tuple[str, tuple[int, int], tuple[int, ...] | None, tuple[int, ...], str, bool, bool]] = [
    ("ring_1d", (4, 1), None, (0, 1, 2, 3), "global_E", True, False),
    ("ring_1d", (2, 1), None, (0, 1), "global_E", True, False),
    ("ring_1d", (6, 1), (3, 2, 1), (0, 1, 2), "next", False, True),
    ("mesh_2d_no_wrap", (2, 1), None, (0, 1), "next", False, True),
    ("mesh_2d_no_wrap", (1, 4), None, (0, 1, 2, 3), "next", False, True),
    ("torus_2d", (1, 4), None, (0, 1, 2, 3), "global_S", True, False),
    ("torus_2d", (3, 2), None, (0, 1, 2, 5, 4, 3), "next", True, False),
    ("mesh_2d_no_wrap", (3, 3), None, (0, 1, 2, 5, 4, 3, 6, 7, 8), "next", False, True),
    ("torus_2d", (4, 4), (0, 5, 10), (0, 1, 2), "next", False, False),
]


@pytest.mark.parametrize(("topology", "shape", "sips", "order", "ahead", "is_ring", "is_line"), ORDERS)
def test_all_ranks_in_a_ring_or_line(
    topology: str,
    shape: tuple[int, int],
    sips: tuple[int, ...] | None,
    order: tuple[int, ...],
    ahead: str,
    is_ring: bool,
    is_line: bool,
) -> None:
    group = group_of(topology, shape, sips)
    assert (group.ring.ranks, group.ring.ahead) == (order, ahead)
    assert (group.is_ring, group.is_line) == (is_ring, is_line)


def test_rows_and_columns() -> None:
    block = group_of("torus_2d", (4, 3), (1, 2, 5, 6, 9, 10))
    assert block.rows == [Path((row, row + 1), "global_E", "global_W", False) for row in (0, 2, 4)]
    assert block.columns == [Path((column, column + 2, column + 4), "global_S", "global_N", True) for column in (0, 1)]
    spread = group_of("torus_2d", (4, 4), (1, 3, 9, 11))
    assert spread.rows[0] == Path((0, 1), "next_x", "prev_x", True)
    assert spread.columns[1] == Path((1, 3), "next_y", "prev_y", True)
    assert group_of("ring_1d", (4, 1)).columns == []


def test_wiring_along_paths() -> None:
    wiring = wiring_of([Path((0, 1, 2), "up", "down", False), Path((2, 0), "on", "back", True)])
    assert wiring[1, "up"] == (2, "down")
    assert wiring[0, "on"] == (2, "back")
    assert (2, "up") not in wiring


def test_a_binomial_tree_has_its_largest_subtrees_first() -> None:
    edges = [((a, f"to{b}"), (b, f"to{a}")) for a, b in binomial(8, 3)]
    tree = Tree(3, edges)
    assert tree.height[3] == 3
    assert sorted(tree.below[7]) == [0, 1, 2, 7]
    transfers = tree.broadcast((0,))
    assert max(transfer.round for transfer in transfers) == 2
    assert [transfer.send for transfer in transfers if transfer.src == 3] == ["to7", "to5", "to4"]
