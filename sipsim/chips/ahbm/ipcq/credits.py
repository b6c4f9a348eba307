"""Credit return of a freed slot: the modes of ``credit_return_mode``.

The modes differ in when the credit arrives and how long ``recv`` blocks, never in data:

* ``fast_path`` (ADR-0023 D9): the credit has a dedicated wire; ``recv`` blocks for the latency of the whole path.
* ``fabric`` (ADR-0023, open question about credit bandwidth): the credit is sent over the fabric as a frame; ``recv``
  blocks until the frame has left the PE.
* ``piggyback`` (D23): the credit leaves with the next message to that PE, or alone after a wait; no ``recv`` blocks.
* ``auto``: one mode per queue pair. ``fast_path`` if the credit stays in one SIP or crosses only die-to-die links
  (``AnyLinkKind.is_die_to_die``), along which a dedicated wire is plausible; ``fabric`` if it crosses another link,
  such as Ethernet. So ``recv`` may block for different times in different directions.
"""

from collections.abc import Callable

from sipsim.chips.ahbm.ipcq.messages import Credit
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.parts import SipParts
from sipsim.records.dump import Place

Ps = int
Emitted = Callable[[], None]


class CreditReturn:
    """Returns the credits of one PE, in the mode of each queue pair (``QueuePair.credit_mode``)."""

    def __init__(self, sip: SipParts) -> None:
        self._engine = sip.engine
        self._credits = sip.credits
        self._plan = sip.plan
        self._overhead_ps = sip.plan.ipcq_overhead_ps
        self._waiting: dict[Place, dict[QueuePair, Credit]] = {}

    def return_credit(self, queue: QueuePair, credit: Credit, emitted: Emitted) -> None:
        """Return the credit of a slot that is freed at ``credit.sent_ps``, now or later; ``emitted`` ends the recv."""
        if queue.credit_mode == FAST_PATH:
            arrival_ps = credit.sent_ps + self._overhead_ps + queue.credit_ps
            self._credits.send_on_wire(queue, credit, arrival_ps, emitted)
        elif queue.credit_mode == FABRIC:
            self._credits.send_on_fabric(queue, credit, emitted)
        else:
            self._wait_for_message(queue, credit)
            if credit.sent_ps > self._engine.now_ps:
                self._engine.at(credit.sent_ps, emitted)
            else:
                emitted()

    def piggybacked(self, peer: Place) -> tuple[Credit, ...]:
        """Remove and return the credits that leave with a message to this peer now."""
        waiting = self._waiting.pop(peer, None) if self._waiting else None
        return () if waiting is None else tuple(waiting.values())

    def _wait_for_message(self, queue: QueuePair, credit: Credit) -> None:
        """Hold a credit for the next message. The newest credit of a ring replaces older credits, which it includes."""
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
                self._credits.send_on_fabric(queue, credit, None)


FAST_PATH, FABRIC, PIGGYBACK, AUTO = "fast_path", "fabric", "piggyback", "auto"


def credit_mode_of(credit_return_mode: str, is_die_to_die: bool) -> str:
    """Return the mode of a queue pair. ``is_die_to_die``: whether its credits cross only die-to-die links."""
    if credit_return_mode != AUTO:
        return credit_return_mode
    return FAST_PATH if is_die_to_die else FABRIC
