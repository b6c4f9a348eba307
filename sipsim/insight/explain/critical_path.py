"""Explains a run's rows from the histories of all ranks: critical path, its parts, phases, and savings by changes."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sipsim.chips.ahbm.costs.prices import Prices, Ps
from sipsim.chips.ahbm.history import History, read_histories
from sipsim.chips.ahbm.plan import Plan
from sipsim.insight.explain import what_if
from sipsim.insight.explain.costs import Costs, rest_name
from sipsim.insight.explain.graph import Graph, Key
from sipsim.insight.explain.work import (
    CREDIT,
    KERNEL,
    MESSAGE,
    QUEUES,
    RECV,
    Calls,
    is_control,
    is_end,
    name_of,
    phase_of_control,
)
from sipsim.records.explanation import Explanation, MeasuredRow, PathStep, PhaseTime, TimePart
from sipsim.records.recorder import Span
from sipsim.records.report import TL_WORDS

NO_PHASE = "(no phase)"
NO_RUN = -1
Ranked = tuple[int, Span]
"""A rank and one of its spans."""


def explain(plan: Plan, folders: Sequence[Path], rows: Sequence[MeasuredRow]) -> list[Explanation | None]:
    """Explain the time of each row, from the histories that the SIPs of a job with ``explain`` wrote to folders.

    The savings by changes are computed for the last row only. The entry of a row is None if no kernel ended in the row.
    """
    explainer = Explainer(plan, read_histories(folders))
    return [explainer.explain(row, row is rows[-1]) for row in rows]


class Explainer:
    """Explains the time of iterations, from the plan and the histories of all ranks."""

    def __init__(self, plan: Plan, histories: list[History]) -> None:
        self._plan = plan
        prices = Prices(plan.system, plan.ipcq)
        self._calls = Calls(plan, prices, histories)
        self._graph = Graph(histories, self._calls)
        self._costs = Costs(prices, self._calls, histories)
        self._phases: dict[tuple[int, str], tuple[list[int], list[str]]] = defaultdict(lambda: ([], []))
        """The phases of a PE's kernels, by rank and component: numbers of the spans before the phases; phase names."""
        for history in histories:
            for each in history.phases:
                after, names = self._phases[history.rank, each.component]
                after.append(each.after)
                names.append(each.phase)

    def explain(self, row: MeasuredRow, with_what_if: bool) -> Explanation | None:
        """Explain the longest iteration of a row; None if no kernel ended in that iteration.

        If the row is a collective, other launches at the same time are ignored.
        """
        index, (since_ps, until_ps) = max(enumerate(row.iterations), key=lambda each: each[1][1] - each[1][0])
        spans = self._graph.between(since_ps, until_ps)
        kernels = _of_row((each for each in spans if each[1].component.endswith(KERNEL)), row.runs)
        # Launches that take no time have no such spans; then the kernels' last spans notify the hosts.
        last = [(rank, span.number) for rank, span in _of_row((each for each in spans if is_end(each[1])), row.runs)]
        last = last or [(rank, span.facts[0]) for rank, span in kernels if span.facts[0]]
        if not last:
            return None
        final = max(last, key=lambda key: (self._graph.span(key).end_ps, -key[0], -key[1]))
        steps = self._steps(final, since_ps)
        return Explanation(
            index,
            since_ps,
            until_ps,
            f"sip{final[0]}.{self._graph.span(final).component.removesuffix(QUEUES)}",
            tuple(
                sorted(_merged(part for step in steps for part in step.parts), key=lambda each: (-each.ps, each.part))
            ),
            self._phase_times(steps, spans, kernels, since_ps),
            steps,
            what_if.savings(self._plan, steps, self._graph, self._costs, last, since_ps) if with_what_if else (),
        )

    def _steps(self, last: Key, since_ps: Ps) -> tuple[PathStep, ...]:
        """Return the critical path of an iteration: the chain of causes from ``last`` back to ``since_ps``.

        The steps contain no waits and cover the time without gaps.
        """
        found, key = [], last
        while key[1]:
            span = self._graph.span(key)
            if span.end_ps <= since_ps:
                break
            if not span.is_wait and span.end_ps > span.start_ps:
                found.append(self._step(key[0], span, since_ps))
            key = span.cause
        return tuple(reversed(found))

    def _step(self, rank: int, span: Span, since_ps: Ps) -> PathStep:
        where = f"sip{rank}.{span.component}"
        phase = self._phase(rank, span)
        if name_of(span) == MESSAGE:
            sending = self._calls.send_of(span)
            phase = self._phase(span.cause[0], sending)
            where = f"sip{span.cause[0]}.{sending.component} to {where}"
        start_ps = max(span.start_ps, since_ps)
        parts = tuple(_merged(_without_first(self._parts(rank, span), start_ps - span.start_ps)))
        return PathStep(rank, where, span.name, phase, start_ps, span.end_ps, parts)

    def _parts(self, rank: int, span: Span) -> tuple[TimePart, ...]:
        cost, prices = self._costs.of(rank, span), self._costs.prices
        is_credit = name_of(span) in (CREDIT, RECV)
        prefix = f"{phase_of_control(span)}: " if is_control(span) else "credits: " if is_credit else ""
        parts = [TimePart(prefix + term.part, term.keys, term.ps) for term in cost.work.terms]
        for what, edge, ps in cost.delays:
            if edge is None:
                parts.append(TimePart(what, (), ps))
            else:
                parts.append(TimePart(f"sharing {prices.edge_name(*edge)} with {what}", prices.edge_keys(*edge), ps))
        rest = [TimePart(rest_name(span), (), cost.rest_ps)] if cost.rest_ps else []
        return (*parts, *rest)

    def _phase(self, rank: int, span: Span) -> str:
        """Return the phase in which a span ended: the kernel's, or that of the control path in parentheses."""
        if is_control(span):
            return f"({phase_of_control(span)})"
        after, names = self._phases.get((rank, span.component.removesuffix(QUEUES)), ((), ()))
        last = bisect_left(after, span.number) - 1
        return (names[last] if last >= 0 else "") or NO_PHASE

    def _phase_times(
        self, steps: Iterable[PathStep], spans: list[Ranked], kernels: list[Ranked], since_ps: Ps
    ) -> tuple[PhaseTime, ...]:
        """Return the time of ``kernels`` by phase and command, and the time of the critical path by phase.

        Counted are all waits of a kernel, and the spans of a kernel that did not end a wait.
        """
        pes = {(rank, span.component.removesuffix(KERNEL)) for rank, span in kernels}
        of_pes = [(rank, span) for rank, span in spans if (rank, span.component) in pes]
        waited_for = {span.cause for _, span in of_pes if span.is_wait}
        times: dict[str, dict[str, Ps]] = defaultdict(lambda: defaultdict(int))
        for rank, span in of_pes:
            spent_ps = span.end_ps - max(span.start_ps, since_ps)
            if spent_ps > 0 and (span.is_wait or (rank, span.number) not in waited_for):
                times[self._phase(rank, span)][TL_WORDS.get(span.name, span.name)] += spent_ps
        on_path: dict[str, Ps] = defaultdict(int)
        for step in steps:
            on_path[step.phase] += step.end_ps - step.start_ps
        phases = dict.fromkeys([*times, *on_path])
        return tuple(PhaseTime(phase, on_path[phase], dict(times[phase])) for phase in phases)


def _of_row(spans: Iterable[Ranked], runs: Mapping[int, int]) -> list[Ranked]:
    """Return the spans whose last fact, the index of a collective, is the row's; all spans if no span matches."""
    found = list(spans)
    return [each for each in found if runs.get(each[0], NO_RUN) == each[1].facts[-1]] or found


def _without_first(parts: Iterable[TimePart], cut_ps: Ps) -> list[TimePart]:
    """Return what is left of a span's parts without the first ``cut_ps``: first the path of the head, then the bytes,
    then waits.
    """
    left = []
    for part in parts:
        before_ps = min(part.ps, cut_ps)
        cut_ps -= before_ps
        if part.ps > before_ps:
            left.append(TimePart(part.part, part.keys, part.ps - before_ps))
    return left


def _merged(parts: Iterable[TimePart]) -> list[TimePart]:
    """Add up the parts that have the same name and keys."""
    total: dict[tuple[str, tuple[str, ...]], Ps] = defaultdict(int)
    for each in parts:
        total[each.part, each.keys] += each.ps
    return [TimePart(part, keys, ps) for (part, keys), ps in total.items()]
