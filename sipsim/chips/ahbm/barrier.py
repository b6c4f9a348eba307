"""Barrier of all SIPs in simulated time: rows, and the timed iterations of a row, start on all ranks at one time.

Control packets travel along a tree of links, numbered, logged and ordered like all other packets: up to SIP 0 with the
latest end in the subtree, then down with the common start. The common start is the latest end plus the longest path up
and the longest path down. A hop takes the channel's delay plus the sender's egress (``RunPlan.egress_ps``), so that
control packets respect the SIP's synchronization bounds.

**A row start** requires that nothing is in flight anywhere: posted stores, credits, messages through other SIPs. A SIP
ends its round when it is *quiet*, that is, has no local event left. Its packet up states how many packets it has sent
to other SIPs and how many have arrived, without those of the barrier. SIP 0 sends the start if both sums are equal and
the same as in the previous round; otherwise all SIPs run another round. This is Mattern's four-counter method
(Distributed Computing 2, 1987). The second round begins after the first has ended everywhere. If the first round
counted as many arrivals as the second counted sent packets, no packet was in flight between the rounds; and a quiet SIP
does nothing without an arrival. Counts and quietness refer to simulated time, independent of the delivery of mail.
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
"""Kinds of a packet: end of a subtree's round, another round, common start."""
_NAMES = "end", "round", "start"


class Counts(NamedTuple):
    """Numbers of packets: ``sent`` to other SIPs, and ``arrived`` from other SIPs."""

    sent: Number
    arrived: Number

    def plus(self, other: "Counts") -> "Counts":
        """Return the sums of both counts."""
        return Counts(self.sent + other.sent, self.arrived + other.arrived)


NO_COUNTS = Counts(0, 0)


@packet_kind
class BarrierPacket(Packet, tag=3):
    """Control packet of the barrier: ``END``, ``AGAIN`` or ``START`` of a row (``is_row``) or of an iteration.

    ``time_ps``: latest end in the subtree, or common start. ``counts``: packet counts of the subtree, used at a row
    start. ``sent_ps``: when the packet was sent. ``span``: number of the sender's span that caused the packet.
    """

    kind: Annotated[int, Meta(ge=END, le=START)]
    is_row: bool
    time_ps: Number
    counts: Counts
    sent_ps: Number
    span: Number


class Barrier:
    """Barrier of one SIP; at most one common start is pending at a time."""

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
        self._counts = self._reported = NO_COUNTS
        self._round_before: Counts | None = None
        self._barrier_packets = NO_COUNTS

    def enter(self, on_start: Callable[[int], None], cause: int, is_row: bool = False) -> None:
        """End this SIP's iteration now, because of span ``cause``; call ``on_start(span)`` at the next common start.

        ``is_row``: the common start is a row start, when nothing is in flight on any SIP.
        """
        self._on_start, self._is_row = on_start, is_row
        if is_row:
            self._end_when_quiet(self._engine.now_ps, cause)
        else:
            self._note_end(self._sip, self._engine.now_ps, NO_COUNTS, cause)

    def receive(self, channel: int, packet: BarrierPacket) -> None:
        """Handle a control packet that arrives.

        Raises:
            BadPacket: for a packet that did not arrive on a channel.
            InvariantViolation: for a packet that does not fit the tree or the round.
        """
        if channel >= len(self._plan.channels):
            raise BadPacket("is a packet of the barrier that did not arrive over a link")
        src, tree, now_ps = self._plan.channels[channel].src, self._tree, self._engine.now_ps
        self._barrier_packets = self._barrier_packets.plus(Counts(0, 1))
        if packet.kind == END:
            is_expected = src in tree.children[self._sip] and src not in self._arrived
        else:
            is_down = tree.parent.get(self._sip) == src and self._on_start is not None
            is_expected = is_down and packet.is_row == self._is_row
        if packet.kind == START:
            is_expected = is_expected and packet.time_ps >= now_ps
        if not is_expected or packet.time_ps > MAX_PS - tree.gap_ps:
            what = f"sent control packet {_NAMES[packet.kind]!r} with {packet.time_ps} ps"
            raise InvariantViolation(f"SIP {src} {what}, which the barrier of SIP {self._sip} does not wait for")
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
        """Return the counts of this SIP's packets so far, without the packets of the barrier."""
        session, own = self._session, self._barrier_packets
        return Counts(session.packets_sent - own.sent, session.packets_arrived - own.arrived)

    def _end_when_quiet(self, since_ps: Ps, cause: int) -> None:
        """End the round when this SIP has no event left; span ``cause`` ended at ``since_ps``.

        Background processes, which always have a next event, stop first.
        """
        self._engine.env.stop_background()
        last_ps, now_ps = self._engine.last_local_ps(), self._engine.now_ps
        if last_ps is not None:
            self._engine.at(last_ps, lambda: self._end_when_quiet(since_ps, cause), AFTER)
            return
        if now_ps > since_ps:
            cause = self._recorder.span("barrier", "quiet", since_ps, now_ps, cause)
        self._reported = self._count()
        self._note_end(self._sip, now_ps, self._reported, cause)

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
            if is_row and self._count() != self._reported:
                raise InvariantViolation(f"SIP {self._sip}: packets were in flight when a row started")
            on_start(self._recorder.span("barrier", "common start", now_ps, time_ps, cause))

        self._engine.at(time_ps, start)

    def _send(self, dst: int, cause: int, kind: int, is_row: bool, time_ps: Ps, counts: Counts = NO_COUNTS) -> None:
        edge, now_ps, tree = (self._sip, dst), self._engine.now_ps, self._tree
        self._barrier_packets = self._barrier_packets.plus(Counts(1, 0))
        packet = BarrierPacket(kind, is_row, time_ps, counts, sent_ps=now_ps, span=cause)
        self._session.emit(tree.channels[edge], now_ps + tree.hop_ps[edge], encode(packet))
