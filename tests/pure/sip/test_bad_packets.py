"""Letters that are well formed and wrong: told to the broker in one line, once, and the member answers what it has.

Seen to fail with these bugs planted: a gap that is counted on, a packet of the past that is injected, a channel that is
not looked at, an earlier incarnation that is heard, the words of the launcher taken from a SIP.
"""

import socket
from pathlib import Path

import pytest
from test_client import CHANNELS, START, Clock, Dummy
from test_hub import join, report, running

from broker.ids import BROKER, LAUNCHER, address_of
from broker.mail.zmq_mail import ZmqBroker, ZmqLauncher
from broker.wire import (
    ConnectionLost,
    Failed,
    Grant,
    Lost,
    PacketBatch,
    PeerLost,
    RankFailed,
    Refused,
    Rejoined,
    Report,
    Restart,
    Result,
    Start,
    StatusRequest,
    Stop,
    SyncRequest,
    ToBroker,
)
from sipsim.node.failure import describe

HERE, THERE = 0, 1


class Told(Dummy):
    """A member that tells failures as a SIP does."""

    def failure(self, error: Exception) -> Failed:
        found = describe(error, self.rank, self.session.engine.now_ps)
        return Failed(found.kind, found.message, "", 0)


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Told:
    clock = Clock()
    monkeypatch.setattr("sipsim.sync.client.perf_counter_ns", clock)
    made = Told(clock)
    made.program = [(5, 0), (40, 0)]
    made.gets(START, Grant(20, ()))
    return made


def batch(first: int, arrival_ps: int, channel: int = 1, src: int = THERE) -> PacketBatch:
    return PacketBatch(src, first, ((channel, arrival_ps, b"x"),))


@pytest.mark.parametrize(
    ("letter", "kind", "says"),
    [
        (batch(2, 30), "lost_packet", "packets 0 to 1 from SIP 1 are lost: 2 came first"),
        (batch(0, 19), "InvariantViolation", "a packet from SIP 1 for 19 ps came when SIP 0 had reached 20 ps"),
        (batch(0, 30, channel=0), "InvariantViolation", "a packet from SIP 1 on channel 0, which does not lead from"),
        (batch(0, 30, channel=7), "InvariantViolation", "a packet from SIP 1 on channel 7, which does not lead from"),
        (batch(0, 30, src=5), "InvariantViolation", "a packet from SIP 5 on channel 1, which does not lead from"),
    ],
    ids=["gap", "past", "own channel", "no channel", "no SIP"],
)
def test_each_is_one_line(member: Told, letter: PacketBatch, kind: str, says: str) -> None:
    failed, *rest = [told for told in member.gets(letter, Grant(50, ())) if not isinstance(told, Report)]
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message[: len(says)]) == (kind, says)
    assert "\n" not in failed.message
    assert rest == [Result(b"outcome", True)]
    assert member.received == []


def test_a_duplicate_is_nothing(member: Told) -> None:
    told = member.gets(batch(0, 30), batch(0, 30), Grant(50, ((THERE, 1),)))
    assert [type(each) for each in told] == [Report]
    assert told[0].taken == ((THERE, 1),)
    assert len(member.received) == 1


def test_the_channels_are_as_these_tests_have_them() -> None:
    assert [channel[:2] for channel in CHANNELS] == [(HERE, THERE), (THERE, HERE)]


# --- an incarnation that another one has replaced --------------------------------------------------------------


def test_who_was_replaced_is_heard_no_more() -> None:
    """A host that was cut off comes back: its processes speak under the address of their incarnation."""
    hub = running()
    hub.handle(LAUNCHER, Restart(1, 1))
    old, new = 1, address_of(1, 1)
    # It may be well, and only cut off from the launcher: then it must leave.
    for message in (report(next_ps=1), Result(b"late", False), Failed("exception", "late", "", 0), join(1)):
        assert hub.handle(old, message) == [(old, Refused("rank 1 is simulated by another process now"))]
    out = hub.handle(new, join(1))
    assert [to for to, message in out if isinstance(message, Start)] == [new]
    assert {to for to, message in out if isinstance(message, Rejoined)} == {0, 2}


@pytest.mark.parametrize("word", [Restart(0, 1), Stop("x"), Lost(0, "x"), StatusRequest(), SyncRequest()])
def test_a_sip_may_not_speak_for_the_launcher(word: ToBroker) -> None:
    """Planted: whoever sends it is obeyed; a SIP's key could restart or stop others."""
    hub = running()
    failures = [message for to, message in hub.handle(1, word) if to == LAUNCHER]
    error = f"SIP 1 sent {type(word).__name__}, which only the launcher may send"
    assert failures == [RankFailed(1, "internal", error, "", 0)]


@pytest.mark.parametrize("endpoint", ["", "tcp://elsewhere:1"])
def test_a_connection_that_is_not_to_the_peer_of_now_is_lost_to_nobody(endpoint: str) -> None:
    hub = running()
    assert hub.handle(0, ConnectionLost(1, endpoint, "why")) == []
    assert hub.handle(0, ConnectionLost(1, join(1).endpoint, "why")) == [(LAUNCHER, PeerLost(0, 1, "why"))]


# --- files that a dead run left -------------------------------------------------------------------------------


def test_a_stale_file_keeps_no_broker_from_listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind("broker")
        dead.listen()
    assert Path("broker").is_socket()
    broker = ZmqBroker("ipc://broker")
    launcher = ZmqLauncher("ipc://broker")
    try:
        launcher.send(BROKER, b"word")
        assert broker.receive() == (LAUNCHER, b"word")
    finally:
        launcher.close()
        broker.close()
        Path("broker").unlink(missing_ok=True)
