"""Dependency graph of spans: all spans that a span waits for, and the times of all spans with changed durations.

A span begins when the last of its dependencies has ended: its cause, the span before it on its kernel, the message that
a receive takes, and the credit for the slot that a send needs. With the durations of the run, the graph gives the times
of the run. With changed durations, the graph predicts the times if the order of events stays.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from sipsim.chips.ahbm.control.path import GATHER, START
from sipsim.chips.ahbm.costs.prices import Ps
from sipsim.chips.ahbm.history import History
from sipsim.chips.ahbm.ipcq.backpressure import Backpressure
from sipsim.chips.ahbm.ipcq.pe_ipcq import POLL
from sipsim.insight.explain.work import CREDIT, KERNEL, MESSAGE, RECV, SEND, Calls, is_control, name_of, place_of
from sipsim.records.recorder import Span

Key = tuple[int, int]
"""Key of a span: (rank, number)."""
Times = np.ndarray[Any, np.dtype[np.int64]]


class Graph:
    """The spans of all ranks and their dependencies."""

    def __init__(self, histories: list[History], calls: Calls) -> None:
        self._calls = calls
        self._spans = {history.rank: history.spans for history in histories}
        self._messages: dict[tuple[int, str, str, int], int] = {}
        self._credits: dict[tuple[int, str, str], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for history in histories:
            for span in history.spans:
                if name_of(span) == MESSAGE:
                    self._messages[history.rank, span.component, *span.facts] = span.number
                elif name_of(span) == CREDIT:
                    direction, count = span.facts
                    counts, numbers = self._credits[history.rank, span.component, direction]
                    counts.append(count)
                    numbers.append(span.number)
        self._order = sorted(
            ((rank, span) for rank, spans in self._spans.items() for span in spans),
            key=lambda each: (each[1].end_ps, each[0], each[1].number),
        )
        self._ends_ps = [span.end_ps for _, span in self._order]

    def between(self, since_ps: Ps, until_ps: Ps) -> list[tuple[int, Span]]:
        """Return the spans that end after ``since_ps`` and up to ``until_ps``, each after its dependencies."""
        first, stop = bisect_right(self._ends_ps, since_ps), bisect_right(self._ends_ps, until_ps)
        return self._order[first:stop]

    def span(self, key: Key) -> Span:
        """Return the span with a key."""
        return self._spans[key[0]][key[1] - 1]

    def needs(self, rank: int, span: Span) -> Iterator[Key]:
        """Yield the keys of a span's dependencies. Number 0 is the start of the run."""
        yield span.cause
        work = name_of(span)
        if span.is_wait:
            yield rank, span.facts[0]
        elif is_control(span):
            yield from ((rank, each) for each in span.facts if span.name in (GATHER, START))
        elif work == SEND:
            direction, seq, *_, command = span.facts
            yield rank, command
            yield from self._room(rank, span, direction, seq)
        elif work == RECV:
            direction, seq, command = span.facts
            yield rank, command
            number = self._messages.get((rank, span.component, direction, seq))
            if number is not None:
                yield rank, number

    def _poll_ends(
        self, rank: int, span: Span, begin: Times, ends: dict[Key, Times], polls: list[Backpressure]
    ) -> Times:
        """Return the time in ps at which a poll detects its event, per scenario; the first poll sets all poll times."""
        began_ps, command = span.facts
        moved = ends.get((rank, command))
        first: Any = began_ps if moved is None else began_ps + moved - self.span((rank, command)).end_ps
        firsts = np.broadcast_to(first, begin.shape).tolist()
        each = zip(polls, firsts, begin.tolist(), strict=True)
        return np.array([one.seen_ps(since_ps, event_ps) for one, since_ps, event_ps in each], np.int64)

    def _room(self, rank: int, span: Span, direction: str, seq: int) -> Iterator[Key]:
        """Yield the key of the credit that freed the slot for message ``seq``."""
        place = place_of(rank, span)
        assert place is not None
        least = seq - self._calls.queue(place, direction).peer.n_slots + 1
        if least <= 0:
            return
        counts, numbers = self._credits[rank, span.component, direction]
        first = bisect_left(counts, least)
        if first < len(counts):
            yield rank, numbers[first]

    def ends(
        self,
        last: list[Key],
        since_ps: Ps,
        durations: Callable[[int, Span], Times],
        backpressures: list[Backpressure],
    ) -> Times:
        """Return the latest end of the spans ``last``, in ps, per scenario: the results of ``durations`` and the list
        ``backpressures`` have one entry per scenario. Spans that ended before ``since_ps`` do not change.
        """
        ends: dict[Key, Times] = {}
        width = len(backpressures)
        for rank, span in self.between(since_ps, max(self.span(key).end_ps for key in last)):
            if span.component.endswith(KERNEL):
                continue
            begin, fixed_ps = None, 0
            for key in self.needs(rank, span):
                other = ends.get(key)
                if other is not None:
                    begin = other if begin is None or begin is other else np.maximum(begin, other)
                elif key[1]:
                    fixed_ps = max(fixed_ps, self.span(key).end_ps)
            if begin is None:
                begin = np.full(width, fixed_ps, np.int64)
            elif fixed_ps > since_ps:
                begin = np.maximum(begin, fixed_ps)
            if name_of(span) == POLL:
                begin = self._poll_ends(rank, span, begin, ends, backpressures)
            elif span.end_ps > span.start_ps and not span.is_wait:
                begin = begin + durations(rank, span)
            ends[rank, span.number] = begin
        ends_ps = [ends.get(key, np.full(width, self.span(key).end_ps, np.int64)) for key in last]
        latest: Times = np.max(ends_ps, axis=0)
        return latest
