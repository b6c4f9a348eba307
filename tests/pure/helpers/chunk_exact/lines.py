"""Trains in line at edges that virtual channels share: who sends what next, chunk by chunk, as events in order of time.

The rules are those of :mod:`chunk_exact.switching`, which carries the events out, and plans the ways of trains that
meet nobody.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from chunk_exact.trains import WHOLE, Feed, Lane, Ps, Run, Share, Train, Visit

ARRIVES, ENDS, READY = 0, 1, 2
Event = tuple[Ps, int, int, int, int, Callable[..., None], tuple[Any, ...]]
"""(time, start number, hop, kind, count, action, arguments): one train's bytes arrive before its earlier ones end."""


class Lines:
    """The lines at all edges of a SIP, and the agenda of what happens there."""

    def __init__(self) -> None:
        self._agenda: list[Event] = []
        self._pushed = 0
        self._latest = (0, 0, 0, 0)

    def _fly(self, train: Train) -> None:
        """Plan a train's way onwards, as far as it meets nobody."""
        raise NotImplementedError

    def _land(self, train: Train) -> tuple[Feed, int]:
        """What was planned of a train's way and has begun becomes runs; what feeds the hop after them, and that hop."""
        raise NotImplementedError

    def _clear_spans(self, lane: Lane) -> None:
        """What was planned over an edge is planned no more."""
        raise NotImplementedError

    def _advance(self, until_ps: Ps) -> None:
        """Let everything happen up to a time."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= until_ps:
            event = heappop(agenda)
            if event[:4] > self._latest:
                self._latest = event[:4]
            event[5](*event[6])

    def _push(self, time_ps: Ps, train: Train, hop: int, kind: int, action: Callable[..., None], *rest: Any) -> None:
        self._pushed += 1
        heappush(self._agenda, (time_ps, train.seq, hop, kind, self._pushed, action, rest))

    def _is_over(self, time_ps: Ps, train: Train, hop: int, kind: int) -> bool:
        """Whether what happens to a train at a time and place has happened."""
        return (time_ps, train.seq, hop, kind) <= self._latest

    def _enter(self, lane: Lane, visit: Visit) -> None:
        lane.queues[visit.train.vc].append(visit)
        lane.held += 1
        visit.train.visits[visit.hop] = visit

    def _arrive(self, train: Train, hop: int, feed: Feed) -> None:
        """The first byte of a part of a train is at an edge."""
        lane = train.legs[hop].lane
        if lane.spans:
            self._clear_spans(lane)
        visit = train.visits.get(hop)
        if visit is None:
            visit = Visit(train, hop, WHOLE)
            self._enter(lane, visit)
        visit.feeds.append(feed)
        if lane.serving is None:
            self._decide(lane)
        elif lane.serving.train.vc == train.vc:
            if lane.serving.train is not train and lane.serving.is_slow:
                self._give_way(lane.serving, 1, 1)
        else:
            self._interrupt(lane, lane.serving, train.vc)

    def _interrupt(self, lane: Lane, run: Run, vc: int) -> None:
        """Another channel has something to send: end the run where it is to give way."""
        at_chunk = lane.turn.yields(run.train.vc, vc)
        if at_chunk is not None:
            self._give_way(run, *((1, 1) if at_chunk else (lane.turn.left, lane.turn.weights[run.train.vc])))

    def _give_way(self, run: Run, first: int, step: int) -> None:
        """End a run at the next of its chunk boundaries ``first``, ``first + step``, ... that is not over."""
        leg, chunks = run.leg, run.leg.chunks(run.first)
        low, high = 0, (chunks - leg.chunks(run.last) - first) // step + 1
        while low < high:
            middle = (low + high) // 2
            share = leg.mark(chunks - first - middle * step)
            if self._is_over(run.passes_ps(share), run.train, run.hop, ENDS):
                low = middle + 1
            else:
                high = middle
        share = leg.mark(max(chunks - first - low * step, 0))
        if share > run.last:
            self._cut(run, share)

    def _go_on_in_lines(self, train: Train) -> None:
        """A flight lands; where its head has not come yet, it will arrive as any other."""
        feed, hop = self._land(train)
        if hop < len(train.legs):
            head = max(feed.onward_ps(WHOLE), self._latest[0])
            self._push(head, train, hop, ARRIVES, self._arrive, train, hop, feed)

    def _cut(self, run: Run, share: Share) -> None:
        """End a run in the future earlier than planned, and what it feeds at the same place."""
        train = run.train
        if train.flying and train.feed is run:
            self._go_on_in_lines(train)
        run.cut(share)
        train.visits[run.hop].rest = share
        if train.last_run is run:
            train.last_run = None
        self._push_end(run)
        if run.taker is not None and run.taker.last < share:
            self._cut(run.taker, share)

    def _decide(self, lane: Lane) -> None:
        """The edge is free: who sends what."""
        now = self._latest[0]
        here = [visit for queue in lane.queues for visit in queue if visit.feeds]
        if not here:
            lane.turn.forget()
            return
        if len(here) == 1 and lane.queues[here[0].train.vc][0] is here[0]:
            visit, came_ps = here[0], here[0].feeds[0].onward_ps(here[0].rest)
            if self._is_over(came_ps, visit.train, visit.hop, ARRIVES):
                lane.turn.choose([visit.train.vc])
                self._run(lane, visit, max(came_ps, lane.free_ps), visit.feeds[0].last)
            else:
                self._wait(lane, visit, came_ps)
            return
        able: dict[int, Visit] = {}
        for visit in here:
            vc = visit.train.vc
            if vc not in able and self._is_over(self._ready_ps(visit), visit.train, visit.hop, ARRIVES):
                able[vc] = visit
        if not able:
            visit = min(here, key=lambda visit: (self._ready_ps(visit), visit.train.seq))
            self._wait(lane, visit, self._ready_ps(visit))
            return
        visit = able[lane.turn.choose(list(able))]
        self._run(lane, visit, now, self._turn_end(lane, visit, now, self._allowed(lane, visit)))

    def _allowed(self, lane: Lane, visit: Visit) -> int:
        """How many chunks it may send before the edge looks again who is next."""
        queue = lane.queues[visit.train.vc]
        if queue[0] is not visit:
            return 1
        alone = lane.held == len(queue)
        weight = lane.turn.weights[visit.train.vc]
        return lane.turn.left if weight and not alone else visit.leg.chunks(visit.rest)

    def _wait(self, lane: Lane, visit: Visit, ready_ps: Ps) -> None:
        lane.turn.forget()
        lane.ready_ps = ready_ps
        self._push(ready_ps, visit.train, visit.hop, READY, self._retry, lane, ready_ps)

    def _retry(self, lane: Lane, ready_ps: Ps) -> None:
        if lane.serving is None and lane.ready_ps == ready_ps:
            self._decide(lane)

    def _ready_ps(self, visit: Visit) -> Ps:
        """From when on the next chunk can be sent at full speed, as far as it came in one part."""
        leg, feed, rest = visit.leg, visit.feeds[0], visit.rest
        last = max(leg.mark(leg.chunks(rest) - 1), feed.last)
        return max(feed.onward_ps(rest), feed.onward_ps(last) - leg.left_ps(rest) + leg.left_ps(last))

    def _turn_end(self, lane: Lane, visit: Visit, now: Ps, allowed: int) -> Share:
        """How far a train gets that others wait for: to the end of the turn, while chunks are ready on time."""
        leg, feed, rest = visit.leg, visit.feeds[0], visit.rest
        chunks = leg.chunks(rest)
        until_ps = now + leg.left_ps(rest)
        last = max(leg.mark(max(chunks - allowed, 0)), feed.last)
        if feed.onward_ps(last) <= until_ps - leg.left_ps(last):
            return last
        sent = 1
        while sent < allowed:
            share = leg.mark(chunks - sent - 1)
            if share < feed.last or feed.onward_ps(share) > until_ps - leg.left_ps(share):
                break
            sent += 1
        return max(leg.mark(chunks - sent), feed.last)

    def _run(self, lane: Lane, visit: Visit, start_ps: Ps, last: Share) -> None:
        """Send what of a train follows, up to a share; on the next edge it arrives as one part."""
        train, hop = visit.train, visit.hop
        run = Run(train, hop, start_ps, visit.rest, last, visit.feeds[0])
        visit.rest = last
        if visit.left_ps is None:
            visit.left_ps = start_ps
        self._serve(lane, run)
        if hop + 1 == len(train.legs):
            if run.first == WHOLE:
                train.head_ps = run.onward_ps(WHOLE)
            if last == 0:
                train.last_run = run
        elif run.first == WHOLE and last == 0:
            train.flying, train.first, train.feed = True, hop + 1, run
            train.reach = run.onward_ps(WHOLE), run.onward_ps(0)
            self._fly(train)
        else:
            self._push(run.onward_ps(run.first), train, hop + 1, ARRIVES, self._arrive, train, hop + 1, run)

    def _serve(self, lane: Lane, run: Run) -> None:
        lane.serving = run
        self._push_end(run)

    def _push_end(self, run: Run) -> None:
        run.stamp += 1
        self._push(run.end_ps, run.train, run.hop, ENDS, self._end, run, run.stamp)

    def _end(self, run: Run, stamp: int) -> None:
        """A run is through: its edge is free."""
        if stamp != run.stamp:
            return
        train, leg = run.train, run.leg
        lane, visit = leg.lane, train.visits[run.hop]
        lane.serving = None
        lane.free_ps = run.end_ps
        lane.turn.sent(train.vc, leg.chunks(run.first) - leg.chunks(run.last))
        if run.last == visit.feeds[0].last:
            visit.feeds.popleft()
        if run.last == 0:
            lane.queues[train.vc].remove(visit)
            lane.held -= 1
            del train.visits[run.hop]
            train.passed = run.hop + 1
        self._decide(lane)
