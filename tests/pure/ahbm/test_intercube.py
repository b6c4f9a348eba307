"""Units, schedules and bits of the intercube trees. What members do on the machine: ``inproc/collectives``."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from schedules import carry_out

from sipsim.chips.ahbm.collectives.cube_trees import Axis, Grid, Owner, Rows, Trees, unit_lengths
from sipsim.collectives.schedule import check_schedule, check_wiring

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


def trees_on(grid: Grid, rows: Rows, lanes: int = 1, rotates: bool = True, n_slots: int = 1) -> Trees:
    rows = Rows.OF_PES if grid.pes > 1 else rows
    return Trees(grid, rows, rotates, 1 if grid.pes > 1 else lanes, grid.cube_w * grid.cube_h - 1, 64, n_slots)


VARIANTS = [(Rows.OF_CUBES, 1, False), (Rows.OF_CUBES, 1, True), (Rows.OF_CUBES, 4, True), (Rows.IN_PIECES, 4, True)]


def rows_of(grid: Grid, dtype: str, n_elem: int) -> Array:
    """Numbers of many sizes, or any integers: a sum of these is wrong unless each of them is in it once."""
    rng = np.random.default_rng(5)
    if np.dtype(dtype).kind == "i":
        return rng.integers(-(2**31), 2**31, (grid.size, n_elem), dtype)
    exponents = rng.integers(-6, 6, (grid.size, n_elem))
    return (rng.standard_normal((grid.size, n_elem)) * 2.0**exponents).astype(dtype)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize(("rows", "lanes", "rotates"), VARIANTS)
def test_every_member_ends_with_each_row_once(grid: Grid, rows: Rows, lanes: int, rotates: bool) -> None:
    """Carried out with one slot, as schedules and as the programs of workers."""
    trees = trees_on(grid, rows, lanes, rotates)
    data = rows_of(grid, "i4", 150)
    for lane in range(trees.lanes if trees.rows is Rows.IN_PIECES else 1):
        task, schedule = trees.task(150, ITEM, lane)
        check_wiring(grid.wiring, grid.size)
        check_schedule(schedule, grid.wiring, grid.size, 1)
        module: Any = SimpleNamespace(schedule=lambda _, made=schedule: made, wiring=lambda _: grid.wiring)
        ended = carry_out(module, task, list(data), n_workers=task.workers, tile=16)
        for row in (trees.combined(data, lane), *ended):
            np.testing.assert_array_equal(row, data.sum(axis=0, dtype="i4"))


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize(("rows", "lanes", "rotates"), VARIANTS)
def test_bits_are_those_of_the_documented_order(grid: Grid, rows: Rows, lanes: int, rotates: bool) -> None:
    trees = trees_on(grid, rows, lanes, rotates, 2)
    data = rows_of(grid, "f4", 300)
    _, schedule = trees.task(300, ITEM, 0)
    by_axis = data.reshape(*reversed([axis.size for axis in grid.axes]), 300).transpose(4, 3, 2, 1, 0, 5)
    sharing = trees.lanes if trees.rows is Rows.OF_CUBES else 1
    start, found = 0, []
    for number, flow in enumerate(schedule):
        unit, start = by_axis[..., start : start + flow.weight], start + flow.weight
        for owner in trees.owners_of(number % sharing, number // sharing):
            row = reduced(np.moveaxis(unit, owner.axis, 0), grid.axes[owner.axis], owner)
            unit = np.expand_dims(row, owner.axis)
        found.append(unit.reshape(-1))
    assert trees.combined(data, 0).tobytes() == np.concatenate(found).tobytes()


def reduced(values: Array, axis: Axis, owner: Owner) -> Array:
    """From the end of each arm inwards, own + received; the owner: (own + arm behind) + arm ahead."""
    total: Array = values[owner.place]
    for length, way in zip(owner.arms(axis), (-1, 1), strict=True):
        arm = [values[(owner.place + way * hops) % axis.size] for hops in range(length, 0, -1)]
        if arm:
            partial, *others = arm
            for own in others:
                partial = own + partial
            total = total + partial
    return total


@pytest.mark.parametrize("lane", range(8))
def test_members_send_in_turn(lane: int) -> None:
    """On 4x4 cubes a member sends 1.9 messages a moment in the mean; the busiest one of a moment 4, and 5.2 without
    ``STRIDE``."""
    grid = Grid(1, 4, 4, 1, 1, False)
    _, schedule = Trees(grid, Rows.OF_CUBES, True, 8, 0, 64, 8).task(8 * 16 * 16 * 4, ITEM, 0)
    units = schedule[lane::8]
    sent: Counter[tuple[int, int]] = Counter()
    for cube in range(16):
        sent.update((step.round // 2 % 16, cube) for unit in units for step in unit.steps_of(cube) if step.send)
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
def test_units(n_elem: int, slot: int, owners: int, wanted: tuple[int, int, int]) -> None:
    """Their number, the shortest and the longest; together they are the row."""
    lengths = unit_lengths(n_elem, ITEM, slot, owners)
    assert (len(lengths), min(lengths), max(lengths)) == wanted
    assert sum(lengths) == n_elem
    assert max(lengths) * ITEM <= slot


def test_a_slot_holds_an_element() -> None:
    with pytest.raises(ValueError, match="a slot of 2 B holds no element of 4 B"):
        unit_lengths(8, ITEM, 2, 1)
