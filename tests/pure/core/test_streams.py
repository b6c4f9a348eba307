"""Numbering, news, gaps and duplicates of the streams between SIPs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipsim.core.streams import InStreams, LostPacket, OutStreams


def test_each_destination_is_numbered_from_zero() -> None:
    out = OutStreams()
    assert [out.number(dst, 9) for dst in (3, 1, 3, 3, 1)] == [0, 0, 1, 2, 1]
    assert out.counts == {3: 3, 1: 2}


def test_news_are_returned_once_with_counts_and_least_new_arrivals() -> None:
    out = OutStreams()
    for dst, arrival_ps in ((2, 50), (1, 70), (2, 30), (2, 90)):
        out.number(dst, arrival_ps)
    assert out.news() == ((1, 1, 70), (2, 3, 30))
    assert out.news() == ()
    out.number(2, 400)
    assert out.news() == ((2, 4, 400),)


def test_an_arrival_at_zero_is_an_arrival() -> None:
    out = OutStreams()
    out.number(1, 0)
    out.number(1, 5)
    assert out.news() == ((1, 2, 0),)


def test_packets_in_order_are_new() -> None:
    streams = InStreams()
    assert [streams.accept(4, seq) for seq in range(5)] == [0] * 5
    assert streams.counts == {4: 5}


def test_duplicates_are_dropped_and_not_counted() -> None:
    streams = InStreams()
    for seq in (0, 1, 2):
        streams.accept(4, seq)
    streams.news()
    assert [streams.accept(4, seq) for seq in (0, 2)] == [1, 1]
    assert streams.counts == {4: 3}
    assert streams.news() == ()


def test_a_gap_names_the_missing_packets_and_leaves_the_count() -> None:
    streams = InStreams()
    streams.accept(4, 0)
    with pytest.raises(LostPacket, match="packets 1 to 2 from SIP 4 are lost: packet 3 arrived first"):
        streams.accept(4, 3)
    with pytest.raises(LostPacket, match="packets 1 to 1 from SIP 4 are lost: packet 2 arrived first"):
        streams.accept(4, 2, 7)
    assert streams.counts == {4: 1}
    assert streams.accept(4, 1) == 0


def test_news_of_accepted_packets() -> None:
    streams = InStreams()
    for src, seq in ((5, 0), (2, 0), (5, 1)):
        streams.accept(src, seq)
    assert streams.news() == ((2, 1), (5, 2))
    streams.accept(2, 1)
    assert streams.news() == ((2, 2),)


@pytest.mark.parametrize(
    ("first", "packets", "known", "count"),
    [(3, 2, 0, 5), (3, 0, 0, 3), (2, 4, 1, 6), (0, 5, 3, 5), (0, 3, 3, 3), (1, 1, 1, 3), (0, 0, 0, 3)],
)
def test_of_a_batch_only_new_packets_count(first: int, packets: int, known: int, count: int) -> None:
    """After three packets. The first ``known`` packets of the batch are duplicates."""
    streams = InStreams()
    assert streams.accept(4, 0, 3) == 0
    assert streams.news() == ((4, 3),)
    assert streams.accept(4, first, packets) == known
    assert streams.counts == {4: count}
    assert streams.news() == (((4, count),) if count > 3 else ())


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans())))
def test_a_repeated_packet_counts_once(sends: list[tuple[int, bool]]) -> None:
    out, streams = OutStreams(), InStreams()
    for src, again in sends:
        seq = out.number(src, 0)
        assert streams.accept(src, seq) == 0
        if again:
            assert streams.accept(src, seq) == 1
    assert streams.counts == out.counts


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5))))
def test_overlapping_batches_count_every_packet_once(batches: list[tuple[int, int]]) -> None:
    """Batches that start up to six packets back: exactly the packets not accepted before are new."""
    streams, accepted = InStreams(), 0
    for back, packets in batches:
        first = max(accepted - back, 0)
        known = streams.accept(1, first, packets)
        new = range(first, first + packets)[known:]
        assert list(new) == [seq for seq in range(first, first + packets) if seq >= accepted]
        accepted = max(accepted, first + packets)
        assert streams.counts.get(1, 0) == accepted
