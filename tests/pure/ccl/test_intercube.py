"""Trees, units and schedules of the intercube algorithms: their results, their order, no deadlock, their bytes."""

from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from intercube_members import Exchanged, StuckError

from sipsim.ccl.intercube import schedule as schedule_module
from sipsim.ccl.intercube.exchange import Exchange
from sipsim.ccl.intercube.members import Grid
from sipsim.ccl.intercube.units import pieces_of

Array = np.ndarray[Any, Any]
ITEM = 4
GRIDS = [
    Grid(1, 1, 1, 1, 1, False),
    Grid(1, 4, 4, 1, 1, True),
    Grid(1, 1, 1, 2, 1, True),
    Grid(1, 2, 1, 3, 1, True),
    Grid(1, 1, 3, 4, 1, True),
    Grid(1, 3, 2, 5, 1, False),
    Grid(1, 2, 2, 2, 2, True),
    Grid(1, 2, 3, 3, 2, True),
    Grid(1, 1, 2, 3, 3, False),
    Grid(8, 2, 1, 2, 1, True),
    Grid(2, 1, 2, 3, 1, True),
    Grid(3, 2, 2, 1, 1, True),
    Grid(1, 1, 1, 9, 1, True),
    Grid(1, 2, 1, 8, 1, True),
]


def exchange(grid: Grid, rotates: bool, n_slots: int, slot_size: int = 64, root: int | None = None) -> Exchange:
    last = grid.cube_w * grid.cube_h - 1
    return Exchange(grid, 1, last if root is None else root, slot_size, n_slots, rotates)


def floats(grid: Grid, n_elem: int, seed: int = 0) -> Array:
    sizes = [axis.size for axis in grid.axes]
    return np.random.default_rng(seed).standard_normal((*sizes, n_elem)).astype(np.float32)


def by_sip(rows: Array) -> Array:
    """From the order of axes to (SIPs, cubes, PEs, elements)."""
    pes, cube_w, cube_h, sip_w, sip_h, n_elem = rows.shape
    return rows.transpose(4, 3, 2, 1, 0, 5).reshape(sip_w * sip_h, cube_w * cube_h, pes, n_elem)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize("n_slots", [1, 2, 8])
def test_all_members_end_with_the_reference(grid: Grid, rotates: bool, n_slots: int) -> None:
    """Bit for bit, in random orders of who runs; floats of one order only."""
    made = exchange(grid, rotates, n_slots)
    for n_elem, seed in ((1, 1), (17, 2), (701, 3)):
        rows = floats(grid, n_elem, seed)
        wanted = made.combined(by_sip(rows), None, "sum")
        done = Exchanged(grid, rows, made.units(n_elem, ITEM, 0, True), n_slots, "sum", seed)
        done.run()
        assert {row.tobytes() for row in rows.reshape(-1, n_elem)} == {wanted.tobytes()}


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize(
    ("op", "exact"),
    [("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod), ("avg", np.mean)],
)
def test_the_reference_is_the_operator_over_all_rows(grid: Grid, op: str, exact: Any) -> None:
    rows = np.random.default_rng(5).integers(1, 3, (*[axis.size for axis in grid.axes], 300)).astype(np.float32)
    got = exchange(grid, True, 2).combined(by_sip(rows), None, op)
    np.testing.assert_array_equal(got, exact(rows.reshape(-1, 300), axis=0))


@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_of_zeros_the_second_wins_as_on_pe_math(op: str, zeros: tuple[float, float]) -> None:
    made = exchange(Grid(1, 2, 1, 1, 1, True), False, 2, root=0)
    got = made.combined(np.array(zeros, np.float32).reshape(1, 2, 1, 1), None, op)
    assert np.signbit(got) == np.signbit(zeros[1])


@pytest.mark.parametrize("root", range(6))
def test_any_cube_may_be_the_root(root: int) -> None:
    grid = Grid(1, 3, 2, 3, 1, True)
    made, rows = exchange(grid, False, 1, root=root), floats(grid, 90)
    wanted = made.combined(by_sip(rows), None, "sum")
    Exchanged(grid, rows, made.units(90, ITEM, 0, True), 1, "sum", root).run()
    assert {row.tobytes() for row in rows.reshape(-1, 90)} == {wanted.tobytes()}


def test_without_parts_of_rounds_one_slot_deadlocks() -> None:
    """What the proof rests on: no more messages of a label than slots. Two rows of chains that fill each other."""
    grid = Grid(1, 1, 1, 4, 1, True)
    made, rows = exchange(grid, True, 1), floats(grid, 400)
    units = [unit._replace(first_round=0) for unit in made.units(400, ITEM, 0, True)]
    Exchanged(grid, rows.copy(), units, 1, "sum", 0).run()
    real = schedule_module.schedule

    def receives_last(axes: Any, places: Any, some: Any, n_slots: int) -> Any:
        steps = real(axes, places, some, 1 << 20)
        return [part for step in steps for part in (step._replace(receives=[]), step._replace(sends=[]))]

    with patch("intercube_members.schedule", receives_last), pytest.raises(StuckError):
        Exchanged(grid, rows.copy(), units, 1, "sum", 0).run()


@pytest.mark.parametrize(
    ("sizes", "wraps", "share"),
    [
        ((4, 1), True, {"global_E": 3 / 4, "global_W": 3 / 4}),
        ((3, 1), True, {"global_E": 2 / 3, "global_W": 2 / 3}),
        ((2, 2), True, {"global_E": 3 / 8, "global_W": 3 / 8, "global_N": 3 / 8, "global_S": 3 / 8}),
        ((3, 3), True, {"global_E": 4 / 9, "global_S": 4 / 9}),
    ],
)
@pytest.mark.parametrize("rotates", [False, True])
def test_bytes_over_each_link_between_sips(sizes: tuple[int, int], wraps: bool, share: Any, rotates: bool) -> None:
    """``(n-1)/n`` of a row a direction of a ring; ``(w-1)/w * (1 + 1/h) / 2`` of one of a torus."""
    grid = Grid(1, 2, 2, *sizes, wraps)
    n_elem = 16 * 36 * 4
    made, rows = exchange(grid, rotates, 2), floats(grid, n_elem)
    done = Exchanged(grid, rows, made.units(n_elem, ITEM, 0, True), 2, "sum", 0)
    done.run()
    for direction, part in share.items():
        for sip_x in range(sizes[0]):
            sent = sum(n for (places, way), n in done.bytes_sent.items() if way == direction and places[3] == sip_x)
            assert sent == pytest.approx(part * n_elem * ITEM * sizes[1])


def test_every_link_of_the_mesh_carries_the_same() -> None:
    """``(1 + 1/W) / 2`` of a row in each direction of a square mesh of one SIP."""
    grid = Grid(1, 4, 4, 1, 1, False)
    n_elem = 16 * 16 * 4
    made, rows = exchange(grid, True, 2), floats(grid, n_elem)
    done = Exchanged(grid, rows, made.units(n_elem, ITEM, 0, True), 2, "sum", 0)
    done.run()
    assert len(done.bytes_sent) == 48
    assert set(done.bytes_sent.values()) == {n_elem * ITEM * 5 // 8}


@pytest.mark.parametrize("lane", range(8))
def test_members_send_in_turn(lane: int) -> None:
    """On 4x4 cubes a member sends 1.9 messages a round in the mean; the busiest one of a round 4, and 5.2 without
    ``STRIDE``."""
    grid = Grid(1, 4, 4, 1, 1, False)
    units = Exchange(grid, 8, 0, 64, 8, True).units(8 * 16 * 16 * 4, ITEM, lane, True)
    sent: Counter[tuple[int, int]] = Counter()
    for cube in range(16):
        for step in schedule_module.schedule(grid.axes, grid.places(0, cube, 0), units, 8):
            sent[step.round % 16, cube] += len(step.sends)
    busiest = sum(max(sent[now, cube] for cube in range(16)) for now in range(16))
    periods = len(units) // 16
    assert sum(sent.values()) == len(units) * 30
    assert busiest / 16 / periods < 4.5


@pytest.mark.parametrize(
    ("n_elem", "slot", "owners", "wanted"),
    [
        (1, 4096, 128, (1, 1, 1)),
        (1025, 4096, 128, (4, 256, 257)),
        (100, 64, 4, (8, 12, 13)),
        (17, 4, 3, (17, 1, 1)),
        (2**18, 8192, 128, (128, 2048, 2048)),
        (2**18 + 1, 8192, 128, (256, 1024, 1025)),
    ],
)
def test_pieces(n_elem: int, slot: int, owners: int, wanted: tuple[int, int, int]) -> None:
    """Their number, the shortest and the longest; they follow each other and cover all."""
    pieces = pieces_of(n_elem, ITEM, slot, owners)
    lengths = [length for _, length in pieces]
    assert (len(pieces), min(lengths), max(lengths)) == wanted
    assert [start for start, _ in pieces] == [sum(lengths[:index]) for index in range(len(pieces))]
    assert sum(lengths) == n_elem
    assert max(lengths) * ITEM <= slot


def test_a_slot_holds_an_element() -> None:
    with pytest.raises(ValueError, match="slots of 2 B hold no element of 4 B"):
        pieces_of(8, ITEM, 2, 1)
