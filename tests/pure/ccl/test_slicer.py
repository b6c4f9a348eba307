"""Slices of tensors: they cover each fracture once, and workers that follow the rule never wait for ever for a slot."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.collectives.slicer import Slice, Slicing, slice_tensor, slices_in_flight


def ends(turns_of: list[list[int]], n_slots: int) -> bool:
    """Whether a ring of workers ends: in a turn each sends so many messages, then receives its neighbour's.

    ``turns_of``: the messages of each rank's turns.
    """
    size = len(turns_of)
    rings = [0] * size
    doing = [[op for t in range(len(turns_of[rank])) for op in _turn(turns_of, rank, t)] for rank in range(size)]
    moved = True
    while moved:
        moved = False
        for rank in range(size):
            while doing[rank]:
                ring = (rank + 1) % size if doing[rank][0] else rank
                if rings[ring] == n_slots if doing[rank][0] else not rings[ring]:
                    break
                rings[ring] += 1 if doing[rank].pop(0) else -1
                moved = True
    return not any(doing)


def _turn(turns_of: list[list[int]], rank: int, turn: int) -> list[bool]:
    """True for a send, False for a receive."""
    return [True] * turns_of[rank][turn] + [False] * turns_of[rank - 1][turn]


def turns(slicing: Slicing, worker: int, rank: int, ahead: int = 1) -> list[int]:
    """Messages of a worker's turns: of each group of slices, fracture after fracture, back from its own."""
    parts = slicing.of_workers[worker]
    return [
        sum(slicing.messages(part, (rank - step) % slicing.ranks) for part in parts[first : first + ahead])
        for first in range(0, len(parts), ahead)
        for step in range(1, slicing.ranks)
    ]


def check(shape: tuple[int, ...], dim: int, ranks: int, workers: int, message: int, n_slots: int, ahead: int) -> None:
    slicing = slice_tensor(shape, dim, ranks, workers, message, n_slots, ahead)
    covered = np.zeros(shape, int)
    for rank in range(ranks):
        for part in (part for parts in slicing.of_workers for part in parts):
            offset, lengths = slicing.within(part, rank)
            covered[tuple(slice(at, at + length) for at, length in zip(offset, lengths, strict=True))] += 1
    assert (covered == 1).all()
    for worker in range(workers):
        of_ranks = [turns(slicing, worker, rank, ahead) for rank in range(ranks)]
        assert max((most for each in of_ranks for most in each), default=0) <= n_slots
        assert ends(of_ranks, n_slots)


@settings(max_examples=100)
@given(data=st.data())
def test_any_tensor(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4), "shape"))
    n_slots = data.draw(st.integers(1, 8), "slots")
    check(
        shape,
        data.draw(st.integers(0, len(shape) - 1), "dimension"),
        data.draw(st.integers(2, 6), "ranks"),
        data.draw(st.integers(1, 5), "workers"),
        data.draw(st.integers(1, 20), "elements of a message"),
        n_slots,
        data.draw(st.integers(1, n_slots), "slices ahead"),
    )


@pytest.mark.parametrize(("messages", "n_slots"), [(1, 1), (3, 8), (8, 8), (2, 7)])
def test_the_bound_is_exact(messages: int, n_slots: int) -> None:
    """As many slices as may be in flight end, and one more does not."""
    most = slices_in_flight(messages, n_slots)
    assert ends([[most * messages] * 3] * 4, n_slots)
    assert not ends([[(most + 1) * messages] * 3] * 4, n_slots)


@pytest.mark.parametrize(
    ("shape", "dim", "ranks", "workers", "message", "n_slots", "expected"),
    [
        # A vector of 4 fractures of 1000: 2 slots of 100.
        ((4000,), 0, 4, 1, 100, 2, (200,)),
        # Rows of 64, cut along rows: a fracture is 8 rows; 4 messages of two rows each, which lie side by side.
        ((32, 64), 0, 4, 1, 128, 4, (8, 64)),
        ((32, 64), 0, 4, 1, 128, 2, (4, 64)),
        # Cut along columns, a fracture is 16 columns: a run is no longer than that, so a message is one row.
        ((32, 64), 1, 4, 1, 128, 4, (4, 16)),
        # Eight workers share the 8 rows.
        ((32, 64), 0, 4, 8, 128, 4, (1, 64)),
        ((3, 5, 8), 1, 5, 1, 8, 2, (2, 1, 8)),
    ],
)
def test_shapes_by_hand(
    shape: tuple[int, ...], dim: int, ranks: int, workers: int, message: int, n_slots: int, expected: tuple[int, ...]
) -> None:
    slicing = slice_tensor(shape, dim, ranks, workers, message, n_slots)
    assert slicing.of_workers[0][0] == Slice((0,) * len(shape), expected)


def test_workers_take_slices_in_turn() -> None:
    slicing = slice_tensor((4000,), 0, 4, 3, 100, 1)
    offsets = [part.offset[0] for part in slicing.of_workers[1]]
    assert offsets == [100, 400, 700]
    assert {b - a for a, b in pairwise(offsets)} == {300}


@pytest.mark.parametrize(("changed", "text"), [({"ahead": 5}, "do not fit 4 slots"), ({"workers": 0}, "1 or more")])
def test_what_cannot_be_sliced(changed: dict[str, int], text: str) -> None:
    sizes = {"dim": 0, "ranks": 2, "workers": 1, "message": 8, "n_slots": 4} | changed
    with pytest.raises(ValueError, match=text):
        slice_tensor((4, 4), **sizes)
