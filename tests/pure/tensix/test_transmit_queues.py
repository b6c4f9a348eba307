"""Transmit queues: times by hand, and any submissions against a wire that takes one packet after the other."""

import heapq
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sipsim.chips.tensix.transmit_queues import TransmitQueue, TransmitQueues, TransmitTimes
from sipsim.core.errors import InvariantViolation
from sipsim.fabric.links.kind import LINK_KINDS, AnyLinkKind
from sipsim.fabric.links.outages import Loss, Outage, Retransmitter

LATENCY_PS = 422_000
BYTE_PS = 80


def link(**changes: object) -> AnyLinkKind:
    """Tenstorrent's: 50 B a packet of 16 to 1500 B, at 12.5 GB/s."""
    params = {
        "bandwidth_GBps": 12.5,
        "latency_ns": 422,
        "max_payload_bytes": 1500,
        "min_frame_bytes": 50,
        "preamble_bytes": 16,
        "header_bytes": 14,
        "stream_header_bytes": 16,
        "fcs_bytes": 4,
        "gap_bytes": 0,
        "forwarding": "store_and_forward",
    }
    return LINK_KINDS.get("ethernet")(**{**params, **changes})


class Clock:
    """Calls functions at times, in order."""

    def __init__(self) -> None:
        self.now_ps = 0
        self.called = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time_ps: int, function: Callable[[], None]) -> None:
        assert time_ps >= self.now_ps
        heapq.heappush(self._heap, (time_ps, len(self._heap) + self.called, function))

    def run_until(self, time_ps: int) -> None:
        """Call what is due before this time."""
        while self._heap and self._heap[0][0] < time_ps:
            self.now_ps, _, function = heapq.heappop(self._heap)
            self.called += 1
            function()
        self.now_ps = time_ps


def test_one_queue_by_hand() -> None:
    """A command that finds the wire free, one behind it, and one later."""
    of = TransmitQueue(link(), 32)
    assert of.submit(0, 1000, 16) == TransmitTimes(1000, 1000 + 66 * 80, 1000 + 66 * 80 + LATENCY_PS)
    busy_ps = 1000 + 66 * 80
    assert of.submit(0, 1000, 3000) == TransmitTimes(busy_ps, busy_ps + 3100 * 80, busy_ps + 3100 * 80 + LATENCY_PS)
    assert of.submit(0, 900_000, 1) == TransmitTimes(900_000, 905_280, 905_280 + LATENCY_PS)


@pytest.mark.parametrize("two", [False, True], ids=["one queue", "two queues"])
def test_a_queue_refuses_when_busy(two: bool) -> None:
    """With room for 2: one on the wire, two that have not started, and no more until the next starts."""
    clock = Clock()
    of = TransmitQueues(link(), 2, clock.at) if two else TransmitQueue(link(), 2)

    def submit(now_ps: int) -> bool:
        if isinstance(of, TransmitQueues):
            clock.run_until(now_ps)
            return of.submit(0, now_ps, 1500, lambda _times: None)
        return of.submit(0, now_ps, 1500) is not None

    packet_ps = 1550 * 80
    assert [submit(0) for _ in range(5)] == [True, True, True, False, False]
    assert of.is_busy(0, 0)
    assert of.free_at_ps(0, 0) == packet_ps
    assert not of.is_busy(1, 0)
    assert of.free_at_ps(1, 0) == 0
    clock.run_until(packet_ps - 1)
    assert of.is_busy(0, packet_ps - 1)
    assert not submit(packet_ps - 1)
    clock.run_until(packet_ps)
    assert not of.is_busy(0, packet_ps)
    assert of.free_at_ps(0, packet_ps) == packet_ps
    assert [submit(packet_ps), submit(packet_ps)] == [True, False]
    assert of.free_at_ps(0, packet_ps) == 2 * packet_ps


def test_one_queue_refuses_a_second() -> None:
    of = TransmitQueue(link(), 2)
    of.submit(1, 0, 16)
    with pytest.raises(InvariantViolation, match="transmit queue 0 is used beside 1"):
        of.submit(0, 0, 16)


def test_two_queues_by_hand() -> None:
    """Queue 0 sends three full packets; a short command comes to queue 1 while the first is on the wire."""
    clock, told = Clock(), {}
    of = TransmitQueues(link(), 32, clock.at)
    of.submit(0, 0, 4500, lambda times: told.__setitem__("long", (clock.now_ps, times)))
    clock.run_until(100)
    of.submit(1, 100, 16, lambda times: told.__setitem__("short", (clock.now_ps, times)))
    clock.run_until(10**9)
    full_ps, short_ps = 1550 * 80, 66 * 80
    assert told["short"] == (full_ps, TransmitTimes(full_ps, full_ps + short_ps, full_ps + short_ps + LATENCY_PS))
    end_ps = 3 * full_ps + short_ps
    assert told["long"] == (2 * full_ps + short_ps, TransmitTimes(0, end_ps, end_ps + LATENCY_PS))
    assert clock.called == 3, "an event a command, and one as the short one put the long one off"


def test_a_command_may_follow_from_another() -> None:
    """What is told may submit at once; queue 0 goes on in turn with queue 1."""
    clock, ends = Clock(), []
    of = TransmitQueues(link(), 32, clock.at)

    def again(times: TransmitTimes) -> None:
        ends.append(times.tail_left_ps)
        if len(ends) < 4:
            of.submit(0, clock.now_ps, 1500, again)

    of.submit(0, 0, 1500, again)
    clock.run_until(10**9)
    assert ends == [1550 * 80 * number for number in (1, 2, 3, 4)]


def test_losses_and_what_is_sent_again() -> None:
    """Three packets, of which the link takes the last as it goes down."""
    packet_ps = 1550 * 80
    down = Outage(2 * packet_ps + LATENCY_PS, 10**9)
    for again, times in (
        (True, TransmitTimes(0, 10**9 + 3 * packet_ps, 10**9 + 3 * packet_ps + LATENCY_PS)),
        (False, TransmitTimes(0, 3 * packet_ps, 3 * packet_ps + LATENCY_PS, Loss(down.down_ps, 1, 1550))),
    ):
        kind = link(go_back_n=again)
        one = TransmitQueue(kind, 32, [down])
        assert one.submit(0, 0, 4500) == times
        clock, told = Clock(), []
        two = TransmitQueues(kind, 32, clock.at, [down])
        two.submit(0, 0, 4500, told.append)
        clock.run_until(10**10)
        assert told == [times]
        used = two.outages_used("0.eth0>1.eth1")
        assert used == one.outages_used("0.eth0>1.eth1")
        assert (used[0].resent_packets, used[0].duplicate_packets) == ((3, 2) if again else (0, 0))


class Submitted(NamedTuple):
    """``number`` counts what was taken."""

    queue: int
    now_ps: int
    nbytes: int


class Fair:
    """The wire and its queues, one packet after the other: the reference. ``starts_ps``: of packets, by command."""

    def __init__(self, kind: AnyLinkKind, accept_ahead: int, outages: Sequence[Outage]) -> None:
        self._kind = kind
        self._accept_ahead = accept_ahead
        self._wire = Retransmitter(kind.latency_ps, kind.bandwidth_bps, outages)
        self._packets: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
        self._last = 1
        self._free_ps = 0
        self.times: list[TransmitTimes] = []

    def run_until(self, now_ps: int) -> None:
        """Send what can be sent by now."""
        while any(self._packets):
            queue = 1 - self._last if self._packets[1 - self._last] else self._last
            start_ps = self._wire.next_start_ps(self._free_ps)
            if start_ps > now_ps:
                return
            command, nbytes = self._packets[queue].pop(0)
            self._free_ps, self._last = start_ps + nbytes * BYTE_PS, queue
            end_ps = self._wire.schedule(start_ps, self._free_ps, [nbytes]).end_ps
            first_ps = self.times[command].start_ps
            first_ps = start_ps if first_ps < 0 else first_ps
            self.times[command] = TransmitTimes(first_ps, end_ps, end_ps + self._kind.latency_ps)

    def submit(self, queue: int, now_ps: int, nbytes: int) -> bool:
        self.run_until(now_ps)
        waiting = {command for command, _ in self._packets[queue] if self.times[command].start_ps < 0}
        if len(waiting) >= self._accept_ahead:
            return False
        if not any(self._packets):
            self._free_ps = max(self._free_ps, now_ps)
        self.times.append(TransmitTimes(-1, -1, -1))
        self._packets[queue].extend((len(self.times) - 1, each) for each in self._kind.packets(nbytes))
        self.run_until(now_ps)
        return True


SUBMITTED = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 400_000), st.sampled_from([1, 16, 17, 1500, 1501, 3001, 9000])),
    min_size=1,
    max_size=25,
)
OUTAGES = st.sampled_from(
    [[], [(300_000, 900_000)], [(100_000, 1_000_000), (1_500_000, 1_500_001), (2_000_000, 2_600_000)]]
)


@settings(max_examples=300)
@given(SUBMITTED, st.integers(1, 4), OUTAGES)
@example([(0, 0, 9000), (1, 5, 9000), (0, 0, 1), (1, 3, 16)], 4, [])
def test_two_queues_share_the_wire_fairly(
    submitted: list[tuple[int, int, int]], accept_ahead: int, outages: list[tuple[int, int]]
) -> None:
    """The same times, and the same refusals, as the reference; each told when it is certain, and before it arrives."""
    kind, clock = link(), Clock()
    downs = [Outage(*each) for each in outages]
    fair, of = Fair(kind, accept_ahead, downs), TransmitQueues(kind, accept_ahead, clock.at, downs)
    told: dict[int, TransmitTimes] = {}
    queues: list[int] = []
    now_ps = 0
    for queue, gap_ps, nbytes in submitted:
        now_ps += gap_ps
        clock.run_until(now_ps)

        def tell(times: TransmitTimes, number: int = len(queues)) -> None:
            told[number] = times
            assert clock.now_ps + kind.latency_ps + 66 * BYTE_PS <= times.arrival_ps

        taken = fair.submit(queue, now_ps, nbytes)
        assert of.is_busy(queue, now_ps) == (not taken)
        assert (of.free_at_ps(queue, now_ps) > now_ps) == (not taken)
        assert of.submit(queue, now_ps, nbytes, tell) == taken
        if taken:
            queues.append(queue)
    clock.run_until(2**60)
    fair.run_until(2**60)
    assert [told[number] for number in range(len(told))] == fair.times
    for each in (0, 1):
        mine = [times for times, queue in zip(fair.times, queues, strict=True) if queue == each]
        assert all(one < other and one.arrival_ps < other.arrival_ps for one, other in pairwise(mine)), "in order"
    if not outages:
        assert clock.called <= 2 * len(submitted), "an event a command, and one for each that put it off"


@settings(max_examples=300)
@given(SUBMITTED, st.integers(1, 4), OUTAGES)
def test_one_queue_is_as_two_with_nothing_in_the_other(
    submitted: list[tuple[int, int, int]], accept_ahead: int, outages: list[tuple[int, int]]
) -> None:
    kind, now_ps = link(), 0
    downs = [Outage(*each) for each in outages]
    fair, of = Fair(kind, accept_ahead, downs), TransmitQueue(kind, accept_ahead, downs)
    found, taken_bytes = [], 0
    for _, gap_ps, nbytes in submitted:
        now_ps += gap_ps
        free_at_ps = of.free_at_ps(0, now_ps)
        times = of.submit(0, now_ps, nbytes)
        assert (times is not None) == fair.submit(0, now_ps, nbytes) == (free_at_ps == now_ps)
        if times is None:
            assert of.is_busy(0, free_at_ps - 1)
        else:
            found.append(times)
            taken_bytes += kind.wire_bytes(nbytes)
            now_ps = max(now_ps, free_at_ps)
    fair.run_until(2**60)
    assert found == fair.times
    assert found[-1].tail_left_ps - found[0].start_ps >= taken_bytes * BYTE_PS or outages, "no faster than the wire"


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=40), st.sampled_from([3, 12.5, 25, 50]))
def test_bytes_are_conserved(sizes: list[int], bandwidth: float) -> None:
    """Back to back, the wire carries all of them at its rate, rounded up once."""
    kind = link(bandwidth_GBps=bandwidth)
    of = TransmitQueue(kind, 1000)
    found = [of.submit(0, 77, nbytes) for nbytes in sizes]
    whole_ps = -(-sum(map(kind.wire_bytes, sizes)) * 10**12 // kind.bandwidth_bps)
    assert found[-1] is not None
    assert found[-1].tail_left_ps == 77 + whole_ps
