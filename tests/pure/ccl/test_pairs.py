"""Messages between two ranks: when the ranks of a batch take them."""

import pytest

from sipsim.ccl.groups.pairs import turn


@pytest.mark.parametrize("size", range(2, 26))
def test_no_rank_has_two_messages_in_one_turn(size):
    """Also those that it sends and those that it receives; and all messages of a distance take three rounds at most."""
    for rank in range(size):
        others = [each for each in range(size) if each != rank]
        ends = [(rank, other) for other in others] + [(other, rank) for other in others]
        assert len({turn(*each, size) for each in ends}) == len(ends)
        assert {turn(*each, size)[1] for each in ends} <= {0, 1, 2}
