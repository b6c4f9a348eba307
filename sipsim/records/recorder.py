"""The recorder of one SIP: spans of simulated time with their causes, op log and trace.

A span is an interval of simulated time that a component spends on one operation. The *cause* of a span is another span,
as (rank, number), whose end starts the span; number 0 is the start of the run, at time 0. A *wait* is a
span in which a kernel is blocked; a wait ends when its cause ends. So the chain of causes from any span reaches time 0
without a gap, across SIPs too.

Spans are numbered at their ends, even if spans are not stored: packets carry the number of the span that sent them, and
a replay after a crash compares the packets' bytes.

``waited_ps`` always counts the time that kernels wait, in ps, by PE and by the name of the span that ended the wait.
Concurrent launches use disjoint PEs; at the end of a launch, the counts of its PEs are taken and reset.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sipsim.records.oplog import OpLog, TraceLine
from sipsim.records.replay import Feed, SecondPass

Ps = int
Cause = int | tuple[int, int]
"""A span: the number of a span on this SIP, or (rank, number)."""


class Span(NamedTuple):
    """One operation ``name`` of a component, from ``start_ps`` to ``end_ps``.

    ``cause``: (rank, number) of the span whose end started this span. ``facts``: further values, ordered by ``name``.
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
    """The start of a phase: kernel spans of ``component`` after number ``after`` are in ``phase`` ("" for none)."""

    component: str
    after: int
    phase: str


class Recorder:
    """The spans, op log and trace of SIP ``rank``. ``keep_spans``, ``keep_oplog``: True to store spans or records.

    ``tracer``: called with a line per send and receive; None without a trace. ``feed``: passes records to the second
    pass; None without a second pass. ``composite_ps``: by purpose, time of composite commands so far, summed over
    PEs. ``peak_ps``: the time of these commands' multiplications if every cell of the arrays worked in every cycle.
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
        """Pass all records from now on to a second pass; return the feed."""
        self.feed = Feed(second_pass, now)
        return self.feed

    def end_operation(
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
        """Record an operation that has ended, with a span from ``start_ps`` to the end time in ``record``.
        Returns the number of the span.

        ``made``, ``taken_ps`` and ``crc``: for the second pass (:meth:`~sipsim.records.replay.Feed.end_operation`).
        ``trace``: the operation's line in the trace, or None.
        """
        self.oplog.append(record)
        if self.feed is not None:
            self.feed.end_operation(record, made, taken_ps, crc)
        if trace is not None and self.tracer is not None:
            self.tracer(trace)
        number = self.count = self.count + 1
        if self.spans is not None:
            self.spans.append(Span(number, component, name, start_ps, record[2], self._whole(cause), False, facts))
        return number

    def span(self, component: str, name: str, start_ps: Ps, end_ps: Ps, cause: Cause, *facts: Any) -> int:
        """Record a span from ``start_ps``, the end of its cause, to ``end_ps``, the current time; return its number."""
        number = self.count = self.count + 1
        if self.spans is not None:
            self.spans.append(Span(number, component, name, start_ps, end_ps, self._whole(cause), False, facts))
        return number

    def wait(self, component: str, name: str, start_ps: Ps, end_ps: Ps, cause: Cause, before: int) -> int:
        """Record a kernel's wait that ends at ``end_ps``, now, with its cause; return the number of the span.

        ``before``: the span at whose end the kernel blocked.
        """
        number = self.count = self.count + 1
        self.waited_ps[component][name] += end_ps - start_ps
        if self.spans is not None:
            self.spans.append(Span(number, component, name, start_ps, end_ps, self._whole(cause), True, (before,)))
        return number

    def take_waited(self, component: str) -> dict[str, Ps]:
        """Return and reset the waiting times of a PE's kernels, in ps by the name of the span that ended the wait."""
        waited_ps = self.waited_ps[component]
        taken = dict(waited_ps)
        waited_ps.clear()
        return taken

    def phase(self, component: str, phase: str) -> None:
        """Record that the kernel of a component is in ``phase`` from now on."""
        if self.spans is not None:
            self.phases.append(PhaseStart(component, self.count, phase))

    def _whole(self, cause: Cause) -> tuple[int, int]:
        return (self.rank, cause) if isinstance(cause, int) else cause
