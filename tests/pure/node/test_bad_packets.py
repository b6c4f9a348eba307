"""Well-formed but invalid packets: each is reported once in one line, with a partial result; and stale processes."""

import socket
from pathlib import Path

import pytest
from dummy_sip import CHANNELS, START, Clock, Dummy
from hub_runs import join, report, running

from broker.ids import BROKER, LAUNCHER, address_of
from broker.mail.zmq import ZmqBroker, ZmqLauncher
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
    encode,
)
from sipsim.node.failure import describe

RANK, PEER = 0, 1


class Reporting(Dummy):
    """A client that reports failures as ``SipNode`` does."""

    def failure(self, error: Exception) -> Failed:
        found = describe(error, self.rank, self.session.engine.now_ps)
        return Failed(found.kind, found.message, "", 0, blames=found.blames)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Reporting:
    clock = Clock()
    monkeypatch.setattr("sipsim.node.client.perf_counter_ns", clock)
    made = Reporting(clock)
    made.program = [(5, 0), (40, 0)]
    made.gets(START, Grant(20, ()))
    return made


def batch(first: int, arrival_ps: int, channel: int = 1, src: int = PEER) -> PacketBatch:
    return PacketBatch(src, first, ((channel, arrival_ps, b"x"),))


@pytest.mark.fault
@pytest.mark.parametrize(
    ("message", "kind", "text"),
    [
        (batch(2, 30), "lost_packet", "packets 0 to 1 from SIP 1 are lost: packet 2 arrived first"),
        (batch(0, 19), "InvariantViolation", "a packet from SIP 1 for 19 ps was taken after SIP 0 had run to 20 ps"),
        (batch(0, 30, channel=0), "InvariantViolation", "a packet from SIP 1 on channel 0, which does not lead from"),
        (batch(0, 30, channel=7), "InvariantViolation", "a packet from SIP 1 on channel 7, which does not lead from"),
        (batch(0, 30, src=5), "InvariantViolation", "a packet from SIP 5 on channel 1, which does not lead from"),
    ],
    ids=["gap", "past", "own channel", "no channel", "no SIP"],
)
def test_an_invalid_batch_is_reported_once(client: Reporting, message: PacketBatch, kind: str, text: str) -> None:
    failed, *rest = [told for told in client.gets(message, Grant(50, ())) if not isinstance(told, Report)]
    assert isinstance(failed, Failed)
    assert (failed.kind, failed.message[: len(text)]) == (kind, text)
    assert "\n" not in failed.message
    assert rest == [Result(b"outcome", True)]
    assert client.received == []


@pytest.mark.parametrize("cut", [1, 5, 8])
def test_a_batch_that_is_cut_short_blames_its_sender(client: Reporting, cut: int) -> None:
    client.handle(encode(batch(0, 30))[:-cut])
    failed, _ = (told for told in client.mail.to_broker if isinstance(told, Failed | Result))
    assert (failed.kind, failed.blames) == ("bad_message", PEER)


@pytest.mark.fault
def test_a_duplicate_is_dropped(client: Reporting) -> None:
    told = client.gets(batch(0, 30), batch(0, 30), Grant(50, ((PEER, 1),)))
    assert [type(each) for each in told] == [Report]
    assert told[0].taken == ((PEER, 1),)
    assert len(client.received) == 1


def test_the_channels_used_here() -> None:
    assert [channel[:2] for channel in CHANNELS] == [(RANK, PEER), (PEER, RANK)]


# --- stale incarnations ----------------------------------------------------------------------------------------


@pytest.mark.fault
def test_a_stale_incarnation_is_refused() -> None:
    """Processes of a host that was cut off and is back have the address of their incarnation."""
    hub = running()
    hub.handle(LAUNCHER, Restart(1, 1))
    old, new = 1, address_of(1, 1)
    # It may still run, cut off only from the launcher: then it must exit.
    for message in (report(next_ps=1), Result(b"late", False), Failed("exception", "late", "", 0), join(1)):
        assert hub.handle(old, message) == [(old, Refused("another process simulates rank 1 now"))]
    out = hub.handle(new, join(1))
    assert [to for to, message in out if isinstance(message, Start)] == [new]
    assert {to for to, message in out if isinstance(message, Rejoined)} == {0, 2}


@pytest.mark.parametrize("message", [Restart(0, 1), Stop("x"), Lost(0, "x"), StatusRequest(), SyncRequest()])
def test_a_launcher_message_from_a_sip_is_refused(message: ToBroker) -> None:
    hub = running()
    failures = [sent for to, sent in hub.handle(1, message) if to == LAUNCHER]
    error = f"SIP 1 sent {type(message).__name__}, which only the launcher may send"
    assert failures == [RankFailed(1, "bad_message", error, "", 0, host="here")]


@pytest.mark.parametrize("endpoint", ["", "tcp://elsewhere:1"])
def test_a_lost_connection_to_a_stale_endpoint_is_ignored(endpoint: str) -> None:
    hub = running()
    assert hub.handle(0, ConnectionLost(1, endpoint, "why")) == []
    assert hub.handle(0, ConnectionLost(1, join(1).endpoint, "why")) == [(LAUNCHER, PeerLost(0, 1, "why"))]


# --- stale files ----------------------------------------------------------------------------------------------


@pytest.mark.fault
def test_a_broker_replaces_a_stale_socket_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
