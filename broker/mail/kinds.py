"""The kinds of mail between processes, by the scheme of an endpoint. A kind is one row here."""

from typing import NamedTuple

from broker.mail.base import BrokerMail, LauncherMail, SipMail
from broker.mail.unix_mail import UnixBroker, UnixLauncher, UnixSipMail
from broker.mail.zmq_mail import ZmqBroker, ZmqLauncher, ZmqSipMail


class MailKind(NamedTuple):
    """The classes of the three ends. The first of ``schemes`` is the one for a path on this host."""

    about: str
    schemes: tuple[str, ...]
    sip: type[SipMail]
    broker: type[BrokerMail]
    launcher: type[LauncherMail]

    def local(self, path: str) -> str:
        """The endpoint of a path on this host."""
        return f"{self.schemes[0]}://{path}"


MAIL_KINDS = {
    "zmq": MailKind("ZeroMQ, on one host or many", ("ipc", "tcp"), ZmqSipMail, ZmqBroker, ZmqLauncher),
    "unix": MailKind("Unix datagrams, on one host", ("unix",), UnixSipMail, UnixBroker, UnixLauncher),
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
