"""Messages between two ranks: when the ranks of a batch take them. Slots of rings that are made while time runs."""

import pytest

from sipsim.chips.ahbm.collectives.wirings import slots_in, turn


@pytest.mark.parametrize("size", range(2, 26))
def test_no_rank_has_two_messages_in_one_turn(size):
    """Also those that it sends and those that it receives; and all messages of a distance take three rounds at most."""
    for rank in range(size):
        others = [each for each in range(size) if each != rank]
        ends = [(rank, other) for other in others] + [(other, rank) for other in others]
        assert len({turn(*each, size) for each in ends}) == len(ends)
        assert {turn(*each, size)[1] for each in ends} <= {0, 1, 2}


SLOTS = [
    (16384, 4, 16384, (4, 4096), (4, 4096)),
    (16384 // 3, 4, 16384, (4, 1280), (4, 1024)),
    (16384 // 15, 8, 4096, (4, 256), (4, 256)),
    (16384 // 23, 4, 16384, (2, 256), (2, 256)),
    (800, 8, 4096, (3, 256), (2, 256)),
    (131072 // 3, 8, 5000, (8, 5000), (8, 4096)),
    (131072, 6, 64, (6, 64), (4, 64)),
    (255, 8, 4096, (1, 0), (1, 0)),
]


@pytest.mark.parametrize(("room", "count", "nbytes", "found", "strict"), SLOTS)
def test_slots_that_fit_a_room(room, count, nbytes, found, strict):
    """Under hw_strict powers of two (ADR-0023 D21)."""
    assert slots_in(room, count, nbytes, False) == found
    assert slots_in(room, count, nbytes, True) == strict
