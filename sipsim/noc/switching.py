"""Edges that virtual channels share: in order within a channel, weighted round robin between them, chunk by chunk.

The rules, at one edge:

* Within a channel trains go in the order of their heads. Until the last byte of one is through, nothing else of its
  channel goes, also where its bytes come slowly or in parts; so nothing overtakes on a route.
* A train that finds nobody here goes on at once, and without interruption. When a train of another channel comes, it
  gets the edge at the end of the turn in progress; then the channels take turns (:class:`Turn`), as long as more than
  one has something here. Who shares an edge sends a chunk when it can be sent at full speed, and not before.
* A channel of strict priority gets the edge at the next chunk boundary.
* A chunk is sent on end, unless its bytes come in parts: that happens where a link cuts a train into other chunks than
  the edges before it do, and never to the last chunk of a train on a link that ends its route.
* What happens at one time happens in the order in which transfers were started. A chunk that starts when a train of a
  later start arrives is not held back by it.

What happens is an ordinary simulation of events in the order of (time, start): heads arrive, runs end. It is carried
out when somebody looks, up to the present time and never beyond, so nothing is ever undone. One event of the engine
stands for each transfer, at a time at which its end can be no earlier; it looks again if the end is later.

A train that meets nobody needs none of this. It is planned as a *flight*: each edge keeps the time of its passage, and
no two overlap. Whoever really comes to an edge in that time, or stays there, makes the flight *land*: what of it is on
edges now becomes runs, and what is to come is left to the simulation. Landing changes no times, only who keeps them.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from sipsim.engine import Engine
from sipsim.noc.graph import Edge, Route
from sipsim.noc.trains import WHOLE, Done, Feed, Lane, Leg, Ps, Run, Share, Source, Span, Train, Visit
from sipsim.noc.virtual_channels import Arbitration

_ARRIVES, _ENDS, _READY = 0, 1, 2
Event = tuple[Ps, int, int, int, int, Callable[..., None], tuple[Any, ...]]
"""(time, start number, hop, kind, count, action, arguments): one train's bytes arrive before its earlier ones end."""


class Switching:
    """All edges of one SIP and the trains on them."""

    def __init__(self, engine: Engine, arbitration: Arbitration) -> None:
        arbitration.check()
        self._engine = engine
        self._arbitration = arbitration
        self.lanes: dict[Edge, Lane] = {}
        self._legs: dict[tuple[int, int], tuple[Route, list[Leg]]] = {}
        self._agenda: list[Event] = []
        self._started = 0
        self._pushed = 0
        self._latest = (0, 0, 0, 0)

    def start(
        self, route: Route, nbytes: int, done: Done, vc: int, lead_ps: Ps = 0, delay_ps: Ps = 0, span_ps: Ps = 0
    ) -> None:
        """As ``Fabric.start``. An end is told no earlier than when its last chunk starts on the last edge."""
        now = self._engine.now_ps
        if self._agenda:
            self._advance(now)
        self._started += 1
        self._latest = (now, self._started, 0, _ARRIVES)
        legs = self._legs_of(route, nbytes)
        tail = now + delay_ps + route.start_ps
        train = Train(self._started, legs, vc, lead_ps, done, Source(tail - span_ps, tail))
        if lead_ps > 0:
            last = legs[-1]
            train.lead_ps = min(lead_ps, last.onward_ps + last.left_ps(last.mark(1)))
        self._fly(train)
        if self._agenda:
            self._advance(now)
        self._look(train)

    def _legs_of(self, route: Route, nbytes: int) -> list[Leg]:
        known = self._legs.get((id(route), nbytes))
        if known is not None:
            return known[1]
        legs = [Leg(self._lane(edge), nbytes, self._arbitration.chunk_bytes) for edge in route.edges]
        self._legs[id(route), nbytes] = (route, legs)
        return legs

    def _lane(self, edge: Edge) -> Lane:
        lane = self.lanes.get(edge)
        if lane is None:
            lane = self.lanes[edge] = Lane(edge, self._arbitration.weights)
        return lane

    # --- looking ---------------------------------------------------------------------------------------------

    def _look(self, train: Train) -> None:
        """See that an event stands where its end is told, or earlier."""
        now, end = self._engine.now_ps, train.end()
        if end is None:
            due = max(train.least_tail_ps(now) - train.lead_ps, now + 1)
        else:
            due = max(end[1] - train.lead_ps, now)
        train.scheduled_ps = due
        self._engine.at(due, lambda: self._fire(train))

    def _fire(self, train: Train) -> None:
        now = self._engine.now_ps
        if self._agenda:
            self._advance(now)
        end = train.end()
        if end is None or end[1] - train.lead_ps > now or train.done is None:
            self._look(train)
            return
        done, train.done = train.done, None
        done(*end)

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

    # --- flights ---------------------------------------------------------------------------------------------

    def _fly(self, train: Train) -> None:
        """Plan its flight onwards, edge after edge, as long as it is alone in its time there."""
        seq, now, legs, plan = train.seq, self._latest[0], train.legs, train.plan
        head, tail = train.reach
        for hop in range(train.first + len(plan), len(legs)):
            leg = legs[hop]
            lane = leg.lane
            spans = lane.spans
            if spans and spans[-1][1] < now:
                lane.free_ps = max(lane.free_ps, spans[-1][1])
                spans.clear()
            start = head if head > lane.free_ps else lane.free_ps
            end = start + leg.drain_ps
            if end < tail:
                end = tail
            if lane.held or (spans and not _fits(spans, start, end, seq)):
                self._stop_before(train, hop, head, tail)
                return
            spans.append((start, end, seq, train, hop))
            if len(spans) > 1 and spans[-2][0] > start:
                spans.sort(key=_by_start)
            plan.append((start, end))
            head, tail = start + leg.onward_ps, end + leg.onward_ps
        train.reach = head, tail

    def _stop_before(self, train: Train, hop: int, head: Ps, tail: Ps) -> None:
        """A flight ends before a hop, where its head will be looked at when it is there."""
        train.reach = head, tail
        train.stamp += 1
        self._push(max(head, self._latest[0]), train, hop, _ARRIVES, self._touch_down, train, train.stamp)

    def _touch_down(self, train: Train, stamp: int) -> None:
        """Its head is at the edge after its flight: on, if nobody is there and nobody comes; else it gets in line."""
        if stamp != train.stamp:
            return
        hop, lane = train.next_hop, train.legs[train.next_hop].lane
        if not lane.held:
            self._fly(train)
            if train.next_hop > hop:
                return
        feed, _ = self._land(train)
        self._arrive(train, hop, feed)

    def _land(self, train: Train) -> tuple[Feed, int]:
        """Its flight becomes runs, as far as its head has come; what feeds the hop after them, and that hop."""
        train.flying = False
        train.stamp += 1
        feed, plan, hop = train.feed, train.plan, train.first
        for span in self._forget(train, 0):
            if not self._is_over(span[0], train, hop, _ARRIVES):
                break
            run = Run(train, hop, span[0], WHOLE, 0, feed)
            if self._is_over(span[1], train, hop, _ENDS):
                lane = train.legs[hop].lane
                lane.free_ps = max(lane.free_ps, span[1])
                train.passed = hop + 1
            else:
                self._hold(run, feed)
            if hop == len(train.legs) - 1:
                train.last_run, train.head_ps = run, run.onward_ps(WHOLE)
            feed = run
            hop += 1
        plan.clear()
        return feed, hop

    def _forget(self, train: Train, keep: int) -> list[tuple[Ps, Ps]]:
        """Take all but the first ``keep`` edges out of a flight's plan; what was planned there."""
        plan, first = train.plan, train.first
        for index in range(first + keep, first + len(plan)):
            lane = train.legs[index].lane
            lane.spans = [span for span in lane.spans if span[3] is not train]
        out = plan[keep:]
        del plan[keep:]
        return out

    def _hold(self, run: Run, feed: Feed) -> None:
        """A flight that lands is being served: the edge keeps a queue from now on."""
        visit = Visit(run.train, run.hop, run.last)
        visit.feeds.append(feed)
        visit.left_ps = run.start_ps
        lane = run.leg.lane
        self._clear_spans(lane)
        self._enter(lane, visit)
        lane.turn.begin(run.train.vc)
        self._serve(lane, run)

    def _clear_spans(self, lane: Lane) -> None:
        """Somebody gets in line at an edge: no flight over it stands."""
        while lane.spans:
            start, end, _, train, hop = lane.spans[0]
            if self._is_over(end, train, hop, _ENDS):
                lane.spans.pop(0)
                lane.free_ps = max(lane.free_ps, end)
            elif self._is_over(start, train, hop, _ARRIVES):
                feed, reached = self._land(train)
                if reached < len(train.legs):
                    head = max(feed.onward_ps(WHOLE), self._latest[0])
                    self._push(head, train, reached, _ARRIVES, self._arrive, train, reached, feed)
            else:
                keep = hop - train.first
                self._forget(train, keep)
                onward = train.legs[hop - 1].onward_ps if keep else 0
                head, tail = train.plan[-1] if keep else (train.feed.onward_ps(WHOLE), train.feed.onward_ps(0))
                self._stop_before(train, hop, head + onward, tail + onward)

    # --- queues ----------------------------------------------------------------------------------------------

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
        elif lane.queues[train.vc][0] is visit:
            self._interrupt(lane, lane.serving, train.vc)

    def _interrupt(self, lane: Lane, run: Run, vc: int) -> None:
        """Another channel has something to send: end the run where it is to give way."""
        at_chunk = lane.turn.yields(run.train.vc, vc)
        if run.train.vc == vc or at_chunk is None:
            return
        leg, chunks = run.leg, run.leg.chunks(run.first)
        first, step = (1, 1) if at_chunk else (lane.turn.left, lane.turn.weights[run.train.vc])
        low, high = 0, (chunks - leg.chunks(run.last) - first) // step + 1
        while low < high:
            middle = (low + high) // 2
            share = leg.mark(chunks - first - middle * step)
            if self._is_over(run.passes_ps(share), run.train, run.hop, _ENDS):
                low = middle + 1
            else:
                high = middle
        share = leg.mark(max(chunks - first - low * step, 0))
        if share > run.last:
            self._cut(run, share)

    def _cut(self, run: Run, share: Share) -> None:
        """End a run in the future earlier than planned, and what it feeds at the same place."""
        train = run.train
        if train.flying and train.feed is run:
            feed, hop = self._land(train)
            if hop < len(train.legs):
                head = max(feed.onward_ps(WHOLE), self._latest[0])
                self._push(head, train, hop, _ARRIVES, self._arrive, train, hop, feed)
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
        here = [queue[0] for queue in lane.queues if queue and queue[0].feeds]
        if not here:
            lane.turn.forget()
            return
        if len(here) == 1:
            visit, came_ps = here[0], here[0].feeds[0].onward_ps(here[0].rest)
            if self._is_over(came_ps, visit.train, visit.hop, _ARRIVES):
                lane.turn.choose([visit.train.vc])
                self._run(lane, visit, max(came_ps, lane.free_ps), visit.feeds[0].last)
            else:
                self._wait(lane, visit, came_ps)
            return
        ready = {visit.train.vc: self._ready_ps(visit) for visit in here}
        able = [v.train.vc for v in here if self._is_over(ready[v.train.vc], v.train, v.hop, _ARRIVES)]
        if not able:
            visit = min(here, key=lambda visit: (ready[visit.train.vc], visit.train.seq))
            self._wait(lane, visit, ready[visit.train.vc])
            return
        visit = lane.queues[lane.turn.choose(able)][0]
        self._run(lane, visit, now, self._turn_end(lane, visit, now))

    def _wait(self, lane: Lane, visit: Visit, ready_ps: Ps) -> None:
        lane.turn.forget()
        lane.ready_ps = ready_ps
        self._push(ready_ps, visit.train, visit.hop, _READY, self._retry, lane, ready_ps)

    def _retry(self, lane: Lane, ready_ps: Ps) -> None:
        if lane.serving is None and lane.ready_ps == ready_ps:
            self._decide(lane)

    def _ready_ps(self, visit: Visit) -> Ps:
        """From when on the next chunk can be sent at full speed, as far as it came in one part."""
        leg, feed, rest = visit.leg, visit.feeds[0], visit.rest
        last = max(leg.mark(leg.chunks(rest) - 1), feed.last)
        return max(feed.onward_ps(rest), feed.onward_ps(last) - leg.left_ps(rest) + leg.left_ps(last))

    def _turn_end(self, lane: Lane, visit: Visit, now: Ps) -> Share:
        """How far a train gets that others wait for: to the end of the turn, while chunks are ready on time."""
        leg, feed, rest = visit.leg, visit.feeds[0], visit.rest
        weight = lane.turn.weights[visit.train.vc]
        chunks, allowed = leg.chunks(rest), lane.turn.left if weight else leg.chunks(rest)
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
            self._push(run.onward_ps(run.first), train, hop + 1, _ARRIVES, self._arrive, train, hop + 1, run)

    def _serve(self, lane: Lane, run: Run) -> None:
        lane.serving = run
        self._push_end(run)

    def _push_end(self, run: Run) -> None:
        run.stamp += 1
        self._push(run.end_ps, run.train, run.hop, _ENDS, self._end, run, run.stamp)

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
            lane.queues[train.vc].popleft()
            lane.held -= 1
            del train.visits[run.hop]
            train.passed = run.hop + 1
        self._decide(lane)


def _by_start(span: Span) -> tuple[Ps, int]:
    return span[0], span[2]


def _fits(spans: list[Span], start_ps: Ps, end_ps: Ps, seq: int) -> bool:
    """Whether a time overlaps no other; who starts when another ends comes after it, if started later too."""
    _, end, other, _, _ = spans[-1]
    if end < start_ps or (end == start_ps and other < seq):
        return True
    return all(
        end < start_ps or (end == start_ps and other < seq) or start > end_ps for start, end, other, _, _ in spans
    )
