"""Numbering, news, gaps and duplicates of the streams between SIPs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.streams import InStreams, LostPacket, OutStreams, SentNews


def test_each_destination_is_numbered_by_itself_from_zero() -> None:
    out = OutStreams()
    assert [out.number(dst, 9) for dst in (3, 1, 3, 3, 1)] == [0, 0, 1, 2, 1]
    assert out.counts == {3: 3, 1: 2}


def test_news_are_told_once_with_all_counts_and_the_least_new_arrival() -> None:
    out = OutStreams()
    for dst, arrival_ps in ((2, 50), (1, 70), (2, 30), (2, 90)):
        out.number(dst, arrival_ps)
    assert out.news() == (SentNews(1, 1, 70), SentNews(2, 3, 30))
    assert out.news() == ()
    out.number(2, 400)
    assert out.news() == (SentNews(2, 4, 400),)


def test_an_arrival_at_zero_is_an_arrival() -> None:
    out = OutStreams()
    out.number(1, 0)
    out.number(1, 5)
    assert out.news() == (SentNews(1, 2, 0),)


def test_packets_in_order_are_new() -> None:
    streams = InStreams()
    assert all(streams.accept(4, seq) for seq in range(5))
    assert streams.counts == {4: 5}


def test_duplicates_are_dropped_and_not_counted() -> None:
    streams = InStreams()
    for seq in (0, 1, 2):
        streams.accept(4, seq)
    streams.news()
    assert [streams.accept(4, seq) for seq in (0, 2)] == [False, False]
    assert streams.counts == {4: 3}
    assert streams.news() == ()


def test_a_gap_is_told_with_what_is_missing_and_leaves_the_count() -> None:
    streams = InStreams()
    streams.accept(4, 0)
    with pytest.raises(LostPacket, match="packets 1 to 2 from SIP 4 are lost: 3 came first"):
        streams.accept(4, 3)
    assert streams.counts == {4: 1}
    assert streams.accept(4, 1)


def test_news_of_what_was_taken() -> None:
    streams = InStreams()
    for src, seq in ((5, 0), (2, 0), (5, 1)):
        streams.accept(src, seq)
    assert streams.news() == ((2, 1), (5, 2))
    streams.accept(2, 1)
    assert streams.news() == ((2, 2),)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans())))
def test_whatever_is_sent_again_every_packet_counts_once(sends: list[tuple[int, bool]]) -> None:
    out, streams = OutStreams(), InStreams()
    for src, again in sends:
        seq = out.number(src, 0)
        assert streams.accept(src, seq)
        if again:
            assert not streams.accept(src, seq)
    assert streams.counts == out.counts
