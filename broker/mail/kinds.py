"""Registry of the kinds of mail, one row per kind.

Mail between processes is found by the scheme of an endpoint, mail within one process by the name of the kind.
"""

from collections.abc import Callable
from typing import NamedTuple

from broker.mail.base import BrokerMail, LauncherMail, SipMail
from broker.mail.inproc import InprocMail, ShuffledInprocMail
from broker.mail.unix import UnixBroker, UnixLauncher, UnixSipMail
from broker.mail.zmq import ZmqBroker, ZmqLauncher, ZmqSipMail


class MailKind(NamedTuple):
    """A kind of mail between processes: the classes of its three ends. ``schemes[0]`` is for paths on this host."""

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


class SeededMailKind(NamedTuple):
    """A kind of mail within one process, which a user selects as ``KIND:SEED``. ``make`` takes the seed."""

    about: str
    make: Callable[[int], InprocMail]


SEEDED_MAIL_KINDS = {
    "shuffled": SeededMailKind("one process; random order, kept per pair of sender and receiver", ShuffledInprocMail),
}
MAX_MAIL_SEED = 2**64 - 1


def is_seeded(name: str) -> bool:
    """Whether a name that :func:`check_mail` accepts means seeded mail, which works within one process only."""
    return name not in MAIL_KINDS


def check_mail(name: str) -> None:
    """Check the name of a kind of mail.

    Raises:
        ValueError: for an unknown name or seed; the message lists what is allowed.
    """
    kind, _, seed = name.partition(":")
    if kind in SEEDED_MAIL_KINDS:
        is_number = seed.isascii() and seed.isdigit() and len(seed) <= 20
        if not is_number or int(seed) > MAX_MAIL_SEED:
            allowed = f"a whole number of at least 0 and at most {MAX_MAIL_SEED}, such as {kind}:7"
            raise ValueError(f"{name!r}: the seed of {kind} must be {allowed}")
    elif name not in MAIL_KINDS:
        raise ValueError(f"{name!r} is no kind of mail; allowed: {', '.join(mail_abouts())}")


def mail_abouts() -> dict[str, str]:
    """A description of each kind of mail, by the name that a user writes."""
    seeded = {f"{name}:SEED": kind.about for name, kind in SEEDED_MAIL_KINDS.items()}
    return {name: kind.about for name, kind in MAIL_KINDS.items()} | seeded


def inproc_mail(name: str) -> InprocMail:
    """Make the mail within one process for a name of :func:`check_mail`; in order of sending if not seeded."""
    kind, _, seed = name.partition(":")
    return SEEDED_MAIL_KINDS[kind].make(int(seed)) if is_seeded(name) else InprocMail()


def mail_for(endpoint: str) -> MailKind:
    """Return the kind of mail for the scheme of an endpoint.

    Raises:
        ValueError: for an unknown scheme.
    """
    scheme = endpoint.partition("://")[0]
    for kind in MAIL_KINDS.values():
        if scheme in kind.schemes:
            return kind
    allowed = ", ".join(scheme for kind in MAIL_KINDS.values() for scheme in kind.schemes)
    raise ValueError(f"{endpoint}: unknown scheme {scheme!r}; allowed: {allowed}")
