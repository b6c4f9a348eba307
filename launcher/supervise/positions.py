"""Requests for the position of the code in SIP processes, and their answers, without I/O."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from broker.wire import BadFrame, SipSync
from launcher.processes.this_host import NS_PER_S
from launcher.report.outcome import FoundFacts
from launcher.supervise.facts import Position
from launcher.supervise.ranks import Rank
from sipsim.core.units import format_time_ps
from sipsim.insight.hangs.positions import Positions, explain_positions, running_facts, running_text
from sipsim.records.dump import SipDump, dump_from_text

ANSWER_S = 2.0
"""A SIP that does not answer within this time is in a long call of C code, or stopped."""
NO_ANSWER = f"has not reported its line of code within {ANSWER_S:g} s, being stopped or in a long call of C code"
CANNOT_REPORT = "cannot report its line of code: a user started the process by hand"
LONG_WAIT_S = 0.5
"""Shorter waits for a processor are not reported."""
Answers = dict[int, SipDump]


class _Pending(NamedTuple):
    ranks: frozenset[int]
    deadline_s: float
    on_answers: Callable[[Answers], None]


class PositionRequests:
    """Pending requests of one run. Each request's ``on_answers`` is called once, with the answers that have arrived."""

    def __init__(self) -> None:
        self._pending: list[_Pending] = []
        self._answers: Answers = {}

    def add(self, ranks: Collection[int], on_answers: Callable[[Answers], None], now_s: float) -> None:
        """Add a request to these ranks, which the caller sends; their earlier answers are dropped."""
        for rank in ranks:
            self._answers.pop(rank, None)
        self._pending.append(_Pending(frozenset(ranks), now_s + ANSWER_S, on_answers))

    def note(self, rank: int, text: str) -> None:
        """Record an answer of ``rank``; a text that is no dump of this rank is ignored."""
        try:
            dump = dump_from_text(text)
        except BadFrame:
            return
        if dump.rank == rank:
            self._answers[rank] = dump

    def finish_due(self, now_s: float) -> None:
        """Finish the requests that are answered or have timed out."""
        due = [each for each in self._pending if now_s >= each.deadline_s or each.ranks <= self._answers.keys()]
        self._pending = [each for each in self._pending if each not in due]
        for each in due:
            each.on_answers({rank: self._answers[rank] for rank in each.ranks if rank in self._answers})


def positions_of(
    ranks: Collection[int], answers: Answers, states: Mapping[int, str], why: str, folder: str
) -> Positions:
    """Return the code positions of ``ranks``; for a rank without an answer, ``why`` and the state of its process."""

    def no_answer_text(rank: int) -> str:
        return f"{why}; its process {states[rank]}" if rank in states else why

    dumps = [answers[rank] for rank in sorted(ranks) if rank in answers]
    return explain_positions(dumps, {rank: no_answer_text(rank) for rank in ranks if rank not in answers}, folder)


def hang_text(label: str, idle_s: float, now_ps: int, dump: SipDump | None, why: str, folder: str) -> str:
    """Return the message about a SIP without progress for ``idle_s``; ``why``: the reason if there is no dump."""
    where = running_text(dump, folder) if dump is not None else f"its process {why}"
    # The SIP's time is more recent than the broker's, which is from the end of a window.
    known_ps = now_ps if dump is None else max(now_ps, dump.now_ps)
    return f"{label} has made no progress for {idle_s:.1f} s at {format_time_ps(known_ps)}: {where}"


def hang_of(rank: Rank, sip: SipSync, position: Position, state: str | None, folder: str) -> tuple[str, FoundFacts]:
    """Return the message and the facts of a hung rank; ``state``: the state of its process, None if unknown."""
    text = hang_text(rank.label, sip.quiet_ns / NS_PER_S, sip.now_ps, position.dump, position.why or NO_ANSWER, folder)
    granted = "without a limit" if sip.horizon_ps is None else f"to {format_time_ps(sip.horizon_ps)}"
    now_ps = sip.now_ps if position.dump is None else max(sip.now_ps, position.dump.now_ps)
    facts: FoundFacts = {"host": rank.host.name, "pid": rank.pid, "time_ps": now_ps, "granted_ps": sip.horizon_ps}
    wait_s = rank.idle.waited_s
    waited = f", and has waited {wait_s:.1f} s for a processor" if wait_s >= LONG_WAIT_S else ""
    message = f"{text}; granted {granted}" + (f"; its process {state}{waited}" if state else "")
    return message, {**facts, **running_facts(position.dump)}
