"""The sync client without hardware: its answers, how host time is accounted, and when it is colocated."""

from pathlib import Path

import pytest
from dummy_sip import RUN_NS, SEND_NS, START, Clock, Dummy

from broker.wire import (
    Abort,
    Dump,
    DumpRequest,
    End,
    Failed,
    Grant,
    Leave,
    Message,
    PacketBatch,
    Progress,
    Refused,
    Rejoined,
    Report,
    Result,
    encode,
)
from sipsim.core import session as session_module
from sipsim.core.errors import BadMessage, LinkLoss
from sipsim.node.client import PROGRESS_NS
from sipsim.node.packet_log import PacketLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("sipsim.node.client.perf_counter_ns", made)
    return made


@pytest.fixture
def client(clock: Clock) -> Dummy:
    made = Dummy(clock)
    made.program = [(5, 0), (6, 2), (20, 0), (30, 3)]
    return made


def costs(reports: list[Message]) -> list[tuple[int, int]]:
    assert all(isinstance(report, Report) for report in reports)
    return [(report.run_ns, report.send_ns) for report in reports]


# --- time -----------------------------------------------------------------------------------------------------


def test_a_report_holds_the_costs_of_its_window(client: Dummy) -> None:
    """Running is the events, sending the report before and the batch; the report itself is not included."""
    assert costs(client.gets(START)) == [(RUN_NS, 0)]
    assert costs(client.gets(Grant(10, ()))) == [(2 * RUN_NS, 2 * SEND_NS)]
    assert costs(client.gets(Grant(25, ()))) == [(RUN_NS, SEND_NS)]
    assert costs(client.gets(Grant(None, ()))) == [(RUN_NS, 2 * SEND_NS)]


def test_a_batch_within_a_window_counts_as_sending(client: Dummy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "BATCH_BYTES", 1)
    client.gets(START)
    assert costs(client.gets(Grant(None, ()))) == [(4 * RUN_NS, 6 * SEND_NS)]
    assert [batch.first for _, batch in client.mail.to_peers] == [0, 1, 2, 3, 4]


def test_time_between_windows_counts_as_waiting(client: Dummy, clock: Clock) -> None:
    client.join()
    clock.now_ns += 5000
    assert costs(client.gets(START)) == [(RUN_NS, SEND_NS)]
    clock.now_ns += 6000
    assert costs(client.gets(Grant(10, ()))) == [(2 * RUN_NS, 2 * SEND_NS)]
    clock.now_ns += 7000
    assert costs(client.gets(Grant(25, ()))) == [(RUN_NS, SEND_NS)]
    assert client.run_ns == 4 * RUN_NS
    assert client.send_ns == 4 * SEND_NS, "the join, two reports and a batch; the last report is not counted yet"
    assert client.wait_ns == 18_000 + SEND_NS
    client.gets(Grant(None, ()))
    assert (client.run_ns, client.send_ns) == (5 * RUN_NS, 6 * SEND_NS)


def test_running_sending_and_waiting_add_up(client: Dummy, clock: Clock) -> None:
    began_ns = clock.now_ns
    for message in (START, Grant(10, ()), Grant(25, ()), Grant(None, ()), End()):
        clock.now_ns += 13
        client.gets(message)
        assert client.run_ns + client.send_ns + client.wait_ns == clock.now_ns - began_ns


def test_a_result_and_the_broker_tell_the_same_times(client: Dummy, clock: Clock) -> None:
    """What the reports have told is what the SIP's own result says, to the nanosecond."""
    client.join()
    told = [(0, 0)]
    for message in (START, Grant(10, ()), Grant(25, ()), Grant(None, ())):
        clock.now_ns += 13
        told += costs(client.gets(message))
        assert (client.run_ns, client.send_ns) == tuple(map(sum, zip(*told, strict=True)))
    client.gets(End())
    assert (client.run_ns, client.send_ns) == tuple(map(sum, zip(*told, strict=True)))


def test_a_clock_that_does_not_advance_gives_no_negative_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("sipsim.node.client.perf_counter_ns", lambda: 42)
    client = Dummy(clock)
    client.program = [(5, 3)]
    assert costs(client.gets(START, Grant(None, ()))) == [(0, 0), (0, 0)]
    assert (client.run_ns, client.send_ns, client.wait_ns) == (0, 0, 0)


# --- messages -------------------------------------------------------------------------------------------------


def test_join_start_dump_and_end(client: Dummy) -> None:
    client.join()
    assert client.mail.to_broker == [client.identity()]
    (report,) = client.gets(START)
    assert client.mail.connected == START.endpoints
    assert (report.now_ps, report.next_ps) == (0, 5)
    assert client.gets(DumpRequest()) == [Dump(b"dump")]
    assert client.gets(End()) == [Result(b"outcome", False)]
    assert client.gets(End(), Abort("again")) == [], "one result only"
    assert not client.done, "a peer may still need it"
    assert client.gets(Leave()) == []
    assert client.done


@pytest.mark.parametrize("message", [Abort("why"), Refused("why")])
def test_an_early_end_returns_a_partial_result(client: Dummy, message: Message) -> None:
    client.gets(START)
    assert client.gets(message) == [Result(b"outcome", True)]
    client.gets(Leave())
    assert client.done


@pytest.mark.parametrize("frame", [b"", encode(End())[:-1], encode(Dump(b""))])
def test_an_invalid_frame_is_reported_not_raised(client: Dummy, frame: bytes) -> None:
    client.handle(frame)
    failed, result = client.mail.to_broker
    assert failed.message.startswith(BadMessage.__name__)
    assert result == Result(b"outcome", True)


def test_colocate_is_called_when_the_advice_changes(client: Dummy) -> None:
    client.gets(START)
    for horizon, together in ((1, False), (2, True), (3, True), (4, False), (5, False), (6, True)):
        client.gets(Grant(horizon, (), together))
    assert client.moves == [True, False, True]


def test_colocate_is_called_before_the_window_runs(client: Dummy) -> None:
    client.gets(START)
    moved_at: list[int] = []
    client._colocate = lambda _together: moved_at.append(client.engine.now_ps)
    client.gets(Grant(None, (), True))
    assert moved_at == [0]


def test_lacks_packets_from_a_grant_to_its_last_packet(client: Dummy) -> None:
    lacks = [client.lacks_packets]
    client.gets(START)
    lacks.append(client.lacks_packets)
    assert client.gets(Grant(8, ((1, 3),))) == []
    lacks.append(client.lacks_packets)
    client.gets(PacketBatch(1, 0, ((1, 40, b"a"), (1, 41, b"b"))))
    lacks.append(client.lacks_packets)
    (report,) = client.gets(PacketBatch(1, 2, ((1, 42, b"c"), (1, 43, b"d"))))
    lacks.append(client.lacks_packets)
    assert lacks == [False, False, True, True, False]
    assert (report.taken, report.held_ps) == (((1, 4),), 40)


def test_lacks_packets_is_false_after_the_end(client: Dummy) -> None:
    client.gets(START, Grant(8, ((1, 3),)))
    assert client.gets(Abort("why")) == [Result(b"outcome", True)]
    assert not client.lacks_packets
    assert client.gets(PacketBatch(1, 0, tuple((1, 40, b"") for _ in range(3)))) == [], "the window does not run"


def test_packets_are_held_until_a_grant(client: Dummy) -> None:
    client.gets(START)
    assert client.gets(PacketBatch(1, 0, ((1, 12, b"early"),))) == []
    client.gets(Grant(None, ((1, 1),)))
    assert client.received == [(1, b"early")]


def test_an_interruption_leaves_the_window(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "EVENTS_BETWEEN_POLLS", 1)
    asked: list[int] = []
    client = Dummy(clock, lambda: asked.append(0) or len(asked) == 2)
    client.program = [(time_ps, 0) for time_ps in range(1, 9)]
    client.gets(START)
    assert client.gets(Grant(None, ())) == []
    assert client.engine.now_ps == 2
    assert client.gets(Abort("why")) == [Result(b"outcome", True)]


def test_a_long_window_ends_colocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, at the first look, and not a short one."""
    monkeypatch.setattr(session_module, "EVENTS_BETWEEN_POLLS", 2)
    client = Dummy(Clock())
    client.program = [(time_ps, 0) for time_ps in (1, 11, 12, 13, 14, 15, 16)]
    client.gets(START, Grant(5, (), True))
    assert client.moves == [True]
    client.gets(Grant(50, (), True))
    assert client.moves == [True, False]
    client.gets(Grant(60, (), True))
    assert client.moves == [True, False, True]


def test_a_restarted_peer_gets_its_packets_within_a_window(tmp_path: Path, clock: Clock) -> None:
    fed: list[list[Message]] = []

    def interrupted() -> bool:
        if not fed:
            before = len(sip.mail.to_peers)
            assert sip.handle_within_window(encode(Rejoined(1, "c", 1)))
            fed.append([message for _, message in sip.mail.to_peers[before:]])
        return False

    sip = Dummy(clock, interrupted)
    sip.mail.reconnect_peer = lambda *_: None
    sip.log = PacketLog(str(tmp_path), 0, "d")
    sip.program = [(5, 2), *((time_ps, 0) for time_ps in range(20, 9000))]
    sip.gets(START, Grant(10, ()))
    sip.gets(Grant(None, ()))
    assert fed == [[PacketBatch(0, 0, ((0, 15, b"x"), (0, 15, b"x")))]]
    assert not sip.handle_within_window(encode(Grant(None, ())))
    assert not sip.handle_within_window(b"no message")
    sip.log.close()


def test_a_peer_that_needs_a_damaged_log_is_told_as_such(client: Dummy, tmp_path: Path) -> None:
    client.mail.reconnect_peer = lambda *_: None
    client.log = PacketLog(str(tmp_path), 0, "d")
    client.gets(START, Grant(25, ()))
    client.log.flush()
    with (tmp_path / "sip-0.packets").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 1)
    failed, *_ = client.gets(Rejoined(1, "again", 1))
    assert isinstance(failed, Failed)
    assert failed.message.startswith(f"OutputError('{tmp_path}/sip-0.packets: the packet log is damaged at byte ")
    client.log.close()


@pytest.mark.parametrize("way", ["sent again", "taken"])
def test_packets_of_a_replay_are_progress(way: str, client: Dummy, tmp_path: Path) -> None:
    """A SIP that sends its whole log to a peer, or takes all that peers have logged, is in no window."""
    client.mail.reconnect_peer = lambda *_: None
    client.log = PacketLog(str(tmp_path), 0, "d")
    client.gets(START, Grant(25, ()))
    for number in range(6):
        client.log.append(1, encode(PacketBatch(0, 2 + number, ((0, 90, b"x"),))))
    real, slow = client.mail.send, PROGRESS_NS // 4
    client.mail.send = lambda to, frame: (setattr(client.clock, "now_ns", client.clock.now_ns + slow), real(to, frame))
    if way == "sent again":
        told = client.gets(Rejoined(1, "again", 1))
    else:
        client.session.take = lambda _batch: setattr(client.clock, "now_ns", client.clock.now_ns + slow)
        told = client.gets(*(PacketBatch(1, number, ((1, 90, b"x"),)) for number in range(6)))
    assert {type(message) for message in told} == {Progress}
    client.log.close()


def test_at_a_loss_it_stands_until_it_is_aborted_and_has_sent_what_came_before(client: Dummy) -> None:
    """What is left of its time it never runs, though it had a grant for it, and takes packets for others' sake."""
    client.program = [(6, 2), (20, 1)]
    client.gets(START)
    loss = LinkLoss("lost")
    client.engine.at(6, lambda: (_ for _ in ()).throw(loss))
    client.engine.at(6, lambda: client.act(5))
    failed, report = client.gets(Grant(10, ()))
    assert failed == Failed("k", repr(loss), "", 6, deferred=True)
    assert isinstance(report, Report)
    assert (report.next_ps, report.sent) == (7, ((1, 2, 16),))
    assert client.gets(PacketBatch(1, 0, ((1, 40, b"y"),))) == []
    assert client.engine.now_ps == 6
    assert client.gets(Abort("why")) == [Result(b"outcome", True)]
