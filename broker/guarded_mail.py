"""ZeroMQ mail that leaves the private folder: keys, deadlines, and connections that are watched."""

from broker.mail import JOIN_TIMEOUT_S, BrokerMail, LauncherMail, OnPeerLost, SipMail
from broker.security import BrokerKeys, LauncherKeys, SipKeys
from broker.zmq_mail import LAUNCHER_NAME, ZmqBroker, ZmqEnd, ZmqSipMail


def open_sip(
    address: int,
    broker_endpoint: str,
    endpoint: str,
    keys: SipKeys | None = None,
    deadlines: bool = True,
    join_timeout_s: float = JOIN_TIMEOUT_S,
    on_peer_lost: OnPeerLost | None = None,
) -> SipMail:
    """A SIP's end."""
    return ZmqSipMail(address, broker_endpoint, endpoint)


def open_broker(endpoint: str, keys: BrokerKeys | None = None, deadlines: bool = True) -> BrokerMail:
    """The broker's end."""
    return ZmqBroker(endpoint)


def open_launcher(broker_endpoint: str, keys: LauncherKeys | None = None, deadlines: bool = True) -> LauncherMail:
    """The launcher's end."""
    return ZmqEnd(LAUNCHER_NAME, broker_endpoint)
