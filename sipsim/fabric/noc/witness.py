"""What must hold of every edge, checked as a run goes on (``--check-invariants``).

It sees each division of an edge, and of each transfer whose end is told when it was on each edge. Times of transfers
that meet are exact to a chunk, so that is what the checks allow.
"""

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from sipsim.core.errors import InvariantViolation
from sipsim.fabric.noc.arbitration import EDGE, Want
from sipsim.fabric.noc.transfer import Lane, Ps, Transfer

KEPT = 8
"""Transfers of an edge that a later one is compared with."""


class Passage(NamedTuple):
    """A transfer on an edge: its head leaves at ``start_ps``. ``way`` numbers the edges up to this one."""

    seq: int
    vc: int
    start_ps: Ps
    tail_ps: Ps
    drain_ps: Ps
    way: int
    has_span: bool


_START = attrgetter("start_ps")


class FabricWitness:
    """Checks all edges of one SIP.

    Raises:
        InvariantViolation: from every method, with the edge.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._passages: dict[int, deque[Passage]] = {}
        self._ended_ps: dict[int, Ps] = {}
        self._ways: dict[tuple[int, int], int] = {}
        self._last_told: dict[tuple[int, int], tuple[Transfer, Ps]] = {}

    def divided(self, lane: Lane, wants: Sequence[Want], parts: Sequence[int]) -> None:
        """An edge was divided: no more than all of it, all of it if a transfer gets less than it wants, and nothing for
        a transfer behind bytes of its channel that wait."""
        total, closed = sum(parts), set()
        if total > EDGE:
            raise _violation(lane, f"{total} of {EDGE} parts of its bandwidth are given away")
        for want, part in zip(wants, parts, strict=True):
            if part and want.vc in closed and not want.is_fixed:
                raise _violation(lane, f"a transfer overtakes bytes of channel {want.vc} that wait")
            if part < want.part and want.vc not in closed and not want.is_fixed and total < EDGE - len(parts):
                raise _violation(lane, f"it idles while a transfer on channel {want.vc} waits")
            if want.is_here:
                closed.add(want.vc)

    def told(self, transfer: Transfer, end_ps: Ps) -> None:
        """The end of a transfer was told, so its time on every edge is known."""
        way, has_span = -1, transfer.source_head_ps < transfer.source_tail_ps
        for hop, leg in enumerate(transfer.legs):
            way = self._ways.setdefault((way, id(leg.lane)), len(self._ways))
            tail = transfer.tails[hop]
            made = Passage(transfer.seq, transfer.vc, transfer.start_at(hop), tail, leg.drain_ps, way, has_span)
            if made.tail_ps - made.start_ps < made.drain_ps:
                raise _violation(leg.lane, f"transfer {made.seq} passes it faster than its bandwidth allows")
            number = id(leg.lane)
            kept = self._passages.setdefault(number, deque(maxlen=KEPT))
            kept.append(made)
            ended_ps = self._ended_ps.get(number, 0)
            # One that starts when all before it have ended keeps what they have kept.
            if made.start_ps < ended_ps:
                self._check_bandwidth(leg.lane, made, kept)
                self._check_order(leg.lane, made, kept)
            self._ended_ps[number] = max(ended_ps, tail)
        if transfer.legs:
            self._check_end(transfer, end_ps, way)

    def _check_end(self, transfer: Transfer, end_ps: Ps, way: int) -> None:
        """One that was at the start of its way before another of its channel came there ends before that."""
        key = way, transfer.vc
        last, last_end_ps = self._last_told.get(key, (transfer, end_ps))
        is_before = (transfer.source_tail_ps, transfer.seq) < (last.source_head_ps, last.seq)
        if is_before and end_ps > last_end_ps:
            what = f"transfer {last.seq}, which is behind it, at {last_end_ps} ps"
            raise _violation(transfer.legs[-1].lane, f"transfer {transfer.seq} ends at {end_ps} ps, but {what}")
        self._last_told[key] = transfer, end_ps

    def _check_bandwidth(self, lane: Lane, made: Passage, kept: Sequence[Passage]) -> None:
        """Whatever interval one looks at, transfers that are within it need no more than its length."""
        allowed_ps = lane.edge.drain_ps(self._chunk_bytes)
        by_start = sorted(kept, key=_START, reverse=True)
        for stop in {each.tail_ps for each in kept if each.tail_ps >= made.tail_ps}:
            inside = 0
            for each in by_start:
                start = each.start_ps
                if each.tail_ps <= stop:
                    inside += each.drain_ps
                    if start <= made.start_ps and inside > stop - start + allowed_ps:
                        raise _violation(lane, f"from {start} to {stop} ps it carries what needs {inside} ps")

    def _check_order(self, lane: Lane, made: Passage, kept: Sequence[Passage]) -> None:
        """Transfers of one channel that have come the same way leave in the order in which they came.

        Of a train that was already passing when it was started (a span), the order is that of its parts elsewhere.
        """
        for other in kept:
            if other is made or other.vc != made.vc or other.way != made.way or made.has_span or other.has_span:
                continue
            first, second = sorted((other, made), key=lambda each: (each.start_ps, each.seq))
            if first.tail_ps > second.tail_ps:
                raise _violation(lane, f"transfer {second.seq} overtakes transfer {first.seq}")


def _violation(lane: Lane, what: str) -> InvariantViolation:
    return InvariantViolation(f"edge {lane.edge.name}: {what}")
