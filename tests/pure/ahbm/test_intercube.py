"""Units, order and reference of the intercube algorithms. What members do on the machine: ``inproc/collectives``."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from sipsim.chips.ahbm.collectives.intercube import schedule as schedule_module
from sipsim.chips.ahbm.collectives.intercube.exchange import Exchange
from sipsim.chips.ahbm.collectives.intercube.members import Grid, pieces_of

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


def by_sip(rows: Array) -> Array:
    """From the order of axes to (SIPs, cubes, PEs, elements)."""
    pes, cube_w, cube_h, sip_w, sip_h, n_elem = rows.shape
    return rows.transpose(4, 3, 2, 1, 0, 5).reshape(sip_w * sip_h, cube_w * cube_h, pes, n_elem)


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
