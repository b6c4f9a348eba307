"""The critical path of one iteration: from its latest end back over causes to its start, without a gap."""

from sipsim.chips.ahbm.costs.prices.terms import Ps
from sipsim.insight.explain.costs.costs import Costs, rest_name
from sipsim.insight.explain.critical_path.phases import Phases
from sipsim.insight.explain.graph import Graph, Key
from sipsim.insight.explain.work.calls import CREDIT, MESSAGE, RECV, Calls, work_of
from sipsim.insight.explain.work.control_calls import is_control
from sipsim.records.explanation import Part, Step
from sipsim.records.recorder import Span

BEFORE = "before the start of the measured time"


def walk_back(graph: Graph, last: Key, since_ps: Ps) -> list[tuple[int, Span]]:
    """The spans from ``last`` back to ``since_ps``, the last first. They fill the time without waits."""
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
            edge = f"sharing {self._costs.machine.edge_name(each.rank, each.src, each.dst)} with {each.others}"
            key = edge, self._costs.machine.rate_keys(each.rank, each.src, each.dst)
            parts[key] = parts.get(key, 0) + each.delay_ps
        if cost.rest_ps:
            parts[rest_name(span), ()] = cost.rest_ps
        return [Part(part, keys, ps) for (part, keys), ps in parts.items()]
