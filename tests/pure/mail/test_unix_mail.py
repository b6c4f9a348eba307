"""Mail over Unix datagrams: what only it can do wrong. What it has in common with other mail is in ``test_mail``.

Seen to fail with these bugs planted: a frame that passes queued ones; a look that finds one frame, or sends nothing; a
piece of a stranger put together with others' frames; the limit of a frame off by one; a dead broker's file in the way;
a close that waits for ever, or for one that closes too; a wait for the rest of a frame that sends nothing of its own.
"""

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
from mail_ends import END_S, Post, beside, frame_of, here, of_the_launcher

from broker.ids import BROKER, LAUNCHER
from broker.mail import unix_mail
from broker.mail.kinds import MAIL_KINDS
from broker.mail.unix_mail import PIECE_BYTES

__all__ = ["here"]

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
"""Sockets that were not closed are the business of one test, below."""


@pytest.fixture
def unix(here: Path) -> Iterator[Post]:
    with contextlib.closing(Post(MAIL_KINDS["unix"])) as made:
        yield made


STRAYS = {
    "nothing": b"",
    "one byte": b"\x00",
    "four bytes": bytes(4),
    "too long": bytes(PIECE_BYTES + 6),
    "as long as goes": bytes(150_000),
}
INLETS = {"broker": BROKER, "broker.sip-0": 0, "sip-0": 1, "broker.launcher": LAUNCHER}


def stray(path: str, datagram: bytes) -> None:
    """A datagram of somebody who is no participant."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(datagram, path)


def good_frame_at(unix: Post, inlet: str) -> bytes:
    """What the reader of ``inlet`` is given first once a participant has sent ``b"good"`` there."""
    broker, (sip, peer) = unix.broker, unix.sips.values()
    if inlet == "broker":
        peer.send(BROKER, b"good")
        while (found := broker.receive())[0] is None:
            pass
        assert found[0] == 1
        return found[1]
    if inlet == "sip-0":
        peer.send(0, b"good")
        return sip.recv_data()
    broker.send(INLETS[inlet], b"good")
    return sip.recv_control() if inlet == "broker.sip-0" else of_the_launcher(unix.launcher, 1)[0]


@pytest.mark.parametrize("inlet", INLETS)
@pytest.mark.parametrize("strange", STRAYS)
def test_a_stray_datagram_is_passed_over(unix: Post, inlet: str, strange: str) -> None:
    unix.open_all(2)
    unix.open_launcher()
    stray(inlet, STRAYS[strange])
    assert good_frame_at(unix, inlet) == b"good"


@pytest.mark.parametrize("inlet", INLETS)
def test_a_piece_of_a_stranger_does_not_mix_with_frames(unix: Post, inlet: str) -> None:
    """It never ends, and nobody else has its name."""
    unix.open_all(2)
    unix.open_launcher()
    stray(inlet, b"\x01\x7f\xff\xff\xff" + b"begun")
    assert good_frame_at(unix, inlet) == b"good"


def test_a_frame_over_the_most_bytes_is_refused_and_others_are_not(unix: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_mail, "MAX_FRAME_BYTES", 2 * PIECE_BYTES)
    unix.open_all(3)
    sips = unix.sips
    most = frame_of(1, 0, 2 * PIECE_BYTES)
    sips[1].send(0, most)
    assert sips[0].recv_data() == most
    with beside(lambda: (sips[1].send(0, most + b"1"), sips[1].send(0, b"good"), sips[1].recv_control())):
        assert sips[0].recv_data() == b"good"
        unix.broker.send(1, b"end")


def test_a_frame_of_the_most_bytes_is_taken(unix: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_mail, "MAX_FRAME_BYTES", 2 * PIECE_BYTES)
    unix.open_all(2)
    most = frame_of(1, 0, 2 * PIECE_BYTES)
    unix.sips[1].send(0, most)
    assert unix.sips[0].recv_data() == most


def test_what_is_queued_goes_out_at_every_look_for_the_broker(unix: Post) -> None:
    """In one thread: the sender never waits, the reader takes one frame after each look."""
    unix.open_all(2)
    sip, peer = unix.sips.values()
    frames = [frame_of(1, number, 20_000) for number in range(60)]
    for frame in frames:
        peer.send(0, frame)
    for frame in frames:
        assert peer.poll_control() == []
        assert sip.recv_data() == frame


def test_a_look_for_the_broker_finds_all_that_is_here(unix: Post) -> None:
    unix.open_all(1)
    for number in range(5):
        unix.broker.send(0, b"%d" % number)
    assert unix.sips[0].poll_control() == [b"0", b"1", b"2", b"3", b"4"]
    assert unix.sips[0].poll_control() == []


def test_a_frame_does_not_pass_those_that_are_queued(unix: Post) -> None:
    """There is room again when it is sent, and nobody has looked since."""
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


def test_who_takes_pieces_still_sends_his_own(unix: Post) -> None:
    """Two SIPs that send each other more than any queue holds, and wait for the other's then."""
    unix.open_all(2)
    sips = unix.sips
    frames = [frame_of(rank, 0, 3 * 2**20) for rank in (0, 1)]
    for rank in (0, 1):
        sips[rank].send(1 - rank, frames[rank])
    came: dict[int, list[bytes]] = {0: [], 1: []}

    def take(rank: int) -> None:
        """Its parcel, and the word that the other has his; whichever comes first."""
        while len(came[rank]) < 2:
            came[rank].append(sips[rank].recv_data())
            if came[rank][-1] != b"end":
                unix.broker.send(1 - rank, b"end")

    with beside(lambda: take(1)):
        take(0)
    assert [set(came[rank]) for rank in (0, 1)] == [{frames[1], b"end"}, {frames[0], b"end"}]


@pytest.mark.parametrize("end", ["sip", "broker"])
def test_who_waits_for_the_rest_of_a_frame_still_sends_his_own(unix: Post, end: str) -> None:
    """The test is the other side, a little at each tick of a timer: it ends its frame once it has the other's."""
    ours, theirs, name = (
        ("broker", "broker.sip-0", b"\xff" * 4) if end == "sip" else ("broker.sip-0", "broker", bytes(4))
    )
    frame, came, ticks = frame_of(0, 0, 6 * PIECE_BYTES), bytearray(), iter(range(100))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(ours)
        other.setblocking(False)

        def tick(*_: object) -> None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    came.extend(other.recv(2 * PIECE_BYTES)[5:])
            if came == frame:
                signal.setitimer(signal.ITIMER_REAL, 0)
                stray(theirs, b"\x00" + name + b"last")
            elif next(ticks, None) is None:
                raise TimeoutError("it waits, and does not send")

        mine = unix.open_sip(0) if end == "sip" else unix.open_broker()
        mine.send(BROKER if end == "sip" else 0, frame)
        stray(theirs, b"\x01" + name + b"first, ")
        signal.signal(signal.SIGALRM, tick)
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        try:
            assert (mine.recv_control() if end == "sip" else mine.receive()[1]) == b"first, last"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.unlink(ours)


def test_close_waits_no_longer_than_it_should(unix: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a reader that is there and does not read."""
    monkeypatch.setattr(unix_mail, "LINGER_S", 0.01)
    unix.open_all(2)
    unix.sips[1].send(0, bytes(2**20))
    unix.sips.pop(1).close()


def test_two_that_close_at_once_do_not_wait_for_each_other(unix: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has more for the other than any queue holds."""
    monkeypatch.setattr(unix_mail, "LINGER_S", END_S + 5.0)
    unix.open_all(2)
    for rank in (0, 1):
        unix.sips[rank].send(1 - rank, bytes(2**20))
    with beside(unix.sips[1].close):
        unix.sips[0].close()


def test_close_where_many_descriptors_are_open(unix: Post, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("left", [False, True], ids=["nothing", "the file of a dead one"])
def test_without_a_broker_a_sip_gives_up_and_says_so(left: bool, unix: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_mail, "LISTENER_S", 0.0)
    if left:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            dead.bind("broker")
    with pytest.raises(ConnectionError, match="nobody listens at broker; start the broker first"):
        unix.open_sip(0)
    for path in ("broker", "broker.sip-0", "sip-0"):
        Path(path).unlink(missing_ok=True)


def test_a_new_broker_takes_the_place_of_a_dead_ones_file(unix: Post) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind("broker")
    unix.open_all(1)


@pytest.mark.parametrize("end", ["broker", "sip", "launcher"])
def test_a_path_that_is_too_long_is_refused(unix: Post, end: str) -> None:
    kind, endpoint = unix.kind, unix.kind.local("x" * 200)
    makes = {"broker": kind.broker, "launcher": kind.launcher, "sip": lambda it: kind.sip(0, it, it)}
    with pytest.raises(OSError, match="too long"):
        makes[end](endpoint)


@pytest.mark.parametrize("end", ["inlet", "outlet"])
def test_a_socket_that_leads_nowhere_is_closed(unix: Post, end: str) -> None:
    unix.open_all(0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if end == "outlet":
            assert unix.broker.send(5, b"nobody") is False
        else:
            with contextlib.suppress(OSError):
                unix.kind.broker(unix.kind.local("x" * 200))
        gc.collect()
    assert [str(each.message) for each in said] == []
