"""Two fabrics of flows, joined by a link whose frames are mailed: what the far one shares, and what one takes alone."""

import random
import statistics
from itertools import accumulate

import msgspec
import pytest
from packets import packet_ends_ps
from water_filling import Offered

from sipsim.core.engine import ARRIVAL, Engine
from sipsim.core.errors import LinkLoss
from sipsim.core.units import PS_PER_S, gbytes_per_s_to_bps
from sipsim.fabric.channels import Arbitration
from sipsim.fabric.delays import Past, delayed
from sipsim.fabric.flows import FlowFabric, Train
from sipsim.fabric.graph import Edge, Node, Route, link_edge, port_node
from sipsim.fabric.links.ethernet import Ethernet
from sipsim.fabric.links.frames import UNSENT, Frame, Number, decode, packet_kind
from sipsim.fabric.links.kind import AnyLinkKind, Port, PortContext
from sipsim.fabric.links.outages import Outage
from sipsim.fabric.links.ucie import Ucie

CHANNELS = Arbitration(256, (50, 50))
STRICT = Arbitration(256, (50, 50, 0))
FIRST = 2
"""The channel that :data:`STRICT` serves before all others."""
NEAR_PES, LOCAL_PES = range(4), range(4, 8)
BESIDE = 8
"""A source whose transfers use PE 0's edge to the link and not the link."""


@packet_kind
class Parcel(Frame, tag=110):
    """Transfer ``at`` of the offered ones."""

    at: Number

    @property
    def data_bytes(self) -> int:
        return 1


def edge(src: Node, dst: Node, gbps: float = 64) -> Edge:
    return Edge(src, dst, 250, 1000, gbytes_per_s_to_bps(gbps))


ROUTER, MEMORY = Node("router", 0, 0), Node("hbm", 0, 0)
INTO_MEMORY = edge(ROUTER, MEMORY)


def own(place: int, dst: Node) -> Edge:
    return edge(Node("pe", 0, place), dst)


class Boundary:
    """PEs 0 to 3 send over a link of ``gbps`` to the memory that PEs 4 to 7, behind the link, use too."""

    def __init__(self, gbps: float, channels: Arbitration = CHANNELS, link: AnyLinkKind | None = None) -> None:
        self.channels = channels
        self.link = link or Ucie(gbps, 2, 25, 0.04, 2, 4, None, 0)
        self.outages: tuple[Outage, ...] = ()
        self.far_history: list[Past] = []
        self.near = [
            Route(Node("pe", 0, place), 0, (own(place, port_node("E")), self._link_edge())) for place in NEAR_PES
        ]
        self.far = Route(port_node("W"), 0, (INTO_MEMORY,))
        self.local = {place: Route(Node("pe", 0, place), 0, (own(place, ROUTER), INTO_MEMORY)) for place in LOCAL_PES}
        self.whole = {place: way.then(self.far) for place, way in enumerate(self.near)} | self.local

    def _link_edge(self) -> Edge:
        return link_edge("E", self.link.latency_ps, self.link.bandwidth_bps, self.link)

    def offered(self, seed: int, transfers: int, percent: int, far_in: int) -> list[Offered]:
        """Sizes log-uniform from 64 B to 256 KiB, one in ``far_in`` over the link, the busiest edge used to
        ``percent``, channels alike."""
        draw = random.Random(seed)
        places = [draw.choice(LOCAL_PES if draw.randrange(far_in) else NEAR_PES) for _ in range(transfers)]
        sizes = [round(64 * 4096 ** draw.random()) for _ in places]
        needs: dict[Edge, int] = {}
        for place, nbytes in zip(places, sizes, strict=True):
            for each in self.whole[place].edges:
                needs[each] = needs.get(each, 0) + nbytes * PS_PER_S // each.bandwidth_bps
        gaps = [draw.expovariate(1) for _ in places]
        ps_per_gap = max(needs.values()) * 100 / percent / sum(gaps)
        starts = [round(passed * ps_per_gap) for passed in accumulate(gaps)]
        return [
            Offered(place, draw.randrange(len(self.channels.weights)), start_ps, nbytes, self.whole[place])
            for place, start_ps, nbytes in zip(places, starts, sizes, strict=True)
        ]

    def ends_ps(self, offered: list[Offered]) -> list[int]:
        """When the last byte of each transfer is at the memory."""
        engine = Engine()
        near, far = FlowFabric(engine, self.channels), FlowFabric(engine, self.channels)
        far.history = self.far_history
        ends: dict[int, int] = {}
        lookahead_ps = self.link.latency_ps
        numbers: dict[int, int] = {}
        promises: dict[Train, int] = {}

        def emit(_channel: int, arrival_ps: int, body: bytes) -> None:
            assert arrival_ps >= engine.now_ps + lookahead_ps
            packet = decode(body)
            number = packet.frame_number if isinstance(packet, Parcel) else packet.number
            if isinstance(packet, Parcel):
                numbers[number] = packet.at
            each = offered[numbers[number]]
            assert engine.now_ps >= promises.get(near.train(each.source, each.channel), 0)
            arrive = receiver.receive if isinstance(packet, Parcel) else receiver.receive_tail
            engine.at(arrival_ps, lambda: arrive(packet), ARRIVAL)

        def came(_node: Node, frame: Parcel) -> object:
            at = frame.at
            train = far.train(("far", offered[at].source), offered[at].channel)
            done = lambda _head, tail: ends.update({at: tail})  # noqa: E731
            return far.start(train, self.far, frame.nbytes, done, None, 0, frame.span_ps, None, frame.frame_number > 0)

        sender = Port(
            self.link, PortContext(port_node("E"), 0, 1, engine, near, emit, came, 256, 0, "0.E>1.W", self.outages)
        )
        receiver = Port(self.link, PortContext(port_node("W"), 1, 0, engine, far, emit, came, 256))

        def start(at: int) -> None:
            each = offered[at]
            if each.source in NEAR_PES:
                train = near.train(each.source, each.channel)
                frame = Parcel(*UNSENT, at)
                frame.nbytes = each.nbytes
                sender.send(frame, self.near[each.source], train)  # type: ignore[index]
            else:
                fabric = near if each.source == BESIDE else far
                train = fabric.train(each.source, each.channel)
                fabric.start(train, each.route, each.nbytes, lambda _head, tail: ends.update({at: tail}))

        for at, each in enumerate(offered):
            engine.at(each.start_ps, lambda at=at: start(at))  # type: ignore[misc]
        step_ps = offered[-1].start_ps // 2000 + 1
        for until_ps in [
            *sorted({each.start_ps + 1 for each in offered} | set(range(0, 2000 * step_ps, step_ps))),
            None,
        ]:
            assert engine.run_before(until_ps, 10**7)
            for train in sender._under_way:
                promises[train] = train.least_mail_ps(engine.now_ps)
                assert promises[train] >= engine.now_ps
        return [ends[at] for at in range(len(offered))]


def slowdown(ends_ps: list[int], offered: list[Offered], is_far: bool) -> float:
    """Mean latency over latency alone."""
    found = [
        (end_ps - each.start_ps) / each.route.latency_ps(each.nbytes)
        for end_ps, each in zip(ends_ps, offered, strict=True)
        if (each.source in NEAR_PES) is is_far
    ]
    return statistics.mean(found)


@pytest.mark.parametrize("gbps", [64, 12.5])
@pytest.mark.parametrize("nbytes", [1, 255, 256, 257, 4096, 10**6])
def test_alone_it_takes_the_timing_contract_over_both(gbps: float, nbytes: int) -> None:
    boundary = Boundary(gbps)
    offered = [Offered(0, 0, 77, nbytes, boundary.whole[0])]
    assert boundary.ends_ps(offered) == [77 + boundary.whole[0].latency_ps(nbytes)]


@pytest.mark.parametrize("stored", [1, 300, 1500, 10**7])
@pytest.mark.parametrize("nbytes", [1, 256, 512, 4096])
def test_what_a_link_stores_is_held_back_whatever_its_first_packet(
    stored: int, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the whole frame."""
    monkeypatch.setattr(Ucie, "stored_ps", lambda self, payload: self.drain_ps(min(payload, stored)))
    boundary = Boundary(20)
    offered = [Offered(0, 0, 77, nbytes, boundary.whole[0])]
    assert boundary.ends_ps(offered) == [77 + boundary.whole[0].latency_ps(nbytes)]


@pytest.mark.parametrize(("gbps", "far_in", "most"), [(64, 2, 0.05), (12.5, 5, 0.1)])
@pytest.mark.parametrize("percent", [30, 60, 80])
def test_far_and_local_transfers_are_near_to_packets_over_the_whole_route(
    gbps: float, far_in: int, most: float, percent: int
) -> None:
    boundary = Boundary(gbps)
    offered = [boundary.offered(seed, 300, percent, far_in) for seed in range(4)]
    flows = [end for each in offered for end in boundary.ends_ps(each)]
    packets = [end for each in offered for end in packet_ends_ps(each, CHANNELS.weights)]
    every = [each for some in offered for each in some]
    for is_far in (True, False):
        off = slowdown(flows, every, is_far) / slowdown(packets, every, is_far) - 1
        assert abs(off) <= most


def test_what_a_frame_loses_to_others_before_its_link_is_not_lost_behind_it() -> None:
    """It takes twice as long to leave its PE as alone, and meets 4 KiB at the memory."""
    boundary, nbytes = Boundary(64), 2**18
    beside = boundary.near[0]._replace(edges=boundary.near[0].edges[:1])
    frame, local = Offered(0, 0, 0, nbytes, boundary.whole[0]), Offered(4, 0, 1_000_000, 4096, boundary.whole[4])
    boundary.ends_ps([frame, Offered(BESIDE, 0, 0, nbytes, beside), local])
    (far,) = [each for each in delayed(boundary.far_history) if each.nbytes == nbytes]
    assert 0 < sum(share.delay_ps for share in far.shares) <= frame.route.drain_ps(4096)


@pytest.mark.parametrize("gbps", [64, 12.5])
def test_nothing_is_mailed_sooner_than_was_announced_where_a_channel_goes_first(gbps: float) -> None:
    boundary = Boundary(gbps, STRICT)
    for seed in range(6):
        boundary.ends_ps(boundary.offered(seed, 300, 70, 2))


def stood(*stands: tuple[int, int], nbytes: int = 2**16) -> tuple[int, Past, int]:
    """How much later than alone a frame is that stands at its PE at these times, of so many bytes each that go first
    there; its use of the far SIP; how much later a transfer of 4 KiB to the memory is there that comes halfway.
    Another one comes just before the frame goes on."""
    boundary = Boundary(64, STRICT)
    beside = boundary.near[0]._replace(edges=boundary.near[0].edges[:1])
    frame = Offered(0, 0, 0, nbytes, boundary.whole[0])
    others = [Offered(BESIDE, FIRST, start_ps, other, beside) for start_ps, other in stands]
    on_ps = stands[-1][0] + beyond_ps(stands[-1][1])
    just_before = Offered(5, 0, on_ps - 500, 64, boundary.whole[5])
    local = Offered(4, 0, on_ps // 2, 4096, boundary.whole[4])
    ends_ps = boundary.ends_ps([frame, *others, just_before, local])
    (far,) = [each for each in boundary.far_history if each.nbytes == nbytes]
    return (
        ends_ps[0] - frame.route.latency_ps(nbytes),
        far,
        ends_ps[-1] - local.start_ps - local.route.latency_ps(local.nbytes),
    )


def test_a_frame_that_stands_behind_a_channel_that_goes_first_uses_no_far_edge_before_it_goes_on() -> None:
    """Whether it stands before its first byte, within its first packet, at its end, or twice."""
    packet_ps = Boundary(64).near[0].edges[-1].first_ps(2**16)
    again_ps = beyond_ps(2**19) + 1000
    for stands in ([(0, 2**20)], [(2000, 2**20)], [(packet_ps, 2**20)], [(0, 2**19), (again_ps, 2**20)]):
        later_ps, far, local_later_ps = stood(*stands)
        assert later_ps == pytest.approx(sum(beyond_ps(nbytes) for _, nbytes in stands), abs=2)
        assert far.begin_ps > later_ps
        assert far.leave_ps - far.begin_ps == pytest.approx(beyond_ps(2**16), abs=2)
        assert local_later_ps == 0


def beyond_ps(nbytes: int) -> int:
    """How long so many bytes keep a PE's edge."""
    return INTO_MEMORY.drain_ps(nbytes)


def test_a_frame_that_is_mailed_once_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As what has come unseen has shared nothing."""
    monkeypatch.setattr(Ucie, "first_bytes", Ucie.wire_bytes)
    with pytest.raises(AssertionError):
        test_far_and_local_transfers_are_near_to_packets_over_the_whole_route(64, 2, 0.05, 60)


ETHERNET = Ethernet(
    bandwidth_GBps=12.5, latency_ns=500, max_payload_bytes=1500, min_frame_bytes=64, preamble_bytes=8, header_bytes=14,
    stream_header_bytes=0, fcs_bytes=4, gap_bytes=12, forwarding="cut_through",
)  # fmt: skip
PACKET_PS = ETHERNET.drain_ps(1500)


def down(down_ps: int, link: Ethernet = ETHERNET) -> Boundary:
    """An Ethernet link that is down for 20 us."""
    boundary = Boundary(0, link=link)
    boundary.outages = (Outage(down_ps, down_ps + 20_000_000),)
    return boundary


WIRE_PS = 1250
"""When the first byte of a frame that leaves its PE at 0 is on the link."""


@pytest.mark.parametrize(
    ("down_ps", "again_from", "head_waits"),
    [
        (10**9, None, False),
        # Before its first packet has arrived; before that is acknowledged; when 2 of 20 are.
        (WIRE_PS + PACKET_PS + 499_999, 0, True),
        (WIRE_PS + PACKET_PS + 500_000, 0, False),
        (WIRE_PS + 2 * PACKET_PS + 1_000_000, 2, False),
    ],
)
def test_both_mails_of_a_frame_come_when_an_outage_lets_them(
    down_ps: int, again_from: int | None, head_waits: bool
) -> None:
    boundary, nbytes = down(down_ps), 20 * 1500
    frame = Offered(0, 0, 0, nbytes, boundary.whole[0])
    (end_ps,) = boundary.ends_ps([frame])
    later_ps = 0 if again_from is None else down_ps + 20_000_000 - WIRE_PS - again_from * PACKET_PS
    assert end_ps == frame.route.latency_ps(nbytes) + later_ps
    (far,) = boundary.far_history
    assert far.begin_ps == WIRE_PS + 500_000 + (later_ps if head_waits else 0)
    assert far.now_ps == far.begin_ps + PACKET_PS


def test_frames_of_several_sources_keep_their_order_and_the_wire_over_an_outage() -> None:
    """Frames of 1 to 40 packets. All come, what waited has taken its time on the wire, and trains keep their order."""
    draw = random.Random(5)
    boundary = down(8_000_000)
    sizes = [draw.randrange(1, 40) * 1500 for _ in range(60)]
    offered = [
        Offered(draw.choice(NEAR_PES), draw.randrange(2), draw.randrange(30_000_000), nbytes, boundary.whole[0])
        for nbytes in sizes
    ]
    offered = [each._replace(route=boundary.whole[each.source]) for each in offered]  # type: ignore[index]
    offered.sort(key=lambda each: each.start_ps)
    ends_ps = boundary.ends_ps(offered)
    for source, channel in {(each.source, each.channel) for each in offered}:
        its = [
            end for end, each in zip(ends_ps, offered, strict=True) if (each.source, each.channel) == (source, channel)
        ]
        assert its == sorted(its)
    waited = [each.nbytes for end, each in zip(ends_ps, offered, strict=True) if end > 28_000_000]
    assert max(ends_ps) >= 28_000_000 + sum(map(ETHERNET.drain_ps, waited)) - ETHERNET.drain_ps(max(sizes))


@pytest.mark.parametrize(("down_ps", "packets"), [(WIRE_PS + 400_000, 4), (WIRE_PS + 3 * PACKET_PS + 500_000, 5)])
def test_a_frame_that_loses_packets_is_told_once(down_ps: int, packets: int) -> None:
    """Its first one too, or later ones after its head was mailed."""
    lossy = msgspec.structs.replace(ETHERNET, go_back_n=False)
    boundary = down(down_ps, lossy)
    with pytest.raises(LinkLoss, match=f"lost {packets} packets, parts of 1 Parcel of 30000 B"):
        boundary.ends_ps([Offered(0, 0, 0, 20 * 1500, boundary.whole[0])])
