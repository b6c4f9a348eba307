"""The post offices, and mail between processes over real sockets: order, whole frames, who is slow, late or gone.

What every kind of mail between processes must do is asked of every kind; what only one can do wrong is in
``test_unix_mail``. Where two must work at a time, the other one works in a thread; nothing waits by the clock.

Seen to fail with these bugs planted: a last piece taken for a frame of its own; pieces of two senders put together; a
queue dropped when the receiver is slow, or kept for one that is gone; what the launcher sends early forgotten, or sent
twice; a close that drops what is queued; parcels among the broker's frames, or the other way round never; a sender's
number without its sign; a sending to nobody that raises.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mail_ends import END_S, SIZES, Post, beside, frame_of, here, of_the_launcher

from broker.ids import BROKER, LAUNCHER
from broker.mail import unix_mail, zmq_mail
from broker.mail.base import InprocMail, ShuffledInprocMail
from broker.mail.kinds import MAIL_KINDS, mail_for
from broker.mail.secure_zmq import SecureSipMail
from broker.mail.unix_mail import PIECE_BYTES
from broker.security.keys import JobKeys

__all__ = ["here"]

pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
"""Sockets that were not closed are the business of one test of ``test_unix_mail``."""

PAIRS = [(sender, to) for sender in range(3) for to in (7, 8)]


def post_everything(office: InprocMail, count: int = 20) -> list[tuple[int, int, bytes]]:
    posted = [(sender, to, b"%d" % n) for n in range(count) for sender, to in PAIRS]
    for sender, to, frame in posted:
        office.post(sender, to, frame)
    return posted


def empty(office: InprocMail) -> list[tuple[int, int, bytes]]:
    received = []
    while (found := office.next()) is not None:
        to, letter = found
        received.append((letter.sender, to, letter.frame))
    return received


def test_the_plain_office_keeps_the_whole_order() -> None:
    office = InprocMail()
    assert office.next() is None
    posted = post_everything(office)
    assert empty(office) == posted


@pytest.mark.parametrize("seed", range(5))
def test_the_shuffled_office_keeps_each_pair_in_order_and_loses_nothing(seed: int) -> None:
    office = ShuffledInprocMail(seed)
    posted = post_everything(office)
    received = empty(office)
    assert received != posted
    assert sorted(received) == sorted(posted)
    for pair in PAIRS:
        assert [m for m in received if m[:2] == pair] == [m for m in posted if m[:2] == pair]
    assert office.next() is None


def test_the_shuffle_follows_from_its_seed() -> None:
    orders = []
    for seed in (1, 1, 2):
        office = ShuffledInprocMail(seed)
        post_everything(office)
        orders.append(empty(office))
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]


def test_every_pair_can_be_first() -> None:
    firsts = set()
    for seed in range(200):
        office = ShuffledInprocMail(seed)
        post_everything(office, count=1)
        firsts.add(empty(office)[0])
    assert len(firsts) == len(PAIRS)


@pytest.mark.parametrize("office", [InprocMail(), ShuffledInprocMail(3)])
def test_the_sending_end_signs_with_its_owner(office: InprocMail) -> None:
    office.mail_of(5).send(6, b"hello")
    assert empty(office) == [(5, 6, b"hello")]


@pytest.mark.parametrize(
    ("endpoint", "kind"),
    [("ipc:///tmp/a", "zmq"), ("tcp://[::1]:5", "zmq"), ("unix:///tmp/a", "unix"), ("unix://ipc://a", "unix")],
)
def test_an_endpoint_names_its_mail(endpoint: str, kind: str) -> None:
    assert mail_for(endpoint) is MAIL_KINDS[kind]


@pytest.mark.parametrize("endpoint", ["udp://a", "/tmp/a", "", "://", "unixx://a", "Unix://a"])
def test_an_unknown_scheme_is_refused_with_those_that_are_known(endpoint: str) -> None:
    with pytest.raises(ValueError, match="unknown scheme") as refused:
        mail_for(endpoint)
    scheme = endpoint.partition("://")[0]
    assert str(refused.value) == f"{endpoint}: unknown scheme {scheme!r}; allowed: ipc, tcp, unix"


@pytest.mark.parametrize("kind", MAIL_KINDS)
def test_a_local_endpoint_is_of_its_own_kind(kind: str) -> None:
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
def post(
    request: pytest.FixtureRequest, here: Path, all_keys: JobKeys, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Post]:
    kind, *more = request.param.split()
    # That peers send nothing but their own parcels is the business of ``test_guarded_mail``.
    monkeypatch.setattr(SecureSipMail, "_objection", lambda *_: None)
    with contextlib.closing(Post(MAIL_KINDS[kind], all_keys if "keys" in more else None, "tcp" in more)) as made:
        yield made
    if kind == "zmq":
        # libzmq leaves these; a run's folder goes as a whole.
        for path in here.iterdir():
            path.unlink()


WAYS = ["sip to sip", "sip to broker", "broker to sip", "launcher to broker", "broker to launcher"]


@pytest.mark.parametrize("way", WAYS)
def test_frames_of_every_size_arrive_whole_and_in_order(post: Post, way: str) -> None:
    post.open_all(2)
    broker, (sip, peer) = post.broker, post.sips.values()
    launcher = post.open_launcher()
    launcher.send(BROKER, b"here")
    assert broker.receive() == (LAUNCHER, b"here")
    frames = [frame_of(0, number, nbytes) for number, nbytes in enumerate((*SIZES, 1, *SIZES[::-1]))]
    source, dst = way.split(" to ")
    send = {"sip": sip.send, "broker": broker.send, "launcher": launcher.send}[source]
    to = {"sip": 1, "broker": BROKER, "launcher": LAUNCHER}[dst]
    take = {
        "sip": lambda: peer.recv_data() if source == "sip" else peer.recv_control(),
        "broker": lambda: broker.receive(),
        "launcher": lambda: of_the_launcher(launcher, 1)[0],
    }[dst]
    ended = {
        "sip": lambda: sip.recv_control(),
        "broker": lambda: broker.receive()[1],
        "launcher": lambda: of_the_launcher(launcher, 1)[0],
    }[source]
    said: list[bytes] = []

    def send_all() -> None:
        for frame in frames:
            send(to, frame)
        said.append(ended())

    with beside(send_all):
        sender = {"sip": 0, "launcher": LAUNCHER}.get(source)
        if dst == "launcher":
            assert of_the_launcher(launcher, len(frames)) == frames
        else:
            assert [take() for _ in frames] == [(sender, frame) if dst == "broker" else frame for frame in frames]
        if source == "broker":
            peer.send(BROKER, b"end")
        else:
            broker.send(0 if source == "sip" else LAUNCHER, b"end")
    assert said == [b"end"]


@pytest.mark.parametrize("to", [0, BROKER])
def test_who_does_not_read_holds_nobody_up_and_loses_nothing(post: Post, to: int) -> None:
    """Two send more than any queue holds, small and large in turn; meanwhile they talk to others."""
    post.open_all(4)
    broker, (receiver, *senders, other) = post.broker, post.sips.values()
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
    came: dict[int, list[bytes]] = {1: [], 2: []}
    with beside(senders[0].recv_control), beside(senders[1].recv_control):
        for _ in owner:
            sender, frame = broker.receive() if to == BROKER else (None, receiver.recv_data())
            assert sender in (None, owner[frame])
            came[owner[frame]].append(frame)
        assert came == sent
        for rank in came:
            broker.send(rank, b"end")


def test_what_the_broker_says_and_what_peers_send_is_waited_for_apart(post: Post) -> None:
    post.open_all(2)
    broker, (sip, peer) = post.broker, post.sips.values()
    peer.send(0, b"parcel 1")
    broker.send(0, b"command 1")
    assert sip.recv_control() == b"command 1"
    assert sip.recv_data() == b"parcel 1"
    broker.send(0, b"command 2")
    assert sip.recv_data() == b"command 2", "with no parcel there, who waits for one is given a command"
    peer.send(0, b"parcel 2")
    for number in range(3):
        broker.send(0, b"command %d" % number)
    here: list[bytes] = []
    while len(here) < 3:
        here += sip.poll_control()
    assert here == [b"command 0", b"command 1", b"command 2"]
    assert sip.poll_control() == []
    assert sip.recv_data() == b"parcel 2"


def test_the_broker_takes_what_is_here_without_waiting(post: Post) -> None:
    post.open_all(2)
    assert post.broker.receive_now() is None
    for number in range(3):
        post.sips[1].send(BROKER, b"%d" % number)
    found: list[object] = []
    while len(found) < 3:
        found += [letter for letter in [post.broker.receive_now()] if letter is not None]
    assert found == [(1, b"0"), (1, b"1"), (1, b"2")]
    assert post.broker.receive_now() is None


def test_what_the_launcher_says_before_the_broker_listens_arrives_once_it_does(post: Post) -> None:
    launcher = post.open_launcher()
    for number in range(3):
        launcher.send(BROKER, b"early %d" % number)
    assert list(launcher.receive_waiting()) == []
    assert launcher.unsent is (post.kind is MAIL_KINDS["unix"])
    broker = post.open_broker()
    assert list(launcher.receive_waiting()) == []
    assert not launcher.unsent
    launcher.send(BROKER, b"last")
    frames = [b"early 0", b"early 1", b"early 2", b"last"]
    assert [broker.receive() for _ in frames] == [(LAUNCHER, frame) for frame in frames]


def test_a_sip_waits_for_a_broker_that_comes_later(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over Unix sockets it has looked in vain before the broker is there; ZeroMQ looks by itself."""
    in_vain = threading.Event()
    monkeypatch.setattr("broker.mail.unix_mail.time.sleep", lambda _seconds: in_vain.set())
    if post.kind is MAIL_KINDS["zmq"]:
        in_vain.set()
    with beside(lambda: post.open_sip(7).send(BROKER, b"at last")):
        assert in_vain.wait(END_S)
        assert post.open_broker().receive() == (7, b"at last")


def test_close_sends_what_is_queued(post: Post) -> None:
    """A SIP's to its peer, then the broker's to a SIP: peers' parcels are for nobody when the broker is gone."""
    post.open_all(2)
    broker, (sip, peer) = post.broker, post.sips.values()
    parcels, grants = ([frame_of(who, number, nbytes) for number, nbytes in enumerate(SIZES)] for who in (1, 2))
    for parcel, grant in zip(parcels, grants, strict=True):
        peer.send(0, parcel)
        broker.send(0, grant)
    came: list[bytes] = []
    with beside(peer.close):
        while not set(parcels) <= set(came):
            came.append(sip.recv_data())
    with beside(broker.close):
        while len(came) < len(parcels + grants):
            came.append(sip.recv_data())
    assert sorted(came) == sorted(parcels + grants)


def test_a_rank_is_told_as_it_is(post: Post) -> None:
    broker = post.open_broker()
    for rank in (0, 1, 127, 128, 255, 256, 4095):
        post.open_sip(rank).send(BROKER, b"me")
        assert broker.receive() == (rank, b"me")
        assert broker.send(rank, b"you") is True
        assert post.sips[rank].recv_control() == b"you"
    assert broker.send(5, b"nobody") is False
    post.open_launcher().send(BROKER, b"me")
    assert broker.receive() == (LAUNCHER, b"me")


def test_a_peer_that_is_gone_is_no_error(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anybody wait for it at the end."""
    monkeypatch.setattr(zmq_mail, "LINGER_MS", 0)
    monkeypatch.setattr(unix_mail, "LINGER_S", END_S + 5.0)
    post.open_all(3)
    sips = post.sips
    for number in range(40):
        sips[1].send(0, frame_of(1, number, 1000))
        post.broker.send(0, frame_of(2, number, 1000))
    sips.pop(0).close()
    for sender in (sips[1], post.broker, sips[2]):
        sender.send(0, b"lost")
    assert sips[1].poll_control() == []
    sips[1].send(2, b"the living")
    assert sips[2].recv_data() == b"the living"
    sips[1].send(BROKER, b"hello")
    assert post.broker.receive() == (1, b"hello")
