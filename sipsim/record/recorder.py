"""The recorder of one SIP: spans of simulated time with their causes; op log and trace are told through it.

Whatever takes simulated time is a span. Its *cause* is the span that released it, as (rank, number); number 0 is the
start of the run, at time 0. A span starts when its cause ends. A *wait* is the time for which a kernel is blocked: it
ends when its cause ends, so the way back in time goes on there. Going back over causes from any end thus reaches time 0
without a gap, across SIPs too.

Spans are numbered when they end, whether they are kept or not: packets carry the number of the span that sent them, and
a replay after a crash compares their bytes.
"""

from collections.abc import Callable
from typing import NamedTuple

from sipsim.record.oplog import OpLog
from sipsim.record.trace import TraceLine

Ps = int
Cause = int | tuple[int, int]
"""The number of a span of this SIP, or (rank, number)."""


class Span(NamedTuple):
    """A component's ``name`` from ``start_ps`` to ``end_ps``; ``cause``: (rank, number)."""

    number: int
    component: str
    name: str
    start_ps: Ps
    end_ps: Ps
    cause: tuple[int, int]
    is_wait: bool = False


class Recorder:
    """What happened on SIP ``rank``. ``keep`` retains op log and spans, for tests.

    ``log`` appends a record to the op log. ``tracer`` takes sends and receives, if there is one. ``run``: the index of
    the collective that runs, among those of the SIP; None while another kernel does.
    """

    def __init__(self, rank: int, keep: bool = False) -> None:
        self.rank = rank
        self.oplog = OpLog(keep)
        self.log = self.oplog.append
        self.tracer: Callable[[TraceLine], None] | None = None
        self.run: int | None = None
        self.spans: list[Span] | None = [] if keep else None
        self.count = 0

    def span(self, component: str, name: str, start_ps: Ps, end_ps: Ps, cause: Cause) -> int:
        """Something took from ``start_ps``, when its cause ended, to ``end_ps``, which is now; its number."""
        number = self.count = self.count + 1
        if self.spans is not None:
            self.spans.append(Span(number, component, name, start_ps, end_ps, self._whole(cause)))
        return number

    def wait(self, component: str, name: str, start_ps: Ps, end_ps: Ps, cause: Cause) -> int:
        """A kernel was blocked until ``end_ps``, when the cause ended, which is now; its number."""
        number = self.count = self.count + 1
        if self.spans is not None:
            self.spans.append(Span(number, component, name, start_ps, end_ps, self._whole(cause), True))
        return number

    def _whole(self, cause: Cause) -> tuple[int, int]:
        return (self.rank, cause) if isinstance(cause, int) else cause
