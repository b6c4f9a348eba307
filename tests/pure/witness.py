"""Watches the edges of a fabric with virtual channels, and says what must hold there whatever the traffic. Not a test."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

import sipsim.noc.switching
from sipsim.noc.fabric import Fabric
from sipsim.noc.trains import WHOLE, Lane, Run, Source, Train


class Passage(NamedTuple):
    """Part of a train on an edge, from share ``first`` to share ``last``."""

    start_ps: int
    end_ps: int
    train: Train
    hop: int
    first: int
    last: int
    passes_ps: Callable[[int], int]


class Witness:
    """Every train and every run of the switchings that are made while it watches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trains: list[Train] = []
        self.runs: list[Run] = []
        monkeypatch.setattr(sipsim.noc.switching, "Train", self._train)
        monkeypatch.setattr(sipsim.noc.switching, "Run", self._run)

    def _train(self, *arguments: object) -> Train:
        self.trains.append(Train(*arguments))  # type: ignore[arg-type]
        self.sources = {**getattr(self, "sources", {}), self.trains[-1].seq: self.trains[-1].feed}
        return self.trains[-1]

    def _run(self, *arguments: object) -> Run:
        self.runs.append(Run(*arguments))  # type: ignore[arg-type]
        return self.runs[-1]

    def finish(self, fabric: Fabric) -> dict[Lane, list[Passage]]:
        """Let everything end; what passed over each edge, in order."""
        switching = fabric._switching
        assert switching is not None
        switching._advance(10**15)
        lanes: dict[Lane, list[Passage]] = {lane: [] for lane in switching.lanes.values()}
        for run in self.runs:
            end = run.end_ps
            passage = Passage(run.start_ps, end, run.train, run.hop, run.first, run.last, run.passes_ps)
            lanes[run.leg.lane].append(passage)
        for train in self.trains:
            if train.flying:
                for passage in _flight(train):
                    lanes[train.legs[passage.hop].lane].append(passage)
        for passages in lanes.values():
            passages.sort(key=lambda p: (p.start_ps, p.end_ps))
        return lanes

    def check(self, fabric: Fabric, ends: list[tuple[int, int]]) -> None:
        """All that must hold; ``ends`` are the heads and tails told, in the order of starts."""
        lanes = self.finish(fabric)
        parts: dict[tuple[int, int], list[Passage]] = {}
        for passages in lanes.values():
            for passage in passages:
                parts.setdefault((passage.train.seq, passage.hop), []).append(passage)
        for train, (head, tail) in zip(self.trains, ends, strict=True):
            whole = [parts[train.seq, hop] for hop in range(len(train.legs))]
            onward = train.legs[-1].onward_ps
            assert (head, tail) == (whole[-1][0].start_ps + onward, whole[-1][-1].end_ps + onward)
            for hop, mine in enumerate(whole):
                self._check_parts(train, hop, mine, whole[hop - 1] if hop else [])
        for passages in lanes.values():
            assert all(one.end_ps <= two.start_ps for one, two in pairwise(passages)), "more than its bandwidth"
            self._check_order(passages, parts)

    def _check_parts(self, train: Train, hop: int, mine: list[Passage], before: list[Passage]) -> None:
        """Everything goes, once and in order, not faster than the edge and not before it came."""
        leg = train.legs[hop]
        assert (mine[0].first, mine[-1].last) == (WHOLE, 0)
        assert all(one.last == two.first for one, two in pairwise(mine))
        for part in mine:
            amount = leg.left_ps(part.first) - leg.left_ps(part.last)
            assert part.end_ps - part.start_ps >= amount
            assert part.start_ps >= self.comes_ps(train, hop, part.first, before, first=True)
            assert part.end_ps >= self.comes_ps(train, hop, part.last, before), (part, self.comes_ps(train, hop, part.last, before))

    def comes_ps(self, train: Train, hop: int, share: int, before: list[Passage], first: bool = False) -> int:
        """When a share of a train reaches an edge; with ``first``, the byte after it."""
        if hop == 0:
            return int(self.sources[train.seq].onward_ps(share))
        part = next(p for p in before if (p.last < share <= p.first if first else p.last <= share < p.first))
        passes = part.start_ps if first and share == part.first else part.passes_ps(share)
        return passes + train.legs[hop - 1].onward_ps

    def _check_order(self, passages: list[Passage], parts: dict[tuple[int, int], list[Passage]]) -> None:
        """One train of a channel after the other, as their heads came; and no idling while a whole train waits."""
        idle = [(a.end_ps, b.start_ps) for a, b in pairwise(passages) if a.end_ps < b.start_ps]
        for vc in {p.train.vc for p in passages}:
            order = list(dict.fromkeys((p.train.seq, p.hop) for p in passages if p.train.vc == vc))
            assert order == [k for k, g in _groups((p.train.seq, p.hop) for p in passages if p.train.vc == vc)]
            free, latest = 0, 0
            for key in order:
                train, hop = parts[key][0].train, key[1]
                before = parts[key[0], hop - 1] if hop else []
                head = max(self.comes_ps(train, hop, WHOLE, before, first=True), self.starts[train.seq])
                assert latest <= head, "overtaken"
                latest = head
                whole = max(self.comes_ps(train, hop, 0, before), free, self.starts[train.seq])
                free = parts[key][-1].end_ps
                assert not any(max(a, whole) < min(b, free) for a, b in idle), "idle while a train waits"

    starts: dict[int, int]


def _groups(keys: Iterator[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], int]]:
    last = None
    for key in keys:
        if key != last:
            yield key, 0
        last = key


def _flight(train: Train) -> Iterator[Passage]:
    feed = train.feed
    for hop, (start, end) in enumerate(train.plan, train.first):
        run = Run(train, hop, start, WHOLE, 0, feed)
        assert run.passes_ps(0) == end
        yield Passage(start, end, train, hop, WHOLE, 0, run.passes_ps)
        feed = run


__all__ = ["Passage", "Source", "Witness"]
