"""How messages travel: the ``Mail`` that a SIP or the broker holds, and the in-process post office.

Everything is bytes, in one process too, so that one process and many run the same code. The post
office keeps each ordered pair in order and nothing else; :class:`ShuffledInprocMail` uses that freedom.

A kind of mail between processes has three ends: a SIP's, the broker's and the launcher's. ``broker.mail.kinds`` finds
them by the scheme of an endpoint.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol

Address = int
"""``BROKER``, ``LAUNCHER``, or ``terms.address_of`` a rank and an incarnation of it."""


NoticeKind = Literal["refused", "lost", "not_joined", "stranger"]


class Notice(NamedTuple):
    """Something that happened to a connection. ``who`` is at its other end: a rank, ``BROKER``, ``LAUNCHER``, or None.

    ``refused``: the other end did not let us in; ``lost``: it was there and is no more; ``not_joined``: it never
    answered; ``stranger``: somebody came to us who may not, and was turned away. ``text`` is one line for people.
    """

    kind: NoticeKind
    who: int | None
    endpoint: str
    text: str


class Disconnected(ConnectionError):
    """The connection without which this process cannot go on is gone, or never came; it must end now."""

    def __init__(self, notice: Notice) -> None:
        super().__init__(notice.text)
        self.notice = notice


OnPeerLost = Callable[[int, Notice], None]
"""Called with the rank of a peer that cannot be reached any more, and what happened to the connection."""
JOIN_TIMEOUT_S = 30.0
SILENCE_S = 2.0
"""A living host's io threads answer every quarter of a second, whatever its processes compute. But what TCP sends again
it sends after 0.2 s, then 0.4 s and 0.8 s, more on a busy host: a cut of half a second may silence it for over one."""


class Envelope:
    """Bytes, and who sent them."""

    __slots__ = ("frame", "sender")

    def __init__(self, sender: Address, frame: bytes) -> None:
        self.sender = sender
        self.frame = frame


class Mail(Protocol):
    """What a SIP sends with."""

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        """Learn where every SIP listens, by rank; before that only the broker can be sent to."""

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        """A peer was started again and listens elsewhere: drop the way to its predecessor and what is queued there."""

    def send(self, to: Address, frame: bytes) -> None:
        """Hand over a frame for a rank (whatever its incarnation) or the broker; never blocks and never loses it."""


class SipMail(Mail, Protocol):
    """A SIP's end between processes. What the broker sends and what peers send are waited for apart.

    A SIP that has nothing granted waits for the broker alone: a peer's parcel is of no use before the grant that
    counts on it, and to be woken for it would cost more than to take it. Both waits raise ``Disconnected`` once the
    broker is lost and what it sent before has been taken.
    """

    def recv_control(self) -> bytes:
        """Wait for a frame of the broker."""

    def recv_data(self) -> bytes:
        """Wait for a frame of a peer, or one of the broker if that comes first."""

    def poll_control(self) -> list[bytes]:
        """Frames of the broker that are here already; what could not be sent before is tried again."""

    def notices(self) -> list[Notice]:
        """What happened to connections since this was last asked; never waits."""

    @property
    def cut_off(self) -> Notice | None:
        """Why the broker is lost, as far as the last look for frames told; the next wait raises it."""

    @property
    def endpoint(self) -> str:
        """Where peers reach this SIP, a port that the system chose included."""

    def close(self) -> None:
        """Send what is queued and release everything."""


class BrokerMail(Protocol):
    """The broker's end between processes."""

    def receive(self) -> tuple[Address | None, bytes]:
        """Wait for one (sender, frame); the sender is None for a stranger."""

    def receive_now(self) -> tuple[Address | None, bytes] | None:
        """One (sender, frame) that is here already."""

    def send(self, to: Address, frame: bytes) -> bool:
        """Send without blocking; whether the destination is there (a dead one is the launcher's to notice)."""

    def notices(self) -> list[Notice]:
        """What happened to connections since this was last asked; never waits."""

    @property
    def endpoint(self) -> str:
        """Where everybody reaches the broker, a port that the system chose included."""

    def close(self) -> None:
        """Send what is queued and release everything."""


class LauncherMail(Protocol):
    """The launcher's end between processes: the broker is its only peer."""

    @property
    def pollable(self) -> Any:
        """For a ``zmq.Poller``: readable when a frame may be here."""

    @property
    def unsent(self) -> bool:
        """Whether something could not be sent yet and should be tried again soon."""

    def send(self, to: Address, frame: bytes) -> None:
        """Send to the broker without blocking."""

    def receive_waiting(self) -> Iterator[bytes]:
        """Frames that are here already."""

    def notices(self) -> list[Notice]:
        """What happened to the connection since this was last asked; never waits."""

    def close_now(self) -> None:
        """Release everything; what is queued for a broker that may be gone is dropped."""


class NoConnectionEvents:
    """An end whose connections nobody watches: within one host, who is there is the launcher's to know."""

    def notices(self) -> list[Notice]:
        """None, ever."""
        return []

    @property
    def cut_off(self) -> Notice | None:
        """Never."""
        return None


class InprocMail:
    """All mailboxes of one process: letters are delivered in the order in which they were posted."""

    def __init__(self) -> None:
        self._letters: deque[tuple[Address, Envelope]] = deque()

    def post(self, sender: Address, to: Address, frame: bytes) -> None:
        """Take a letter."""
        self._letters.append((to, Envelope(sender, frame)))

    def next(self) -> tuple[Address, Envelope] | None:
        """The next (destination, letter), or None when no letter is left."""
        return self._letters.popleft() if self._letters else None

    def mail_of(self, sender: Address) -> Mail:
        """The sending end for one participant."""
        return InprocEndpoint(self, sender)


class InprocEndpoint:
    def __init__(self, office: InprocMail, sender: Address) -> None:
        self._office = office
        self._sender = sender

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        pass

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        raise NotImplementedError("nobody is started again in one process")

    def send(self, to: Address, frame: bytes) -> None:
        self._office.post(self._sender, to, frame)


class ShuffledInprocMail(InprocMail):
    """Delivers in a seeded random order that keeps only each ordered pair's own order: the worst legal mail."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)
        self._pairs: dict[tuple[Address, Address], deque[Envelope]] = {}

    def post(self, sender: Address, to: Address, frame: bytes) -> None:
        self._pairs.setdefault((sender, to), deque()).append(Envelope(sender, frame))

    def next(self) -> tuple[Address, Envelope] | None:
        waiting = [pair for pair, letters in self._pairs.items() if letters]
        if not waiting:
            return None
        pair = self._random.choice(waiting)
        return pair[1], self._pairs[pair].popleft()
