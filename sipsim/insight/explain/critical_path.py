"""The explanation of a run's rows from all ranks' histories: critical path, parts, phases, and what a change saves."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from sipsim.chips.ahbm.costs.prices import Prices, Ps
from sipsim.chips.ahbm.history import History, read_histories
from sipsim.chips.ahbm.plan import Plan
from sipsim.insight.explain import what_if
from sipsim.insight.explain.costs import Costs, rest_name
from sipsim.insight.explain.graph import Graph, Key
from sipsim.insight.explain.work import CREDIT, KERNEL, MESSAGE, PHASE, RECV, Calls, is_control, is_end, work_of
from sipsim.records.explanation import Explanation, MeasuredRow, Part, PhaseTime, Step, WhatIf
from sipsim.records.recorder import Span
from sipsim.records.report import TL_WORDS

NO_PHASE = "(no phase)"


class Phases:
    """The phases of all kernels of a run, and to which of them a span belongs."""

    def __init__(self, histories: list[History]) -> None:
        self._starts: dict[tuple[int, str], tuple[list[int], list[str]]] = defaultdict(lambda: ([], []))
        for history in histories:
            for each in history.phases:
                after, names = self._starts[history.rank, each.component]
                after.append(each.after)
                names.append(each.phase)

    def of(self, rank: int, span: Span) -> str:
        """The phase in which a span of a PE ended; of the control path one of its own; of other parts, none."""
        if is_control(span):
            return PHASE
        component = span.component.removesuffix(".ipcq")
        if (rank, component) not in self._starts:
            return NO_PHASE
        after, names = self._starts[rank, component]
        last = bisect_left(after, span.number) - 1
        return (names[last] if last >= 0 else "") or NO_PHASE


def phase_times(spans: list[tuple[int, Span]], phases: Phases, since_ps: Ps) -> dict[str, dict[str, Ps]]:
    """The time of all kernels in ``spans``, from ``since_ps`` on: by phase, and by what they did or waited for.

    A command for which its kernel waited from the start is the kernel's time itself, others are followed by a wait.
    """
    waited_for = {span.cause for _, span in spans if span.is_wait}
    times: dict[str, dict[str, Ps]] = {}
    for rank, span in spans:
        if not span.is_wait and ((rank, span.number) in waited_for or span.component.count(".") != 1):
            continue
        spent_ps = span.end_ps - max(span.start_ps, since_ps)
        if spent_ps > 0 and span.component.startswith("cube"):
            word = TL_WORDS.get(span.name, span.name)
            of_phase = times.setdefault(phases.of(rank, span), {})
            of_phase[word] = of_phase.get(word, 0) + spent_ps
    return times


BEFORE = "before the start of the measured time"


def walk_back(graph: Graph, last: Key, since_ps: Ps) -> list[tuple[int, Span]]:
    """The critical path of an iteration: from ``last`` back over causes to ``since_ps``, the last span first.

    The spans fill the time without a gap and without waits.
    """
    found, key = [], last
    while key[1]:
        span = graph.span(key)
        if span.end_ps <= since_ps:
            break
        if not span.is_wait and span.end_ps > span.start_ps:
            found.append((key[0], span))
        key = span.cause
    return found


class PathMaker:
    """Makes the steps of paths."""

    def __init__(self, costs: Costs, calls: Calls, phases: Phases) -> None:
        self._costs = costs
        self._calls = calls
        self._phases = phases

    def steps(self, spans: list[tuple[int, Span]], since_ps: Ps) -> list[Step]:
        """The steps in order of time."""
        return [self._step(rank, span, since_ps) for rank, span in reversed(spans)]

    def _step(self, rank: int, span: Span, since_ps: Ps) -> Step:
        where = f"sip{rank}.{span.component}"
        phase = self._phases.of(rank, span)
        if work_of(span) == MESSAGE:
            sending = self._calls.sending(span)
            phase = self._phases.of(span.cause[0], sending)
            where = f"sip{span.cause[0]}.{sending.component} to {where}"
        start_ps = max(span.start_ps, since_ps)
        if start_ps > span.start_ps:
            parts: tuple[Part, ...] = (Part(BEFORE, (), span.end_ps - start_ps),)
        else:
            parts = tuple(self._parts(rank, span))
        return Step(rank, where, span.name, phase, start_ps, span.end_ps, parts)

    def _parts(self, rank: int, span: Span) -> list[Part]:
        cost = self._costs.of(rank, span)
        is_credit = work_of(span) in (CREDIT, RECV)
        prefix = "launch: " if is_control(span) else "credits: " if is_credit else ""
        parts: dict[tuple[str, tuple[str, ...]], Ps] = {}
        for term in cost.work.terms:
            key = prefix + term.part, term.keys
            parts[key] = parts.get(key, 0) + term.ps
        for name, ps in cost.waits:
            parts[name, ()] = parts.get((name, ()), 0) + ps
        for each in cost.excess:
            edge = f"sharing {self._costs.prices.edge_name(*each[:4])} with {each.others}"
            key = edge, self._costs.prices.edge_keys(*each[:4])
            parts[key] = parts.get(key, 0) + each.delay_ps
        if cost.rest_ps:
            parts[rest_name(span), ()] = cost.rest_ps
        return [Part(part, keys, ps) for (part, keys), ps in parts.items()]


NO_RUN = -1


def explain(plan: Plan, folders: Sequence[Path], rows: Sequence[MeasuredRow]) -> list[Explanation | None]:
    """Where the time of each row went, from the histories that the SIPs of a job with ``explain`` left in folders.

    The savings of a change are computed for the last row only. None for a row in whose time no kernel ended.
    """
    explainer = Explainer(plan, read_histories(folders))
    return [explainer.explain(row.runs, row.iterations, row is rows[-1]) for row in rows]


class Explainer:
    """Explains the iterations of a run."""

    def __init__(self, plan: Plan, histories: list[History]) -> None:
        self._plan = plan
        self._histories = histories
        prices = Prices(plan.system, plan.ipcq)
        self._calls = Calls(plan, prices, histories)
        self._graph = Graph(histories, self._calls)
        self._phases = Phases(histories)
        self._costs = Costs(prices, self._calls, histories)
        self._paths = PathMaker(self._costs, self._calls, self._phases)

    def explain(
        self, row: Mapping[int, int], iterations: Sequence[tuple[Ps, Ps]], with_what_if: bool
    ) -> Explanation | None:
        """The longest of the iterations of a row, given by their starts and ends; None if no kernel ended then.

        Where the row is a collective, launches beside it are left out. ``row``: its number on its ranks, by rank.
        """
        index, (since_ps, until_ps) = max(enumerate(iterations), key=lambda each: each[1][1] - each[1][0])
        last = self._last_spans(since_ps, until_ps, row)
        if not last:
            return None
        final = max(last, key=lambda key: (self._graph.span(key).end_ps, -key[0], -key[1]))
        steps = self._paths.steps(walk_back(self._graph, final, since_ps), since_ps)
        return Explanation(
            index,
            since_ps,
            until_ps,
            f"sip{final[0]}.{self._graph.span(final).component.removesuffix('.ipcq')}",
            _parts(steps),
            self._phase_times(steps, since_ps, until_ps, row),
            tuple(steps),
            self._what_if(steps, last, since_ps) if with_what_if else (),
        )

    def _kernels(self, since_ps: Ps, until_ps: Ps, row: Mapping[int, int]) -> list[tuple[int, Span]]:
        """The kernels that ended then; those of the row's collective if there are any."""
        found = [each for each in self._graph.between(since_ps, until_ps) if each[1].component.endswith(KERNEL)]
        return [each for each in found if row.get(each[0], NO_RUN) == each[1].facts[1]] or found

    def _last_spans(self, since_ps: Ps, until_ps: Ps, row: Mapping[int, int]) -> list[Key]:
        """Those by which the hosts know the ends of the row's launches; where these take no time, its kernels' last."""
        ends = [each for each in self._graph.between(since_ps, until_ps) if is_end(each[1])]
        ends = [each for each in ends if row.get(each[0], NO_RUN) == each[1].facts[0]] or ends
        if ends:
            return [(rank, span.number) for rank, span in ends]
        return [(rank, span.facts[0]) for rank, span in self._kernels(since_ps, until_ps, row) if span.facts[0]]

    def _phase_times(
        self, steps: list[Step], since_ps: Ps, until_ps: Ps, row: Mapping[int, int]
    ) -> tuple[PhaseTime, ...]:
        on_path: dict[str, Ps] = {}
        for step in steps:
            on_path[step.phase] = on_path.get(step.phase, 0) + step.end_ps - step.start_ps
        kernels = self._kernels(since_ps, until_ps, row)
        pes = {(rank, span.component.removesuffix(KERNEL)) for rank, span in kernels}
        between = self._graph.between(since_ps, until_ps)
        times = phase_times([each for each in between if (each[0], each[1].component) in pes], self._phases, since_ps)
        found = [PhaseTime(phase, on_path.pop(phase, 0), ps) for phase, ps in times.items()]
        return (*found, *(PhaseTime(phase, ps, {}) for phase, ps in on_path.items()))

    def _what_if(self, steps: list[Step], last: list[Key], since_ps: Ps) -> tuple[WhatIf, ...]:
        plan = self._plan
        some = what_if.scenarios(plan.resolved, steps)
        saved = what_if.saved_ps(plan.resolved, plan.ipcq, some, self._graph, self._costs, last, since_ps)
        found = [WhatIf(each.name, each.settings(), ps) for each, ps in zip(some, saved, strict=True)]
        return tuple(sorted(found, key=lambda each: (-each.saved_ps, each.name)))


def _parts(steps: list[Step]) -> tuple[Part, ...]:
    total: dict[tuple[str, tuple[str, ...]], Ps] = {}
    for each in (part for step in steps for part in step.parts):
        total[each.part, each.keys] = total.get((each.part, each.keys), 0) + each.ps
    found = [Part(part, keys, ps) for (part, keys), ps in total.items()]
    return tuple(sorted(found, key=lambda each: (-each.ps, each.part)))
