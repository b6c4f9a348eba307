"""What each span of a run is made of: the terms of its work, what memories and shared edges added, and what is left."""

from typing import NamedTuple

from sipsim.chips.ahbm.costs.prices.terms import Machine, Ps, Term, sum_ps
from sipsim.chips.ahbm.history import History
from sipsim.chips.ahbm.ipcq.pe_ipcq.pe_ipcq import POLL
from sipsim.insight.explain.costs.sharing import Excess, Sharings
from sipsim.insight.explain.costs.waits import Waits
from sipsim.insight.explain.work.calls import CREDIT, Call, Calls, work_of
from sipsim.records.recorder import Span


class Work(NamedTuple):
    """What alike spans do, and what that costs on the machine of the run: ``sum_ps`` in all."""

    calls: tuple[Call, ...]
    terms: tuple[Term, ...]
    sum_ps: Ps


class Cost(NamedTuple):
    """``waits``: what the accesses of a span waited for in memories, by name; ``excess``: what sharing edges added to
    its work; ``rest_ps``: the rest of its duration.
    """

    work: Work
    waits: tuple[tuple[str, Ps], ...]
    excess: tuple[Excess, ...]
    rest_ps: Ps


class Costs:
    """The costs of all spans of a run. Spans that are alike have the same ``Work`` object."""

    def __init__(self, machine: Machine, calls: Calls, histories: list[History]) -> None:
        self.machine = machine
        self._calls = calls
        self._sharings = Sharings(histories, machine)
        self._waits = Waits(histories, machine, calls)
        self._works: dict[tuple[object, ...], tuple[Work, Cost]] = {}

    def of(self, rank: int, span: Span) -> Cost:
        """The cost of a span that is no wait. Its parts add up to its duration."""
        alike = self._calls.alike(rank, span)
        work, alone = self._works.get(alike) or self._works.setdefault(alike, self._work(rank, span))
        excess_ps = span.end_ps - span.start_ps - work.sum_ps
        if not excess_ps:
            return alone
        if not work.calls or excess_ps < 0:
            return Cost(work, (), (), excess_ps)
        waits = tuple(self._waits.of(rank, span, excess_ps).items())
        excess_ps -= sum(ps for _, ps in waits)
        excess = tuple(self._sharings.of(rank, span, work.calls, excess_ps)) if excess_ps else ()
        return Cost(work, waits, excess, excess_ps - sum(each.delay_ps for each in excess))

    def _work(self, rank: int, span: Span) -> tuple[Work, Cost]:
        """The work, and its cost where nothing is added."""
        calls = tuple(self._calls.of(rank, span))
        terms = tuple(each for call in calls for each in call.terms(self.machine) if each.ps)
        work = Work(calls, terms, sum_ps(terms))
        return work, Cost(work, (), (), 0)


def rest_name(span: Span) -> str:
    """What the rest of a span is called."""
    if work_of(span) == POLL:
        return "waiting for the next poll"
    if work_of(span) == CREDIT:
        return "credits: waiting for a message that carries them"
    return f"waiting in a {span.name}" if span.component.startswith("cube") else f"{span.component}: {span.name}"
