"""What came of a run: collected from the broker's messages and from how the processes ended. Pure.

First cause first: the first failure that is told is the error of the run; what is told after that is kept in order.
"""

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from broker.wire import BadFrame, Deadlock, Finished, RankFailed, RankResult, RunStarted, Status, Sync, ToLauncher
from sipsim.ccl.deadlock import explain_deadlock
from sipsim.errors import ERROR_KINDS, CollectiveMismatch
from sipsim.plan.job import RankOutcome, outcome_from_bytes

INTERRUPTIONS = ("timeout", "interrupted", "terminated")
_EXITS_OF_THE_PROGRAM = (1, 3, 5)
"""Exit codes of failures that the simulated program may cause."""
MOST_ALSO = 100
"""Failures after the first that are kept."""


@dataclass(frozen=True)
class RunError:
    """Why a run failed. ``detail`` is more lines for people, ``facts`` what else the result file says of it."""

    kind: str
    rank: int | None
    message: str
    detail: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class Outcome:
    """Everything that is known of a run so far.

    ``also``: failures after the first. ``troubles``: what went wrong beside the run, such as a log that could not be
    written. ``host``: the launcher's. ``oom_kills``: processes that the kernel killed on it meanwhile, for want
    of memory.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.ranks: dict[int, RankOutcome] = {}
        self.cut_short = False
        self.error: RunError | None = None
        self.also: list[RunError] = []
        self.troubles: list[str] = []
        self.incarnations: dict[int, int] = {}
        self.oom_kills = 0
        self.host = ""
        self.known_sync: Sync | None = None
        self.sync: Finished | None = None
        self.last_sync: Sync | None = None
        self.now_ps = 0
        self.startup_s = 0.0
        self.simulate_s = 0.0
        self.total_s = 0.0

    def note(self, message: ToLauncher) -> None:
        """Take one message of the broker."""
        match message:
            case RankResult():
                self._note_result(message)
            case RankFailed():
                facts = {**_place_of(message), "time_ps": message.now_ps}
                # A kind that is not ours would have no exit code.
                kind = message.kind if message.kind in ERROR_KINDS else "internal"
                self.fail(RunError(kind, message.rank, message.message, message.detail, facts))
            case Deadlock():
                self._note_deadlock(message)
            case Finished():
                self.sync = message
            case Status():
                self.now_ps = message.now_ps
            case Sync():
                self._note_sync(message)
            case RunStarted():
                pass

    def _note_result(self, result: RankResult) -> None:
        try:
            told = outcome_from_bytes(result.blob)
        except BadFrame as error:
            self.fail(RunError("internal", result.rank, f"what rank {result.rank} told at its end is {error}"))
            return
        if told.rank != result.rank or result.rank >= self._size:
            said = f"rank {result.rank} of {self._size} told at its end what rank {told.rank} did"
            self.fail(RunError("internal", result.rank, said))
            return
        self.ranks[result.rank] = told
        self.cut_short = self.cut_short or result.partial
        if self.complete:
            self._note_mismatch()

    def _note_mismatch(self) -> None:
        """Ranks that disagree on a collective: the first cause of whatever the program ended with."""
        mismatch = _mismatch([self.ranks[rank].calls for rank in range(self._size)])
        effect = self.error
        if mismatch is None or (effect is not None and ERROR_KINDS[effect.kind] not in _EXITS_OF_THE_PROGRAM):
            return
        self.error = mismatch
        if effect is not None:
            self.also.insert(0, effect)

    def _note_deadlock(self, deadlock: Deadlock) -> None:
        try:
            told = explain_deadlock(list(deadlock.dumps))
        except BadFrame as error:
            said = f"nothing can happen any more; who waits for whom cannot be told, for a SIP told what is {error}"
            self.fail(RunError("IpcqDeadlock", None, said))
            return
        self.fail(RunError("IpcqDeadlock", None, told.headline, told.report, {"deadlock": told.facts}))

    def _note_sync(self, sync: Sync) -> None:
        self.last_sync = sync if sync.last else self.last_sync
        self.known_sync = sync
        self.incarnations |= {sip.rank: sip.incarnation for sip in sync.sips if sip.incarnation}

    def fail(self, error: RunError) -> None:
        """Note a failure; only the first one counts. Said again it is no other."""
        if self.error is None:
            self.error = error
        elif len(self.also) < MOST_ALSO and not any(_same(error, known) for known in (self.error, *self.also)):
            self.also.append(error)

    def note_wrong(self) -> None:
        """A run that ended well with wrong numbers is a failure of its own; every rank that has some is told."""
        wrong = [(rank, run) for rank, told in sorted(self.ranks.items()) for run in told.runs if run.wrong]
        if wrong:
            message, *more = [f"rank {rank}: {run.wrong} wrong; {run.first_wrong}" for rank, run in wrong]
            self.fail(RunError("wrong_numbers", wrong[0][0], message, "\n".join(more)))

    @property
    def restarts(self) -> int:
        """How many processes of ranks took the place of earlier ones."""
        return sum(self.incarnations.values())

    @property
    def finished(self) -> bool:
        """Whether the broker has said its last word."""
        return self.sync is not None

    @property
    def complete(self) -> bool:
        """Whether every rank has answered."""
        return len(self.ranks) == self._size

    @property
    def status(self) -> str:
        """``ok``, ``failed`` or ``interrupted``."""
        if self.error is None:
            return "ok"
        return "interrupted" if self.error.kind in INTERRUPTIONS else "failed"

    @property
    def exit_code(self) -> int:
        """Of DESIGN section 8."""
        return 0 if self.error is None else ERROR_KINDS[self.error.kind]


def _mismatch(calls_of_ranks: list[tuple[str, ...]]) -> RunError | None:
    """The first collective on which two ranks disagree. Of a rank that made fewer calls the rest is not compared."""
    for index, calls in enumerate(zip_longest(*calls_of_ranks)):
        made = [(rank, call) for rank, call in enumerate(calls) if call is not None]
        usual_rank, usual = made[0]
        for rank, call in made:
            if call != usual:
                what = f"ranks disagree on collective {index}: rank {usual_rank} calls {usual}, rank {rank} {call}"
                message = f"{what}; every rank must make the same calls in the same order"
                return RunError(CollectiveMismatch.kind, rank, message)
    return None


def _same(one: RunError, other: RunError) -> bool:
    return (one.kind, one.rank, one.message) == (other.kind, other.rank, other.message)


def _place_of(failed: RankFailed) -> dict[str, Any]:
    where = failed.where
    place = {"cube": where.cube, "pe": where.pe, "direction": where.direction}
    return {name: value for name, value in place.items() if value not in (-1, "")}
