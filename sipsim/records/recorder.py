"""The recorder of one SIP: spans of simulated time with their causes, op log and trace.

Whatever takes simulated time is a span. Its *cause* is the span that released it, as (rank, number); number 0 is the
start of the run, at time 0. A span starts when its cause ends. A *wait* is the time for which a kernel is blocked: it
ends when its cause ends, so the way back in time goes on there. Going back over causes from any end thus reaches time 0
without a gap, across SIPs too.

Spans are numbered when they end, whether they are kept or not: packets carry the number of the span that sent them, and
a replay after a crash compares their bytes.

What the kernels of a PE waited for is counted always (``waited_ps``), in picoseconds by the PE and the name of the span
that ended the wait. Launches run beside each other, each on its own PEs, and at its end a launch takes its PEs' counts.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sipsim.records.oplog import OpLog, TraceLine
from sipsim.records.replay import Feed, SecondPass

Ps = int
Cause = int | tuple[int, int]
"""The number of a span of this SIP, or (rank, number)."""


class Span(NamedTuple):
    """What took a component's time from ``start_ps`` to ``end_ps``, called ``name``.

    ``cause``: (rank, number) of the span that released it. ``facts``: further values, whose order depends on the name.
    """

    number: int
    component: str
    name: str
    start_ps: Ps
    end_ps: Ps
    cause: tuple[int, int]
    is_wait: bool = False
    facts: tuple[Any, ...] = ()


class PhaseStart(NamedTuple):
    """The start of a phase: kernel spans of ``component`` after number ``after`` are in ``phase``; empty: in none."""

    component: str
    after: int
    phase: str


class Recorder:
    """The spans, op log and trace of SIP ``rank``. ``keep_spans`` and ``keep_oplog``: keep the spans, the op log.

    ``tracer``: gets a line for each send and receive, None without a trace. ``feed``: hands the records to the second
    pass, None without one.
    ``composite_ps``: the time of composite commands so far by what it went to, of all PEs together; ``peak_ps``: the
    time of their multiplications if every cell of the arrays worked in every cycle.
    """

    def __init__(self, rank: int, keep_oplog: bool = False, keep_spans: bool = False) -> None:
        self.rank = rank
        self.oplog = OpLog(keep_oplog)
        self.feed: Feed | None = None
        self.tracer: Callable[[TraceLine], None] | None = None
        self.spans: list[Span] | None = [] if keep_spans else None
        self.phases: list[PhaseStart] = []
        self.waited_ps: defaultdict[str, defaultdict[str, Ps]] = defaultdict(partial(defaultdict, int))
        self.composite_ps: defaultdict[str, Ps] = defaultdict(int)
        self.peak_ps: Ps = 0
        self.count = 0

    def replay(self, second_pass: SecondPass, now: Callable[[], Ps]) -> Feed:
        """Hand all records from now on to a second pass; returns the feed."""
        self.feed = Feed(second_pass, now)
        return self.feed

    def ended(
        self,
        component: str,
        name: str,
        start_ps: Ps,
        cause: Cause,
        facts: tuple[Any, ...],
        record: tuple[Any, ...],
        made: Any = None,
        taken_ps: Ps | None = None,
        crc: int = 0,
        trace: TraceLine | None = None,
    ) -> int:
        """Note an operation that has ended: its record, and its span from ``start_ps`` to the end in the record.
        Returns the number of the span.

        ``made``, ``taken_ps`` and ``crc``: for the second pass (:meth:`~sipsim.records.replay.Feed.ended`). ``trace``:
        its line, where there is a trace.
        """
        self.oplog.append(record)
        if self.feed is not None:
            self.feed.ended(record, made, taken_ps, crc)
        if trace is not None and self.tracer is not None:
            self.tracer(trace)
        number = self.count = self.count + 1
        if self.spans is not None:
            self.spans.append(Span(number, component, name, start_ps, record[2], self._whole(cause), False, facts))
        return number

    def span(self, component: str, name: str, start_ps: Ps, end_ps: Ps, cause: Cause, *facts: Any) -> int:
        """Note a span from ``start_ps``, when its cause ended, to ``end_ps``, which is now; returns its number."""
        number = self.count = self.count + 1
        if self.spans is not None:
            self.spans.append(Span(number, component, name, start_ps, end_ps, self._whole(cause), False, facts))
        return number

    def wait(self, component: str, name: str, start_ps: Ps, end_ps: Ps, cause: Cause, before: int) -> int:
        """Note a kernel's wait until ``end_ps``, which is now and the end of its cause; returns its number.

        ``before``: the span at whose end it was blocked.
        """
        number = self.count = self.count + 1
        self.waited_ps[component][name] += end_ps - start_ps
        if self.spans is not None:
            self.spans.append(Span(number, component, name, start_ps, end_ps, self._whole(cause), True, (before,)))
        return number

    def take_waited(self, component: str) -> dict[str, Ps]:
        """What the kernels of a PE have waited for since this was asked last."""
        waited_ps = self.waited_ps[component]
        taken = dict(waited_ps)
        waited_ps.clear()
        return taken

    def phase(self, component: str, phase: str) -> None:
        """Note that the kernel of a component is in a phase from now on."""
        if self.spans is not None:
            self.phases.append(PhaseStart(component, self.count, phase))

    def _whole(self, cause: Cause) -> tuple[int, int]:
        return (self.rank, cause) if isinstance(cause, int) else cause
