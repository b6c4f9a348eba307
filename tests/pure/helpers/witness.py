"""Records the edges of a fabric and checks what must hold for any traffic. Not a test."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest
from plain_fabric import End, Journey

import sipsim.noc.fabric
import sipsim.noc.lines
import sipsim.noc.switching
from sipsim.noc.fabric import Fabric
from sipsim.noc.fabric import Lane as QueueLane
from sipsim.noc.trains import WHOLE, Feed, Lane, Run, Train

# --- one queue an edge ----------------------------------------------------------------------------------------

Spans = list[tuple[int, int]]


class Taken(NamedTuple):
    """A final claim, from the lane's state: the time taken, and the time left idle."""

    head_ps: int
    tail_ps: int
    drain_ps: int
    end_ps: int
    spans: Spans
    idle: Spans


class ClaimWitness:
    """Wraps ``_claim`` and reconstructs each lane's claims from its state before and after."""

    def __init__(self) -> None:
        self._claim = sipsim.noc.fabric._claim
        self._by_lane: dict[int, tuple[QueueLane, list[tuple[Spans, Spans, tuple[int, ...]]]]] = {}

    def claim(self, lane: QueueLane, head: int, tail: int, drain: int) -> tuple[int, int]:
        before = _free(lane)
        history = self._history(lane, before)
        start, end = self._claim(lane, head, tail, drain)
        history.append((before, _free(lane), (head, tail, drain, end)))
        return start, end

    def taken(self) -> Iterator[list[Taken]]:
        """Per lane, in the order in which heads were served."""
        for lane, _ in self._by_lane.values():
            history = self._history(lane, _free(lane))
            yield [
                Taken(*numbers, _minus(_from(before, numbers[0]), after), _until(_from(after, numbers[0]), numbers[3]))
                for before, after, numbers in history
            ]

    def _history(self, lane: QueueLane, now: Spans) -> list[tuple[Spans, Spans, tuple[int, ...]]]:
        """The claims that led to the lane's present state: what was displaced since is taken off."""
        history = self._by_lane.setdefault(id(lane), (lane, []))[1]
        while history and history[-1][1] != now:
            history.pop()
        return history


END_OF_TIME = 10**9


def _free(lane: QueueLane) -> Spans:
    return [*lane.gaps, (lane.free_ps, END_OF_TIME)]


def _from(spans: Spans, start: int) -> Spans:
    return [(max(a, start), b) for a, b in spans if b > start]


def _until(spans: Spans, stop: int) -> Spans:
    return [(a, min(b, stop)) for a, b in spans if a < stop]


def _minus(spans: Spans, others: Spans) -> Spans:
    """What of ``spans`` is in none of ``others``."""
    for start, stop in others:
        spans = [piece for a, b in spans for piece in ((a, min(b, start)), (max(a, stop), b)) if piece[0] < piece[1]]
    return spans


def _length(spans: Spans) -> int:
    return sum(b - a for a, b in spans)


def check_lane(claims: list[Taken]) -> None:
    spans = sorted(span for claim in claims for span in claim.spans)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(spans))
    for claim in claims:
        assert _length(claim.spans) == claim.drain_ps
        assert claim.head_ps <= claim.spans[0][0]
        assert claim.spans[-1][1] <= claim.end_ps >= claim.tail_ps
        assert not _from(claim.idle, claim.tail_ps)
        if claim.idle and claim.end_ps > claim.tail_ps:
            assert claim.spans[-1][1] <= claim.tail_ps


# --- virtual channels -----------------------------------------------------------------------------------------


class Passage(NamedTuple):
    """Part of a train on an edge, from share ``first`` to share ``last``."""

    start_ps: int
    end_ps: int
    train: Train
    hop: int
    run: Run


class Witness:
    """Every train and every run of the one switching that is made while it watches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trains: list[Train] = []
        self.runs: list[Run] = []
        self._sources: list[Feed] = []
        self._starts_ps: list[int] = []
        self._parts: dict[tuple[int, int], list[Passage]] = {}
        monkeypatch.setattr(sipsim.noc.switching, "Train", self._train)
        monkeypatch.setattr(sipsim.noc.switching, "Run", self._run)
        monkeypatch.setattr(sipsim.noc.lines, "Run", self._run)

    def _train(self, *arguments: object) -> Train:
        self.trains.append(Train(*arguments))  # type: ignore[arg-type]
        self._sources.append(self.trains[-1].feed)
        return self.trains[-1]

    def _run(self, *arguments: object) -> Run:
        self.runs.append(Run(*arguments))  # type: ignore[arg-type]
        return self.runs[-1]

    def check(self, fabric: Fabric, journeys: list[Journey], ends: list[End]) -> None:
        """All that must hold: of each train, and of each edge."""
        self._starts_ps = [journey.start_ps for journey in journeys]
        lanes = self._finish(fabric)
        for passages in lanes.values():
            for passage in passages:
                self._parts.setdefault((passage.train.seq, passage.hop), []).append(passage)
        for train, end in zip(self.trains, ends, strict=True):
            parts, onward = self._parts[train.seq, len(train.legs) - 1], train.legs[-1].onward_ps
            assert end[1:] == (parts[0].start_ps + onward, parts[-1].end_ps + onward), "told another end than it had"
            told = max(end.tail_ps - train.lead_ps, self._starts_ps[train.seq - 1])
            framed = any(edge.link for edge in journeys[train.seq - 1].route.edges[:-1])
            assert end.now_ps == told or (framed and end.now_ps > told), "told at another time"
            for hop in range(len(train.legs)):
                self._check_parts(train, hop)
        for passages in lanes.values():
            assert all(one.end_ps <= two.start_ps for one, two in pairwise(passages)), "more than its bandwidth"
            for vc in {passage.train.vc for passage in passages}:
                self._check_order(passages, vc)

    def _finish(self, fabric: Fabric) -> dict[Lane, list[Passage]]:
        """Let everything end; what passed over each edge, in order."""
        switching = fabric._switching
        assert switching is not None
        switching._advance(10**15)
        lanes: dict[Lane, list[Passage]] = {lane: [] for lane in switching.lanes.values()}
        runs = [*self.runs, *(run for train in self.trains if train.flying for run in _flight(train))]
        for run in runs:
            lanes[run.leg.lane].append(Passage(run.start_ps, run.end_ps, run.train, run.hop, run))
        for passages in lanes.values():
            passages.sort(key=lambda passage: passage[:2])
        return lanes

    def _check_parts(self, train: Train, hop: int) -> None:
        """Every share passes once and in order, not faster than the edge and not before its arrival."""
        leg, parts = train.legs[hop], self._parts[train.seq, hop]
        assert (parts[0].run.first, parts[-1].run.last) == (WHOLE, 0)
        assert all(one.run.last == two.run.first for one, two in pairwise(parts)), "bytes lost or sent twice"
        for part in parts:
            run = part.run
            assert part.end_ps - part.start_ps >= leg.left_ps(run.first) - leg.left_ps(run.last), "too fast"
            assert part.start_ps >= self._leaves_ps(train, hop, run.first), "sent before it came"
            assert part.end_ps >= self._comes_ps(train, hop, run.last), "sent before it came"

    def _comes_ps(self, train: Train, hop: int, share: int) -> int:
        """When all before a share is at an edge."""
        if hop == 0:
            return self._sources[train.seq - 1].onward_ps(share)
        run = next(p.run for p in self._parts[train.seq, hop - 1] if p.run.last <= share < p.run.first)
        return run.passes_ps(share) + run.leg.onward_ps

    def _leaves_ps(self, train: Train, hop: int, share: int) -> int:
        """When the byte after a share is at an edge."""
        if hop == 0:
            return self._sources[train.seq - 1].onward_ps(share)
        run = next(p.run for p in self._parts[train.seq, hop - 1] if p.run.last < share <= p.run.first)
        return (run.start_ps if share == run.first else run.passes_ps(share)) + run.leg.onward_ps

    def _check_order(self, passages: list[Passage], vc: int) -> None:
        """In a channel the first arrival passes first while its bytes are available; no idling while all of one are."""
        idle = [(a.end_ps, b.start_ps) for a, b in pairwise(passages) if a.end_ps < b.start_ps]
        here = {(p.train.seq, p.hop) for p in passages if p.train.vc == vc}
        line = sorted((self._head_ps(seq, hop), seq, hop) for seq, hop in here)
        for own_head, seq, hop in line:
            parts = self._parts[seq, hop]
            whole = max(self._comes_ps(self.trains[seq - 1], hop, 0), self._starts_ps[seq - 1])
            assert not any(max(a, whole) < min(b, parts[-1].end_ps) for a, b in idle), "idle while a train waits"
            for part in parts:
                for head, other, other_hop in line:
                    # Who came at the same time came in the order of what let them come.
                    before = head < own_head and self._could_go(other, other_hop, head, part.start_ps)
                    assert not before, "before who came first"

    def _head_ps(self, seq: int, hop: int) -> int:
        return max(self._leaves_ps(self.trains[seq - 1], hop, WHOLE), self._starts_ps[seq - 1])

    def _could_go(self, seq: int, hop: int, head_ps: int, now_ps: int) -> bool:
        """Whether a train's next chunk could be sent at full speed from a time on, for some time already."""
        train, rest = self.trains[seq - 1], WHOLE
        leg = train.legs[hop]
        for part in self._parts[seq, hop]:
            if part.start_ps < now_ps:
                rest = part.run.last
        if rest == 0 or head_ps >= now_ps:
            return False
        last = leg.mark(leg.chunks(rest) - 1)
        run_up_ps = leg.left_ps(rest) - leg.left_ps(last)
        ready_ps = max(self._leaves_ps(train, hop, rest), self._comes_ps(train, hop, last) - run_up_ps)
        return ready_ps < now_ps


def _flight(train: Train) -> Iterator[Run]:
    """What a flight that never landed would be as runs."""
    feed = train.feed
    for hop, (start, end) in enumerate(train.plan, train.first):
        feed = Run(train, hop, start, WHOLE, 0, feed)
        assert feed.end_ps == end
        yield feed
