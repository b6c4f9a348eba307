"""Which phase of its kernel a span belongs to, and what the kernels did in each phase."""

from bisect import bisect_left
from collections import defaultdict

from sipsim.chips.ahbm.costs.prices.terms import Ps
from sipsim.chips.ahbm.history import History
from sipsim.insight.explain.work.control_calls import PHASE, is_control
from sipsim.records.recorder import Span
from sipsim.records.report.usage import TL_WORDS

NO_PHASE = "(no phase)"


class Phases:
    """The phases of all kernels of a run."""

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
