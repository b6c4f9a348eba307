"""Mail with keys and over TCP: who gets in, who is told why not, what is told when a connection is lost.

Real sockets on loopback; what mail must do whatever it travels by is in ``test_mail``. Nothing waits by the clock but
for what a deadline must bring about.

Seen to fail with these bugs planted: a doorman who lets every key in, or answers for another context; senders believed
by their routing ids; a second process in a seat that takes it over, or hears nothing; a parcel of another SIP, or a
command among the parcels, that is taken; a wait that looks at no monitor, or before the last frames; a loss that is
forgotten after a reconnect; a broken handshake that is a refusal, or a thousand that are not; a lost peer that is
written to; a heartbeat left out; a broker that ends for a stranger; notices without end.
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
from mail_ends import END_S, Post, beside, here, of_the_launcher

from broker.ids import BROKER, LAUNCHER, address_of
from broker.mail import sockets as guard_module
from broker.mail.base import Disconnected, Notice
from broker.mail.connections import PATIENCE, Connection, Listener
from broker.mail.kinds import MAIL_KINDS
from broker.mail.sockets import SocketFactory
from broker.security.keys import JobKeys, KeyPair, SipKeys
from broker.security.zap import ZapAuthenticator, member_of
from broker.wire import Grant, PacketBatch, encode, source_of

__all__ = ["here"]

KEYS, OTHERS = JobKeys.fresh(3), JobKeys.fresh(3)
ZMQ = MAIL_KINDS["zmq"]
replace = msgspec.structs.replace


@pytest.fixture(params=["tcp", "ipc"])
def post(request: pytest.FixtureRequest, here: Path) -> Iterator[Post]:
    """With keys."""
    with contextlib.closing(Post(ZMQ, KEYS, request.param == "tcp")) as made:
        yield made
    for path in here.iterdir():
        path.unlink()


@pytest.fixture
def over_tcp(here: Path) -> Iterator[Post]:
    with contextlib.closing(Post(ZMQ, KEYS, tcp=True)) as made:
        yield made


@pytest.fixture
def plain(here: Path) -> Iterator[Post]:
    """Over TCP, without keys."""
    with contextlib.closing(Post(ZMQ, None, tcp=True)) as made:
        yield made


def batch(src: int, number: int = 0) -> bytes:
    return encode(PacketBatch(src, number, ((0, 1, b"body"),)))


def port_of(endpoint: str) -> int:
    return int(endpoint.rpartition(":")[2])


def joins(post: Post, rank: int = 0) -> Any:
    """A SIP that is let in, and answered."""
    sip = post.open_sip(rank)
    sip.send(BROKER, b"here")
    assert post.broker.receive() == (rank, b"here")
    assert post.broker.send(rank, b"welcome") is True
    assert sip.recv_control() == b"welcome"
    return sip


def intruder(post: Post, address: int, keys: SipKeys | None) -> Any:
    """A SIP as somebody makes it who may not; the test closes it with the others."""
    keyless = keys is None and not post.at("broker").startswith("tcp")
    sip = ZMQ.sip(address, post.at("broker"), post.at(f"intruder-{len(post.sips)}"), keys)
    assert not keyless, "a plain end is not told anything"
    post.sips[1000 + len(post.sips)] = sip
    return sip


def turned_away(sip: Any) -> Notice:
    """What it is told; the wait ends by itself."""
    sip.send(BROKER, b"let me in")
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


def until_told(end: Any, what: str, receive: bool = False) -> None:
    """Look at an end's notices until one says so."""
    told = ""
    while what not in told:
        if receive and end.receive_now() is not None:
            raise AssertionError("nobody should get through")
        told += texts(end)


# --- who gets in ----------------------------------------------------------------------------------------------


def test_who_has_the_right_key_is_known_by_it(post: Post) -> None:
    post.open_broker()
    for rank in range(3):
        joins(post, rank)
    launcher = post.open_launcher()
    launcher.send(BROKER, b"and I")
    assert post.broker.receive() == (LAUNCHER, b"and I")
    assert post.broker.send(LAUNCHER, b"hello") is True
    assert of_the_launcher(launcher, 1) == [b"hello"]
    assert launcher.notices() == []


def test_the_incarnation_comes_from_the_routing_id(post: Post) -> None:
    post.open_broker()
    joins(post, 2)
    again = ZMQ.sip(address_of(2, 3), post.at("broker"), post.at("again"), KEYS.for_sip(2))
    post.sips[9] = again
    again.send(BROKER, b"I again")
    assert post.broker.receive() == (address_of(2, 3), b"I again")
    assert post.broker.send(address_of(2, 3), b"you again") is True
    assert again.recv_control() == b"you again"
    assert post.broker.send(2, b"you before") is True
    assert post.sips[2].recv_control() == b"you before"


WRONG = {
    "a key of no run": (replace(KEYS.for_sip(1), own=KeyPair.fresh()), "refused this process's key: use the ticket"),
    "a key of another run": (replace(KEYS.for_sip(1), own=OTHERS.sips[1]), "refused this process's key"),
    "an agent's key": (replace(KEYS.for_sip(1), own=JobKeys.fresh(1, 1).agents[0]), "refused this process's key"),
    "the broker's own": (replace(KEYS.for_sip(1), own=KEYS.broker), "refused this process's key"),
    "another broker expected": (replace(KEYS.for_sip(1), broker=OTHERS.broker.public), "has another key than"),
    "the key of SIP 2": (KEYS.for_sip(2), "does not take this process: it has the key of SIP 2"),
    "the launcher's key": (replace(KEYS.for_sip(1), own=KEYS.launcher), "process: it has the key of the launcher"),
}


@pytest.mark.parametrize("what", WRONG)
def test_who_has_a_wrong_key_is_told_and_nobody_hears_it(post: Post, what: str) -> None:
    post.open_broker()
    joins(post)
    keys, why = WRONG[what]
    sip = intruder(post, 1, keys)
    with beside(lambda: until_told(post.broker, "", receive=True) if "process: it" not in why else post_drops(post)):
        notice = turned_away(sip)
    assert why in notice.text
    assert (notice.kind, notice.who, notice.endpoint) == ("refused", BROKER, post.at("broker"))
    assert sip.notices() == [notice]
    assert post.broker.receive_now() is None
    joins(post, 1)


def post_drops(post: Post) -> None:
    """The broker takes one frame, as a stranger's."""
    assert post.broker.receive() == (None, b"")


def test_who_has_no_key_is_told(over_tcp: Post) -> None:
    over_tcp.open_broker()
    notice = turned_away(intruder(over_tcp, 1, None))
    assert "a key" in notice.text
    assert notice.kind == "refused"
    until_told(over_tcp.broker, "somebody came to tcp://", receive=True)


def test_who_has_a_key_where_there_are_none_is_told(plain: Post) -> None:
    plain.open_broker()
    notice = turned_away(intruder(plain, 1, KEYS.for_sip(1)))
    assert notice.kind == "refused"


def test_a_stranger_is_told_of_at_the_broker(over_tcp: Post) -> None:
    over_tcp.open_broker()
    turned_away(intruder(over_tcp, 1, WRONG["a key of no run"][0]))
    (notice,) = over_tcp.broker.notices()
    assert notice.kind == "stranger"
    assert notice.text == "somebody at 127.0.0.1 came with a key that is not of this run, and was turned away"
    assert over_tcp.broker.notices() == []


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_who_comes_first_in_a_seat_keeps_it(over_tcp: Post, plain: Post, keys: bool) -> None:
    post = over_tcp if keys else plain
    post.open_broker()
    first = joins(post)
    second = intruder(post, 0, KEYS.for_sip(0) if keys else None)
    with beside(lambda: post_drops(post)):
        notice = turned_away(second)
    assert "it uses a ticket that another process uses already" in notice.text
    assert "says it is SIP 0 uses a ticket that another" in texts(post.broker)
    assert post.broker.send(0, b"still you") is True
    assert first.recv_control() == b"still you"
    first.send(BROKER, b"still I")
    assert post.broker.receive() == (0, b"still I")


def test_a_second_launcher_is_told(post: Post) -> None:
    broker, first = post.open_broker(), post.open_launcher()
    first.send(BROKER, b"first")
    assert broker.receive() == (LAUNCHER, b"first")
    second = post.open_launcher()
    try:
        second.send(BROKER, b"second")
        assert broker.receive() == (None, b"")
        told: list[Notice] = []
        while not told:
            assert list(second.receive_waiting()) == []
            told = second.notices()
        assert "uses a ticket that another process uses already" in told[0].text
        assert second.notices() == [], "once"
    finally:
        first.close_now()


def raw(post: Post, kind: int, endpoint: str, keys: SipKeys, server: str, name: bytes) -> Any:
    """A bare socket with keys, for what no program of ours would send."""
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
def test_a_routing_id_alone_is_believed_by_nobody(post: Post, name: bytes) -> None:
    broker = post.open_broker()
    bare = raw(post, zmq.DEALER, post.at("broker"), KEYS.for_sip(1), KEYS.broker.public, name)
    try:
        bare.send(b"I am who I say")
        assert broker.receive() == (None, b"")
    finally:
        bare.context.destroy(0)


@pytest.mark.parametrize("parts", [0, 2, 3, 300])
def test_what_is_not_in_one_part_is_dropped(post: Post, parts: int) -> None:
    broker = post.open_broker()
    bare = raw(post, zmq.DEALER, post.at("broker"), KEYS.for_sip(1), KEYS.broker.public, b"sip-1")
    try:
        bare.send_multipart([b"x"] * parts or [b"only"])
        assert broker.receive() == ((None, b"") if parts else (1, b"only"))
        broker._router.send_multipart([b"sip-1", b"a", b"b", b"c"])
    finally:
        bare.context.destroy(0)


def test_a_sip_takes_no_message_in_parts(post: Post) -> None:
    post.open_broker()
    sip = joins(post)
    name = post.broker._names[0]
    for parts in ([b"two", b"parts"], [b"", b"", b""], [b"a"] * 100):
        post.broker._router.send_multipart([name, *parts])
    post.broker.send(0, b"good")
    assert sip.recv_control() == b"good"


# --- parcels --------------------------------------------------------------------------------------------------


def two_who_met(post: Post) -> tuple[Any, Any]:
    post.open_broker()
    sips = joins(post, 0), joins(post, 1)
    for sip in sips:
        sip.connect_peers(tuple(post.at(f"sip-{rank}") for rank in range(3)))
    return sips


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (batch(2), "a parcel of SIP 2 came with the key of SIP 1"),
        (batch(0), "a parcel of SIP 0 came with the key of SIP 1"),
        (batch(300), "a parcel of SIP 300 came"),
        (encode(Grant(None, ())), "what is no parcel came with the key of SIP 1"),
        (b"", "what is no parcel"),
        (b"\x94\xa6parcel", "what is no parcel"),
        (b"\x94\xa6parcel\xcd\x01", "what is no parcel"),
        (b"\x94\xa6parcel\xce\x00\x00\x00\x01", "what is no parcel"),
        (b"\xdc\x00\x04\xa6parcel\x01", "what is no parcel"),
    ],
    ids=lambda it: repr(it)[:40],
)
def test_a_peer_sends_nothing_but_its_own_parcels(post: Post, frame: bytes, why: str) -> None:
    sip, peer = two_who_met(post)
    peer.send(0, frame)
    peer.send(0, batch(1, 7))
    assert sip.recv_data() == batch(1, 7)
    (notice,) = sip.notices()
    assert why in notice.text
    assert notice.text.endswith("it was dropped")


@pytest.mark.parametrize("rank", [0, 1, 127, 128, 255, 256, 4095])
def test_whose_a_parcel_is_can_be_read_without_the_rest(rank: int) -> None:
    assert source_of(batch(rank)) == rank
    assert source_of(encode(PacketBatch(rank, 2**40, ()))) == rank


def test_a_parcel_in_parts_is_dropped(post: Post) -> None:
    sip, _ = two_who_met(post)
    bare = raw(post, zmq.PUSH, post.at("sip-0"), KEYS.for_sip(1), KEYS.sips[0].public, b"")
    try:
        bare.send_multipart([batch(1), batch(1)])
        bare.send(batch(1, 9))
        assert sip.recv_data() == batch(1, 9)
    finally:
        bare.context.destroy(0)


def test_nobody_but_a_sip_of_the_run_can_send_parcels(post: Post) -> None:
    """Not the broker either, nor the launcher."""
    sip, peer = two_who_met(post)
    for own in (KEYS.broker, KEYS.launcher, OTHERS.sips[1], KeyPair.fresh()):
        stranger = raw(post, zmq.PUSH, post.at("sip-0"), replace(KEYS.for_sip(1), own=own), KEYS.sips[0].public, b"")
        monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            stranger.send(batch(1, 66))
            assert int.from_bytes(monitor.recv_multipart()[0][:2], "little") == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        finally:
            stranger.disable_monitor()
            stranger.context.destroy(0)
    peer.send(0, batch(1, 1))
    assert sip.recv_data() == batch(1, 1)
    assert texts(sip).count("a key that is not of this run, and was turned away") == 4


# --- what is lost ---------------------------------------------------------------------------------------------


def test_a_broker_that_ends_is_lost_after_its_last_words(post: Post) -> None:
    post.open_broker()
    sip = joins(post)
    for number in range(100):
        post.broker.send(0, b"%d" % number)
    post.broker.close()
    post.broker = None
    assert [sip.recv_control() for _ in range(100)] == [b"%d" % number for number in range(100)]
    for wait in (sip.recv_control, sip.recv_data, sip.recv_control):
        with pytest.raises(Disconnected, match=r"the connection to the broker at .* is lost") as lost:
            wait()
    assert lost.value.notice.kind == "lost"
    assert sip.cut_off == lost.value.notice
    assert sip.notices() == [lost.value.notice]


def test_a_sip_waits_in_vain_for_a_parcel_no_longer_than_there_is_a_broker(post: Post) -> None:
    sip, _ = two_who_met(post)
    with beside(post.broker.close), pytest.raises(Disconnected, match="is lost"):
        sip.recv_data()
    post.broker = None


def test_who_was_cut_off_stays_so_though_it_could_connect_again(over_tcp: Post) -> None:
    over_tcp.open_broker()
    sip = joins(over_tcp)
    over_tcp.broker.close()
    over_tcp.open_broker()
    sip.send(BROKER, b"as if nothing had happened")
    over_tcp.broker.receive()
    over_tcp.broker.send(0, b"answer")
    with contextlib.suppress(Disconnected):
        assert sip.recv_control() == b"answer", "it may be taken before the loss is seen"
    with pytest.raises(Disconnected):
        sip.recv_control()


def test_in_a_long_window_it_is_seen_without_waiting(post: Post) -> None:
    post.open_broker()
    sip = joins(post)
    assert sip.poll_control() == []
    assert sip.cut_off is None
    post.broker.close()
    post.broker = None
    while sip.cut_off is None:
        assert sip.poll_control() == []
    assert sip.cut_off.kind == "lost"


def test_a_peer_that_is_lost_is_told_of_once_and_written_to_no_more(post: Post) -> None:
    lost: list[tuple[int, str]] = []
    post.open_broker()
    sip = post.open_sip(0, on_peer_lost=lambda rank, notice: lost.append((rank, notice.text)))
    sip.connect_peers(tuple(post.at(f"sip-{rank}") for rank in range(3)))
    peer = joins(post, 1)
    sip.send(1, batch(0))
    assert peer.recv_data() == batch(0)
    post.sips.pop(1).close()
    while not lost:
        assert sip.poll_control() == []
    assert lost == [(1, f"the connection to SIP 1 at {post.at('sip-1')} is lost: its process, its host or the network")]
    sip.send(1, batch(0, 1))
    assert sip.poll_control() == []
    again = ZMQ.sip(address_of(1, 1), post.at("broker"), post.at("sip-1-again"), KEYS.for_sip(1))
    post.sips[9] = again
    sip.reconnect_peer(1, 1, post.at("sip-1-again"))
    sip.send(1, batch(0, 2))
    assert again.recv_data() == batch(0, 2), "what was for its predecessor is not for it"
    assert len(lost) == 1


def test_the_loss_of_a_peer_wakes_who_waits_for_the_broker(post: Post) -> None:
    post.open_broker()
    sip = post.open_sip(0, on_peer_lost=lambda rank, _: sip.send(BROKER, b"lost"))
    sip.connect_peers(tuple(post.at(f"sip-{rank}") for rank in range(3)))
    peer = joins(post, 1)
    sip.send(1, batch(0))
    assert peer.recv_data() == batch(0)
    post.sips.pop(1).close()

    def answer() -> None:
        assert post.broker.receive() == (0, b"lost")
        post.broker.send(0, b"go on")

    with beside(answer):
        assert sip.recv_control() == b"go on"


@pytest.mark.parametrize("wait", ["control", "parcel"])
def test_a_broker_that_never_answers_is_told_of_in_time(over_tcp: Post, wait: str) -> None:
    sip = over_tcp.open_sip(0, join_timeout_s=0.05)
    with pytest.raises(Disconnected, match=r"the broker at tcp://127.0.0.1:\d+ did not answer within 0.05 s") as late:
        getattr(sip, wait)()
    assert late.value.notice.kind == "not_joined"


def test_so_is_one_whose_port_is_open_and_silent(over_tcp: Post) -> None:
    with socket.create_server(("127.0.0.1", port_of(over_tcp.at("broker")))):
        sip = over_tcp.open_sip(0, join_timeout_s=0.05)
        with pytest.raises(Disconnected, match=r"did not answer within 0.05 s"):
            sip.recv_control()


def test_a_peer_that_never_answers_is_lost_and_the_broker_is_not(over_tcp: Post) -> None:
    lost: list[int] = []
    over_tcp.open_broker()
    sip = over_tcp.open_sip(0, join_timeout_s=0.3, on_peer_lost=lambda rank, _: lost.append(rank))
    sip.send(BROKER, b"here")
    assert over_tcp.broker.receive() == (0, b"here")
    sip.connect_peers(tuple(over_tcp.at(f"sip-{rank}") for rank in range(3)))
    sip.send(2, batch(0))
    with beside(lambda: over_tcp.broker.send(0, b"x") if not waited.wait(END_S) else over_tcp.broker.send(0, b"go on")):
        while not lost:
            assert sip.poll_control() == []
        waited.set()
        assert sip.recv_control() == b"go on"
    assert lost == [2]


waited = threading.Event()


def test_without_deadlines_nothing_is_ever_late(over_tcp: Post) -> None:
    sip = over_tcp.open_sip(0, silence_s=None, join_timeout_s=0.0)
    assert sip.poll_control() == []
    assert sip.cut_off is None
    assert sip._broker.connection.until_s is None
    for option in (zmq.HEARTBEAT_IVL, zmq.HEARTBEAT_TTL):
        assert sip._broker.socket.getsockopt(option) == 0


@pytest.mark.parametrize("end", ["sip", "broker", "launcher", "peer"])
def test_silence_over_tcp_is_death_within_two_seconds(over_tcp: Post, end: str) -> None:
    two_who_met(over_tcp)[0].send(1, batch(0))
    sockets = {
        "sip": over_tcp.sips[0]._broker.socket,
        "broker": over_tcp.broker._router,
        "launcher": over_tcp.open_launcher()._way.socket,
        "peer": over_tcp.sips[0]._peers[1].socket,
    }
    options = {zmq.HEARTBEAT_IVL: 250, zmq.HEARTBEAT_TIMEOUT: 2000, zmq.HEARTBEAT_TTL: 2000, zmq.HANDSHAKE_IVL: 5000}
    options |= {zmq.RECONNECT_IVL: 100, zmq.RECONNECT_IVL_MAX: 1000, zmq.MAXMSGSIZE: 64 * 2**20}
    assert {option: sockets[end].getsockopt(option) for option in options} == options


class Wire:
    """A TCP connection through the test, which can be cut without an end: bytes just stop."""

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


def test_a_cut_without_an_end_is_told_of(over_tcp: Post) -> None:
    over_tcp.open_broker()
    wire = Wire(port_of(over_tcp.at("broker")))
    with contextlib.closing(wire), beside(wire.run):
        sip = ZMQ.sip(0, f"tcp://127.0.0.1:{wire.port}", "tcp://127.0.0.1:*", KEYS.for_sip(0))
        over_tcp.sips[0] = sip
        sip.send(BROKER, b"here")
        assert over_tcp.broker.receive() == (0, b"here")
        wire.cut.set()
        wire.go()
        with pytest.raises(Disconnected, match="is lost"):
            sip.recv_control()
        wire.go()


# --- what comes to an open port -------------------------------------------------------------------------------


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


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_on_the_port_is_nobodys_business(over_tcp: Post, what: str) -> None:
    over_tcp.open_broker()
    sip = joins(over_tcp)
    with socket.create_connection(("127.0.0.1", port_of(over_tcp.at("broker")))) as stranger:
        stranger.sendall(GARBAGE[what])
        with contextlib.suppress(OSError):
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(65536):
                pass
    until_told(over_tcp.broker, f"to {over_tcp.at('broker')}", receive=True)
    sip.send(BROKER, b"still here")
    assert over_tcp.broker.receive() == (0, b"still here")
    joins(over_tcp, 1)


def test_three_hundred_silent_connections_keep_nobody_out(over_tcp: Post) -> None:
    over_tcp.open_broker()
    with contextlib.ExitStack() as silent:
        for _ in range(300):
            address = ("127.0.0.1", port_of(over_tcp.at("broker")))
            silent.enter_context(contextlib.closing(socket.create_connection(address)))
        joins(over_tcp)
        joins(over_tcp, 1)


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_a_frame_over_the_limit_costs_its_sender_the_connection(over_tcp: Post, plain: Post, keys: bool) -> None:
    post = over_tcp if keys else plain
    post.open_broker()
    sip, other = joins(post), joins(post, 1)
    sip.send(BROKER, bytes(64 * 2**20 + 100))
    with pytest.raises(Disconnected, match="is lost"):
        sip.recv_control()
    assert post.broker.receive_now() is None
    other.send(BROKER, b"still here")
    assert post.broker.receive() == (1, b"still here")


def test_a_claim_of_two_gigabytes_costs_its_sender_the_connection(plain: Post) -> None:
    """Without keys, where one can get so far by hand: greeting, READY, then a long frame's header."""
    plain.open_broker()
    ready = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\x05sip-7"
    with socket.create_connection(("127.0.0.1", port_of(plain.at("broker")))) as stranger:
        stranger.sendall(GARBAGE["a greeting"])
        assert stranger.recv(1) == b"\xff"
        stranger.sendall(b"\x04" + bytes([len(ready)]) + ready)
        while b"READY" not in stranger.recv(65536):
            pass
        stranger.sendall(b"\x00\x05hello")
        assert plain.broker.receive() == (7, b"hello")
        stranger.sendall(b"\x02" + (2**31).to_bytes(8, "big") + bytes(1000))
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(65536):
                pass
    until_told(plain.broker, "connection", receive=True)


def test_notices_do_not_fill_the_memory(here: Path) -> None:
    with contextlib.closing(SocketFactory(None, {})) as guard:
        for number in range(guard_module.MOST_NOTICES + 5):
            guard.tell(Notice("stranger", None, "", str(number)))
        assert [notice.text for notice in guard.notices()] == [str(n) for n in range(5, guard_module.MOST_NOTICES + 5)]


def test_another_program_at_the_brokers_port_is_told_of(over_tcp: Post) -> None:
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

        with beside(answer_often):
            notice = turned_away(over_tcp.open_sip(0))
            server.shutdown(socket.SHUT_RDWR)
    assert notice.kind == "refused"
    assert "another program" in notice.text


@pytest.mark.parametrize("keys", [True, False], ids=["keys", "no keys"])
def test_a_port_that_is_taken_is_an_error_that_leaves_nothing(keys: bool, over_tcp: Post) -> None:
    over_tcp.open_broker()
    at, part = over_tcp.at("broker"), KEYS if keys else None
    for taken in (
        lambda: ZMQ.broker(at, part and part.for_broker()),
        lambda: ZMQ.sip(0, at, at, part and part.for_sip(0)),
    ):
        with pytest.raises(zmq.ZMQError, match="Address already in use"):
            taken()


def test_what_is_no_endpoint_is_an_error_that_leaves_nothing(here: Path) -> None:
    with pytest.raises(zmq.ZMQError):
        ZMQ.sip(0, "tcp://127.0.0.1", "tcp://127.0.0.1:*", KEYS.for_sip(0))
    with pytest.raises(zmq.ZMQError):
        ZMQ.launcher("tcp://127.0.0.1", KEYS.for_launcher())


def test_the_system_chooses_a_port(here: Path) -> None:
    with contextlib.closing(Post(ZMQ, KEYS, tcp=True)) as post:
        post.broker = ZMQ.broker("tcp://127.0.0.1:*", KEYS.for_broker())
        sip = post.sips[0] = ZMQ.sip(0, post.broker.endpoint, "tcp://127.0.0.1:*", KEYS.for_sip(0))
        assert port_of(post.broker.endpoint) > 0
        assert port_of(sip.endpoint) not in (0, port_of(post.broker.endpoint))
        sip.send(BROKER, b"here")
        assert post.broker.receive() == (0, b"here")


def test_the_plain_ends_stay_plain(here: Path) -> None:
    with contextlib.closing(Post(ZMQ)) as post:
        post.open_all(1)
        post.open_launcher()
        names = [type(end).__name__ for end in (post.broker, post.sips[0], post.launcher)]
        assert names == ["ZmqBroker", "ZmqSipMail", "ZmqEnd"]
        assert [end.notices() for end in (post.broker, post.sips[0], post.launcher)] == [[], [], []]
    for path in here.iterdir():
        path.unlink()


# --- the doorman, and what events mean ------------------------------------------------------------------------


def question(**changed: bytes) -> list[bytes]:
    asked = {"version": b"1.0", "number": b"7", "domain": b"ahbm", "address": b"10.0.0.9", "identity": b""}
    asked |= {"mechanism": b"CURVE", "key": zmq.utils.z85.decode(KEYS.sips[1].public)}
    return list((asked | changed).values())


@pytest.fixture
def doorman(here: Path) -> Iterator[tuple[ZapAuthenticator, list[tuple[str, str]]]]:
    context: zmq.Context[Any] = zmq.Context()
    away: list[tuple[str, str]] = []
    made = ZapAuthenticator(context, {KEYS.sips[1].public: "1"}, lambda where, why: away.append((where, why)))
    yield made, away
    context.term()
    made.join()


def test_the_doorman_lets_in_by_name(doorman: tuple[ZapAuthenticator, list[tuple[str, str]]]) -> None:
    assert doorman[0].answer(question()) == [b"1.0", b"7", b"200", b"", b"1", b""]
    assert doorman[1] == []


@pytest.mark.parametrize(
    "asked",
    [
        question(key=b"x" * 32),
        question(key=b""),
        question(mechanism=b"NULL"),
        question(mechanism=b"PLAIN"),
        question(mechanism=b"curve"),
        question(domain=b""),
        question(domain=b"global"),
        question(version=b"2.0"),
        question()[:6],
        question()[:1],
        [],
        [*question(), b"more"],
    ],
    ids=range(12),
)
def test_and_nobody_else(doorman: tuple[ZapAuthenticator, list[tuple[str, str]]], asked: list[bytes]) -> None:
    answer = doorman[0].answer(asked)
    assert len(answer) == 6
    assert (answer[2], answer[4]) == (b"400", b"")
    assert len(doorman[1]) == 1


def test_a_frame_without_a_member_is_nobodys() -> None:
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
        ((BROKEN, LOST) * (PATIENCE - 1), None),
        ((*(BROKEN, LOST) * (PATIENCE - 1), UP), None),
        ((*(BROKEN, LOST) * (PATIENCE - 1), UP, LOST), "lost"),
        ((BROKEN, LOST) * PATIENCE, "refused"),
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
def test_what_becomes_of_a_connection(events: tuple[int, ...], kind: str | None) -> None:
    gone = after(*events).gone
    assert (gone.kind if gone else None) == kind
    assert gone is None or (gone.who, gone.endpoint) == (3, "tcp://x:1")


def test_a_connection_that_is_up_is_never_late() -> None:
    late = after()
    assert late.until_s == 5.0
    late.look(4.9)
    assert late.gone is None
    late.look(5.0)
    assert late.gone is not None
    assert late.gone.kind == "not_joined"
    assert late.until_s is None
    up = after(UP)
    assert up.until_s is None
    up.look(1e9)
    assert up.gone is None
    never = after(until_s=None)
    never.look(1e9)
    assert never.gone is None


@pytest.mark.parametrize(
    ("event", "number", "has_keys", "says"),
    [
        (PROTOCOL, MISMATCH, False, "wants a key: use the ticket"),
        (PROTOCOL, MISMATCH, True, "has no key, but should"),
        (PROTOCOL, zmq.PROTOCOL_ERROR_ZMTP_MALFORMED_COMMAND_HELLO, True, "it is another program, or another version"),
        (BROKEN, 0, False, "breaks every handshake off: it wants a key"),
        (BROKEN, 0, True, "breaks every handshake off: it has another key than this process was told"),
    ],
)
def test_the_words_for_a_refusal(event: int, number: int, has_keys: bool, says: str) -> None:
    gone = after(*[event] * PATIENCE, number=number, has_keys=has_keys).gone
    assert gone is not None
    assert gone.text.startswith("SIP 3 at tcp://x:1 ")
    assert says in gone.text


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([UP, LOST], ["lost"]),
        ([LOST], ["stranger"]),
        ([UP, PROTOCOL, LOST, LOST], ["stranger", "lost"]),
        ([UP, BROKEN, LOST, LOST, LOST], ["stranger", "lost", "stranger"]),
        ([AUTH, LOST, LOST], ["stranger"]),
        ([AUTH, UP, PROTOCOL, LOST, LOST, LOST], ["stranger", "lost"]),
    ],
)
def test_a_listener_tells_of_who_was_in_and_left_and_of_who_never_got_in(events: list[int], told: list[str]) -> None:
    listener = Listener(lambda: "tcp://x:1")
    found = [listener.note(event) for event in events]
    assert [notice.kind for notice in found if notice is not None] == told


def test_a_way_that_is_dropped_can_be_made_again_at_once() -> None:
    """Planted: monitors named by where a socket stands in memory, which the next one takes before the name is free."""
    with contextlib.closing(SocketFactory(None, {})) as guard:
        for _ in range(100):
            guard.drop(guard.connect(zmq.PUSH, 1, "tcp://127.0.0.1:9", None))
