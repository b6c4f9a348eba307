"""The kinds of mail between processes, by the scheme of an endpoint. A kind is one row here."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S, BrokerMail, LauncherMail, OnPeerLost, SipMail
from broker.mail.secure_zmq import open_broker, open_launcher, open_sip
from broker.mail.unix_mail import UnixBroker, UnixLauncher, UnixSipMail
from broker.security.keys import BrokerKeys, LauncherKeys, SipKeys


class OpenSip(Protocol):
    """Opens the end of one incarnation of a rank, which listens for its peers at ``endpoint``.

    ``keys``: its part of the run's keys; None where the place itself is private. ``silence_s``: after how long a
    silent connection over TCP is lost, and None for never; then there is no end to ``join_timeout_s`` either, which is
    how long the broker and peers may take to answer at all.
    ``on_peer_lost``: who wants to know of a peer that cannot be reached any more; nothing is sent to it then until
    ``reconnect_peer``.
    """

    def __call__(
        self,
        address: int,
        broker_endpoint: str,
        endpoint: str,
        keys: SipKeys | None = None,
        silence_s: float | None = SILENCE_S,
        join_timeout_s: float = JOIN_TIMEOUT_S,
        on_peer_lost: OnPeerLost | None = None,
    ) -> SipMail:
        """Connect to the broker and listen."""


class OpenBroker(Protocol):
    """Opens the broker's end, which listens at ``endpoint``; ``keys`` and ``silence_s`` as at :class:`OpenSip`."""

    def __call__(
        self, endpoint: str, keys: BrokerKeys | None = None, silence_s: float | None = SILENCE_S
    ) -> BrokerMail:
        """Listen."""


class OpenLauncher(Protocol):
    """Opens the launcher's end; ``keys`` and ``silence_s`` as at :class:`OpenSip`."""

    def __call__(
        self, broker_endpoint: str, keys: LauncherKeys | None = None, silence_s: float | None = SILENCE_S
    ) -> LauncherMail:
        """Connect to the broker, which need not listen yet."""


class MailKind(NamedTuple):
    """``local`` makes an endpoint from a path on this host; the three others open the three ends."""

    about: str
    schemes: tuple[str, ...]
    local: Callable[[str], str]
    sip: OpenSip
    broker: OpenBroker
    launcher: OpenLauncher


MAIL_KINDS = {
    "zmq": MailKind(
        "ZeroMQ, on one host or many",
        ("ipc", "tcp"),
        lambda path: f"ipc://{path}",
        open_sip,
        open_broker,
        open_launcher,
    ),
    "unix": MailKind(
        "Unix datagrams, on one host",
        ("unix",),
        lambda path: f"unix://{path}",
        UnixSipMail,
        UnixBroker,
        UnixLauncher,
    ),
}


def mail_for(endpoint: str) -> MailKind:
    """The kind of mail that an endpoint is of.

    Raises:
        ValueError: for a scheme that no kind has.
    """
    scheme = endpoint.partition("://")[0]
    for kind in MAIL_KINDS.values():
        if scheme in kind.schemes:
            return kind
    known = ", ".join(scheme for kind in MAIL_KINDS.values() for scheme in kind.schemes)
    raise ValueError(f"{endpoint}: unknown scheme {scheme!r}; allowed: {known}")
