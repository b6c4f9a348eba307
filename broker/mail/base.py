"""The interfaces of mail: what a SIP, the broker and the launcher send and receive frames with.

A frame is one encoded message (``broker.wire``). Each kind of mail between processes implements ``SipMail``,
``BrokerMail`` and ``LauncherMail``; ``broker.mail.kinds`` finds them by the scheme of an endpoint.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol

from broker.security import BrokerKeys, LauncherKeys, SipKeys

Address = int
"""``BROKER``, ``LAUNCHER``, or ``ids.address_of`` a rank and its incarnation."""
NoticeKind = Literal["refused", "lost", "not_joined", "rejected"]
JOIN_TIMEOUT_S = 30.0
SILENCE_S = 2.0
"""The io threads of a live host answer heartbeats every 0.25 s, whatever its processes compute. TCP retransmits after
0.2 s, 0.4 s and 0.8 s, later on a busy host: a network cut of 0.5 s may silence a connection for over a second."""


class Notice(NamedTuple):
    """An event of a connection. ``peer``: the rank at its other end, ``BROKER``, ``LAUNCHER``, or None if unknown.

    ``refused``: the other end does not accept this process; ``lost``: an established connection ended;
    ``not_joined``: the other end did not answer in time; ``rejected``: this end rejected a connection or a frame.
    ``text`` is one line for people.
    """

    kind: NoticeKind
    peer: int | None
    endpoint: str
    text: str


class Disconnected(ConnectionError):
    """The connection to the broker is lost or was never established; the process must exit."""

    def __init__(self, notice: Notice) -> None:
        super().__init__(notice.text)
        self.notice = notice


class MailOptions(NamedTuple):
    """Timeouts of connections over TCP.

    ``silence_s``: a connection without heartbeats for so long is lost; None for no limit, on ``join_timeout_s`` either.
    ``join_timeout_s``: how long the other end may take to answer at all.
    ``on_peer_lost``: called with the rank of a lost peer; frames to it are dropped until ``reconnect_peer``.
    """

    silence_s: float | None = SILENCE_S
    join_timeout_s: float = JOIN_TIMEOUT_S
    on_peer_lost: Callable[[int, Notice], None] = lambda _rank, _notice: None


DEFAULTS = MailOptions()


class Mail(Protocol):
    """What a SIP sends with."""

    @property
    def endpoint(self) -> str:
        """Where it receives."""

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        """Set the endpoint of every SIP, by rank; before that only the broker can be sent to."""

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        """A peer was restarted at another endpoint: close the old socket and discard its queue."""

    def send(self, to: Address, frame: bytes) -> None:
        """Send to the present incarnation of a rank, or to the broker; never blocks, never loses a frame."""


class MailEnd(ABC):
    """An end of mail between processes."""

    def notices(self) -> list[Notice]:
        """Events of connections since the last call; never waits."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Send what is queued and release everything. The launcher drops it: the broker may have exited."""


class SipMail(MailEnd, Mail):
    """A SIP's end. Frames of the broker (control) and of peers (data) are received separately.

    A SIP without a grant waits for the broker alone: it could not use a peer's packets before the grant that counts
    them, and waking up for them would cost more than receiving them. Both waits raise ``Disconnected`` once the broker
    is lost and its last frames have been received.
    """

    broker_lost: Notice | None = None
    """Why the connection to the broker is lost, as of the last call that looked; the next wait raises it."""
    _endpoints: tuple[str, ...] = ()

    @abstractmethod
    def __init__(
        self, address: int, broker: str, endpoint: str, keys: SipKeys | None = None, options: MailOptions = DEFAULTS
    ) -> None:
        """Connect to the endpoint ``broker`` and listen for peers at ``endpoint``; no ``keys`` if both are private."""

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        self._endpoints = endpoints

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        self._drop_peer(rank)
        self._endpoints = (*self._endpoints[:rank], endpoint, *self._endpoints[rank + 1 :])

    @abstractmethod
    def _drop_peer(self, rank: int) -> None:
        """Close the socket to a peer and discard its queue."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Where peers reach this SIP, a port that the system chose included."""

    @abstractmethod
    def recv_control(self) -> bytes:
        """Wait for a frame of the broker."""

    @abstractmethod
    def recv_data(self) -> bytes:
        """Wait for a frame of a peer, or for one of the broker if that arrives first."""

    @abstractmethod
    def poll_control(self) -> list[bytes]:
        """Frames of the broker that have arrived; queued frames are sent as far as there is room."""


class BrokerMail(MailEnd):
    """The broker's end."""

    @abstractmethod
    def __init__(self, endpoint: str, keys: BrokerKeys | None = None, options: MailOptions = DEFAULTS) -> None:
        """Listen at ``endpoint``."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """Where the broker is reached, a port that the system chose included."""

    @abstractmethod
    def receive(self, or_notice: bool = False, timeout_ms: int | None = None) -> tuple[Address | None, bytes]:
        """Wait for one (sender, frame).

        The sender is None for a rejected frame, after ``timeout_ms`` and, if ``or_notice``, once there is a notice.
        """

    @abstractmethod
    def receive_now(self) -> tuple[Address | None, bytes] | None:
        """One (sender, frame) that has arrived."""

    @abstractmethod
    def send(self, to: Address, frame: bytes) -> bool:
        """Send without blocking; False if the destination is not connected."""


class LauncherMail(MailEnd):
    """The launcher's end: the broker is its only peer, and may start later."""

    @abstractmethod
    def __init__(self, broker: str, keys: LauncherKeys | None = None, options: MailOptions = DEFAULTS) -> None:
        """Connect to the endpoint ``broker``."""

    @property
    @abstractmethod
    def pollable(self) -> Any:
        """For a ``zmq.Poller``: readable when a frame may have arrived."""

    @property
    def unsent(self) -> bool:
        """Whether a frame is queued here, so that sending should be tried again soon."""
        return False

    @abstractmethod
    def send(self, to: Address, frame: bytes) -> None:
        """Send to the broker without blocking."""

    @abstractmethod
    def receive_waiting(self) -> Iterator[bytes]:
        """Frames that have arrived."""
