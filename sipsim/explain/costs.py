"""What each span of a run is made of: the terms of its work, what shared edges added, and what is left."""

from typing import NamedTuple

from sipsim.explain.calls import CREDIT, POLL, Call, Calls, work_of
from sipsim.explain.history import History
from sipsim.explain.sharing import Excess, Sharings
from sipsim.plan.terms import Machine, Ps, Term
from sipsim.record.recorder import Span


class Cost(NamedTuple):
    """``terms`` by the machine of the run; ``excess``: what sharing added; ``rest_ps``: the rest of the duration."""

    calls: tuple[Call, ...]
    terms: tuple[Term, ...]
    excess: tuple[Excess, ...]
    rest_ps: Ps


class Costs:
    """The costs of all spans of a run, each found when it is first asked for."""

    def __init__(self, machine: Machine, calls: Calls, histories: list[History]) -> None:
        self.machine = machine
        self._calls = calls
        self._sharings = Sharings(histories, machine)
        self._terms: dict[Call, tuple[tuple[Term, ...], Ps]] = {}
        self._known: dict[tuple[int, int], Cost] = {}

    def of(self, rank: int, span: Span) -> Cost:
        """The cost of a span that is no wait. Its parts add up to its duration."""
        key = rank, span.number
        if key not in self._known:
            self._known[key] = self._cost(rank, span)
        return self._known[key]

    def _cost(self, rank: int, span: Span) -> Cost:
        calls = tuple(self._calls.of(rank, span))
        found = [self._priced(call) for call in calls]
        terms, sum_ps = tuple(term for some, _ in found for term in some), sum(ps for _, ps in found)
        excess_ps = span.end_ps - span.start_ps - sum_ps
        excess = tuple(self._sharings.of(rank, span, calls, excess_ps)) if calls and excess_ps > 0 else ()
        return Cost(calls, terms, excess, excess_ps - sum(each.delay_ps for each in excess))

    def _priced(self, call: Call) -> tuple[tuple[Term, ...], Ps]:
        known = self._terms.get(call)
        if known is None:
            terms = tuple(each for each in call.terms(self.machine) if each.ps)
            known = self._terms[call] = terms, sum(each.ps for each in terms)
        return known


def rest_name(span: Span) -> str:
    """What the rest of a span is called."""
    if work_of(span) == POLL:
        return "waiting for the next poll"
    if work_of(span) == CREDIT:
        return "credits: waiting for a message that carries them"
    return f"waiting in a {span.name}" if span.component.startswith("cube") else f"{span.component}: {span.name}"
