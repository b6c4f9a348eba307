"""The interfaces of mail, by which a SIP, the broker and the launcher send and receive frames.

A frame is one encoded message (``broker.wire``). Each kind of mail between processes implements ``SipMail``,
``BrokerMail`` and ``LauncherMail``; ``broker.mail.kinds`` finds the classes by the scheme of an endpoint.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, Protocol

from broker.security import BrokerKeys, LauncherKeys, SipKeys

Address = int
"""``BROKER``, ``LAUNCHER``, or ``ids.address_of(rank, incarnation)``."""
NoticeKind = Literal["refused", "lost", "not_joined", "rejected"]
JOIN_TIMEOUT_S = 30.0
SILENCE_S = 2.0
"""Default of ``MailOptions.silence_s``. A live host answers heartbeats every 0.25 s, whatever its processes compute.
TCP retransmits after 0.2, 0.4 and 0.8 s: a network cut of 0.5 s may silence a connection for over 1 s."""


class Notice(NamedTuple):
    """An event of a connection. ``peer``: the rank at the other end, ``BROKER``, ``LAUNCHER``, or None if unknown.

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

    ``silence_s``: a connection without heartbeats for this time is lost; None disables both timeouts.
    ``join_timeout_s``: limit on the time until the other end answers for the first time.
    ``on_peer_lost``: called with the rank of a lost peer; frames to this peer are dropped until ``reconnect_peer``.
    """

    silence_s: float | None = SILENCE_S
    join_timeout_s: float = JOIN_TIMEOUT_S
    on_peer_lost: Callable[[int, Notice], None] = lambda _rank, _notice: None


DEFAULTS = MailOptions()


class Mail(Protocol):
    """The sending side of a SIP's mail, common to mail within one process and between processes."""

    @property
    def endpoint(self) -> str:
        """The endpoint at which this SIP receives."""

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        """Set the endpoint of every SIP, by rank. Before this call, only the broker is reachable."""

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        """Set the endpoint of a restarted peer; close the old socket and discard the queued frames."""

    def send(self, to: Address, frame: bytes) -> None:
        """Send to the present incarnation of a rank, or to the broker; never blocks, never loses a frame."""


class MailEnd(ABC):
    """Base of the three ends of mail between processes."""

    def notices(self) -> list[Notice]:
        """Events of connections since the last call; never waits."""
        return []

    @abstractmethod
    def close(self) -> None:
        """Send queued frames and close all sockets. The launcher's end drops the frames: the broker may have exited."""


class SipMail(MailEnd, Mail):
    """A SIP's end of the mail. Frames of the broker (control) and of peers (data) are received separately.

    A SIP without a grant waits for the broker only: it cannot use a peer's packets before the grant that requires them,
    and waking up for packets would cost more than receiving them. Both waits raise ``Disconnected`` once the connection
    to the broker is lost and the broker's last frames have been received.
    """

    broker_lost: Notice | None = None
    """The notice that the connection to the broker is lost, or None. After the notice, waits raise ``Disconnected``."""
    _endpoints: tuple[str, ...] = ()

    @abstractmethod
    def __init__(
        self, address: int, broker: str, endpoint: str, keys: SipKeys | None = None, options: MailOptions = DEFAULTS
    ) -> None:
        """Connect to endpoint ``broker`` and listen at ``endpoint``. ``keys``: None if both endpoints are private."""

    def connect_peers(self, endpoints: tuple[str, ...]) -> None:
        self._endpoints = endpoints

    def reconnect_peer(self, rank: int, incarnation: int, endpoint: str) -> None:
        self._drop_peer(rank)
        self._endpoints = (*self._endpoints[:rank], endpoint, *self._endpoints[rank + 1 :])

    @abstractmethod
    def _drop_peer(self, rank: int) -> None:
        """Close the socket to a peer and discard the frames queued for the peer."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """The endpoint at which peers reach this SIP, with the port number that the system chose."""

    @abstractmethod
    def recv_control(self) -> bytes:
        """Wait for a frame of the broker."""

    @abstractmethod
    def recv_data(self) -> bytes:
        """Wait for a frame of a peer or of the broker, whichever arrives first."""

    @abstractmethod
    def poll_control(self) -> list[bytes]:
        """Return the broker's frames that have arrived, without waiting; send queued frames that peers can receive."""


class BrokerMail(MailEnd):
    """The broker's end of mail between processes."""

    @abstractmethod
    def __init__(self, endpoint: str, keys: BrokerKeys | None = None, options: MailOptions = DEFAULTS) -> None:
        """Listen at ``endpoint``."""

    @property
    @abstractmethod
    def endpoint(self) -> str:
        """The endpoint at which the broker is reached, with the port number that the system chose."""

    @abstractmethod
    def receive(self, or_notice: bool = False, timeout_ms: int | None = None) -> tuple[Address | None, bytes]:
        """Wait for one (sender, frame).

        The sender is None if a frame was rejected, after ``timeout_ms``, or, with ``or_notice``, at a notice.
        """

    @abstractmethod
    def receive_now(self) -> tuple[Address | None, bytes] | None:
        """Return one (sender, frame) that has arrived, or None if no frame has; never waits."""

    @abstractmethod
    def send(self, to: Address, frame: bytes) -> bool:
        """Send without blocking; return False if the destination is not connected."""


class LauncherMail(MailEnd):
    """The launcher's end of the mail: the only peer is the broker, which may start later."""

    @abstractmethod
    def __init__(self, broker: str, keys: LauncherKeys | None = None, options: MailOptions = DEFAULTS) -> None:
        """Connect to the endpoint ``broker``."""

    @property
    @abstractmethod
    def pollable(self) -> Any:
        """An object to register with a ``zmq.Poller``: readable when a frame may have arrived."""

    @property
    def unsent(self) -> bool:
        """Whether a frame is still queued, so that the caller should retry soon."""
        return False

    @abstractmethod
    def send(self, to: Address, frame: bytes) -> None:
        """Send to the broker without blocking."""

    @abstractmethod
    def receive_waiting(self) -> Iterator[bytes]:
        """Yield the frames that have arrived, without waiting."""
