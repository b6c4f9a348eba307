"""Mail within one process, and every kind of mail between processes over real sockets.

Tested: order, whole frames, and receivers that are slow, late or gone. What only Unix mail can do wrong is in
``test_unix_mail``. Where two ends must act at a time, one acts in a thread; no test waits by the clock.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mail_ends import END_S, SIZES, Ends, frame_of, in_thread, launcher_frames, workdir

from broker.ids import BROKER, LAUNCHER
from broker.mail import sockets
from broker.mail import unix as unix_mail
from broker.mail.inproc import InprocMail, ShuffledInprocMail
from broker.mail.kinds import MAIL_KINDS, check_mail, inproc_mail, is_seeded, mail_for
from broker.mail.unix import PIECE_BYTES
from broker.mail.zmq import ZmqSipMail
from broker.security import JobKeys

__all__ = ["workdir"]

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
"""One test of ``test_unix_mail`` checks that sockets are closed."""

PAIRS = [(sender, to) for sender in range(3) for to in (7, 8)]


def send_everything(mail: InprocMail, count: int = 20) -> list[tuple[int, int, bytes]]:
    sent = [(sender, to, b"%d" % n) for n in range(count) for sender, to in PAIRS]
    for sender, to, frame in sent:
        mail.send(sender, to, frame)
    return sent


def receive_all(mail: InprocMail) -> list[tuple[int, int, bytes]]:
    received = []
    while (found := mail.next()) is not None:
        received.append(found)
    return received


def test_inproc_mail_keeps_the_order_of_all_sends() -> None:
    mail = InprocMail()
    assert mail.next() is None
    sent = send_everything(mail)
    assert receive_all(mail) == sent


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_mail_keeps_each_pair_in_order_and_loses_nothing(seed: int) -> None:
    mail = ShuffledInprocMail(seed)
    sent = send_everything(mail)
    received = receive_all(mail)
    assert received != sent
    assert sorted(received) == sorted(sent)
    for pair in PAIRS:
        assert [m for m in received if m[:2] == pair] == [m for m in sent if m[:2] == pair]
    assert mail.next() is None


@pytest.mark.parametrize("make", [InprocMail, lambda: ShuffledInprocMail(3)], ids=["plain", "shuffled"])
def test_the_last_frame_can_be_dropped(make: Callable[[], InprocMail]) -> None:
    """Progress is reported by the clock, and dropped at once: the order of what stays is that without it."""
    mail, without = make(), make()
    assert mail.last is None
    for each in (mail, without):
        send_everything(each)
    mail.send(0, 7, b"progress")
    assert mail.last == (0, 7, b"progress")
    mail.drop_last()
    assert receive_all(mail) == receive_all(without)
    assert mail.last is None


def test_the_shuffle_depends_on_its_seed_only() -> None:
    orders = []
    for seed in (1, 1, 2):
        mail = ShuffledInprocMail(seed)
        send_everything(mail)
        orders.append(receive_all(mail))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_the_name_of_shuffled_mail_has_its_seed() -> None:
    first, named = ShuffledInprocMail(7), inproc_mail("shuffled:7")
    assert (is_seeded("shuffled:7"), is_seeded("zmq")) == (True, False)
    assert send_everything(first) == send_everything(named)
    assert receive_all(first) == receive_all(named)
    assert type(inproc_mail("zmq")) is InprocMail


@pytest.mark.parametrize("name", ["shuffled", "shuffled:", "shuffled:-1", "shuffled:x", f"shuffled:{2**64}", "zmq:1"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="seed of" if name.startswith("shuffled") else "zmq, unix, shuffled:SEED"):
        check_mail(name)


def test_every_pair_can_be_delivered_first() -> None:
    firsts = set()
    for seed in range(200):
        mail = ShuffledInprocMail(seed)
        send_everything(mail, count=1)
        firsts.add(receive_all(mail)[0])
    assert len(firsts) == len(PAIRS)


@pytest.mark.parametrize("mail", [InprocMail(), ShuffledInprocMail(3)], ids=["plain", "shuffled"])
def test_an_endpoint_sends_as_its_owner(mail: InprocMail) -> None:
    mail.endpoint_of(5).send(6, b"hello")
    assert receive_all(mail) == [(5, 6, b"hello")]


@pytest.mark.parametrize(
    ("endpoint", "kind"),
    [("ipc:///tmp/a", "zmq"), ("tcp://[::1]:5", "zmq"), ("unix:///tmp/a", "unix"), ("unix://ipc://a", "unix")],
)
def test_the_scheme_of_an_endpoint_selects_the_kind(endpoint: str, kind: str) -> None:
    assert mail_for(endpoint) is MAIL_KINDS[kind]


@pytest.mark.parametrize("endpoint", ["udp://a", "/tmp/a", "", "://", "unixx://a", "Unix://a"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(endpoint: str) -> None:
    with pytest.raises(ValueError, match="unknown scheme") as refused:
        mail_for(endpoint)
    scheme = endpoint.partition("://")[0]
    assert str(refused.value) == f"{endpoint}: unknown scheme {scheme!r}; allowed: ipc, tcp, unix"


@pytest.mark.parametrize("kind", MAIL_KINDS)
def test_a_local_endpoint_selects_its_own_kind(kind: str) -> None:
    endpoint = MAIL_KINDS[kind].local("/tmp/x/sip-1")
    assert mail_for(endpoint) is MAIL_KINDS[kind]
    assert endpoint.endswith("/tmp/x/sip-1")
    schemes = [scheme for each in MAIL_KINDS.values() for scheme in each.schemes]
    assert len(schemes) == len(set(schemes))


# --- between processes ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def all_keys() -> JobKeys:
    return JobKeys.fresh(4096)


@pytest.fixture(params=[*MAIL_KINDS, "zmq over tcp", "zmq with keys", "zmq over tcp with keys"])
def ends(
    request: pytest.FixtureRequest, workdir: Path, all_keys: JobKeys, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ends]:
    kind, *more = request.param.split()
    # Frames here are no packet batches; ``test_secure_zmq`` tests that others are dropped.
    monkeypatch.setattr(ZmqSipMail, "_objection", lambda *_: None)
    with contextlib.closing(Ends(MAIL_KINDS[kind], all_keys if "keys" in more else None, "tcp" in more)) as made:
        yield made
    if kind == "zmq":
        # libzmq leaves its socket files; a run removes its whole folder.
        for path in workdir.iterdir():
            path.unlink()


ROUTES = ["sip to sip", "sip to broker", "broker to sip", "launcher to broker", "broker to launcher"]


@pytest.mark.parametrize("route", ROUTES)
def test_frames_of_every_size_arrive_whole_and_in_order(ends: Ends, route: str) -> None:
    ends.open_all(2)
    broker, (sip, peer) = ends.broker, ends.sips.values()
    launcher = ends.open_launcher()
    launcher.send(BROKER, b"here")
    assert broker.receive() == (LAUNCHER, b"here")
    frames = [frame_of(0, number, nbytes) for number, nbytes in enumerate((*SIZES, 1, *SIZES[::-1]))]
    source, dst = route.split(" to ")
    send = {"sip": sip.send, "broker": broker.send, "launcher": launcher.send}[source]
    to = {"sip": 1, "broker": BROKER, "launcher": LAUNCHER}[dst]
    take = {
        "sip": lambda: peer.recv_data() if source == "sip" else peer.recv_control(),
        "broker": lambda: broker.receive(),
        "launcher": lambda: launcher_frames(launcher, 1)[0],
    }[dst]
    ended = {
        "sip": lambda: sip.recv_control(),
        "broker": lambda: broker.receive()[1],
        "launcher": lambda: launcher_frames(launcher, 1)[0],
    }[source]
    replies: list[bytes] = []

    def send_all() -> None:
        for frame in frames:
            send(to, frame)
        replies.append(ended())

    with in_thread(send_all):
        sender = {"sip": 0, "launcher": LAUNCHER}.get(source)
        if dst == "launcher":
            assert launcher_frames(launcher, len(frames)) == frames
        else:
            assert [take() for _ in frames] == [(sender, frame) if dst == "broker" else frame for frame in frames]
        if source == "broker":
            peer.send(BROKER, b"end")
        else:
            broker.send(0 if source == "sip" else LAUNCHER, b"end")
    assert replies == [b"end"]


@pytest.mark.parametrize("to", [0, BROKER])
def test_a_receiver_that_does_not_read_blocks_no_sender_and_loses_nothing(ends: Ends, to: int) -> None:
    """Two SIPs send more than any queue holds, short and long in turn, and meanwhile exchange frames with others."""
    ends.open_all(4)
    broker, (receiver, *senders, other) = ends.broker, ends.sips.values()
    sizes = [40, PIECE_BYTES + 5, 50, 3 * PIECE_BYTES, 7] * 6
    sent = {rank: [frame_of(rank, number, size) for number, size in enumerate(sizes)] for rank in (1, 2)}
    for number in range(len(sizes)):
        for rank, sender in enumerate(senders, 1):
            sender.send(to, sent[rank][number])
    for sender in senders:
        sender.send(3, b"still alive")
        assert other.recv_data() == b"still alive"
    if to != BROKER:
        for rank, sender in enumerate(senders, 1):
            sender.send(BROKER, b"still alive")
            assert broker.receive() == (rank, b"still alive")
            broker.send(rank, b"you too")
            assert sender.recv_control() == b"you too"
    owner = {frame: rank for rank, frames in sent.items() for frame in frames}
    received: dict[int, list[bytes]] = {1: [], 2: []}
    with in_thread(senders[0].recv_control), in_thread(senders[1].recv_control):
        for _ in owner:
            sender, frame = broker.receive() if to == BROKER else (None, receiver.recv_data())
            assert sender in (None, owner[frame])
            received[owner[frame]].append(frame)
        assert received == sent
        for rank in received:
            broker.send(rank, b"end")


def test_control_and_data_frames_are_received_separately(ends: Ends) -> None:
    ends.open_all(2)
    broker, (sip, peer) = ends.broker, ends.sips.values()
    peer.send(0, b"data 1")
    broker.send(0, b"command 1")
    assert sip.recv_control() == b"command 1"
    assert sip.recv_data() == b"data 1"
    broker.send(0, b"command 2")
    assert sip.recv_data() == b"command 2", "a wait for data returns a control frame if that arrives first"
    peer.send(0, b"data 2")
    for number in range(3):
        broker.send(0, b"command %d" % number)
    arrived: list[bytes] = []
    while len(arrived) < 3:
        arrived += sip.poll_control()
    assert arrived == [b"command 0", b"command 1", b"command 2"]
    assert sip.poll_control() == []
    assert sip.recv_data() == b"data 2"


def test_the_broker_receives_without_waiting(ends: Ends) -> None:
    ends.open_all(2)
    assert ends.broker.receive_now() is None
    for number in range(3):
        ends.sips[1].send(BROKER, b"%d" % number)
    found: list[object] = []
    while len(found) < 3:
        found += [frame for frame in [ends.broker.receive_now()] if frame is not None]
    assert found == [(1, b"0"), (1, b"1"), (1, b"2")]
    assert ends.broker.receive_now() is None


def test_frames_that_the_launcher_sends_before_the_broker_listens_arrive(ends: Ends) -> None:
    launcher = ends.open_launcher()
    for number in range(3):
        launcher.send(BROKER, b"early %d" % number)
    assert list(launcher.receive_waiting()) == []
    assert launcher.unsent is (ends.kind is MAIL_KINDS["unix"])
    broker = ends.open_broker()
    assert list(launcher.receive_waiting()) == []
    assert not launcher.unsent
    launcher.send(BROKER, b"last")
    frames = [b"early 0", b"early 1", b"early 2", b"last"]
    assert [broker.receive() for _ in frames] == [(LAUNCHER, frame) for frame in frames]


def test_a_sip_waits_for_a_broker_that_starts_later(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over Unix sockets a first attempt has failed before the broker starts; ZeroMQ retries by itself."""
    retried = threading.Event()
    monkeypatch.setattr("broker.mail.unix.time.sleep", lambda _seconds: retried.set())
    if ends.kind is MAIL_KINDS["zmq"]:
        retried.set()
    with in_thread(lambda: ends.open_sip(7).send(BROKER, b"at last")):
        assert retried.wait(END_S)
        assert ends.open_broker().receive() == (7, b"at last")


def test_close_sends_what_is_queued(ends: Ends) -> None:
    """A SIP's to its peer, then the broker's to a SIP: a SIP that has lost the broker receives no data."""
    ends.open_all(2)
    broker, (sip, peer) = ends.broker, ends.sips.values()
    data, grants = ([frame_of(sender, number, nbytes) for number, nbytes in enumerate(SIZES)] for sender in (1, 2))
    for batch, grant in zip(data, grants, strict=True):
        peer.send(0, batch)
        broker.send(0, grant)
    received: list[bytes] = []
    with in_thread(peer.close):
        while not set(data) <= set(received):
            received.append(sip.recv_data())
    with in_thread(broker.close):
        while len(received) < len(data + grants):
            received.append(sip.recv_data())
    assert sorted(received) == sorted(data + grants)


def test_every_rank_is_identified(ends: Ends) -> None:
    broker = ends.open_broker()
    for rank in (0, 1, 127, 128, 255, 256, 4095):
        ends.open_sip(rank).send(BROKER, b"me")
        assert broker.receive() == (rank, b"me")
        assert broker.send(rank, b"you") is True
        assert ends.sips[rank].recv_control() == b"you"
    assert broker.send(5, b"nobody") is False
    ends.open_launcher().send(BROKER, b"me")
    assert broker.receive() == (LAUNCHER, b"me")


def test_sending_to_a_process_that_has_exited_is_no_error(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it waited for at the end."""
    monkeypatch.setattr(sockets, "LINGER_MS", 0)
    monkeypatch.setattr(unix_mail, "LINGER_S", END_S + 5.0)
    ends.open_all(3)
    sips = ends.sips
    for number in range(40):
        sips[1].send(0, frame_of(1, number, 1000))
        ends.broker.send(0, frame_of(2, number, 1000))
    sips.pop(0).close()
    for sender in (sips[1], ends.broker, sips[2]):
        sender.send(0, b"lost")
    assert sips[1].poll_control() == []
    sips[1].send(2, b"the living")
    assert sips[2].recv_data() == b"the living"
    sips[1].send(BROKER, b"hello")
    assert ends.broker.receive() == (1, b"hello")
