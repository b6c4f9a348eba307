"""Memory that two tensors share, against sets of addresses."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sipsim.collectives.call import Range, merged_ranges, overlap, split

RANGES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6)).map(lambda each: (each[0], sum(each))), max_size=5)


def addresses(ranges: list[Range]) -> list[int]:
    return [address for each in ranges for address in range(*each)]


@given(RANGES, RANGES)
def test_overlap(one: list[Range], other: list[Range]) -> None:
    shared = set(addresses(one)) & set(addresses(other))
    assert overlap(merged_ranges(one), merged_ranges(other)) == bool(shared)


@given(RANGES, st.integers(0, 40), st.integers(0, 40))
def test_split(ranges: list[Range], first: int, nbytes: int) -> None:
    every = addresses(ranges)
    inside, outside = split(ranges, first, nbytes)
    assert addresses(inside) == every[first : first + nbytes]
    assert addresses(outside) == every[:first] + every[first + nbytes :]
    for found in (inside, outside):
        assert all(before[1] != after[0] and before[0] < before[1] for before, after in pairwise(found))
