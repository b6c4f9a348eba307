"""A barrier of all SIPs in simulated time: the timed iterations of a job start on all ranks at one common time.

Control packets travel along a tree of links, numbered, logged and ordered like all others: up to SIP 0 with the latest
end of the iteration in a subtree, then down with the common start. That is the latest end plus the longest path up and
the longest path down, so it depends on nothing else. A hop takes the channel's delay and at least the sender's
egress (``RunPlan.control_ps``): what a SIP promises of its messages holds for its control packets, too.
"""

from collections.abc import Callable
from typing import NamedTuple

from broker.ids import MAX_PS
from sipsim.errors import InvariantViolation
from sipsim.io.delivery import BadPacket
from sipsim.links.frames import Body, Number, codec, encode
from sipsim.plan.barrier_tree import ROOT, BarrierTree
from sipsim.plan.plan import Plan
from sipsim.record.recorder import Recorder
from sipsim.sync.session import Session

Ps = int


class BarrierPacket(NamedTuple):
    """The latest end in a subtree, or the common start that follows; sent at ``sent_ps``, released by ``span``."""

    is_start: bool
    time_ps: Ps
    sent_ps: Ps = 0
    span: int = 0


@codec(BarrierPacket)
class _BarrierBody(Body, tag=3):
    is_start: bool
    time_ps: Number
    sent_ps: Number
    span: Number

    def payload(self) -> BarrierPacket:
        return BarrierPacket(self.is_start, self.time_ps, self.sent_ps, self.span)


class Barrier:
    """The barrier of one SIP, which takes part in at most one round at a time."""

    def __init__(self, sip: int, plan: Plan, session: Session, recorder: Recorder) -> None:
        self._sip = sip
        self._plan = plan
        self._session = session
        self._engine = session.engine
        self._recorder = recorder
        self._on_start: Callable[[int], None] | None = None
        self._arrived: set[int] = set()
        self._latest_ps: Ps = 0

    def enter(self, on_start: Callable[[int], None], cause: int) -> None:
        """This SIP's iteration ends now, by span ``cause``; at the next one's common start call ``on_start(span)``."""
        self._on_start = on_start
        self._note_end(self._sip, self._engine.now_ps, cause)

    def receive(self, channel: int, packet: BarrierPacket) -> None:
        """A control packet arrives.

        Raises:
            BadPacket: for one that came by no channel.
            InvariantViolation: for one that does not fit the tree or the round.
        """
        if channel >= len(self._plan.channels):
            raise BadPacket("is a control packet of the barrier, which come by links alone")
        src, tree = self._plan.channels[channel].src, self._tree
        is_down = tree.parent.get(self._sip) == src
        if packet.is_start:
            is_expected = is_down and self._on_start is not None and packet.time_ps >= self._engine.now_ps
        else:
            is_expected = src in tree.children[self._sip] and src not in self._arrived
        if not is_expected or packet.time_ps > MAX_PS - tree.gap_ps:
            kind = "start" if packet.is_start else "end"
            what = f"with {kind} {packet.time_ps} ps is not one that the barrier waits for"
            raise InvariantViolation(f"a control packet from SIP {src} to SIP {self._sip} {what}")
        now_ps = self._engine.now_ps
        span = self._recorder.span("barrier", "packet", packet.sent_ps, now_ps, (src, packet.span))
        if packet.is_start:
            self._start(packet.time_ps, span)
        else:
            self._note_end(src, packet.time_ps, span)

    @property
    def _tree(self) -> BarrierTree:
        return self._plan.barrier_tree

    def _note_end(self, src: int, end_ps: Ps, cause: int) -> None:
        tree = self._tree
        self._arrived.add(src)
        self._latest_ps = max(self._latest_ps, end_ps)
        if len(self._arrived) <= len(tree.children[self._sip]):
            return
        latest_ps, self._latest_ps = self._latest_ps, 0
        self._arrived.clear()
        if self._sip == ROOT:
            self._start(latest_ps + tree.gap_ps, cause)
        else:
            self._send(tree.parent[self._sip], BarrierPacket(False, latest_ps, self._engine.now_ps, cause))

    def _start(self, time_ps: Ps, cause: int) -> None:
        now_ps = self._engine.now_ps
        for child in self._tree.children[self._sip]:
            self._send(child, BarrierPacket(True, time_ps, now_ps, cause))
        on_start, self._on_start = self._on_start, None
        assert on_start is not None
        self._engine.at(
            time_ps, lambda: on_start(self._recorder.span("barrier", "common start", now_ps, time_ps, cause))
        )

    def _send(self, dst: int, packet: BarrierPacket) -> None:
        way = self._sip, dst
        tree = self._tree
        self._session.emit(tree.channels[way], self._engine.now_ps + tree.hop_ps[way], encode(packet))
