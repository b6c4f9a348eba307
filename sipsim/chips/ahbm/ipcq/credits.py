"""How a receiver returns the credit of a freed slot: ``credit_return_mode``, three modes and a choice among them.

They differ in when the credit arrives and how long ``recv`` blocks, never in data:

* ``fast_path`` (ADR-0023 D9): it takes the whole path's latency on its own wire, and ``recv`` blocks for it.
* ``fabric`` (the ADR's open question on credit bandwidth): it is a message; ``recv`` blocks until it has left the PE.
* ``piggyback`` (D23): it leaves with the next message to that PE, or alone after a wait; ``recv`` does not block.

``auto`` is a choice for each queue pair: ``fast_path`` where the credit stays in one SIP or crosses links die to die
only (``AnyLinkKind.is_die_to_die``), along which a wire of its own is thinkable; ``fabric`` where a link on its way is
another, such as Ethernet. So ``recv`` blocks for the whole way in some directions, and until the credit has left the
PE in others.
"""

from collections.abc import Callable

from sipsim.chips.ahbm.ipcq.messages import Credit
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.parts import SipParts
from sipsim.records.dump import Place

Ps = int
Emitted = Callable[[], None]


class CreditReturn:
    """The credit return of one PE, for each queue pair by its own mode (``QueuePair.credit_mode``)."""

    def __init__(self, sip: SipParts) -> None:
        self._engine = sip.engine
        self._credits = sip.credits
        self._plan = sip.plan
        self._overhead_ps = sip.plan.ipcq_overhead_ps
        self._waiting: dict[Place, dict[QueuePair, Credit]] = {}

    def return_credit(self, queue: QueuePair, credit: Credit, emitted: Emitted) -> None:
        """Return the credit of a slot that is freed at ``credit.sent_ps``, now or later; ``recv`` returns when
        ``emitted`` is called.
        """
        if queue.credit_mode == FAST_PATH:
            arrival_ps = credit.sent_ps + self._overhead_ps + queue.credit_ps
            self._credits.carry_credit(queue, credit, arrival_ps, emitted)
        elif queue.credit_mode == FABRIC:
            self._credits.inject_credit(queue, credit, emitted)
        else:
            self._wait_for_message(queue, credit)
            if credit.sent_ps > self._engine.now_ps:
                self._engine.at(credit.sent_ps, emitted)
            else:
                emitted()

    def piggybacked(self, peer: Place) -> tuple[Credit, ...]:
        """Take the credits that leave with a message to this peer now."""
        waiting = self._waiting.pop(peer, None) if self._waiting else None
        return () if waiting is None else tuple(waiting.values())

    def _wait_for_message(self, queue: QueuePair, credit: Credit) -> None:
        """Of several credits for one ring only the last is sent: it frees all earlier slots too."""
        peer = queue.peer.place
        waiting = self._waiting.get(peer)
        if waiting is None:
            waiting = self._waiting[peer] = {}
            self._engine.at(credit.sent_ps + self._plan.piggyback_wait_ps, lambda: self._send_alone(peer, waiting))
        waiting[queue] = credit

    def _send_alone(self, peer: Place, waiting: dict[QueuePair, Credit]) -> None:
        if self._waiting.get(peer) is waiting:
            del self._waiting[peer]
            for queue, credit in waiting.items():
                self._credits.inject_credit(queue, credit, None)


FAST_PATH, FABRIC, PIGGYBACK, AUTO = "fast_path", "fabric", "piggyback", "auto"


def credit_mode_of(credit_return_mode: str, is_die_to_die: bool) -> str:
    """The mode of a queue pair. ``is_die_to_die``: all links that its credits cross are, or there is none."""
    if credit_return_mode != AUTO:
        return credit_return_mode
    return FAST_PATH if is_die_to_die else FABRIC
