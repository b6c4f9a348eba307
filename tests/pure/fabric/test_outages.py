"""Outages of links: times by hand, and any packets against a sender and a receiver that go back N step by step."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.fabric.links.outages import Crossing, Loss, Outage, OutageUse, Retransmitter

LATENCY_PS = 500
BYTE_PS = 80
BANDWIDTH_BPS = 12_500_000_000
D = 100 * BYTE_PS
"""The time of a packet of 100 B on the wire."""


def link(*outages: tuple[int, int], again: bool = True, latency_ps: int = LATENCY_PS) -> Retransmitter:
    return Retransmitter(latency_ps, BANDWIDTH_BPS, [Outage(*each) for each in outages], again)


def frame(of: Retransmitter, start_ps: int, packets: int = 1) -> Crossing:
    """A frame of packets of 100 B, sent at the rate of the wire."""
    return of.schedule(start_ps, start_ps + packets * D, [100] * packets)


@pytest.mark.parametrize(
    ("down_ps", "arrives_from_ps", "resent", "duplicates"),
    [
        # L = 500: on the wire from 0 to 8000, arrives at 8500, its acknowledgement is back at 9000.
        (9000, 0, 0, 0),
        (8999, 0, 1, 1),
        (8500, 0, 1, 1),
        (8499, 50_000, 1, 0),
        (8000, 50_000, 1, 0),
        (1, 50_000, 1, 0),
    ],
)
def test_what_becomes_of_a_packet(down_ps: int, arrives_from_ps: int, resent: int, duplicates: int) -> None:
    """Acknowledged, arrived, lost behind the wire, lost on it."""
    of = link((down_ps, 50_000))
    assert frame(of, 0) == Crossing(0, arrives_from_ps, arrives_from_ps + D)
    (used,) = of.used("0.E>1.W")
    cost = (resent, duplicates, 100 * resent, D * resent)
    assert used == OutageUse("0.E>1.W", down_ps, 50_000 - down_ps, *cost)


@pytest.mark.parametrize("start_ps", [9000, 20_000, 49_999])
def test_what_is_to_be_sent_meanwhile_waits(start_ps: int) -> None:
    of = link((9000, 50_000))
    assert frame(of, start_ps) == Crossing(50_000, 50_000, 50_000 + D)
    assert of.used("")[0].resent_packets == 0


def test_what_is_sent_again_goes_first() -> None:
    """A long frame loses its third packet; the second, a duplicate, goes before it again, and a new one after both."""
    down_ps = 2 * D + LATENCY_PS + 100
    of = link((down_ps, 50_000))
    assert frame(of, 0, packets=3) == Crossing(0, 0, 50_000 + 2 * D)
    assert frame(of, 3 * D) == Crossing(50_000 + 2 * D, 50_000 + 2 * D, 50_000 + 3 * D)
    (used,) = of.used("")
    assert (used.resent_packets, used.duplicate_packets) == (2, 1)


def test_the_wire_catches_up() -> None:
    """Until nothing waits any more; then times are as they were asked for."""
    of = link((9000, 50_000))
    assert [frame(of, 10_000 + number * D).end_ps for number in range(3)] == [50_000 + n * D for n in (1, 2, 3)]
    assert frame(of, 50_000 + 3 * D - 1) == Crossing(50_000 + 3 * D, 50_000 + 3 * D, 50_000 + 4 * D)
    assert frame(of, 50_000 + 5 * D) == Crossing(50_000 + 5 * D, 50_000 + 5 * D, 50_000 + 6 * D)


def test_what_was_sent_again_may_be_lost_again() -> None:
    of = link((4000, 20_000), (24_000, 40_000), (44_000, 60_000))
    assert frame(of, 0) == Crossing(0, 60_000, 60_000 + D)
    assert [each.resent_packets for each in of.used("")] == [1, 1, 1]


def test_an_outage_before_its_turn_is_no_sending() -> None:
    """Two packets wait; the link goes down again when only the first has been sent again."""
    of = link((4000, 20_000), (24_000, 40_000))
    assert [frame(of, 0).start_ps, frame(of, D).start_ps] == [40_000, 40_000 + D]
    assert [each.resent_packets for each in of.used("")] == [1, 1]


def test_a_slow_frame_keeps_its_times() -> None:
    """Two packets over 100 ns, of which one is lost: the last byte comes no later, as it was not there before."""
    assert link((30_000, 40_000)).schedule(0, 100_000, [100, 100]) == Crossing(0, 40_000, 100_000)
    assert link((60_000, 70_000)).schedule(0, 100_000, [100, 100]) == Crossing(0, 0, 100_000)


def test_losses() -> None:
    """Without go-back-N what has arrived stays, what was on the wire is lost, and what waits comes."""
    of = link((3 * D, 50_000), again=False)
    assert frame(of, 0, packets=2).loss is None
    assert frame(of, 2 * D).loss == Loss(3 * D, 1, 100)
    assert frame(of, 3 * D) == Crossing(50_000, 50_000, 50_000 + D)
    of = link((D + 4000, 50_000), again=False)
    assert frame(of, 0, packets=4).loss == Loss(D + 4000, 1, 100)
    of = link((D + 400, 50_000), again=False)
    assert frame(of, 0, packets=4).loss == Loss(D + 400, 2, 200)
    assert of.used("")[0].resent_packets == 0


class Sent(NamedTuple):
    """By packet: the first byte of its first transmission, and of the one that arrived. By outage: what went again."""

    first_ps: list[int]
    arrived_ps: list[int]
    resent: list[int]
    duplicates: list[int]


def go_back_n(starts_ps: Sequence[int], sizes: Sequence[int], outages: Sequence[Outage], latency_ps: int) -> Sent:
    """A sender with a window without limit and a receiver that takes the packet it expects, step by step.

    Packet ``n`` is ready at ``starts_ps[n]``.
    """
    total = len(sizes)
    first_ps, arrived_ps, acked_ps = [-1] * total, [-1] * total, [-1] * total
    resent, duplicates = [0] * len(outages), [0] * len(outages)
    now_ps = sending = expected = 0
    for number, down in enumerate([*outages, Outage(2**60, 2**60)]):
        while sending < total and max(now_ps, starts_ps[sending]) < down.down_ps:
            now_ps = max(now_ps, starts_ps[sending])
            if first_ps[sending] < 0:
                first_ps[sending] = now_ps
            else:
                resent[number - 1] += 1
                duplicates[number - 1] += arrived_ps[sending] >= 0
            end_ps = now_ps + sizes[sending] * BYTE_PS
            if end_ps + latency_ps <= down.down_ps and sending == expected:
                arrived_ps[sending], expected = now_ps, expected + 1
            if end_ps + 2 * latency_ps <= down.down_ps:
                acked_ps[sending] = end_ps + 2 * latency_ps
            now_ps, sending = end_ps, sending + 1
        sending = min([n for n in range(sending) if acked_ps[n] < 0], default=sending)
        now_ps = down.up_ps
    return Sent(first_ps, arrived_ps, resent, duplicates)


def outages_of(gaps: Sequence[tuple[int, int]]) -> list[Outage]:
    found, now_ps = [], 0
    for up_ps, down_ps in gaps:
        found.append(Outage(now_ps + up_ps, now_ps + up_ps + down_ps))
        now_ps = found[-1].up_ps
    return found


FRAMES = st.lists(
    st.tuples(st.integers(0, 40_000), st.lists(st.integers(16, 300), min_size=1, max_size=5)), min_size=1, max_size=12
)
GAPS = st.lists(st.tuples(st.integers(1, 60_000), st.integers(1, 50_000)), min_size=1, max_size=4)


@settings(max_examples=300)
@given(FRAMES, GAPS, st.sampled_from([0, 1, 500, 9_000, 40_000]))
def test_as_step_by_step(frames: list[tuple[int, list[int]]], gaps: list[tuple[int, int]], latency_ps: int) -> None:
    """The times of each frame, and what went again after each outage."""
    outages = outages_of(gaps)
    of = link(*outages, latency_ps=latency_ps)
    crossings, ready_ps, asked_ps, free_ps = [], 0, [], 0
    for gap_ps, packets in frames:
        ready_ps += gap_ps
        free_ps = max(free_ps, ready_ps)
        asked_ps += [free_ps + sum(packets[:number]) * BYTE_PS for number in range(len(packets))]
        end_ps = free_ps + sum(packets) * BYTE_PS
        crossings.append(of.schedule(free_ps, end_ps, packets))
        free_ps = end_ps
    sizes = [nbytes for _, packets in frames for nbytes in packets]
    by_steps, number = go_back_n(asked_ps, sizes, outages, latency_ps), 0
    for crossing, (_, packets) in zip(crossings, frames, strict=True):
        last = number + len(packets) - 1
        end_ps = by_steps.arrived_ps[last] + sizes[last] * BYTE_PS
        assert crossing == Crossing(by_steps.first_ps[number], by_steps.arrived_ps[number], end_ps)
        number = last + 1
    assert [each.resent_packets for each in of.used("")] == by_steps.resent
    assert [each.duplicate_packets for each in of.used("")] == by_steps.duplicates


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=20),
    GAPS,
    st.sampled_from([3, 7_777_777_777, BANDWIDTH_BPS, 64_000_000_000]),
)
def test_order_bytes_and_rate(
    frames: list[tuple[int, int, int]], gaps: list[tuple[int, int]], bandwidth_bps: int
) -> None:
    """Frames slower than the wire, at rates that do not divide: order is kept, none is early or arrives over a link
    that is down, and none before the first outage is touched.
    """
    outages = outages_of(gaps)
    of = Retransmitter(LATENCY_PS, bandwidth_bps, outages)
    free_ps, found = 0, []
    for gap_ps, packets, slower in frames:
        start_ps = free_ps + gap_ps
        free_ps = start_ps + slower * -(-packets * 100 * 10**12 // bandwidth_bps)
        found.append((start_ps, free_ps, of.schedule(start_ps, free_ps, [100] * packets)))
    for start_ps, end_ps, crossing in found:
        assert start_ps <= crossing.first_ps <= crossing.start_ps
        assert end_ps <= crossing.end_ps
        for down_ps, up_ps in outages:
            assert not down_ps - LATENCY_PS < crossing.end_ps < up_ps
            assert not down_ps <= crossing.start_ps < up_ps
        if end_ps + 2 * LATENCY_PS <= outages[0].down_ps:
            assert (start_ps, end_ps) == (crossing.start_ps, crossing.end_ps)
    for (_, _, one), (_, _, other) in pairwise(found):
        assert one.end_ps <= other.end_ps
        assert one.start_ps <= other.start_ps
