"""The broker's process: a ``Hub`` behind mail. It decides nothing itself."""

from collections.abc import Callable, Iterable
from time import monotonic_ns

from broker.hub import Hub, Out, Phase
from broker.ids import LAUNCHER, Channel
from broker.mail.base import SILENCE_S, BrokerMail
from broker.mail.connection_warnings import ConnectionWarnings
from broker.mail.kinds import mail_for
from broker.security.keys import BrokerKeys
from broker.sync.colocation import CpuAffinity
from broker.wire import BadFrame, Failed, Message, Ping, decode_for_broker, encode

Envelope = tuple[int | None, bytes]

THE_BROKER = "broker"
"""Begins the lines of its log that are for whoever watches the run."""


def run_broker(
    endpoint: str,
    size: int,
    channels: list[Channel],
    reactions_ps: list[int] | None = None,
    shared_cpu_seed: int = 0,
    keys: BrokerKeys | None = None,
    silence_s: float | None = SILENCE_S,
    listens: Callable[[str], None] = lambda _endpoint: None,
) -> int:
    """Serve one run of ``size`` SIPs; returns the exit code once every SIP has answered and the launcher knows.

    ``listens`` is told where, once others can connect: a port may have been the system's choice.
    """
    hub = Hub(size, channels, reactions_ps)
    post = _Outbox(mail_for(endpoint).broker(endpoint, keys, silence_s))
    listens(post.mail.endpoint)
    affinity = CpuAffinity(shared_cpu_seed, at_once=True)
    warnings = ConnectionWarnings(THE_BROKER)
    while hub.phase is not Phase.DONE or post.owes_the_launcher:
        letter: Envelope | None = post.mail.receive()
        while letter is not None:
            post.send_all(_take(hub, post, *letter))
            letter = post.mail.receive_now() if hub.expects_reports else None
        post.send_all(hub.decide())
        notices = post.mail.notices()
        warnings.tell(notices)
        if any(notice.kind == "lost" for notice in notices):
            # Whose connection it was, it does not tell.
            post.send_all(answer for rank in _gone(hub, post.mail) for answer in hub.cannot_reach(rank))
        affinity.colocate(hub.timesync.colocate)
    post.mail.close()
    return 0


def _gone(hub: Hub, mail: BrokerMail) -> list[int]:
    knock = encode(Ping())
    return [rank for rank, address in hub.live_addresses() if not mail.send(address, knock)]


def _take(hub: Hub, post: "_Outbox", sender: int | None, frame: bytes) -> Out:
    if sender is None:
        return []
    if sender == LAUNCHER:
        post.meet_launcher()
    try:
        message = decode_for_broker(frame)
    except BadFrame as error:
        message = Failed("internal", f"the broker received {error}", "", 0)
    return hub.take(sender, message, monotonic_ns())


class _Outbox:
    """Sends answers. The launcher's wait until its first message: mail cannot be sent to whom it has not met."""

    def __init__(self, mail: BrokerMail) -> None:
        self.mail = mail
        self._for_launcher: list[bytes] = []
        self._launcher_is_here = False

    @property
    def owes_the_launcher(self) -> bool:
        return bool(self._for_launcher)

    def meet_launcher(self) -> None:
        self._launcher_is_here = True

    def send_all(self, answers: Iterable[tuple[int, Message]]) -> None:
        for to, answer in answers:
            if to == LAUNCHER:
                self._for_launcher.append(encode(answer))
            else:
                self.mail.send(to, encode(answer))
        while self._launcher_is_here and self._for_launcher:
            self.mail.send(LAUNCHER, self._for_launcher.pop(0))
