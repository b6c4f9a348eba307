"""One SIP's side of the synchronisation, step by step. Whole runs are in ``test_timesync_property``."""

import pytest

from broker.streams import LostPacket
from broker.wire import Channel, Grant, Packet, Report
from sipsim import session as session_module
from sipsim.engine import Engine
from sipsim.errors import InvariantViolation
from sipsim.session import Session

CHANNELS = [
    Channel(0, 1, 10, "out"),
    Channel(1, 0, 10, "in"),
    Channel(0, 1, 4, "fast out"),
    Channel(2, 0, 10, "in of 2"),
    Channel(1, 0, 10, "in too"),
]


class Notebook:
    """A model that writes down what reaches it and what its local events do."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seen: list[tuple[int, object]] = []
        self.waiters = 0

    def receive(self, channel: int, body: bytes) -> None:
        self.seen.append((self.engine.now_ps, (channel, body)))

    def local(self, time_ps: int, name: str) -> None:
        self.engine.at(time_ps, lambda: self.seen.append((self.engine.now_ps, name)))

    def waiting(self) -> int:
        return self.waiters


class Sip:
    """SIP 0 of ``CHANNELS``."""

    def __init__(self) -> None:
        self.engine = Engine()
        self.posted: list[tuple[int, Packet]] = []
        self.session = Session(0, self.engine, CHANNELS, lambda to, packet: self.posted.append((to, packet)))
        self.model = self.session.model = Notebook(self.engine)

    def run(self, horizon_ps: int | None, *need: tuple[int, int]) -> Report:
        self.session.grant(Grant(horizon_ps, need))
        assert self.session.is_ready()
        self.session.begin()
        report = self.session.advance()
        assert report is not None
        return report

    def take(self, src: int, channel: int, seq: int, arrival_ps: int, body: bytes = b"") -> None:
        self.session.take(Packet(src, channel, seq, arrival_ps, body))


@pytest.fixture
def sip() -> Sip:
    return Sip()


def test_the_first_report(sip: Sip) -> None:
    sip.model.local(7, "start")
    sip.model.waiters = 2
    sip.session.emit(0, 15, b"x")
    assert sip.session.report() == Report(0, 7, None, ((1, 1, 15),), (), 2)


def test_nothing_to_do_is_never(sip: Sip) -> None:
    assert sip.session.report() == Report(0, None, None, (), (), 0)


def test_a_packet_is_held_until_the_window_that_covers_it(sip: Sip) -> None:
    sip.model.local(3, "local")
    sip.take(1, 1, 0, 20, b"held")
    assert sip.run(20) == Report(3, None, 20, (), ((1, 1),), 0)
    assert sip.run(21) == Report(20, None, None, (), (), 0)
    assert sip.model.seen == [(3, "local"), (20, (1, b"held"))]


def test_the_held_time_is_the_least_arrival_not_the_first_taken(sip: Sip) -> None:
    sip.take(1, 1, 0, 90)
    sip.take(1, 1, 1, 40)
    sip.take(2, 3, 0, 60)
    assert sip.session.report() == Report(0, None, 40, (), ((1, 2), (2, 1)), 0)


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
    sip.take(1, 1, 1, 20, b"a")
    sip.run(None)
    assert [what for _, what in sip.model.seen] == [(1, b"z"), (1, b"a")]


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
        sip.session.emit(channel, 10, b"")
    assert [(to, p.channel, p.seq) for to, p in sip.posted] == [(1, 0, 0), (1, 2, 1), (1, 2, 2), (1, 0, 3)]
    assert sip.session.report().sent == ((1, 4, 10),)
    assert sip.session.packets_sent == 4


def test_packets_leave_when_they_are_made(sip: Sip) -> None:
    sip.engine.at(5, lambda: sip.session.emit(0, 15, b"now"))
    sip.engine.at(6, lambda: sip.engine.at(8, lambda: None))
    sip.session.grant(Grant(7, ()))
    sip.session.begin()
    sip.session.advance()
    assert sip.posted == [(1, Packet(0, 0, 0, 15, b"now"))]


def test_news_are_told_once(sip: Sip) -> None:
    sip.session.emit(0, 30, b"")
    sip.take(1, 1, 0, 90)
    first = sip.session.report()
    assert (first.sent, first.taken) == (((1, 1, 30),), ((1, 1),))
    second = sip.session.report()
    assert (second.sent, second.taken, second.held_ps) == ((), (), 90)


def test_a_long_window_is_run_piece_by_piece(sip: Sip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "EVENTS_BETWEEN_LOOKS", 2)
    for time_ps in range(5):
        sip.model.local(time_ps, "tick")
    sip.session.grant(Grant(100, ()))
    sip.session.begin()
    assert sip.session.advance() is None
    sip.take(1, 1, 0, 100)
    assert sip.session.advance() is None
    assert sip.session.advance() == Report(4, None, 100, (), ((1, 1),), 0)


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
    with pytest.raises(InvariantViolation, match=f"from SIP 1 for {arrival_ps} ps came when SIP 0 had reached 10 ps"):
        sip.run(20)


def test_after_a_window_without_horizon_the_last_event_is_the_mark(sip: Sip) -> None:
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
