"""One SIP's side of the synchronisation, step by step. Whole runs are in ``test_timesync_property``."""

import pytest

from broker.ids import MAX_PS, Channel
from broker.wire import Grant, PacketBatch, Report
from sipsim.core import session as session_module
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.core.session import BATCH_BYTES, PACKET_OVERHEAD_BYTES, Session
from sipsim.core.streams import LostPacket

CHANNELS = [
    Channel(0, 1, 10, "out"),
    Channel(1, 0, 10, "in"),
    Channel(0, 1, 4, "fast out"),
    Channel(2, 0, 10, "in of 2"),
    Channel(1, 0, 10, "in too"),
]


class Notebook:
    """A model that records its packets and local events."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seen: list[tuple[int, object]] = []
        self.waiters = 0
        self.quiet_ps = 0

    def receive(self, channel: int, body: bytes) -> None:
        self.seen.append((self.engine.now_ps, (channel, body)))

    def local(self, time_ps: int, name: str) -> None:
        self.engine.at(time_ps, lambda: self.seen.append((self.engine.now_ps, name)))

    def waiting(self) -> int:
        return self.waiters

    def next_send_bound_ps(self, next_ps: int) -> int:
        return next_ps + self.quiet_ps


class Sip:
    """SIP 0 of ``CHANNELS``."""

    def __init__(self, reaction_ps: int = 0) -> None:
        self.engine = Engine()
        self.posted: list[tuple[int, PacketBatch]] = []
        self.session = Session(0, self.engine, CHANNELS, lambda to, batch: self.posted.append((to, batch)), reaction_ps)
        self.model = self.session.model = Notebook(self.engine)

    def run(self, horizon_ps: int | None, *need: tuple[int, int]) -> Report:
        self.session.grant(Grant(horizon_ps, need))
        assert self.session.is_ready()
        self.session.begin()
        report = self.session.advance()
        assert report is not None
        return report

    def take(self, src: int, channel: int, seq: int, arrival_ps: int, body: bytes = b"") -> None:
        self.session.take(PacketBatch(src, seq, ((channel, arrival_ps, body),)))

    def emits(self, time_ps: int, channel: int, arrival_ps: int, body: bytes = b"") -> None:
        """At ``time_ps`` it sends a packet."""
        self.engine.at(time_ps, lambda: self.session.emit(channel, arrival_ps, body))


@pytest.fixture
def sip() -> Sip:
    return Sip()


def test_the_first_report(sip: Sip) -> None:
    sip.model.local(7, "start")
    sip.model.waiters = 2
    sip.session.emit(0, 15, b"x")
    assert sip.session.report() == Report(0, 7, None, ((1, 1, 15),), (), 2, 7)


def test_no_event_is_reported_as_none(sip: Sip) -> None:
    assert sip.session.report() == Report(0, None, None, (), (), 0, MAX_PS)


def test_a_packet_is_held_until_the_window_that_covers_it(sip: Sip) -> None:
    sip.model.local(3, "local")
    sip.take(1, 1, 0, 20, b"held")
    assert sip.run(20) == Report(3, None, 20, (), ((1, 1),), 0, MAX_PS)
    assert sip.run(21) == Report(20, None, None, (), (), 0, MAX_PS)
    assert sip.model.seen == [(3, "local"), (20, (1, b"held"))]


def test_the_held_time_is_the_least_arrival_not_the_first_taken(sip: Sip) -> None:
    sip.take(1, 1, 0, 90)
    sip.take(1, 1, 1, 40)
    sip.take(2, 3, 0, 60)
    assert sip.session.report() == Report(0, None, 40, (), ((1, 2), (2, 1)), 0, MAX_PS)


def test_canonical_order_whatever_the_order_of_receipt(sip: Sip) -> None:
    for name in ("local", "another"):
        sip.model.local(20, name)
    sip.take(2, 3, 0, 20, b"SIP 2")
    sip.take(1, 4, 0, 20, b"second channel, sent first")
    sip.take(1, 1, 1, 20, b"first channel")
    sip.take(1, 1, 2, 20, b"first channel again")
    sip.run(None)
    assert [what for _, what in sip.model.seen] == [
        (1, b"first channel"),
        (1, b"first channel again"),
        (4, b"second channel, sent first"),
        (3, b"SIP 2"),
        "local",
        "another",
    ]


def test_canonical_order_does_not_look_at_bodies(sip: Sip) -> None:
    sip.take(1, 1, 0, 20, b"z")
    sip.session.take(PacketBatch(1, 1, ((1, 20, b"y"), (1, 20, b"a"), (1, 20, b"b"))))
    sip.run(None)
    assert [what for _, what in sip.model.seen] == [(1, b"z"), (1, b"y"), (1, b"a"), (1, b"b")]


def test_an_arrival_may_overtake_one_that_was_sent_before_it(sip: Sip) -> None:
    sip.take(1, 1, 0, 50, b"first")
    sip.take(1, 4, 1, 30, b"second")
    assert sip.run(40).held_ps == 50
    sip.run(60)
    assert sip.model.seen == [(30, (4, b"second")), (50, (1, b"first"))]


def test_it_waits_for_the_packets_that_a_grant_counts_on(sip: Sip) -> None:
    assert not sip.session.is_ready()
    sip.session.grant(Grant(50, ((1, 2), (2, 1))))
    for step in (lambda: sip.take(1, 1, 0, 20), lambda: sip.take(2, 3, 0, 20), lambda: sip.take(1, 4, 1, 25)):
        assert not sip.session.is_ready()
        step()
    assert sip.session.is_ready()


def test_all_channels_of_a_pair_share_one_stream(sip: Sip) -> None:
    for channel in (0, 2, 2, 0):
        sip.session.emit(channel, 10 + channel, b"%d" % channel)
    assert sip.session.report().sent == ((1, 4, 10),)
    packets = ((0, 10, b"0"), (2, 12, b"2"), (2, 12, b"2"), (0, 10, b"0"))
    assert sip.posted == [(1, PacketBatch(0, 0, packets))]
    assert sip.session.packets_sent == 4
    sip.session.emit(0, 30, b"")
    sip.session.report()
    assert sip.posted[1:] == [(1, PacketBatch(0, 4, ((0, 30, b""),)))]


def test_packets_leave_as_one_batch_before_the_report_that_counts_them(sip: Sip) -> None:
    """Packets of later windows are not awaited."""
    there_at: list[int] = []
    sip.session.costs = lambda: (there_at.append(len(sip.posted)) or 0, 0)
    sip.emits(5, 0, 15, b"one")
    sip.emits(6, 2, 16, b"two")
    sip.emits(8, 0, 18, b"later")
    sip.session.grant(Grant(7, ()))
    sip.session.begin()
    assert sip.posted == []
    report = sip.session.advance()
    assert report is not None
    assert (report.sent, there_at) == (((1, 2, 15),), [1])
    assert sip.posted == [(1, PacketBatch(0, 0, ((0, 15, b"one"), (2, 16, b"two"))))]


def test_each_peer_gets_its_own_batch() -> None:
    posted: list[tuple[int, PacketBatch]] = []
    channels = [Channel(1, 0, 10, "to 0"), Channel(1, 2, 10, "to 2")]
    session = Session(1, Engine(), channels, lambda to, batch: posted.append((to, batch)))
    session.model = Notebook(session.engine)
    for channel, arrival_ps in ((1, 20), (0, 30), (1, 15)):
        session.emit(channel, arrival_ps, b"")
    assert session.report().sent == ((0, 1, 30), (2, 2, 15))
    assert sorted(posted) == [
        (0, PacketBatch(1, 0, ((0, 30, b""),))),
        (2, PacketBatch(1, 0, ((1, 20, b""), (1, 15, b"")))),
    ]


def test_a_large_batch_leaves_at_once(sip: Sip) -> None:
    """``BATCH_BYTES`` include an overhead per packet; the next batch continues the numbers."""
    most = bytes(BATCH_BYTES - 2 * PACKET_OVERHEAD_BYTES)
    sip.session.emit(0, 10, most)
    assert sip.posted == []
    sip.session.emit(0, 11, b"")
    assert sip.posted == [(1, PacketBatch(0, 0, ((0, 10, most), (0, 11, b""))))]
    sip.session.emit(0, 12, most[1:])
    sip.session.emit(0, 13, b"")
    assert len(sip.posted) == 1, "one byte below the limit"
    sip.session.emit(2, 14, bytes(BATCH_BYTES))
    assert sip.posted[1:] == [(1, PacketBatch(0, 2, ((0, 12, most[1:]), (0, 13, b""), (2, 14, bytes(BATCH_BYTES)))))]
    sip.session.emit(0, 15, b"small")
    assert len(sip.posted) == 2
    assert sip.session.report().sent == ((1, 6, 10),), "packets that left early are counted too"
    assert sip.posted[2:] == [(1, PacketBatch(0, 5, ((0, 15, b"small"),)))]


def test_each_count_is_reported_once(sip: Sip) -> None:
    sip.session.emit(0, 30, b"")
    sip.take(1, 1, 0, 90)
    first = sip.session.report()
    assert (first.sent, first.taken) == (((1, 1, 30),), ((1, 1),))
    second = sip.session.report()
    assert (second.sent, second.taken, second.held_ps) == ((), (), 90)


def test_a_long_window_is_run_in_batches(sip: Sip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "EVENTS_BETWEEN_POLLS", 2)
    for time_ps in range(5):
        sip.model.local(time_ps, "tick")
    sip.session.grant(Grant(100, ()))
    sip.session.begin()
    assert sip.session.advance() is None
    sip.take(1, 1, 0, 100)
    assert sip.session.advance() is None
    assert sip.session.advance() == Report(4, None, 100, (), ((1, 1),), 0, MAX_PS)


def test_between_report_and_grant_it_is_not_ready(sip: Sip) -> None:
    sip.run(5)
    assert not sip.session.is_ready()
    assert sip.session.grants == 1


@pytest.mark.parametrize(("channel", "arrival_ps"), [(0, 17), (2, 11), (1, 100), (3, 100)])
def test_a_packet_within_its_lookahead_or_on_a_foreign_channel_is_refused(
    sip: Sip, channel: int, arrival_ps: int
) -> None:
    sip.model.local(8, "move the clock")
    sip.run(9)
    with pytest.raises(InvariantViolation, match=f"channel {CHANNELS[channel].name} at 8 ps"):
        sip.session.emit(channel, arrival_ps, b"")
    assert sip.posted == []
    sip.session.emit(0, 18, b"")


@pytest.mark.parametrize("arrival_ps", [3, 5, 9])
def test_a_packet_for_a_time_that_has_been_run_is_never_injected(sip: Sip, arrival_ps: int) -> None:
    """At the time of the last event too: the local events of that time have been handled before it."""
    sip.model.local(5, "local")
    sip.run(10)
    sip.take(1, 1, 0, arrival_ps)
    with pytest.raises(InvariantViolation, match=f"for {arrival_ps} ps was taken after SIP 0 had run to 10 ps"):
        sip.run(20)


def test_after_a_window_without_horizon_the_last_event_bounds_arrivals(sip: Sip) -> None:
    sip.model.local(5, "local")
    sip.run(None)
    sip.take(1, 1, 0, 5)
    with pytest.raises(InvariantViolation):
        sip.run(None)


def test_a_duplicate_is_dropped_and_a_gap_is_an_error(sip: Sip) -> None:
    sip.take(1, 1, 0, 20, b"once")
    sip.take(1, 1, 0, 20, b"once")
    with pytest.raises(LostPacket):
        sip.take(1, 1, 2, 20)
    sip.run(None)
    assert sip.model.seen == [(20, (1, b"once"))]
    assert sip.session.packets_taken == 1


def test_the_unknown_rest_of_a_batch_is_taken(sip: Sip) -> None:
    sip.take(1, 1, 0, 20, b"first")
    sip.session.take(PacketBatch(1, 0, ((1, 20, b"first"), (4, 21, b"second"), (1, 22, b"third"))))
    sip.session.take(PacketBatch(1, 1, ((4, 21, b"second"), (1, 22, b"third"))))
    with pytest.raises(LostPacket):
        sip.session.take(PacketBatch(1, 4, ((1, 30, b""), (1, 31, b""))))
    assert sip.session.report().taken == ((1, 3),)
    sip.run(None)
    assert sip.model.seen == [(20, (1, b"first")), (21, (4, b"second")), (22, (1, b"third"))]


def test_an_empty_batch_is_ignored(sip: Sip) -> None:
    sip.session.take(PacketBatch(1, 0, ()))
    assert sip.session.report() == Report(0, None, None, (), (), 0, MAX_PS)


# --- promises -------------------------------------------------------------------------------------------------


def test_a_report_promises_the_models_send_bound(sip: Sip) -> None:
    """From local events alone: held packets are the broker's business."""
    sip.model.quiet_ps = 70
    sip.model.local(30, "next")
    sip.take(1, 1, 0, 20)
    report = sip.session.report()
    assert (report.next_ps, report.held_ps, report.promise_ps) == (30, 20, 100)


def test_without_events_everything_is_promised(sip: Sip) -> None:
    sip.model.quiet_ps = 70
    sip.take(1, 1, 0, 20)
    assert sip.session.report().promise_ps == MAX_PS


@pytest.mark.parametrize("channel", [0, 2])
def test_a_packet_that_breaks_the_promise_is_refused(sip: Sip, channel: int) -> None:
    """Counted from the least delay of the pair, 4 ps, whatever channel it takes."""
    sip.model.quiet_ps = 70
    sip.model.local(30, "promised 100")
    sip.session.report()
    sip.session.grant(Grant(31, ()))
    sip.session.begin()
    with pytest.raises(InvariantViolation) as refused:
        sip.session.emit(channel, 103, b"")
    assert str(refused.value) == (
        f"a packet on channel {CHANNELS[channel].name} at 0 ps would arrive at 103 ps, "
        "but SIP 0 has promised to send nothing before 100 ps"
    )
    sip.session.emit(channel, 104, b"")
    assert sip.session.report().sent == ((1, 1, 104),)


def test_after_an_unlimited_promise_nothing_may_be_sent(sip: Sip) -> None:
    sip.session.report()
    sip.session.grant(Grant(None, ()))
    sip.session.begin()
    with pytest.raises(InvariantViolation, match=f"send nothing before {MAX_PS} ps"):
        sip.session.emit(0, MAX_PS, b"")


def test_before_the_first_report_nothing_is_promised(sip: Sip) -> None:
    sip.model.quiet_ps = 70
    sip.session.emit(2, 4, b"")
    assert sip.session.report().sent == ((1, 1, 4),)


@pytest.mark.parametrize(
    ("reaction_ps", "horizon_ps", "held_ps", "bound_ps"),
    [
        (5, 60, [50], 55),
        (0, 60, [50], 50),
        (5, 60, [50, 40, 59], 45),
        (5, None, [50], 55),
        (60, 60, [50], 100),
        (5, 50, [50], 100),
        (5, 60, [], 100),
    ],
)
def test_an_injected_packet_may_be_reacted_to(
    reaction_ps: int, horizon_ps: int | None, held_ps: list[int], bound_ps: int
) -> None:
    """With 100 ps promised: the earlier of that and of the first arrival before the horizon and the reaction."""
    sip = Sip(reaction_ps)
    sip.model.quiet_ps = 70
    sip.model.local(30, "promised 100")
    for seq, arrival_ps in enumerate(held_ps):
        sip.take(1, 1, seq, arrival_ps)
    sip.session.report()
    sip.session.grant(Grant(horizon_ps, ()))
    sip.session.begin()
    with pytest.raises(InvariantViolation, match=f"promised to send nothing before {bound_ps} ps"):
        sip.session.emit(2, bound_ps + 3, b"")
    sip.session.emit(2, bound_ps + 4, b"")


def test_a_promise_holds_for_one_window(sip: Sip) -> None:
    """The next report may promise an earlier time, after an arrival."""
    sip.model.quiet_ps = 70
    sip.model.local(30, "promised 100")
    sip.session.report()
    sip.model.quiet_ps = 0
    sip.model.local(35, "sooner")
    assert sip.run(31).promise_ps == 35
    sip.emits(36, 2, 40)
    assert sip.run(50).sent == ((1, 1, 40),)


def test_a_report_holds_the_costs_of_its_window(sip: Sip) -> None:
    sip.session.costs = lambda: (30, 4)
    report = sip.session.report()
    assert (report.run_ns, report.send_ns) == (30, 4)
