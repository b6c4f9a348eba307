"""The broker's process: carries messages between the mail and a ``Hub``, which makes all decisions."""

from collections.abc import Callable, Iterable
from time import monotonic_ns

from broker.colocation import CpuAffinity
from broker.hub import Hub, Out, Phase
from broker.ids import LAUNCHER, Channel
from broker.mail.base import SILENCE_S, BrokerMail, MailOptions, Notice
from broker.mail.kinds import mail_for
from broker.mail.sockets import ConnectionWarnings
from broker.security import BrokerKeys
from broker.wire import BadFrame, Message, Ping, decode_for_broker, encode

BROKER_NAME = "broker"
"""Prefix of the lines of the broker's log that the launcher shows."""
RECHECK_MS = 20
RECHECKS_MS = 2000
"""How long to look for lost ranks after a notice: libzmq's thread closes the connection later if the host is busy."""


def run_broker(
    endpoint: str,
    size: int,
    channels: list[Channel],
    reactions_ps: list[int] | None = None,
    shared_cpu_seed: int = 0,
    keys: BrokerKeys | None = None,
    silence_s: float | None = SILENCE_S,
    listens: Callable[[str], None] = lambda _endpoint: None,
    limit_ps: int | None = None,
) -> int:
    """Serve one run of ``size`` SIPs until every SIP has answered and the launcher's messages are sent; return 0.

    ``listens(endpoint)`` is called once processes can connect; ``endpoint`` contains the port number.
    """
    hub = Hub(size, channels, reactions_ps, limit_ps)
    mail = mail_for(endpoint).broker(endpoint, keys, MailOptions(silence_s))
    outbox = _Outbox(mail)
    losses = Losses(hub, mail)
    listens(mail.endpoint)
    affinity = CpuAffinity(shared_cpu_seed, preempts=True)
    warnings = ConnectionWarnings(BROKER_NAME)
    while hub.phase is not Phase.DONE or outbox.is_waiting:
        received: tuple[int | None, bytes] | None = mail.receive(or_notice=True, timeout_ms=losses.recheck_ms)
        while received is not None:
            outbox.send_all(_take(hub, outbox, *received))
            received = mail.receive_now() if hub.expects_reports else None
        outbox.send_all(hub.decide())
        notices = mail.notices()
        warnings.write(notices)
        outbox.send_all(losses.update(notices, monotonic_ns()))
        affinity.colocate(hub.timesync.colocate)
    mail.close()
    return 0


def _take(hub: Hub, outbox: "_Outbox", sender: int | None, frame: bytes) -> Out:
    if sender is None:
        return []
    if sender == LAUNCHER:
        outbox.launcher_connected = True
    try:
        message = decode_for_broker(frame)
    except BadFrame as error:
        return hub.take_malformed(sender, str(error), monotonic_ns())
    return hub.take(sender, message, monotonic_ns())


class Losses:
    """Finds the ranks that are no longer connected.

    A notice of a lost connection names no process. Notices arrive before libzmq closes the connection, and before the
    process's last frames (perhaps its ``Join``) are read. So all ranks are pinged for ``RECHECKS_MS`` after a notice.
    """

    def __init__(self, hub: Hub, mail: BrokerMail) -> None:
        self._hub = hub
        self._mail = mail
        self._until_ns = 0
        self._due_ns: int | None = None
        self._lost: set[int] = set()

    @property
    def recheck_ms(self) -> int | None:
        """The time in ms after which :meth:`update` must be called again; None if no connection was lost."""
        return RECHECK_MS if self._due_ns is not None else None

    def update(self, notices: Iterable[Notice], now_ns: int) -> Out:
        """Take the mail's notices; return the hub's messages about ranks newly found to be lost."""
        if any(notice.kind == "lost" for notice in notices):
            self._due_ns, self._until_ns = now_ns, now_ns + RECHECKS_MS * 1_000_000
        if self._due_ns is None or now_ns < self._due_ns:
            return []
        self._due_ns = now_ns + RECHECK_MS * 1_000_000 if now_ns < self._until_ns else None
        ping = encode(Ping())
        live = self._hub.live_addresses()
        lost = {to: rank for rank, to in live if to not in self._lost and not self._mail.send(to, ping)}
        self._lost.update(lost)
        return [answer for rank in lost.values() for answer in self._hub.cannot_reach(rank)]


class _Outbox:
    """Sends answers. Answers to the launcher are queued until the launcher's first message shows its connection."""

    def __init__(self, mail: BrokerMail) -> None:
        self._mail = mail
        self._for_launcher: list[bytes] = []
        self.launcher_connected = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._for_launcher)

    def send_all(self, answers: Iterable[tuple[int, Message]]) -> None:
        for to, answer in answers:
            if to == LAUNCHER:
                self._for_launcher.append(encode(answer))
            else:
                self._mail.send(to, encode(answer))
        while self.launcher_connected and self._for_launcher:
            self._mail.send(LAUNCHER, self._for_launcher.pop(0))
