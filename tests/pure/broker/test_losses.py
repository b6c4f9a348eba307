"""A rank whose connection is lost is found, though libzmq tells of it before the connection is closed or read."""

from collections.abc import Callable

from hub_runs import join, joining

from broker.ids import LAUNCHER
from broker.mail.base import BrokerMail, Notice
from broker.process import RECHECK_MS, RECHECKS_MS, Losses
from broker.wire import PeerLost

A_CHECK_NS = RECHECK_MS * 1_000_000
LOST = [Notice("lost", None, "tcp://127.0.0.1:1", "a connection has ended")]


class Mail(BrokerMail):
    """``is_open`` tells whether a ping to a rank can be sent; nothing else is used."""

    endpoint = ""

    def __init__(self, is_open: Callable[[int], bool] = lambda _to: True) -> None:
        self.is_open = is_open
        self.pings = 0

    def send(self, to: int, _frame: bytes) -> bool:
        self.pings += 1
        return self.is_open(to)

    def receive(self, or_notice: bool = False, timeout_ms: int | None = None) -> tuple[int | None, bytes]:
        raise NotImplementedError

    def receive_now(self) -> tuple[int | None, bytes] | None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def lost_ranks(losses: Losses, now_ns: int, *notices: Notice) -> list[int]:
    out = losses.update(notices, now_ns)
    assert all(to == LAUNCHER and isinstance(message, PeerLost) for to, message in out)
    return [message.rank for _, message in out]


def test_a_rank_that_is_not_connected_is_told_once() -> None:
    losses = Losses(joining(0, 1), Mail(lambda to: to != 1))
    assert lost_ranks(losses, 0, *LOST) == [1]
    assert lost_ranks(losses, A_CHECK_NS) == []


def test_a_connection_that_closes_after_its_notice_is_found() -> None:
    mail = Mail()
    losses = Losses(joining(0, 1), mail)
    assert lost_ranks(losses, 0, *LOST) == []
    assert losses.recheck_ms == RECHECK_MS
    mail.is_open = lambda to: to != 1
    assert lost_ranks(losses, A_CHECK_NS - 1) == [], "not at every message"
    assert lost_ranks(losses, A_CHECK_NS) == [1]


def test_a_rank_that_joins_after_the_notice_of_its_loss_is_found() -> None:
    hub = joining(0)
    losses = Losses(hub, Mail(lambda to: to != 1))
    assert lost_ranks(losses, 0, *LOST) == []
    hub.handle(1, join(1))
    assert lost_ranks(losses, A_CHECK_NS) == [1]


def test_without_a_loss_nobody_is_pinged_and_after_one_not_forever() -> None:
    mail = Mail()
    losses = Losses(joining(0, 1), mail)
    losses.update([], 0)
    assert (mail.pings, losses.recheck_ms) == (0, None)
    losses.update(LOST, 0)
    losses.update([], RECHECKS_MS * 1_000_000)
    assert losses.recheck_ms is None
    pings = mail.pings
    losses.update([], 2 * RECHECKS_MS * 1_000_000)
    assert mail.pings == pings
