"""The kinds of mail between processes, by the scheme of an endpoint. A kind is one row here."""

from collections.abc import Callable
from typing import NamedTuple

from broker.mail import BrokerMail, LauncherMail, SipMail
from broker.unix_mail import UnixBroker, UnixLauncher, UnixSipMail
from broker.zmq_mail import LAUNCHER_NAME, ZmqBroker, ZmqEnd, ZmqSipMail


class MailKind(NamedTuple):
    """``local`` makes an endpoint from a path on this host; the three others open the three ends."""

    about: str
    schemes: tuple[str, ...]
    local: Callable[[str], str]
    sip: Callable[[int, str, str], SipMail]
    broker: Callable[[str], BrokerMail]
    launcher: Callable[[str], LauncherMail]


MAIL_KINDS = {
    "zmq": MailKind(
        "ZeroMQ, on one host or many",
        ("ipc", "tcp"),
        lambda path: f"ipc://{path}",
        ZmqSipMail,
        ZmqBroker,
        lambda endpoint: ZmqEnd(LAUNCHER_NAME, endpoint),
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
