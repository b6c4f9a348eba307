"""Edges that virtual channels share: in order within a channel, weighted round robin between them, chunk by chunk.

The rules, at one edge:

* Within a channel trains go in the order of their heads. A later one goes only while none before it has a next chunk
  that can be sent at full speed, a chunk at a time. Who comes by the same way comes after the last byte, so nothing
  overtakes on a route, and no edge idles while it has something to send.
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
no two overlap; only where they start may trains of one channel be planned in line. Whoever really comes to an edge in
that time, or stays there, makes the flight *land*: what of it is on edges now becomes runs, and what is to come is left
to the simulation. Landing changes no times, only who keeps them.
"""

from chunk_exact.lines import ARRIVES, ENDS, Lines
from chunk_exact.trains import WHOLE, Done, Feed, Lane, Leg, Ps, Run, Source, Span, Train, Visit
from sipsim.core.engine import Engine
from sipsim.fabric.graph import Edge, Route
from sipsim.fabric.noc.arbitration import Arbitration

_PRUNE_AT = 32


class Switching(Lines):
    """All edges of one SIP and the trains on them."""

    def __init__(self, engine: Engine, arbitration: Arbitration) -> None:
        super().__init__()
        arbitration.check()
        self._engine = engine
        self._arbitration = arbitration
        self.lanes: dict[Edge, Lane] = {}
        self._ways: dict[tuple[int, int], tuple[Route, list[Leg], Ps]] = {}
        self._started = 0
        self._waiting: dict[int, Train] = {}

    def start(
        self, route: Route, nbytes: int, done: Done, vc: int, lead_ps: Ps = 0, delay_ps: Ps = 0, span_ps: Ps = 0
    ) -> None:
        """As ``Fabric.start``. An end is told no earlier than when nothing can change it (``_most_lead_ps``)."""
        if not 0 <= vc < len(self._arbitration.weights):
            raise ValueError(f"channel {vc} has no weight among {self._arbitration.weights}")
        now = self._engine.now_ps
        if self._agenda:
            self._advance(now)
        self._started += 1
        self._latest = (now, self._started, 0, ARRIVES)
        legs, most_lead_ps = self._way(route, nbytes)
        tail = now + delay_ps + route.start_ps
        train = Train(self._started, legs, vc, min(lead_ps, most_lead_ps), done, Source(tail - span_ps, tail))
        self._fly(train)
        if self._agenda:
            self._advance(now)
        if self._waiting:
            self._look_sooner()
        self._look(train)

    def _way(self, route: Route, nbytes: int) -> tuple[list[Leg], Ps]:
        known = self._ways.get((id(route), nbytes))
        if known is not None:
            return known[1:]
        legs = [Leg(self._lane(edge), nbytes, self._arbitration.chunk_bytes) for edge in route.edges]
        self._ways[id(route), nbytes] = (route, legs, _most_lead_ps(legs))
        return legs, _most_lead_ps(legs)

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
            # Nothing changes for it before something happens on an edge.
            happens_ps = self._agenda[0][0] if self._agenda else now
            due = max(train.least_tail_ps(now) - train.lead_ps, happens_ps, now + 1)
            self._waiting[train.seq] = train
        else:
            due = max(end[1] - train.lead_ps, now)
        train.scheduled_ps = due
        self._engine.at(due, lambda: self._fire(train))

    def _look_sooner(self) -> None:
        """A new train may make something happen before what they wait for: they look then."""
        if self._agenda:
            happens_ps = self._agenda[0][0]
            for train in [waits for waits in self._waiting.values() if waits.scheduled_ps > happens_ps]:
                self._look(train)

    def _fire(self, train: Train) -> None:
        now = self._engine.now_ps
        if self._agenda:
            self._advance(now)
        if train.done is None or train.scheduled_ps != now:
            return
        self._waiting.pop(train.seq, None)
        end = train.end()
        if end is None or end[1] - train.lead_ps > now:
            self._look(train)
            return
        done, train.done = train.done, None
        done(*end)

    # --- flights ---------------------------------------------------------------------------------------------

    def _fly(self, train: Train) -> None:
        """Plan its flight onwards, edge after edge, as long as it is alone in its time there."""
        seq, now, legs, plan = train.seq, self._latest[0], train.legs, train.plan
        head, tail = train.reach
        for hop in range(train.first + len(plan), len(legs)):
            leg = legs[hop]
            lane = leg.lane
            spans = lane.spans
            if spans:
                if spans[-1][1] < now:
                    lane.free_ps = max(lane.free_ps, spans[-1][1])
                    spans.clear()
                elif len(spans) > _PRUNE_AT:
                    lane.prune(now)
            came = head if head > now else now
            start = head if head > lane.free_ps else lane.free_ps
            if hop == 0:
                train.before = 0
                if spans and _is_behind(spans[-1], came, train):
                    _, start, _, other, _, _ = spans[-1]
                    train.before = other.before + other.legs[0].chunks(WHOLE)
            end = start + leg.drain_ps
            if end < tail:
                end = tail
            if lane.held or (spans and not _fits(spans, start, end, seq)):
                self._stop_before(train, hop, head, tail)
                return
            spans.append((start, end, seq, train, hop, came))
            if len(spans) > 1 and spans[-2][0] > start:
                spans.sort(key=_by_start)
            plan.append((start, end))
            head, tail = start + leg.onward_ps, end + leg.onward_ps
        train.reach = head, tail

    def _stop_before(self, train: Train, hop: int, head: Ps, tail: Ps) -> None:
        """A flight ends before a hop, where its head will be looked at when it is there."""
        train.reach = head, tail
        train.stamp += 1
        self._push(max(head, self._latest[0]), train, hop, ARRIVES, self._touch_down, train, train.stamp)

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
            if not self._is_over(span[0], train, hop, ARRIVES):
                break
            run = Run(train, hop, span[0], WHOLE, 0, feed)
            if self._is_over(span[1], train, hop, ENDS):
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
        self._enter(lane, visit)
        lane.turn.resume(run.train.vc, run.train.before if run.hop == 0 else 0)
        self._serve(lane, run)
        self._clear_spans(lane)

    def _clear_spans(self, lane: Lane) -> None:
        """Somebody gets in line at an edge: no flight over it stands; who waits there already is in line before."""
        waits = False
        while lane.spans:
            start, end, _, train, hop, came = lane.spans[0]
            if self._is_over(end, train, hop, ENDS):
                lane.spans.pop(0)
                lane.free_ps = max(lane.free_ps, end)
            elif self._is_over(start, train, hop, ARRIVES):
                self._go_on_in_lines(train)
            elif self._is_over(came, train, hop, ARRIVES):
                feed, _ = self._land(train)
                if not lane.held:
                    lane.turn.resume(train.vc, train.before)
                visit = Visit(train, hop, WHOLE)
                visit.feeds.append(feed)
                self._enter(lane, visit)
                waits = True
            else:
                keep = hop - train.first
                self._forget(train, keep)
                onward = train.legs[hop - 1].onward_ps if keep else 0
                head, tail = train.plan[-1] if keep else (train.feed.onward_ps(WHOLE), train.feed.onward_ps(0))
                self._stop_before(train, hop, head + onward, tail + onward)
        if waits and lane.serving is None:
            self._decide(lane)


def _most_lead_ps(legs: list[Leg]) -> Ps:
    """How long before the tail the end is final: when the last chunk starts on the last edge, as it has then started on
    every other too. Where an edge before cuts the train into smaller chunks, only when all of it has left."""
    if not legs:
        return 0
    last = legs[-1]
    has_started = all(leg.wire_bytes <= last.wire_bytes for leg in legs)
    return last.onward_ps + (last.left_ps(last.mark(1)) if has_started else 0)


def _is_behind(span: Span, came_ps: Ps, train: Train) -> bool:
    """Whether a train stands in line behind a flight of its channel, which is sent without a pause.

    Only where both start: who comes over other edges may be late, and a line without it may be shorter than planned.
    """
    start, end, seq, other, hop, other_came = span
    return (
        hop == 0
        and other.vc == train.vc
        and (other_came, seq) < (came_ps, train.seq)
        and (came_ps, train.seq) < (end, seq)
        and end - start == other.legs[hop].drain_ps
    )


def _by_start(span: Span) -> tuple[Ps, int]:
    return span[0], span[2]


def _fits(spans: list[Span], start_ps: Ps, end_ps: Ps, seq: int) -> bool:
    """Whether a time overlaps no other; who starts when another ends comes after it, if started later too."""
    _, end, other, *_ = spans[-1]
    if end < start_ps or (end == start_ps and other < seq):
        return True
    return all(end < start_ps or (end == start_ps and other < seq) or start > end_ps for start, end, other, *_ in spans)
