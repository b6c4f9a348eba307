"""Who uses which edge when: transfers over routes, exact when uncontended and first come, first served otherwise.

A transfer is a train of bytes with a head and a tail. Each edge serves heads in the order in which they
reach it, whoever started first, and is claimed for the time that the transfer's bytes need there. A train
that a slower edge feeds claims its time at the end, just before its tail; what stays free before it is a
*gap* that later heads may use, so an edge never idles while it has traffic and never carries more than its
bandwidth. A head leaves when it finds the edge free for the first time, so nothing overtakes on a route.

When a transfer starts, its way over all edges is planned at once, and one event is scheduled at its end: no
event a hop. A transfer that starts later may still reach an edge first; then the claims behind it are
*displaced* and planned again, in the order in which heads reach edges. A claim whose head has reached its
edge is never touched. So contention costs work in proportion to the conflicts, and nothing else does.

This is an edge with one queue, ``virtual_channels: false``. With virtual channels, :mod:`sipsim.noc.switching` does it.
"""

from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from sipsim.engine import Engine
from sipsim.noc.graph import Edge, Route
from sipsim.noc.switching import Switching
from sipsim.noc.virtual_channels import COMPUTE, Arbitration

Ps = int
Gaps = tuple[tuple[Ps, Ps], ...]
Done = Callable[[Ps, Ps], None]

_PRUNE_AT = 64
_FOREVER: Ps = 2**63


class Claim(NamedTuple):
    """A place in an edge's queue: when the head reaches it (``key``), and the edge's state before it."""

    key_ps: Ps
    seq: int
    transfer: "Transfer"
    hop: int
    head_ps: Ps
    tail_ps: Ps
    free_before_ps: Ps
    gaps_before: Gaps


class Lane:
    """The state of one edge: the end of its last claim, the gaps before it, the claims that may yet be displaced."""

    __slots__ = ("claims", "edge", "free_ps", "gaps")

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.free_ps: Ps = 0
        self.gaps: Gaps = ()
        self.claims: list[Claim] = []


class Hop(NamedTuple):
    """One edge of a transfer's way: how long it is busy with it, and what the head needs to the next edge."""

    lane: Lane
    drain_ps: Ps
    onward_ps: Ps


class Transfer:
    """A train on its way. ``lead_ps``: its event fires that much before its tail is through (negative: after).

    ``claimed`` has a bit for each hop with a claim; ``restart`` is the hop to plan again from, with head and tail.
    """

    __slots__ = (
        "claimed",
        "done",
        "fire_ps",
        "head_ps",
        "hops",
        "lead_ps",
        "restart",
        "scheduled_ps",
        "seq",
        "tail_ps",
    )

    def __init__(self, seq: int, hops: list[Hop], lead_ps: Ps, done: Done) -> None:
        self.seq = seq
        self.hops = hops
        self.lead_ps = lead_ps
        self.done: Done | None = done
        self.claimed = 0
        self.restart: tuple[int, Ps, Ps] | None = None
        self.head_ps: Ps = 0
        self.tail_ps: Ps = 0
        self.fire_ps: Ps = 0
        self.scheduled_ps: Ps | None = None


Agenda = list[tuple[Ps, int, int, Transfer]]
"""What is still to be planned: (when the head reaches the edge, sequence number, hop, transfer), as a heap."""


class Fabric:
    """All edges of one SIP and the transfers on them."""

    def __init__(self, engine: Engine, arbitration: Arbitration | None = None) -> None:
        self._engine = engine
        self._switching = None if arbitration is None else Switching(engine, arbitration)
        self._lanes: dict[Edge, Lane] = {}
        self._hops: dict[tuple[int, int], tuple[Route, list[Hop]]] = {}
        self._started = 0

    @property
    def lanes(self) -> Mapping[Edge, object]:
        """The edges that were used so far."""
        return self._lanes if self._switching is None else self._switching.lanes

    def start(
        self,
        route: Route,
        nbytes: int,
        done: Done,
        vc: int = COMPUTE,
        lead_ps: Ps = 0,
        delay_ps: Ps = 0,
        span_ps: Ps = 0,
    ) -> None:
        """Send ``nbytes`` over ``route``, now; call ``done(head_ps, tail_ps)`` when they are through.

        ``delay_ps`` comes before the head leaves the first node. ``span_ps``: the tail is here now and the
        head was here that much earlier (a train that arrives over a link). ``lead_ps``: see ``Transfer``.
        """
        if self._switching is not None:
            self._switching.start(route, nbytes, done, vc, lead_ps, delay_ps, span_ps)
            return
        now = self._engine.now_ps
        self._started += 1
        transfer = Transfer(self._started, self._hops_of(route, nbytes), lead_ps, done)
        tail = now + delay_ps + route.start_ps
        self._plan(transfer, tail - span_ps, tail, now)

    def _hops_of(self, route: Route, nbytes: int) -> list[Hop]:
        known = self._hops.get((id(route), nbytes))
        if known is not None:
            return known[1]
        hops = [Hop(self._lane(e), e.drain_ps(nbytes), e.wire_ps + e.overhead_ps) for e in route.edges]
        self._hops[id(route), nbytes] = (route, hops)
        return hops

    def _lane(self, edge: Edge) -> Lane:
        lane = self._lanes.get(edge)
        if lane is None:
            lane = self._lanes[edge] = Lane(edge)
        return lane

    def _plan(self, transfer: Transfer, head: Ps, tail: Ps, now: Ps) -> None:
        """Claim hop after hop while this head is the last to reach each edge; else plan again who is behind."""
        for index, (lane, drain, onward) in enumerate(transfer.hops):
            key = head if head > now else now
            claims = lane.claims
            if claims:
                newest = claims[-1].key_ps
                if newest > key:
                    self._replan(transfer, index, head, tail, now)
                    return
                if newest <= now:
                    claims.clear()
                elif len(claims) >= _PRUNE_AT:
                    _prune(lane, now)
                    claims = lane.claims
            claims.append(Claim(key, transfer.seq, transfer, index, head, tail, lane.free_ps, lane.gaps))
            start, end = _claim(lane, head, tail, drain)
            transfer.claimed |= 1 << index
            head, tail = start + onward, end + onward
        self._arrive(transfer, head, tail)

    def _replan(self, transfer: Transfer, index: int, head: Ps, tail: Ps, now: Ps) -> None:
        """Plan ``transfer`` from hop ``index`` on, and everybody whom it displaces, in the order of heads."""
        agenda: Agenda = []
        _put_off(transfer, index, head, tail, now, agenda)
        while agenda:
            key, seq, hop, mover = heappop(agenda)
            if mover.restart is None:
                continue
            at, head, tail = mover.restart
            if (at, max(head, now)) != (hop, key):
                continue  # it was put off again since, to an earlier hop or a later time
            mover.restart = None
            lane, drain, onward = mover.hops[hop]
            while lane.claims and lane.claims[-1][:2] > (key, seq):
                _displace(lane, now, agenda)
            if len(lane.claims) >= _PRUNE_AT:
                _prune(lane, now)
            lane.claims.append(Claim(key, seq, mover, hop, head, tail, lane.free_ps, lane.gaps))
            start, end = _claim(lane, head, tail, drain)
            mover.claimed |= 1 << hop
            head, tail = start + onward, end + onward
            if hop + 1 < len(mover.hops):
                _put_off(mover, hop + 1, head, tail, now, agenda)
            else:
                self._arrive(mover, head, tail)

    def _arrive(self, transfer: Transfer, head: Ps, tail: Ps) -> None:
        """The end of the way is known: see that an event stands there, or earlier (it then looks again)."""
        transfer.head_ps, transfer.tail_ps = head, tail
        transfer.fire_ps = max(tail - transfer.lead_ps, self._engine.now_ps)
        if transfer.scheduled_ps is None or transfer.fire_ps < transfer.scheduled_ps:
            self._schedule(transfer)

    def _schedule(self, transfer: Transfer) -> None:
        transfer.scheduled_ps = transfer.fire_ps
        self._engine.at(transfer.fire_ps, lambda: self._fire(transfer))

    def _fire(self, transfer: Transfer) -> None:
        now = self._engine.now_ps
        if transfer.done is None or transfer.scheduled_ps != now:
            return
        if transfer.fire_ps > now:
            self._schedule(transfer)
            return
        done, transfer.done = transfer.done, None
        done(transfer.head_ps, transfer.tail_ps)


def _put_off(mover: Transfer, hop: int, head: Ps, tail: Ps, now: Ps, agenda: Agenda) -> None:
    mover.restart = (hop, head, tail)
    heappush(agenda, (max(head, now), mover.seq, hop, mover))


def _displace(lane: Lane, now: Ps, agenda: Agenda) -> None:
    """Take back the newest claim of an edge and all that rests on it, further on and of others; plan it again."""
    undone = [_take_back(lane, now, agenda)]
    while undone:
        mover, hop = undone.pop()
        for later in range(hop + 1, len(mover.hops)):
            # What others have claimed behind it goes too; among them may be further claims of its own.
            while mover.claimed >> later & 1:
                undone.append(_take_back(mover.hops[later].lane, now, agenda))


def _take_back(lane: Lane, now: Ps, agenda: Agenda) -> tuple[Transfer, int]:
    """Undo the newest claim of an edge; its transfer is planned again from the earliest hop that was undone."""
    claim = lane.claims.pop()
    lane.free_ps, lane.gaps = claim.free_before_ps, claim.gaps_before
    mover = claim.transfer
    assert mover.done is not None, "a transfer whose end has been told cannot be displaced"
    mover.claimed &= ~(1 << claim.hop)
    if mover.restart is None or claim.hop < mover.restart[0]:
        _put_off(mover, claim.hop, claim.head_ps, claim.tail_ps, now, agenda)
    return mover, claim.hop


def _prune(lane: Lane, now: Ps) -> None:
    """Forget claims that cannot be displaced any more: their heads have reached the edge."""
    lane.claims = [c for c in lane.claims if c.key_ps > now]


def _claim(lane: Lane, head: Ps, tail: Ps, drain: Ps) -> tuple[Ps, Ps]:
    """Claim ``drain`` of the edge's time for a train; when its head leaves, and when its tail is through."""
    if lane.gaps:
        return _claim_among_gaps(lane, head, tail, drain)
    start = lane.free_ps if lane.free_ps > head else head
    end = start + drain
    if end < tail:
        lane.gaps = ((start, tail - drain),)
        end = tail
    lane.free_ps = end
    return start, end


def _claim_among_gaps(lane: Lane, head: Ps, tail: Ps, drain: Ps) -> tuple[Ps, Ps]:
    """The general case: take the latest free time before the earliest possible end; what is left stays a gap."""
    spans = [(max(start, head), stop) for start, stop in lane.gaps if stop > head]
    spans.append((max(lane.free_ps, head), _FOREVER))
    end = _earliest_end(spans, tail, drain)
    kept = []
    for start, stop in reversed(spans):
        if end < stop < _FOREVER:
            kept.append((max(start, end), stop))
        usable = min(stop, end) - start
        if usable > 0:
            taken = min(usable, drain)
            drain -= taken
            if usable > taken:
                kept.append((start, start + usable - taken))
    lane.gaps = tuple(reversed(kept))
    lane.free_ps = max(lane.free_ps, end)
    return spans[0][0], end


def _earliest_end(spans: list[tuple[Ps, Ps]], tail: Ps, drain: Ps) -> Ps:
    """The least time, not before the tail and in a free span, by which the spans offer ``drain``."""
    for start, stop in spans:
        end = max(start + drain, tail)
        if end <= stop:
            return end
        drain = max(drain - (stop - start), 0)
    raise AssertionError("the last span is open")
