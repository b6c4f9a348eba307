"""Where a data mover's words lie, and the way of its loop, without a chip."""

import re
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipsim.chips.tensix.edm.data_mover import DataMover
from sipsim.chips.tensix.edm.layout import SEMAPHORE_STRIDE, ChannelSpec, agreement, layout
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import DataMoverParams
from sipsim.core.errors import KernelMisuse

BASE, END = 110592, 2**18


@given(
    channels=st.integers(1, 32),
    page_words=st.integers(1, 300),
    is_merged=st.booleans(),
)
def test_buffers_are_whole_pages_and_use_their_room(channels: int, page_words: int, is_merged: bool) -> None:
    page = 16 * page_words
    try:
        made = layout(BASE, END, channels, page, is_merged)
    except KernelMisuse:
        room = (END - BASE) // channels - SEMAPHORE_STRIDE - 16 * is_merged
        assert room < page
        return
    spans = [(made.semaphore(n), made.semaphore(n) + 4) for n in range(channels)]
    spans += [(made.buffer(n), made.buffer(n) + made.buffer_bytes + 16 * is_merged) for n in range(channels)]
    assert all(first % 16 == 0 for first, _ in spans)
    assert all(end <= first for (_, end), (first, _) in pairwise(spans)), "none over another"
    assert spans[0][0] == BASE
    assert spans[-1][1] <= END
    assert made.buffer_bytes % page == 0 < made.buffer_bytes
    assert (END - BASE) // channels < made.buffer_bytes + page + SEMAPHORE_STRIDE + 16 * is_merged, "no page more"


def spec(is_sender: bool = True, count: int = 3, nbytes: int = 64) -> ChannelSpec:
    return ChannelSpec(is_sender, 0x10000, count, (Core(1, 1),), nbytes)


@pytest.mark.parametrize(
    ("here", "there", "agree"),
    [
        ([spec()], [spec(is_sender=False)], True),
        ([spec(), spec(False, 5)], [spec(is_sender=False), spec(True, 5)], True),
        ([spec()], [spec()], False),
        ([spec()], [spec(is_sender=False, count=4)], False),
        ([spec()], [spec(is_sender=False, nbytes=80)], False),
        ([spec()], [spec(is_sender=False), spec()], False),
    ],
)
@pytest.mark.parametrize("is_merged", [True, False])
def test_ends_agree_when_they_are_mirrors(
    here: list[ChannelSpec], there: list[ChannelSpec], agree: bool, is_merged: bool
) -> None:
    said = agreement(here, is_merged, of_far_end=False)
    assert len(said) == 8
    assert (said == agreement(there, is_merged, of_far_end=True)) is agree
    assert said != agreement(there, not is_merged, of_far_end=True)


@pytest.mark.parametrize(
    ("position", "marked", "number", "passed"),
    [(0, {0}, 0, 0), (0, {3}, 3, 3), (2, {1, 3}, 3, 1), (3, {0, 2}, 0, 1), (3, {2}, 2, 3), (1, {0, 1, 2, 3}, 1, 0)],
)
def test_the_loop_passes_channels_in_turn(position: int, marked: set[int], number: int, passed: int) -> None:
    looked: list[int] = []
    df: Any = SimpleNamespace(
        core=Core(9, 0), ack_address=0x1A200, sync_address=lambda n: 0x1A000 + 16 * n, owe_polls=looked.append
    )
    visits = DataMoverParams(sender_visit_ns=40.0, receiver_visit_ns=6.0)
    mover = DataMover(layout(BASE, END, 4, 16, True), (spec(),) * 4, visits, df)
    mover._position, mover._marked = position, marked
    assert mover._next() == number
    assert looked == ([passed] if passed else [])


def test_a_page_that_does_not_fit_is_one_line() -> None:
    with pytest.raises(KernelMisuse, match=re.escape("leave 4688 B per buffer; take fewer channels or smaller pages")):
        layout(BASE, END, 32, 8192, True)
