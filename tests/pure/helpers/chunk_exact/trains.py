"""Trains on edges that virtual channels share: what of a train is where, and when, without arbitration.

A place in a train is told by its *share*: how much of the train is still to come after it, as good as exactly. 2**128
is the whole train, 0 is its end. An edge *runs* a part of a train; the part's bytes go on as the edge's bandwidth and
the run upstream that feeds it allow, so that the time at which a share passes follows from the starts of the runs
behind it. Nothing else is kept of a run, and a run that is cut short needs no new times.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from chunk_exact.turns import Turn
from sipsim.core.units import PS_PER_S
from sipsim.fabric.graph import Edge

Ps = int
Share = int
Done = Callable[[Ps, Ps], None]
Span = tuple[Ps, Ps, int, "Train", int, Ps]
"""A flight's time at one edge: start, end, start number, train, hop, and when its head comes there."""

_BITS = 128
WHOLE: Share = 1 << _BITS


class Lane:
    """One edge: the flights planned over it, or the trains queued at it; never both.

    ``spans`` are disjoint and in order. ``queues`` has per channel the trains that are here, the one being served
    first; ``held`` is how many there are in all. ``free_ps`` is when the last run or flight was through.
    """

    __slots__ = ("edge", "free_ps", "held", "queues", "ready_ps", "serving", "spans", "turn")

    def __init__(self, edge: Edge, weights: tuple[int, ...]) -> None:
        self.edge = edge
        self.free_ps: Ps = 0
        self.spans: list[Span] = []
        self.queues: list[deque[Visit]] = [deque() for _ in weights]
        self.held = 0
        self.serving: Run | None = None
        self.turn = Turn(weights)
        self.ready_ps: Ps | None = None

    def prune(self, now: Ps) -> None:
        """Forget flights that were through before now."""
        over = next((index for index, span in enumerate(self.spans) if span[1] >= now), len(self.spans))
        if over:
            self.free_ps = max(self.free_ps, self.spans[over - 1][1])
            del self.spans[:over]


class Leg:
    """One edge of a train's way. Chunks are counted from the end of the train, so only the first can be short."""

    __slots__ = ("_chunk", "_rate", "_work", "drain_ps", "lane", "onward_ps", "wire_bytes")

    def __init__(self, lane: Lane, nbytes: int, chunk_bytes: int) -> None:
        edge = lane.edge
        self.lane = lane
        self.drain_ps: Ps = edge.drain_ps(nbytes)
        self.onward_ps: Ps = edge.wire_ps + edge.overhead_ps
        self.wire_bytes = edge.wire_bytes(nbytes)
        self._chunk = chunk_bytes << _BITS
        self._work = self.wire_bytes * PS_PER_S
        self._rate = edge.bandwidth_bps << _BITS

    def left_ps(self, share: Share) -> Ps:
        """Time that this edge needs for what follows ``share``."""
        if share == WHOLE:
            return self.drain_ps
        return -(-self._work * share // self._rate) if share else 0

    def chunks(self, share: Share) -> int:
        """Chunks that follow ``share``, one that has begun included."""
        return -(-self.wire_bytes * share // self._chunk) if share else 0

    def mark(self, chunks: int) -> Share:
        """The share at which so many chunks follow."""
        return min(chunks * self._chunk // self.wire_bytes, WHOLE)

    def is_like(self, other: "Leg") -> bool:
        """Whether it needs the same time for every share."""
        return self._work == other._work and self._rate == other._rate


class Source(NamedTuple):
    """Feeds the first edge: the bytes come evenly from ``head_ps`` to ``tail_ps``."""

    head_ps: Ps
    tail_ps: Ps
    last: Share = 0

    def onward_ps(self, share: Share) -> Ps:
        """When ``share`` reaches the first edge."""
        return self.head_ps + ((self.tail_ps - self.head_ps) * (WHOLE - share) >> _BITS)

    def may_delay(self, run: "Run") -> bool:
        """Whether ``run`` may have to wait for it after its start."""
        return self.tail_ps > run.start_ps


class Run:
    """Part of a train, from share ``first`` to share ``last``, that an edge sends on end, as fast as it is fed.

    ``taker`` is the last run downstream that this one feeds; ``stamp`` tells the valid end event from older ones.
    """

    __slots__ = ("_fed", "_first_ps", "end_ps", "first", "hop", "last", "leg", "stamp", "start_ps", "taker", "train")

    def __init__(self, train: "Train", hop: int, start_ps: Ps, first: Share, last: Share, feed: "Feed") -> None:
        self.train = train
        self.hop = hop
        self.leg = train.legs[hop]
        self.start_ps = start_ps
        self.first = first
        self.stamp = 0
        self.taker: Run | None = None
        self._first_ps = self.leg.left_ps(first)
        self._fed: Feed | None = feed if feed.may_delay(self) else None
        self.cut(last)

    def cut(self, share: Share) -> None:
        """It ends at a share that has not passed yet."""
        self.last = share
        self.end_ps: Ps = self.passes_ps(share)

    @property
    def is_slow(self) -> bool:
        """Whether it waits for bytes in between."""
        return self.end_ps > self.start_ps + self._first_ps - self.leg.left_ps(self.last)

    def passes_ps(self, share: Share) -> Ps:
        """When ``share`` is through."""
        own = self.start_ps + self._first_ps - self.leg.left_ps(share)
        return own if self._fed is None else max(own, self._fed.onward_ps(share))

    def onward_ps(self, share: Share) -> Ps:
        """When ``share`` reaches the next edge; of its first share, the byte after it."""
        if share == self.first:
            return self.start_ps + self.leg.onward_ps
        return (self.end_ps if share == self.last else self.passes_ps(share)) + self.leg.onward_ps

    def may_delay(self, run: "Run") -> bool:
        """``run`` takes from this one. Whether it may have to wait for it in between, wherever it ends."""
        self.taker = run
        return not (self._fed is None and self.leg.is_like(run.leg)) and self.end_ps + self.leg.onward_ps > run.start_ps


Feed = Run | Source


class Visit:
    """A train at an edge that has a queue: what came and is not all sent (``feeds``), from where on it is not sent
    (``rest``), and when its head left."""

    __slots__ = ("feeds", "hop", "left_ps", "leg", "rest", "train")

    def __init__(self, train: "Train", hop: int, rest: Share) -> None:
        self.train = train
        self.hop = hop
        self.leg = train.legs[hop]
        self.rest = rest
        self.left_ps: Ps | None = None
        self.feeds: deque[Feed] = deque()

    def has_come(self, share: Share, now: Ps) -> bool:
        """Whether its next part reaches to a share, and has come so far."""
        feed = self.feeds[0] if self.feeds else None
        return feed is not None and feed.last <= share and feed.onward_ps(share) <= now


class Train:
    """A transfer. Its way may be planned in part as a flight: alone on each edge from hop ``first`` on.

    ``plan`` has the flight's start and end at each edge, ``feed`` is what feeds its first, and ``reach`` (head, tail)
    at the edge after it. ``passed``: so many edges have nothing of it to come any more, as far as was looked at.
    ``last_run`` is its final run at its last edge, if that was no flight. ``before``: the chunks that its
    channel sends on end at its first edge before it, where it stands in line.
    """

    __slots__ = (
        "before",
        "done",
        "feed",
        "first",
        "flying",
        "head_ps",
        "last_run",
        "lead_ps",
        "legs",
        "passed",
        "plan",
        "reach",
        "scheduled_ps",
        "seq",
        "stamp",
        "vc",
        "visits",
    )

    def __init__(self, seq: int, legs: list[Leg], vc: int, lead_ps: Ps, done: Done, feed: Source) -> None:
        self.seq = seq
        self.legs = legs
        self.vc = vc
        self.lead_ps = lead_ps
        self.done: Done | None = done
        self.before = 0
        self.flying = True
        self.first = 0
        self.feed: Feed = feed
        self.plan: list[tuple[Ps, Ps]] = []
        self.reach: tuple[Ps, Ps] = (feed.head_ps, feed.tail_ps)
        self.stamp = 0
        self.passed = 0
        self.visits: dict[int, Visit] = {}
        self.last_run: Run | None = None
        self.head_ps: Ps = 0
        self.scheduled_ps: Ps = -1

    @property
    def next_hop(self) -> int:
        """The hop after its flight."""
        return self.first + len(self.plan)

    def end(self) -> tuple[Ps, Ps] | None:
        """Head and tail where it ends, as planned; None while some of its way is not."""
        if self.flying:
            return self.reach if self.next_hop == len(self.legs) else None
        if self.last_run is None:
            return None
        return self.head_ps, self.last_run.end_ps + self.last_run.leg.onward_ps

    def least_tail_ps(self, now: Ps) -> Ps:
        """No later than its tail can be through, if its end is not planned: what others do can only delay it."""
        hop, head, tail = (self.next_hop, *self.reach) if self.flying else (self.passed, now, now)
        for index in range(hop, len(self.legs)):
            leg, visit = self.legs[index], self.visits.get(index)
            if visit is None:
                tail = max(tail, head + leg.drain_ps)
            else:
                head, least = _least_visit_ps(visit, now)
                tail = max(tail, least)
            head, tail = head + leg.onward_ps, tail + leg.onward_ps
        return tail


def _least_visit_ps(visit: Visit, now: Ps) -> tuple[Ps, Ps]:
    """Where a train is queued: when its head leaves, and when its tail is through, at the earliest."""
    lane, leg = visit.leg.lane, visit.leg
    run = lane.serving
    if run is not None and run.train is visit.train:
        assert visit.left_ps is not None
        return visit.left_ps, run.end_ps + leg.left_ps(run.last)
    # A run of another channel may yet be cut short, and so may one whose bytes are still to come.
    start = now
    if run is not None and run.train.vc == visit.train.vc and run.train.visits[run.hop].has_come(run.last, now):
        start = max(now, run.end_ps)
    for other in lane.queues[visit.train.vc]:
        if other is visit:
            break
        if other.has_come(0, now):
            start += other.leg.left_ps(other.rest)
    return start if visit.left_ps is None else visit.left_ps, start + leg.left_ps(visit.rest)
