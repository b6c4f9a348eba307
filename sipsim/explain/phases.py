"""Which phase of its kernel a span belongs to, and what the kernels did in each phase."""

from bisect import bisect_left
from collections import defaultdict

from sipsim.explain.history import History
from sipsim.plan.terms import Ps
from sipsim.record.recorder import Span
from sipsim.record.usage import TL_WORDS

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
        """The phase in which a span of a PE ended; of other parts, none."""
        component = span.component.removesuffix(".ipcq")
        if (rank, component) not in self._starts:
            return NO_PHASE
        after, names = self._starts[rank, component]
        last = bisect_left(after, span.number) - 1
        return (names[last] if last >= 0 else "") or NO_PHASE


def phase_times(histories: list[History], phases: Phases, since_ps: Ps, until_ps: Ps) -> dict[str, dict[str, Ps]]:
    """The time of all kernels from ``since_ps`` to ``until_ps``: by phase, and by what they did or waited for.

    Phases are in the order in which they ended first.
    """
    times: dict[str, dict[str, Ps]] = {}
    for history in histories:
        waited_for = {span.cause[1] for span in history.spans if span.is_wait and span.cause[0] == history.rank}
        for span in history.spans:
            is_of_kernel = span.is_wait or (
                span.number not in waited_for and span.component.startswith("cube") and span.component.count(".") == 1
            )
            if is_of_kernel and span.end_ps > since_ps and span.start_ps < until_ps:
                spent_ps = min(span.end_ps, until_ps) - max(span.start_ps, since_ps)
                of_phase = times.setdefault(phases.of(history.rank, span), {})
                word = TL_WORDS.get(span.name, span.name)
                of_phase[word] = of_phase.get(word, 0) + spent_ps
    return times
