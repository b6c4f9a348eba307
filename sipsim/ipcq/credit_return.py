"""How a receiver tells the sender that a slot is free again: the three modes of ``credit_return_mode``.

They differ in when the credit arrives and how long ``recv`` blocks, never in data. Sources: ADR-0023 D9 (fast path),
its open question on credit bandwidth (fabric), D23 (piggyback).
"""

from collections.abc import Callable
from typing import Protocol

from sipsim.engine import Engine
from sipsim.ipcq.messages import IpcqCreditMetadata, Place
from sipsim.ipcq.queue_pair import QueuePair

Ps = int
Emitted = Callable[[], None]


class CreditCarrier(Protocol):
    """How credits get to the peer; the SIP knows whether that is here or behind a link."""

    def carry_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, arrival_ps: Ps, emitted: Emitted) -> None:
        """Bring a credit to the peer at ``arrival_ps`` on a wire of its own; call ``emitted`` then."""

    def inject_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, injected: Emitted | None) -> None:
        """Send a credit as a message over the fabric; call ``injected`` once it has left the PE."""


class CreditReturn:
    """One PE's way of returning credits. ``overhead_ps`` is PE_IPCQ's; ``wait_ps`` how long a credit waits to ride."""

    def __init__(self, engine: Engine, carrier: CreditCarrier, overhead_ps: Ps, wait_ps: Ps) -> None:
        self._engine = engine
        self._carrier = carrier
        self._overhead_ps = overhead_ps
        self._wait_ps = wait_ps

    def return_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, emitted: Emitted) -> None:
        """A slot is free: see that the sender hears of it; ``emitted`` is when ``recv`` returns."""
        raise NotImplementedError

    def riders(self, peer: Place) -> tuple[IpcqCreditMetadata, ...]:
        """Credits that leave with a message to this peer now."""
        return ()


class FastPath(CreditReturn):
    """The credit takes the whole path's latency on its own wire, and ``recv`` blocks for it."""

    def return_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, emitted: Emitted) -> None:
        arrival_ps = self._engine.now_ps + self._overhead_ps + queue.credit_ps
        self._carrier.carry_credit(queue, credit, arrival_ps, emitted)


class OverFabric(CreditReturn):
    """The credit is a message like others, and ``recv`` blocks until it has been injected."""

    def return_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, emitted: Emitted) -> None:
        self._carrier.inject_credit(queue, credit, emitted)


class Piggyback(CreditReturn):
    """The credit rides on the next message to that peer, or goes alone after ``wait_ps``; ``recv`` does not block.

    Of several credits for one ring only the last counts: it frees the slots of all before it.
    """

    def __init__(self, engine: Engine, carrier: CreditCarrier, overhead_ps: Ps, wait_ps: Ps) -> None:
        super().__init__(engine, carrier, overhead_ps, wait_ps)
        self._waiting: dict[Place, dict[int, tuple[QueuePair, IpcqCreditMetadata]]] = {}

    def return_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, emitted: Emitted) -> None:
        peer = queue.peer.place
        waiting = self._waiting.get(peer)
        if waiting is None:
            waiting = self._waiting[peer] = {}
            self._engine.at(self._engine.now_ps + self._wait_ps, lambda: self._go_alone(peer, waiting))
        waiting[credit.dst_rx_base_pa] = (queue, credit)
        emitted()

    def riders(self, peer: Place) -> tuple[IpcqCreditMetadata, ...]:
        waiting = self._waiting.pop(peer, None)
        return () if waiting is None else tuple(credit for _, credit in waiting.values())

    def _go_alone(self, peer: Place, waiting: dict[int, tuple[QueuePair, IpcqCreditMetadata]]) -> None:
        if self._waiting.get(peer) is waiting:
            del self._waiting[peer]
            for queue, credit in waiting.values():
                self._carrier.inject_credit(queue, credit, None)


CREDIT_RETURNS: dict[str, type[CreditReturn]] = {"fast_path": FastPath, "fabric": OverFabric, "piggyback": Piggyback}
"""By the name that ``credit_return_mode`` has in ``ccl.yaml``."""
