"""ZeroMQ mail with keys and over TCP: who may connect, what a rejected process learns, how a loss is reported.

Real sockets on loopback; what every kind of mail must do is in ``test_mail``. No test waits by the clock, except for a
deadline.
"""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from mail_ends import END_S, Ends, in_thread, launcher_frames, workdir

from broker.ids import BROKER, LAUNCHER, address_of
from broker.mail import sockets
from broker.mail.base import Disconnected, Notice
from broker.mail.kinds import MAIL_KINDS
from broker.mail.sockets import MAX_FAILURES, Connection, Listener, SocketFactory
from broker.security import JobKeys, KeyPair, SipKeys, ZapAuthenticator, member_of
from broker.wire import Grant, PacketBatch, encode, source_of

__all__ = ["workdir"]

KEYS, OTHERS = JobKeys.fresh(3), JobKeys.fresh(3)
ZMQ = MAIL_KINDS["zmq"]
replace = msgspec.structs.replace


@pytest.fixture(params=["tcp", "ipc"])
def ends(request: pytest.FixtureRequest, workdir: Path) -> Iterator[Ends]:
    """With keys."""
    with contextlib.closing(Ends(ZMQ, KEYS, request.param == "tcp")) as made:
        yield made
    for path in workdir.iterdir():
        path.unlink()


@pytest.fixture
def over_tcp(workdir: Path) -> Iterator[Ends]:
    with contextlib.closing(Ends(ZMQ, KEYS, tcp=True)) as made:
        yield made


@pytest.fixture
def plain(workdir: Path) -> Iterator[Ends]:
    """Over TCP, without keys."""
    with contextlib.closing(Ends(ZMQ, None, tcp=True)) as made:
        yield made


def batch(src: int, number: int = 0) -> bytes:
    return encode(PacketBatch(src, number, ((0, 1, b"body"),)))


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def joins(ends: Ends, rank: int = 0) -> Any:
    """A SIP that is accepted, and answered."""
    sip = ends.open_sip(rank)
    sip.send(BROKER, b"here")
    assert ends.broker.receive() == (rank, b"here")
    assert ends.broker.send(rank, b"welcome") is True
    assert sip.recv_control() == b"welcome"
    return sip


def intruder(ends: Ends, address: int, keys: SipKeys | None) -> Any:
    """A SIP that may not connect; the test closes it with the others."""
    keyless = keys is None and not ends.at("broker").startswith("tcp")
    sip = ZMQ.sip(address, ends.at("broker"), ends.at(f"intruder-{len(ends.sips)}"), keys)
    assert not keyless, "a plain end receives no reason"
    ends.sips[1000 + len(ends.sips)] = sip
    return sip


def refusal_of(sip: Any) -> Notice:
    """Why a SIP is refused; its wait ends by itself."""
    sip.send(BROKER, b"here")
    with pytest.raises(Disconnected) as caught:
        sip.recv_control()
    assert str(caught.value) == caught.value.notice.text
    assert "\n" not in str(caught.value)
    for wait in (sip.recv_control, sip.recv_data):
        with pytest.raises(Disconnected):
            wait()
    return caught.value.notice


def texts(end: Any) -> str:
    return "\n".join(notice.text for notice in end.notices())


def await_notice(end: Any, what: str, receive: bool = False) -> None:
    """Take an end's notices until one contains ``what``; with ``receive``, no frame may arrive meanwhile."""
    found = ""
    while what not in found:
        if receive and end.receive_now() is not None:
            raise AssertionError("a frame was accepted")
        found += texts(end)


# --- which processes may connect --------------------------------------------------------------------------------------


def test_a_process_is_identified_by_its_key(ends: Ends) -> None:
    ends.open_broker()
    for rank in range(3):
        joins(ends, rank)
    launcher = ends.open_launcher()
    launcher.send(BROKER, b"and I")
    assert ends.broker.receive() == (LAUNCHER, b"and I")
    assert ends.broker.send(LAUNCHER, b"hello") is True
    assert launcher_frames(launcher, 1) == [b"hello"]
    assert launcher.notices() == []


def test_the_incarnation_comes_from_the_routing_id(ends: Ends) -> None:
    ends.open_broker()
    joins(ends, 2)
    again = ZMQ.sip(address_of(2, 3), ends.at("broker"), ends.at("again"), KEYS.for_sip(2))
    ends.sips[9] = again
    again.send(BROKER, b"I again")
    assert ends.broker.receive() == (address_of(2, 3), b"I again")
    assert ends.broker.send(address_of(2, 3), b"you again") is True
    assert again.recv_control() == b"you again"
    assert ends.broker.send(2, b"you before") is True
    assert ends.sips[2].recv_control() == b"you before"


WRONG = {
    "a key of no run": (replace(KEYS.for_sip(1), own=KeyPair.fresh()), "refused this process's key: use the ticket"),
    "a key of another run": (replace(KEYS.for_sip(1), own=OTHERS.sips[1]), "refused this process's key"),
    "an agent's key": (replace(KEYS.for_sip(1), own=JobKeys.fresh(1, 1).agents[0]), "refused this process's key"),
    "the broker's own": (replace(KEYS.for_sip(1), own=KEYS.broker), "refused this process's key"),
    "another broker expected": (replace(KEYS.for_sip(1), broker=OTHERS.broker.public), "its key differs"),
    "the key of SIP 2": (KEYS.for_sip(2), "rejects this process, which has the key of SIP 2"),
    "the launcher's key": (replace(KEYS.for_sip(1), own=KEYS.launcher), "process, which has the key of the launcher"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_process_with_a_wrong_key_learns_why_and_its_frames_are_dropped(ends: Ends, what: str) -> None:
    ends.open_broker()
    joins(ends)
    keys, why = WRONG[what]
    sip = intruder(ends, 1, keys)
    reaches_broker = "process, which" in why
    with in_thread(lambda: broker_drops(ends) if reaches_broker else await_notice(ends.broker, "", receive=True)):
        notice = refusal_of(sip)
    assert why in notice.text
    assert (notice.kind, notice.peer, notice.endpoint) == ("refused", BROKER, ends.at("broker"))
    assert sip.notices() == [notice]
    assert ends.broker.receive_now() is None
    joins(ends, 1)


def broker_drops(ends: Ends) -> None:
    """The broker receives one frame, and rejects it."""
    assert ends.broker.receive() == (None, b"")


def test_a_process_without_a_key_is_refused(over_tcp: Ends) -> None:
    over_tcp.open_broker()
    notice = refusal_of(intruder(over_tcp, 1, None))
    assert "a key" in notice.text
    assert notice.kind == "refused"
    await_notice(over_tcp.broker, "rejected a connection to tcp://", receive=True)


def test_a_process_with_a_key_is_refused_by_a_broker_without(plain: Ends) -> None:
    plain.open_broker()
    notice = refusal_of(intruder(plain, 1, KEYS.for_sip(1)))
    assert notice.kind == "refused"


def test_the_broker_reports_a_rejected_connection(over_tcp: Ends) -> None:
    over_tcp.open_broker()
    refusal_of(intruder(over_tcp, 1, WRONG["a key of no run"][0]))
    (notice,) = over_tcp.broker.notices()
    assert notice.kind == "rejected"
    assert notice.text == "rejected a connection from 127.0.0.1: the client's key is not of this run"
    assert over_tcp.broker.notices() == []


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_the_first_process_of_an_address_keeps_it(over_tcp: Ends, plain: Ends, keys: bool) -> None:
    ends = over_tcp if keys else plain
    ends.open_broker()
    first = joins(ends)
    second = intruder(ends, 0, KEYS.for_sip(0) if keys else None)
    with in_thread(lambda: broker_drops(ends)):
        notice = refusal_of(second)
    assert "which uses a ticket that another process already uses" in notice.text
    assert "with the routing id of SIP 0 uses a ticket that another" in texts(ends.broker)
    assert ends.broker.send(0, b"still you") is True
    assert first.recv_control() == b"still you"
    first.send(BROKER, b"still I")
    assert ends.broker.receive() == (0, b"still I")


@pytest.mark.fault
def test_a_second_launcher_is_refused(ends: Ends) -> None:
    broker, first = ends.open_broker(), ends.open_launcher()
    first.send(BROKER, b"first")
    assert broker.receive() == (LAUNCHER, b"first")
    second = ends.open_launcher()
    try:
        second.send(BROKER, b"second")
        assert broker.receive() == (None, b"")
        notices: list[Notice] = []
        while not notices:
            assert list(second.receive_waiting()) == []
            notices = second.notices()
        assert "uses a ticket that another process already uses" in notices[0].text
        assert second.notices() == [], "once"
    finally:
        first.close()


def raw(ends: Ends, kind: int, endpoint: str, keys: SipKeys, server: str, name: bytes) -> Any:
    """A bare socket with keys, to send what the product never sends."""
    context: zmq.Context[Any] = zmq.Context()
    bare = context.socket(kind)
    bare.linger = 0
    if name:
        bare.identity = name
    bare.curve_publickey, bare.curve_secretkey = keys.own.public.encode(), keys.own.secret.encode()
    bare.curve_serverkey = server.encode()
    bare.connect(endpoint)
    return bare


NAMES = [b"sip-2", b"sip-99999999", b"launcher", b"sip-", b"sip-x", b"", b"\xff" * 200, b"sip--1/", b"/", b"sip-02/x"]


@pytest.mark.parametrize("name", NAMES)
def test_a_routing_id_without_its_key_is_rejected(ends: Ends, name: bytes) -> None:
    broker = ends.open_broker()
    bare = raw(ends, zmq.DEALER, ends.at("broker"), KEYS.for_sip(1), KEYS.broker.public, name)
    try:
        bare.send(b"frame")
        assert broker.receive() == (None, b"")
    finally:
        bare.context.destroy(0)


@pytest.mark.fault
@pytest.mark.parametrize("parts", [0, 2, 3, 300])
def test_a_message_that_is_not_one_frame_is_dropped(ends: Ends, parts: int) -> None:
    broker = ends.open_broker()
    bare = raw(ends, zmq.DEALER, ends.at("broker"), KEYS.for_sip(1), KEYS.broker.public, b"sip-1")
    try:
        bare.send_multipart([b"x"] * parts or [b"only"])
        assert broker.receive() == ((None, b"") if parts else (1, b"only"))
        broker._router.send_multipart([b"sip-1", b"a", b"b", b"c"])
    finally:
        bare.context.destroy(0)


def test_a_sip_drops_messages_in_parts(ends: Ends) -> None:
    ends.open_broker()
    sip = joins(ends)
    name = ends.broker._names[0]
    for parts in ([b"two", b"parts"], [b"", b"", b""], [b"a"] * 100):
        ends.broker._router.send_multipart([name, *parts])
    ends.broker.send(0, b"good")
    assert sip.recv_control() == b"good"


# --- packets ----------------------------------------------------------------------------------------------------------


def two_sips(ends: Ends) -> tuple[Any, Any]:
    ends.open_broker()
    sips = joins(ends, 0), joins(ends, 1)
    for sip in sips:
        sip.connect_peers(tuple(ends.at(f"sip-{rank}") for rank in range(3)))
    return sips


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (batch(2), "a packet batch of SIP 2 arrived with the key of SIP 1"),
        (batch(0), "a packet batch of SIP 0 arrived with the key of SIP 1"),
        (batch(300), "a packet batch of SIP 300 arrived"),
        (encode(Grant(None, ())), "a frame that is no packet batch arrived with the key of SIP 1"),
        (b"", "a frame that is no packet batch"),
        (b"\x94\xacpacket_batch", "a frame that is no packet batch"),
        (b"\x94\xacpacket_batch\xcd\x01", "a frame that is no packet batch"),
        (b"\x94\xacpacket_batch\xce\x00\x00\x00\x01", "a frame that is no packet batch"),
        (b"\xdc\x00\x04\xacpacket_batch\x01", "a frame that is no packet batch"),
    ],
    ids=lambda it: repr(it)[:40],
)
def test_only_packet_batches_of_the_peer_itself_are_accepted(ends: Ends, frame: bytes, why: str) -> None:
    sip, peer = two_sips(ends)
    peer.send(0, frame)
    peer.send(0, batch(1, 7))
    assert sip.recv_data() == batch(1, 7)
    (notice,) = sip.notices()
    assert why in notice.text
    assert notice.text.endswith("this SIP dropped the frame")


@pytest.mark.parametrize("rank", [0, 1, 127, 128, 255, 256, 4095])
def test_the_source_of_a_packet_batch_can_be_read_alone(rank: int) -> None:
    assert source_of(batch(rank)) == rank
    assert source_of(encode(PacketBatch(rank, 2**40, ()))) == rank


def test_a_packet_batch_in_parts_is_dropped(ends: Ends) -> None:
    sip, _ = two_sips(ends)
    bare = raw(ends, zmq.PUSH, ends.at("sip-0"), KEYS.for_sip(1), KEYS.sips[0].public, b"")
    try:
        bare.send_multipart([batch(1), batch(1)])
        bare.send(batch(1, 9))
        assert sip.recv_data() == batch(1, 9)
    finally:
        bare.context.destroy(0)


def test_only_sips_of_the_run_can_send_packets(ends: Ends) -> None:
    """Not the broker either, nor the launcher."""
    sip, peer = two_sips(ends)
    for own in (KEYS.broker, KEYS.launcher, OTHERS.sips[1], KeyPair.fresh()):
        client = raw(ends, zmq.PUSH, ends.at("sip-0"), replace(KEYS.for_sip(1), own=own), KEYS.sips[0].public, b"")
        monitor = client.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            client.send(batch(1, 66))
            assert int.from_bytes(monitor.recv_multipart()[0][:2], "little") == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        finally:
            client.disable_monitor()
            client.context.destroy(0)
    peer.send(0, batch(1, 1))
    assert sip.recv_data() == batch(1, 1)
    assert texts(sip).count("the client's key is not of this run") == 4


# --- lost connections -------------------------------------------------------------------------------------------------


def test_the_loss_of_the_broker_is_raised_after_its_last_frames(ends: Ends) -> None:
    ends.open_broker()
    sip = joins(ends)
    for number in range(100):
        ends.broker.send(0, b"%d" % number)
    ends.broker.close()
    ends.broker = None
    assert [sip.recv_control() for _ in range(100)] == [b"%d" % number for number in range(100)]
    for wait in (sip.recv_control, sip.recv_data, sip.recv_control):
        with pytest.raises(Disconnected, match=r"the connection to the broker at .* is lost") as lost:
            wait()
    assert lost.value.notice.kind == "lost"
    assert sip.broker_lost == lost.value.notice
    assert sip.notices() == [lost.value.notice]


def test_a_wait_for_data_ends_when_the_broker_is_lost(ends: Ends) -> None:
    sip, _ = two_sips(ends)
    with in_thread(ends.broker.close), pytest.raises(Disconnected, match="is lost"):
        sip.recv_data()
    ends.broker = None


@pytest.mark.fault
def test_a_lost_broker_stays_lost_though_it_could_be_reached_again(over_tcp: Ends) -> None:
    over_tcp.open_broker()
    sip = joins(over_tcp)
    over_tcp.broker.close()
    over_tcp.open_broker()
    sip.send(BROKER, b"again")
    over_tcp.broker.receive()
    over_tcp.broker.send(0, b"answer")
    with contextlib.suppress(Disconnected):
        assert sip.recv_control() == b"answer", "it may arrive before the loss is seen"
    with pytest.raises(Disconnected):
        sip.recv_control()


def test_the_loss_of_the_broker_is_seen_without_waiting(ends: Ends) -> None:
    ends.open_broker()
    sip = joins(ends)
    assert sip.poll_control() == []
    assert sip.broker_lost is None
    ends.broker.close()
    ends.broker = None
    while sip.broker_lost is None:
        assert sip.poll_control() == []
    assert sip.broker_lost.kind == "lost"


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_a_lost_connection_ends_a_wait_for_a_frame(over_tcp: Ends, plain: Ends, keys: bool) -> None:
    """Nobody may send another one."""
    ends = over_tcp if keys else plain
    ends.open_broker()
    joins(ends).close()
    assert ends.broker.receive(or_notice=True) == (None, b"")
    assert [notice.kind for notice in ends.broker.notices()] == ["lost"]


def test_a_lost_peer_is_reported_once_and_no_longer_sent_to(ends: Ends) -> None:
    lost: list[tuple[int, str]] = []
    ends.open_broker()
    sip = ends.open_sip(0, on_peer_lost=lambda rank, notice: lost.append((rank, notice.text)))
    sip.connect_peers(tuple(ends.at(f"sip-{rank}") for rank in range(3)))
    peer = joins(ends, 1)
    sip.send(1, batch(0))
    assert peer.recv_data() == batch(0)
    ends.sips.pop(1).close()
    while not lost:
        assert sip.poll_control() == []
    assert lost == [(1, f"the connection to SIP 1 at {ends.at('sip-1')} is lost: process, host or network failed")]
    sip.send(1, batch(0, 1))
    assert sip.poll_control() == []
    again = ZMQ.sip(address_of(1, 1), ends.at("broker"), ends.at("sip-1-again"), KEYS.for_sip(1))
    ends.sips[9] = again
    sip.reconnect_peer(1, 1, ends.at("sip-1-again"))
    sip.send(1, batch(0, 2))
    assert again.recv_data() == batch(0, 2), "frames for its predecessor are discarded"
    assert len(lost) == 1


def test_the_loss_of_a_peer_wakes_a_wait_for_control(ends: Ends) -> None:
    ends.open_broker()
    sip = ends.open_sip(0, on_peer_lost=lambda rank, _: sip.send(BROKER, b"lost"))
    sip.connect_peers(tuple(ends.at(f"sip-{rank}") for rank in range(3)))
    peer = joins(ends, 1)
    sip.send(1, batch(0))
    assert peer.recv_data() == batch(0)
    ends.sips.pop(1).close()

    def answer() -> None:
        assert ends.broker.receive() == (0, b"lost")
        ends.broker.send(0, b"go on")

    with in_thread(answer):
        assert sip.recv_control() == b"go on"


@pytest.mark.parametrize("wait", ["recv_control", "recv_data"])
def test_a_broker_that_never_answers_is_reported_in_time(over_tcp: Ends, wait: str) -> None:
    sip = over_tcp.open_sip(0, join_timeout_s=0.05)
    with pytest.raises(Disconnected, match=r"the broker at tcp://127.0.0.1:\d+ did not answer within 0.05 s") as late:
        getattr(sip, wait)()
    assert late.value.notice.kind == "not_joined"


def test_a_silent_port_is_reported_in_time(over_tcp: Ends) -> None:
    with socket.create_server(("127.0.0.1", port_of(over_tcp.at("broker")))):
        sip = over_tcp.open_sip(0, join_timeout_s=0.05)
        with pytest.raises(Disconnected, match=r"did not answer within 0.05 s"):
            sip.recv_control()


def test_a_peer_that_never_answers_is_lost_and_the_broker_is_not(over_tcp: Ends) -> None:
    lost: list[int] = []
    over_tcp.open_broker()
    sip = over_tcp.open_sip(0, join_timeout_s=0.3, on_peer_lost=lambda rank, _: lost.append(rank))
    sip.send(BROKER, b"here")
    assert over_tcp.broker.receive() == (0, b"here")
    sip.connect_peers(tuple(over_tcp.at(f"sip-{rank}") for rank in range(3)))
    sip.send(2, batch(0))
    waited = threading.Event()
    with in_thread(lambda: over_tcp.broker.send(0, b"go on" if waited.wait(END_S) else b"too late")):
        while not lost:
            assert sip.poll_control() == []
        waited.set()
        assert sip.recv_control() == b"go on"
    assert lost == [2]


def test_without_deadlines_no_connection_is_late(over_tcp: Ends) -> None:
    sip = over_tcp.open_sip(0, silence_s=None, join_timeout_s=0.0)
    assert sip.poll_control() == []
    assert sip.broker_lost is None
    assert sip._broker.connection.until_s is None
    for option in (zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TTL):
        assert sip._broker.socket.getsockopt(option) == 0


@pytest.mark.parametrize("end", ["sip", "broker", "launcher", "peer"])
def test_sockets_over_tcp_have_heartbeats_and_limits(over_tcp: Ends, end: str) -> None:
    two_sips(over_tcp)[0].send(1, batch(0))
    sockets = {
        "sip": over_tcp.sips[0]._broker.socket,
        "broker": over_tcp.broker._router,
        "launcher": over_tcp.open_launcher()._broker.socket,
        "peer": over_tcp.sips[0]._peers[1].socket,
    }
    options = {zmq.HEARTBEAT_IVL: 250, zmq.HEARTBEAT_TIMEOUT: 2000, zmq.HEARTBEAT_TTL: 2000, zmq.HANDSHAKE_IVL: 5000}
    options |= {zmq.RECONNECT_IVL: 100, zmq.RECONNECT_IVL_MAX: 1000, zmq.MAXMSGSIZE: 64 * 2**20}
    assert {option: sockets[end].getsockopt(option) for option in options} == options


class Wire:
    """A TCP connection through the test, which can stop forwarding without closing."""

    def __init__(self, to: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._to = to
        self._stop, self._stopped = socket.socketpair()
        self.cut = threading.Event()

    def run(self) -> None:
        near, _ = self._server.accept()
        far = socket.create_connection(("127.0.0.1", self._to))
        with near, far:
            other = {near: far, far: near}
            while not self.cut.is_set():
                for ready in select.select([near, far, self._stopped], [], [])[0]:
                    if ready is not self._stopped and (found := ready.recv(65536)):
                        other[ready].sendall(found)
            self._stopped.recv(1)
            self._stopped.recv(1)

    def go(self) -> None:
        self._stop.send(b"x")

    def close(self) -> None:
        self._server.close()
        self._stop.close()
        self._stopped.close()


@pytest.mark.fault
def test_a_connection_that_falls_silent_is_lost(over_tcp: Ends) -> None:
    over_tcp.open_broker()
    wire = Wire(port_of(over_tcp.at("broker")))
    with contextlib.closing(wire), in_thread(wire.run):
        sip = ZMQ.sip(0, f"tcp://127.0.0.1:{wire.port}", "tcp://127.0.0.1:*", KEYS.for_sip(0))
        over_tcp.sips[0] = sip
        sip.send(BROKER, b"here")
        assert over_tcp.broker.receive() == (0, b"here")
        wire.cut.set()
        wire.go()
        with pytest.raises(Disconnected, match="is lost"):
            sip.recv_control()
        wire.go()


# --- other programs at the port ---------------------------------------------------------------------------------------


GARBAGE = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "nothing": b"",
    "zeros": bytes(1000),
    "random": os.urandom(1000),
    "a greeting": b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL" + bytes(48),
    "a greeting of CURVE": b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE" + bytes(47),
    "then a claim of 2 GB": b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE" + bytes(47) + b"\x06" + (2**31).to_bytes(8, "big"),
    "an old greeting": b"\x01\x00",
}


@pytest.mark.fault
@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_at_the_port_disturbs_no_other_connection(over_tcp: Ends, what: str) -> None:
    over_tcp.open_broker()
    sip = joins(over_tcp)
    with socket.create_connection(("127.0.0.1", port_of(over_tcp.at("broker")))) as client:
        client.sendall(GARBAGE[what])
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
    await_notice(over_tcp.broker, f"to {over_tcp.at('broker')}", receive=True)
    sip.send(BROKER, b"still here")
    assert over_tcp.broker.receive() == (0, b"still here")
    joins(over_tcp, 1)


@pytest.mark.fault
def test_three_hundred_silent_connections_block_no_sip(over_tcp: Ends) -> None:
    over_tcp.open_broker()
    with contextlib.ExitStack() as silent:
        for _ in range(300):
            address = ("127.0.0.1", port_of(over_tcp.at("broker")))
            silent.enter_context(contextlib.closing(socket.create_connection(address)))
        joins(over_tcp)
        joins(over_tcp, 1)


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_a_frame_over_the_limit_costs_its_sender_the_connection(over_tcp: Ends, plain: Ends, keys: bool) -> None:
    ends = over_tcp if keys else plain
    ends.open_broker()
    sip, other = joins(ends), joins(ends, 1)
    sip.send(BROKER, bytes(64 * 2**20 + 100))
    with pytest.raises(Disconnected, match="is lost"):
        sip.recv_control()
    assert ends.broker.receive_now() is None
    other.send(BROKER, b"still here")
    assert ends.broker.receive() == (1, b"still here")


@pytest.mark.fault
def test_a_claim_of_two_gigabytes_costs_its_sender_the_connection(plain: Ends) -> None:
    """Without keys, so that the handshake can be written by hand: greeting, READY, then a long frame's header."""
    plain.open_broker()
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x05sip-7"
    with socket.create_connection(("127.0.0.1", port_of(plain.at("broker")))) as client:
        client.sendall(GARBAGE["a greeting"])
        assert client.recv(1) == b"\xff"
        client.sendall(b"\x04" + bytes([len(ready)]) + ready)
        while b"READY" not in client.recv(65536):
            pass
        client.sendall(b"\x00\x05hello")
        assert plain.broker.receive() == (7, b"hello")
        client.sendall(b"\x02" + (2**31).to_bytes(8, "big") + bytes(1000))
        with contextlib.suppress(ConnectionResetError):
            while client.recv(65536):
                pass
    await_notice(plain.broker, "connection", receive=True)


def test_the_number_of_notices_is_bounded(workdir: Path) -> None:
    with contextlib.closing(SocketFactory(None, {})) as factory:
        for number in range(sockets.MAX_NOTICES + 5):
            factory.note([Notice("rejected", None, "", str(number))])
        assert [notice.text for notice in factory.notices()] == [str(n) for n in range(5, sockets.MAX_NOTICES + 5)]


def test_another_program_at_the_brokers_port_is_reported(over_tcp: Ends) -> None:
    def answer() -> None:
        near, _ = server.accept()
        with near:
            near.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            near.recv(65536)

    with socket.create_server(("127.0.0.1", port_of(over_tcp.at("broker")))) as server:

        def answer_often() -> None:
            with contextlib.suppress(OSError):
                while True:
                    answer()

        with in_thread(answer_often):
            notice = refusal_of(over_tcp.open_sip(0))
            server.shutdown(socket.SHUT_RDWR)
    assert notice.kind == "refused"
    assert "another program" in notice.text


@pytest.mark.fault
@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_a_port_in_use_is_an_error_that_leaves_nothing(keys: bool, over_tcp: Ends) -> None:
    over_tcp.open_broker()
    at, part = over_tcp.at("broker"), KEYS if keys else None
    for taken in (
        lambda: ZMQ.broker(at, part and part.for_broker()),
        lambda: ZMQ.sip(0, at, at, part and part.for_sip(0)),
    ):
        with pytest.raises(zmq.ZMQError, match="Address already in use"):
            taken()


def test_a_malformed_endpoint_is_an_error_that_leaves_nothing(workdir: Path) -> None:
    with pytest.raises(zmq.ZMQError):
        ZMQ.sip(0, "tcp://127.0.0.1", "tcp://127.0.0.1:*", KEYS.for_sip(0))
    with pytest.raises(zmq.ZMQError):
        ZMQ.launcher("tcp://127.0.0.1", KEYS.for_launcher())


def test_the_system_can_choose_the_port(workdir: Path) -> None:
    with contextlib.closing(Ends(ZMQ, KEYS, tcp=True)) as ends:
        ends.broker = ZMQ.broker("tcp://127.0.0.1:*", KEYS.for_broker())
        sip = ends.sips[0] = ZMQ.sip(0, ends.broker.endpoint, "tcp://127.0.0.1:*", KEYS.for_sip(0))
        assert port_of(ends.broker.endpoint) > 0
        assert port_of(sip.endpoint) not in (0, port_of(ends.broker.endpoint))
        sip.send(BROKER, b"here")
        assert ends.broker.receive() == (0, b"here")


def test_ends_in_a_private_folder_have_no_monitors(workdir: Path) -> None:
    with contextlib.closing(Ends(ZMQ)) as ends:
        ends.open_all(1)
        ends.open_launcher()
        sockets = (ends.broker._server, ends.sips[0]._server, ends.sips[0]._broker, ends.launcher._broker)
        assert not any(hasattr(each, "monitor") for each in sockets)
        assert [end.notices() for end in (ends.broker, ends.sips[0], ends.launcher)] == [[], [], []]
    for path in workdir.iterdir():
        path.unlink()


# --- the authenticator, and connection states -------------------------------------------------------------------------


def request(**changed: bytes) -> list[bytes]:
    fields = {"version": b"1.0", "number": b"7", "domain": b"ahbm", "address": b"10.0.0.9", "identity": b""}
    fields |= {"mechanism": b"CURVE", "key": zmq.utils.z85.decode(KEYS.sips[1].public)}
    return list((fields | changed).values())


Authenticator = tuple[ZapAuthenticator, list[tuple[str, str]]]


@pytest.fixture
def authenticator(workdir: Path) -> Iterator[Authenticator]:
    context: zmq.Context[Any] = zmq.Context()
    rejected: list[tuple[str, str]] = []
    made = ZapAuthenticator(context, {KEYS.sips[1].public: "1"}, lambda where, why: rejected.append((where, why)))
    made.start()
    yield made, rejected
    made.close()


def test_the_authenticator_accepts_a_key_and_names_its_owner(authenticator: Authenticator) -> None:
    assert authenticator[0].answer(request()) == [b"1.0", b"7", b"200", b"", b"1", b""]
    assert authenticator[1] == []


@pytest.mark.parametrize(
    "wrong",
    [
        request(key=b"x" * 32),
        request(key=b""),
        request(mechanism=b"NULL"),
        request(mechanism=b"PLAIN"),
        request(mechanism=b"curve"),
        request(domain=b""),
        request(domain=b"global"),
        request(version=b"2.0"),
        request()[:6],
        request()[:1],
        [],
        [*request(), b"more"],
    ],
    ids=range(12),
)
def test_the_authenticator_rejects_any_other_request(authenticator: Authenticator, wrong: list[bytes]) -> None:
    answer = authenticator[0].answer(wrong)
    assert len(answer) == 6
    assert (answer[2], answer[4]) == (b"400", b"")
    assert len(authenticator[1]) == 1


def test_a_frame_without_a_key_has_no_member() -> None:
    assert member_of(zmq.Frame(b"x")) is None


UP, LOST = zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_DISCONNECTED
AUTH, PROTOCOL = zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
BROKEN = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
MISMATCH = zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH


def after(*events: int, number: int = 0, has_keys: bool = True, until_s: float | None = 5.0) -> Connection:
    connection = Connection(3, "tcp://x:1", has_keys, until_s, 5.0)
    for event in events:
        connection.note(event, number)
    return connection


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ((), None),
        ((UP,), None),
        ((BROKEN, LOST) * (MAX_FAILURES - 1), None),
        ((*(BROKEN, LOST) * (MAX_FAILURES - 1), UP), None),
        ((*(BROKEN, LOST) * (MAX_FAILURES - 1), UP, LOST), "lost"),
        ((BROKEN, LOST) * MAX_FAILURES, "refused"),
        ((BROKEN, LOST, LOST), "refused"),
        ((LOST,), "refused"),
        ((AUTH,), "refused"),
        ((PROTOCOL,), "refused"),
        ((UP, LOST), "lost"),
        ((UP, LOST, UP), "lost"),
        ((UP, LOST, AUTH), "lost"),
        ((AUTH, UP, LOST), "refused"),
    ],
)
def test_the_events_of_a_connection(events: tuple[int, ...], kind: str | None) -> None:
    gone = after(*events).gone
    assert (gone.kind if gone else None) == kind
    assert gone is None or (gone.peer, gone.endpoint) == (3, "tcp://x:1")


def test_a_connection_that_is_up_is_never_late() -> None:
    late = after()
    assert late.until_s == 5.0
    late.check_deadline(4.9)
    assert late.gone is None
    late.check_deadline(5.0)
    assert late.gone is not None
    assert late.gone.kind == "not_joined"
    assert late.until_s is None
    up = after(UP)
    assert up.until_s is None
    up.check_deadline(1e9)
    assert up.gone is None
    never = after(until_s=None)
    never.check_deadline(1e9)
    assert never.gone is None


@pytest.mark.parametrize(
    ("event", "number", "has_keys", "text"),
    [
        (PROTOCOL, MISMATCH, False, "requires a key: use the ticket"),
        (PROTOCOL, MISMATCH, True, "has no key, but this process expects a key"),
        (PROTOCOL, zmq.PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_HELLO, True, "another program or another version"),
        (BROKEN, 0, False, "requires a key: use the ticket"),
        (BROKEN, 0, True, "aborts every handshake: its key differs from the key in the ticket"),
    ],
)
def test_the_text_of_a_refusal(event: int, number: int, has_keys: bool, text: str) -> None:
    gone = after(*[event] * MAX_FAILURES, number=number, has_keys=has_keys).gone
    assert gone is not None
    assert gone.text.startswith("SIP 3 at tcp://x:1 ")
    assert text in gone.text


@pytest.mark.parametrize(
    ("events", "kinds"),
    [
        ([UP, LOST], ["lost"]),
        ([LOST], ["rejected"]),
        ([UP, PROTOCOL, LOST, LOST], ["rejected", "lost"]),
        ([UP, BROKEN, LOST, LOST, LOST], ["rejected", "lost", "rejected"]),
        ([AUTH, LOST, LOST], ["rejected"]),
        ([AUTH, UP, PROTOCOL, LOST, LOST, LOST], ["rejected", "lost"]),
    ],
)
def test_a_listener_reports_rejected_and_ended_connections(events: list[int], kinds: list[str]) -> None:
    listener = Listener(lambda: "tcp://x:1")
    found = [listener.note(event) for event in events]
    assert [notice.kind for notice in found if notice is not None] == kinds


def test_a_dropped_socket_can_be_reopened_at_once() -> None:
    """Monitors need unique names: libzmq frees a name some time after its socket is closed."""
    with contextlib.closing(SocketFactory(None, {})) as factory:
        for _ in range(100):
            factory.drop(factory.connect(zmq.PUSH, 1, "tcp://127.0.0.1:9", None))
