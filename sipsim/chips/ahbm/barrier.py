"""A barrier of all SIPs in simulated time: rows, and the timed iterations of a row, start on all ranks at one time.

Control packets travel along a tree of links, numbered, logged and ordered like all others: up to SIP 0 with the latest
end in a subtree, then down with the common start. That is the latest end plus the longest path up and the longest path
down, so it depends on nothing else. A hop takes the channel's delay and at least the sender's egress
(``RunPlan.egress_ps``): what a SIP promises of its messages holds for its control packets, too.

**A row start** needs that nothing is under way anywhere: stores that were posted, credits, messages through other SIPs.
A SIP ends a round of it when it is *quiet*, which is when no event of its own is left, and its packet up tells how many
packets it has sent to other SIPs and how many have arrived, those of the barrier aside. SIP 0 gives the start when the
sums of both are equal, and are those of the round before; else all go through another round. That is Mattern's rule of
four counters (Distributed Computing 2, 1987): the second round begins when the first has ended everywhere. So if as
many had arrived by the first as were sent by the second, nothing was under way between them, and nobody that is quiet
begins anything without an arrival. Both counts and quietness are those of a simulated time, whatever the mail did.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple

from msgspec import Meta

from broker.ids import MAX_PS
from sipsim.chips.ahbm.barrier_tree import ROOT, BarrierTree
from sipsim.chips.ahbm.plan import Plan
from sipsim.core.engine import AFTER
from sipsim.core.errors import InvariantViolation
from sipsim.core.session import Session
from sipsim.fabric.links.frames import Number, Packet, encode, packet_kind
from sipsim.fabric.links.network import BadPacket
from sipsim.records.recorder import Recorder

Ps = int
END, AGAIN, START = range(3)
"""The kinds of a packet: the end of a subtree's round, another round, or the common start."""
_NAMES = "end", "round", "start"


class Counts(NamedTuple):
    """Packets that were sent to other SIPs, and that have arrived from them."""

    sent: Number
    arrived: Number

    def plus(self, other: "Counts") -> "Counts":
        """The sums of both counts."""
        return Counts(self.sent + other.sent, self.arrived + other.arrived)


NO_COUNTS = Counts(0, 0)


@packet_kind
class BarrierPacket(Packet, tag=3):
    """A control record of the barrier: ``END``, ``AGAIN`` or ``START`` of a row or of an iteration (``is_row``). It was
    sent at ``sent_ps``, released by ``span``.

    ``time_ps``: the latest end in a subtree, or the common start. ``counts``: of the subtree, at a row start.
    """

    kind: Annotated[int, Meta(ge=END, le=START)]
    is_row: bool
    time_ps: Number
    counts: Counts
    sent_ps: Number
    span: Number


class Barrier:
    """The barrier of one SIP, which takes part in at most one common start at a time."""

    def __init__(self, sip: int, plan: Plan, session: Session, recorder: Recorder) -> None:
        self._sip = sip
        self._plan = plan
        self._session = session
        self._engine = session.engine
        self._recorder = recorder
        self._on_start: Callable[[int], None] | None = None
        self._is_row = False
        self._arrived: set[int] = set()
        self._latest_ps: Ps = 0
        self._counts = self._told = NO_COUNTS
        self._round_before: Counts | None = None
        self._own = NO_COUNTS

    def enter(self, on_start: Callable[[int], None], cause: int, is_row: bool = False) -> None:
        """This SIP's iteration ends now, by span ``cause``; at the next one's common start call ``on_start(span)``.

        ``is_row``: at the row start, when nothing is under way on any SIP.
        """
        self._on_start, self._is_row = on_start, is_row
        if is_row:
            self._end_when_quiet(self._engine.now_ps, cause)
        else:
            self._note_end(self._sip, self._engine.now_ps, NO_COUNTS, cause)

    def receive(self, channel: int, packet: BarrierPacket) -> None:
        """A control packet arrives.

        Raises:
            BadPacket: for one that came by no channel.
            InvariantViolation: for one that does not fit the tree or the round.
        """
        if channel >= len(self._plan.channels):
            raise BadPacket("is a control packet of the barrier, which come by links alone")
        src, tree, now_ps = self._plan.channels[channel].src, self._tree, self._engine.now_ps
        self._own = self._own.plus(Counts(0, 1))
        if packet.kind == END:
            is_expected = src in tree.children[self._sip] and src not in self._arrived
        else:
            is_down = tree.parent.get(self._sip) == src and self._on_start is not None
            is_expected = is_down and packet.is_row == self._is_row
        if packet.kind == START:
            is_expected = is_expected and packet.time_ps >= now_ps
        if not is_expected or packet.time_ps > MAX_PS - tree.gap_ps:
            what = f"with {_NAMES[packet.kind]} {packet.time_ps} ps is not one that the barrier waits for"
            raise InvariantViolation(f"a control packet from SIP {src} to SIP {self._sip} {what}")
        span = self._recorder.span("barrier", "packet", packet.sent_ps, now_ps, (src, packet.span))
        if packet.kind == END:
            self._note_end(src, packet.time_ps, packet.counts, span)
        elif packet.kind == AGAIN:
            self._begin_again(span)
        else:
            self._start(packet.time_ps, span)

    @property
    def _tree(self) -> BarrierTree:
        return self._plan.barrier_tree

    def _count(self) -> Counts:
        """The packets of this SIP so far, without its own ones."""
        session, own = self._session, self._own
        return Counts(session.packets_sent - own.sent, session.packets_arrived - own.arrived)

    def _end_when_quiet(self, since_ps: Ps, cause: int) -> None:
        """End this round when no event of this SIP is left; ``cause`` ended at ``since_ps``."""
        last_ps, now_ps = self._engine.last_local_ps(), self._engine.now_ps
        if last_ps is not None:
            self._engine.at(last_ps, lambda: self._end_when_quiet(since_ps, cause), AFTER)
            return
        if now_ps > since_ps:
            cause = self._recorder.span("barrier", "quiet", since_ps, now_ps, cause)
        self._told = self._count()
        self._note_end(self._sip, now_ps, self._told, cause)

    def _note_end(self, src: int, end_ps: Ps, counts: Counts, cause: int) -> None:
        tree = self._tree
        self._arrived.add(src)
        self._latest_ps, self._counts = max(self._latest_ps, end_ps), self._counts.plus(counts)
        if len(self._arrived) <= len(tree.children[self._sip]):
            return
        latest_ps, self._latest_ps = self._latest_ps, 0
        counts, self._counts = self._counts, NO_COUNTS
        self._arrived.clear()
        if self._sip != ROOT:
            self._send(tree.parent[self._sip], cause, END, self._is_row, latest_ps, counts)
        elif not self._is_row or (counts.sent == counts.arrived and counts == self._round_before):
            self._start(latest_ps + tree.gap_ps, cause)
        else:
            self._round_before = counts
            self._begin_again(cause)

    def _begin_again(self, cause: int) -> None:
        now_ps = self._engine.now_ps
        for child in self._tree.children[self._sip]:
            self._send(child, cause, AGAIN, True, 0)
        self._end_when_quiet(now_ps, cause)

    def _start(self, time_ps: Ps, cause: int) -> None:
        now_ps, is_row = self._engine.now_ps, self._is_row
        for child in self._tree.children[self._sip]:
            self._send(child, cause, START, is_row, time_ps)
        on_start, self._on_start = self._on_start, None
        self._round_before = None
        assert on_start is not None

        def start() -> None:
            if is_row and self._count() != self._told:
                raise InvariantViolation(f"SIP {self._sip}: packets were under way when a row started")
            on_start(self._recorder.span("barrier", "common start", now_ps, time_ps, cause))

        self._engine.at(time_ps, start)

    def _send(self, dst: int, cause: int, kind: int, is_row: bool, time_ps: Ps, counts: Counts = NO_COUNTS) -> None:
        way, now_ps, tree = (self._sip, dst), self._engine.now_ps, self._tree
        self._own = self._own.plus(Counts(1, 0))
        packet = BarrierPacket(kind, is_row, time_ps, counts, sent_ps=now_ps, span=cause)
        self._session.emit(tree.channels[way], now_ps + tree.hop_ps[way], encode(packet))
