"""Mail over Unix datagrams: what only it can do wrong. What every kind of mail must do is in ``test_mail``."""

import contextlib
import gc
import os
import resource
import signal
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from mail_ends import END_S, Ends, frame_of, in_thread, launcher_frames, workdir

from broker.ids import BROKER, LAUNCHER
from broker.mail import unix as unix_mail
from broker.mail.kinds import MAIL_KINDS
from broker.mail.unix import PIECE_BYTES

__all__ = ["workdir"]

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
"""One test below checks that sockets are closed."""


@pytest.fixture
def unix(workdir: Path) -> Iterator[Ends]:
    with contextlib.closing(Ends(MAIL_KINDS["unix"])) as made:
        yield made


STRAYS = {
    "nothing": b"",
    "one byte": b"\x00",
    "four bytes": bytes(4),
    "too long": bytes(PIECE_BYTES + 6),
    "as long as goes": bytes(150_000),
}
RECEIVERS = {"broker": BROKER, "broker.sip-0": 0, "sip-0": 1, "broker.launcher": LAUNCHER}


def stray(path: str, datagram: bytes) -> None:
    """Send a datagram from a process outside the run."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.sendto(datagram, path)


def good_frame_at(unix: Ends, receiver: str) -> bytes:
    """The first frame received at ``receiver`` after a process of the run has sent ``b"good"`` there."""
    broker, (sip, peer) = unix.broker, unix.sips.values()
    if receiver == "broker":
        peer.send(BROKER, b"good")
        while (found := broker.receive())[0] is None:
            pass
        assert found[0] == 1
        return found[1]
    if receiver == "sip-0":
        peer.send(0, b"good")
        return sip.recv_data()
    broker.send(RECEIVERS[receiver], b"good")
    return sip.recv_control() if receiver == "broker.sip-0" else launcher_frames(unix.launcher, 1)[0]


@pytest.mark.parametrize("receiver", RECEIVERS)
@pytest.mark.parametrize("strange", STRAYS)
def test_a_stray_datagram_is_dropped(unix: Ends, receiver: str, strange: str) -> None:
    unix.open_all(2)
    unix.open_launcher()
    stray(receiver, STRAYS[strange])
    assert good_frame_at(unix, receiver) == b"good"


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_a_piece_of_an_unknown_sender_does_not_mix_with_frames(unix: Ends, receiver: str) -> None:
    """Its frame is never completed, and no process has its address."""
    unix.open_all(2)
    unix.open_launcher()
    stray(receiver, b"\x01\x7f\xff\xff\xff" + b"begun")
    assert good_frame_at(unix, receiver) == b"good"


def test_a_frame_over_the_limit_is_dropped_and_others_are_not(unix: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_mail, "MAX_FRAME_BYTES", 2 * PIECE_BYTES)
    unix.open_all(3)
    sips = unix.sips
    most = frame_of(1, 0, 2 * PIECE_BYTES)
    sips[1].send(0, most)
    assert sips[0].recv_data() == most
    with in_thread(lambda: (sips[1].send(0, most + b"1"), sips[1].send(0, b"good"), sips[1].recv_control())):
        assert sips[0].recv_data() == b"good"
        unix.broker.send(1, b"end")


def test_a_frame_at_the_limit_is_received(unix: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_mail, "MAX_FRAME_BYTES", 2 * PIECE_BYTES)
    unix.open_all(2)
    most = frame_of(1, 0, 2 * PIECE_BYTES)
    unix.sips[1].send(0, most)
    assert unix.sips[0].recv_data() == most


def test_every_poll_for_control_sends_what_is_queued(unix: Ends) -> None:
    """In one thread: the sender never waits, the receiver takes one frame after each poll."""
    unix.open_all(2)
    sip, peer = unix.sips.values()
    frames = [frame_of(1, number, 20_000) for number in range(60)]
    for frame in frames:
        peer.send(0, frame)
    for frame in frames:
        assert peer.poll_control() == []
        assert sip.recv_data() == frame


def test_a_poll_for_control_returns_all_that_has_arrived(unix: Ends) -> None:
    unix.open_all(1)
    for number in range(5):
        unix.broker.send(0, b"%d" % number)
    assert unix.sips[0].poll_control() == [b"0", b"1", b"2", b"3", b"4"]
    assert unix.sips[0].poll_control() == []


def test_a_frame_does_not_overtake_queued_ones(unix: Ends) -> None:
    """There is room again when it is sent, without a poll since."""
    unix.open_all(2)
    sip, peer = unix.sips.values()
    frames = [frame_of(1, number, 20_000) for number in range(60)]
    for frame in frames[:-1]:
        peer.send(0, frame)
    assert sip.recv_data() == frames[0]
    peer.send(0, frames[-1])
    for frame in frames[1:]:
        assert peer.poll_control() == []
        assert sip.recv_data() == frame


def test_a_wait_for_pieces_sends_what_is_queued(unix: Ends) -> None:
    """Two SIPs send each other more than any queue holds, then wait for the other's frame."""
    unix.open_all(2)
    sips = unix.sips
    frames = [frame_of(rank, 0, 3 * 2**20) for rank in (0, 1)]
    for rank in (0, 1):
        sips[rank].send(1 - rank, frames[rank])
    received: dict[int, list[bytes]] = {0: [], 1: []}

    def take(rank: int) -> None:
        """Its frame, and the broker's that the other one has received; in either order."""
        while len(received[rank]) < 2:
            received[rank].append(sips[rank].recv_data())
            if received[rank][-1] != b"end":
                unix.broker.send(1 - rank, b"end")

    with in_thread(lambda: take(1)):
        take(0)
    assert [set(received[rank]) for rank in (0, 1)] == [{frames[1], b"end"}, {frames[0], b"end"}]


@pytest.mark.parametrize("end", ["sip", "broker"])
def test_a_wait_for_the_rest_of_a_frame_sends_what_is_queued(unix: Ends, end: str) -> None:
    """The test is the other end, at each tick of a timer: it completes its frame once it has received the other's."""
    own_path, other_path, name = (
        ("broker", "broker.sip-0", b"\xff" * 4) if end == "sip" else ("broker.sip-0", "broker", bytes(4))
    )
    frame, received, ticks = frame_of(0, 0, 6 * PIECE_BYTES), bytearray(), iter(range(100))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(own_path)
        other.setblocking(False)

        def tick(*_: object) -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    received.extend(other.recv(2 * PIECE_BYTES)[5:])
            if received == frame:
                signal.setitimer(signal.ITIMER_REAL, 0)
                stray(other_path, b"\x00" + name + b"last")
            elif next(ticks, None) is None:
                raise TimeoutError("it waits and does not send")

        end_under_test = unix.open_sip(0) if end == "sip" else unix.open_broker()
        end_under_test.send(BROKER if end == "sip" else 0, frame)
        stray(other_path, b"\x01" + name + b"first, ")
        signal.signal(signal.SIGALRM, tick)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        try:
            assert (end_under_test.recv_control() if end == "sip" else end_under_test.receive()[1]) == b"first, last"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.unlink(own_path)


def test_close_gives_up_after_its_linger_time(unix: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a receiver that does not read."""
    monkeypatch.setattr(unix_mail, "LINGER_S", 0.01)
    unix.open_all(2)
    unix.sips[1].send(0, bytes(2**20))
    unix.sips.pop(1).close()


def test_two_ends_that_close_do_not_wait_for_each_other(unix: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has more for the other than any queue holds."""
    monkeypatch.setattr(unix_mail, "LINGER_S", END_S + 5.0)
    unix.open_all(2)
    for rank in (0, 1):
        unix.sips[rank].send(1 - rank, bytes(2**20))
    with in_thread(unix.sips[1].close):
        unix.sips[0].close()


def test_close_where_many_descriptors_are_open(unix: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at a broker of more than a thousand SIPs."""
    monkeypatch.setattr(unix_mail, "LINGER_S", 0.01)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this machine allows no more than 2048 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    unix.open_all(1)
    filler = [os.dup(0) for _ in range(1100)]
    sip = unix.open_sip(1)
    try:
        sip.connect_peers(("unix://sip-0",))
        sip.send(0, bytes(2**20))
        sip.close()
    finally:
        for fd in filler:
            os.close(fd)
        monkeypatch.setattr(unix_mail, "LINGER_S", -1.0)
        unix.sips.pop(1).close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("left", [False, True], ids=["nothing", "the file of a dead broker"])
def test_a_sip_without_a_broker_gives_up_with_an_error(left: bool, unix: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_mail, "LISTENER_S", 0.0)
    if left:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            dead.bind("broker")
    with pytest.raises(ConnectionError, match="no broker listens at broker; start the broker first"):
        unix.open_sip(0)
    for path in ("broker", "broker.sip-0", "sip-0"):
        Path(path).unlink(missing_ok=True)


@pytest.mark.fault
def test_a_new_broker_replaces_the_file_of_a_dead_one(unix: Ends) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind("broker")
    unix.open_all(1)


@pytest.mark.parametrize("end", ["broker", "sip", "launcher"])
def test_a_path_that_is_too_long_is_refused(unix: Ends, end: str) -> None:
    kind, endpoint = unix.kind, unix.kind.local("x" * 200)
    makes = {"broker": kind.broker, "launcher": kind.launcher, "sip": lambda it: kind.sip(0, it, it)}
    with pytest.raises(OSError, match="too long"):
        makes[end](endpoint)


@pytest.mark.parametrize("end", ["receiver", "sender"])
def test_a_socket_that_cannot_connect_or_bind_is_closed(unix: Ends, end: str) -> None:
    unix.open_all(0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        if end == "sender":
            assert unix.broker.send(5, b"nobody") is False
        else:
            with contextlib.suppress(OSError):
                unix.kind.broker(unix.kind.local("x" * 200))
        gc.collect()
    assert [str(each.message) for each in found] == []
