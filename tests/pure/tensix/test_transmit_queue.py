"""The transmit queue: times by hand, and any submissions against a wire that takes one packet after the other."""

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.chips.tensix.transmit_queue import TransmitQueue, TransmitTimes
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


def test_one_queue_by_hand() -> None:
    """A command that finds the wire free, one behind it, and one later."""
    of = TransmitQueue(link(), 32)
    assert of.submit(1000, 16) == TransmitTimes(1000, 1000 + 66 * 80, 1000 + 66 * 80 + LATENCY_PS)
    busy_ps = 1000 + 66 * 80
    assert of.submit(1000, 3000) == TransmitTimes(busy_ps, busy_ps + 3100 * 80, busy_ps + 3100 * 80 + LATENCY_PS)
    assert of.submit(900_000, 1) == TransmitTimes(900_000, 905_280, 905_280 + LATENCY_PS)


def test_a_queue_refuses_when_busy() -> None:
    """With room for 2: one on the wire, two that have not started, and no more until the next starts."""
    of = TransmitQueue(link(), 2)

    def submit(now_ps: int) -> bool:
        return of.submit(now_ps, 1500) is not None

    packet_ps = 1550 * 80
    assert [submit(0) for _ in range(5)] == [True, True, True, False, False]
    assert of.is_busy(0)
    assert of.free_at_ps(0) == packet_ps
    assert of.is_busy(packet_ps - 1)
    assert not submit(packet_ps - 1)
    assert not of.is_busy(packet_ps)
    assert of.free_at_ps(packet_ps) == packet_ps
    assert [submit(packet_ps), submit(packet_ps)] == [True, False]
    assert of.free_at_ps(packet_ps) == 2 * packet_ps


def test_losses_and_what_is_sent_again() -> None:
    """Three packets, of which the link takes the last as it goes down."""
    packet_ps = 1550 * 80
    down = Outage(2 * packet_ps + LATENCY_PS, 10**9)
    for again, times in (
        (True, TransmitTimes(0, 10**9 + 3 * packet_ps, 10**9 + 3 * packet_ps + LATENCY_PS)),
        (False, TransmitTimes(0, 3 * packet_ps, 3 * packet_ps + LATENCY_PS, Loss(down.down_ps, 1, 1550))),
    ):
        kind = link(go_back_n=again)
        of = TransmitQueue(kind, 32, [down])
        assert of.submit(0, 4500) == times
        used = of.outages_used("0.eth0>1.eth1")
        assert (used[0].resent_packets, used[0].duplicate_packets) == ((3, 2) if again else (0, 0))


class Reference:
    """The wire and its queue, one packet after the other."""

    def __init__(self, kind: AnyLinkKind, accept_ahead: int, outages: Sequence[Outage]) -> None:
        self._kind = kind
        self._accept_ahead = accept_ahead
        self._wire = Retransmitter(kind.latency_ps, kind.bandwidth_bps, outages)
        self._free_ps = 0
        self.times: list[TransmitTimes] = []

    def submit(self, now_ps: int, nbytes: int) -> bool:
        if sum(each.start_ps > now_ps for each in self.times) >= self._accept_ahead:
            return False
        start_ps = self._free_ps = max(self._free_ps, now_ps)
        crossings = []
        for packet in self._kind.packets(nbytes):
            self._free_ps += packet * BYTE_PS
            crossings.append(self._wire.schedule(start_ps, self._free_ps, [packet]))
            start_ps = self._free_ps
        end_ps = crossings[-1].end_ps
        self.times.append(TransmitTimes(crossings[0].first_ps, end_ps, end_ps + self._kind.latency_ps))
        return True


SUBMITTED = st.lists(
    st.tuples(st.integers(0, 400_000), st.sampled_from([1, 16, 17, 1500, 1501, 3001, 9000])), min_size=1, max_size=25
)
OUTAGES = st.sampled_from(
    [[], [(300_000, 900_000)], [(100_000, 1_000_000), (1_500_000, 1_500_001), (2_000_000, 2_600_000)]]
)


@settings(max_examples=300)
@given(SUBMITTED, st.integers(1, 4), OUTAGES)
def test_times_and_refusals_are_those_of_packets_one_after_the_other(
    submitted: list[tuple[int, int]], accept_ahead: int, outages: list[tuple[int, int]]
) -> None:
    kind, now_ps = link(), 0
    downs = [Outage(*each) for each in outages]
    reference, of = Reference(kind, accept_ahead, downs), TransmitQueue(kind, accept_ahead, downs)
    found, taken_bytes = [], 0
    for gap_ps, nbytes in submitted:
        now_ps += gap_ps
        free_at_ps = of.free_at_ps(now_ps)
        times = of.submit(now_ps, nbytes)
        assert (times is not None) == reference.submit(now_ps, nbytes) == (free_at_ps == now_ps)
        if times is None:
            assert of.is_busy(free_at_ps - 1)
        else:
            found.append(times)
            taken_bytes += kind.wire_bytes(nbytes)
            now_ps = max(now_ps, free_at_ps)
    assert found == reference.times
    assert all(one < other and one.arrival_ps < other.arrival_ps for one, other in pairwise(found)), "in order"
    assert found[-1].tail_left_ps - found[0].start_ps >= taken_bytes * BYTE_PS or outages, "no faster than the wire"


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=40), st.sampled_from([3, 12.5, 25, 50]))
def test_bytes_are_conserved(sizes: list[int], bandwidth: float) -> None:
    """Back to back, the wire carries all of them at its rate, rounded up once."""
    kind = link(bandwidth_GBps=bandwidth)
    of = TransmitQueue(kind, 1000)
    found = [of.submit(77, nbytes) for nbytes in sizes]
    whole_ps = -(-sum(map(kind.wire_bytes, sizes)) * 10**12 // kind.bandwidth_bps)
    assert found[-1] is not None
    assert found[-1].tail_left_ps == 77 + whole_ps
