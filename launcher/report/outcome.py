"""Outcome of a run, collected from the broker's messages and the exits of processes. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from broker.wire import (
    BadFrame,
    Deadlock,
    Finished,
    RankFailed,
    RankRecord,
    RankResult,
    RunStarted,
    SimTimeReached,
    Status,
    Sync,
    ToLauncher,
)
from launcher.report.calls import first_mismatch, missing_call, missing_group
from sipsim.core import errors
from sipsim.core.errors import ERROR_KINDS, BadMessage, CollectiveMismatch, InvariantViolation, IpcqUnreadMessages
from sipsim.core.fields import no_time, simulated_time
from sipsim.core.units import format_exact_time_ps
from sipsim.insight.hangs.deadlock import explain_deadlock, kind_of
from sipsim.insight.hangs.facts import CodeFacts, DeadlockFacts, PositionFacts
from sipsim.insight.hangs.positions import explain_positions
from sipsim.records.dump import dump_from, place_name
from sipsim.records.explanation import Explanation
from sipsim.records.report import RankOutcome, RunRecord, Unread, outcome_from_bytes, record_from_bytes


class Failure(TypedDict):
    """Keys that every failure has."""

    kind: Annotated[str, no_time("The kind of failure, from a closed list; it determines the exit code.")]
    rank: Annotated[int | None, no_time("The SIP that failed; null if the failure is not of one SIP.")]
    message: Annotated[str, no_time("The failure in one line.")]


class FoundFacts(CodeFacts, total=False):
    """Further keys of a failure: keys of :attr:`RunError.facts`, and keys that the launcher adds.

    Files contain a key only if its value is known, has a meaning for the kind of failure, and is neither None nor "".
    """

    process: Annotated[str, no_time("The process that failed, such as sip-2 or broker.")]
    host: Annotated[str, no_time("The host on which the failed process ran, or the host that was lost.")]
    pid: Annotated[int | None, no_time("The process id of the failed process.")]
    signal: Annotated[str, no_time("The signal that ended the process, such as SIGKILL.")]
    exit_code: Annotated[int, no_time("The exit code of the process.")]
    oom_kills: Annotated[int, no_time("Processes killed by this host's out-of-memory killer during the run.")]
    time_ps: Annotated[int, simulated_time("The simulated time of the rank when it failed, in ps.")]
    granted_ps: Annotated[int | None, simulated_time("The horizon of the rank's last grant, in ps.")]
    incarnation: Annotated[int, no_time("The incarnation of the rank: the number of earlier restarts.")]
    restarts: Annotated[int, no_time("Restarts of processes during the run, over all ranks.")]
    last_lines: Annotated[list[str], no_time("The last lines that the process printed.")]
    log: Annotated[str, no_time("The path of the process's complete output, with --log-dir.")]
    peer: Annotated[int, no_time("The SIP to which the rank has lost its connection.")]
    ranks: Annotated[list[int], no_time("The SIPs that ran on the lost host.")]
    missing: Annotated[list[int], no_time("The SIPs that had not joined by the deadline.")]
    direction: Annotated[str, no_time("The direction of the queue pair that failed.")]
    deadlock: Annotated[DeadlockFacts, no_time("For a deadlock: the waits that block each other.")]
    positions: Annotated[list[PositionFacts], no_time("For a stopped run: the line of code of each task.")]
    unread: Annotated[list[Unread], no_time("For IpcqUnreadMessages: the rings that still contained messages.")]
    record: Annotated[int, no_time("For the second pass: number of the wrong record in the rank's op log, from 1.")]
    record_text: Annotated[str, no_time("For the second pass: the text of that record, shortened.")]
    also: Annotated[list[Failure], no_time("Later failures, in their order.")]


class ErrorFacts(Failure, FoundFacts):
    """The failure that ended the run: ``error`` of ``--json``."""


class ErrorFile(ErrorFacts):
    """The file ``error.json`` of ``--log-dir`` and ``--run-dir``: the failure, with version and status."""

    schema: Annotated[int, no_time("Version of this format; added keys do not change the version.")]
    version: Annotated[str, no_time("The version of the simulator.")]
    status: Annotated[str, no_time("failed, or interrupted.")]
    detail: Annotated[str, no_time("Further lines, such as a traceback or the report of a deadlock; may be empty.")]


class FinishedRun(NamedTuple):
    """A completed collective. ``ranks``: the group. ``records``: one per rank. ``runs``: index of each record."""

    ranks: tuple[int, ...]
    records: tuple[RunRecord, ...]
    runs: tuple[int, ...]


class _Found(NamedTuple):
    record: RunRecord
    run: int
    position: int


_Key = tuple[int, int, int]
"""Key of a record: group, call in the group, and how often the rank has recorded this call before."""


def finished_runs(of_ranks: Sequence[Sequence[RunRecord]]) -> list[FinishedRun]:
    """Return the collectives that all ranks of the collective's group have completed, from the records of every rank.

    The collectives are sorted by end time on the first rank of the group.
    """
    by_rank = [dict(_keyed(records)) for records in of_ranks]
    found: dict[_Key, tuple[tuple[int, int, int], FinishedRun]] = {}
    for rank, records in enumerate(by_rank):
        for key, (record, _, position) in records.items():
            ranks = record.sips or tuple(range(len(of_ranks)))
            if rank == ranks[0] and all(each < len(by_rank) and key in by_rank[each] for each in ranks):
                of_run = [by_rank[each][key] for each in ranks]
                run = FinishedRun(ranks, tuple(each.record for each in of_run), tuple(each.run for each in of_run))
                found[key] = (_end_ps(record), rank, position), run
    return [run for _, run in sorted(found.values(), key=lambda each: each[0])]


def _keyed(records: Sequence[RunRecord]) -> Iterator[tuple[_Key, _Found]]:
    seen: dict[tuple[int, int], int] = {}
    for index, record in enumerate(records):
        times = seen[record.group, record.call] = seen.get((record.group, record.call), -1) + 1
        run = index if record.run is None else record.run
        yield (record.group, record.call, times), _Found(record, run, index)


def _end_ps(record: RunRecord) -> int:
    return record.spans_ps[-1][1] if record.spans_ps else 0


INTERRUPTIONS = ("timeout", "interrupted", "terminated")
_EXITS_OF_THE_PROGRAM = (1, 3, 5)
"""Exit codes of failures that the simulated program can cause."""
DEADLOCK_FILE = "deadlock.txt"
EVERY_WAIT = "every wait"
WITH_QUEUES = f"{EVERY_WAIT}, with its queue pointers and the waits-for graph"
MOST_UNREAD = 8
MOST_ALSO = 100
"""The most later failures that are recorded."""


class RunError(Struct, frozen=True):
    """Failure of a run. ``detail``: further lines of text. ``facts``: further keys for the result file."""

    kind: str
    rank: int | None
    message: str
    detail: str = ""
    facts: FoundFacts = {}


class LongReport(NamedTuple):
    """File for ``--log-dir`` with the details that a failure summarises. ``what``: the content in words."""

    file: str
    text: str
    what: str


class Outcome:
    """Outcome of a run so far.

    ``error``: the first reported failure. ``also``: later failures, in order. ``troubles``: other problems, such as a
    log that could not be written. ``notices``: lines for the user, without effect on the exit code.
    ``without_effect``: config keys that the user changed and no component read. ``explanations``: one per row, if
    ``--explain`` is given. ``host``: name of the launcher's host. ``oom_kills``: out-of-memory kills on this host in
    the run. ``signal``: the signal that stopped the run; 0 if none did. ``hosts``: names of hosts by rank, as far as
    known. ``folder``: the working folder, to shorten paths in messages.
    """

    def __init__(self, size: int, folder: str = "") -> None:
        self._size = size
        self._folder = folder
        self.long_report: LongReport | None = None
        self.ranks: dict[int, RankOutcome] = {}
        self._records: list[list[RunRecord]] = [[] for _ in range(size)]
        self.cut_short = False
        self.error: RunError | None = None
        self.also: list[RunError] = []
        self.troubles: list[str] = []
        self.notices: list[str] = []
        self.without_effect: list[str] = []
        self.explanations: list[Explanation | None] = []
        self.incarnations: dict[int, int] = {}
        self.hosts: dict[int | None, str] = {}
        self.oom_kills = 0
        self.signal = 0
        self.host = ""
        self.known_sync: Sync | None = None
        self.sync: Finished | None = None
        self.last_sync: Sync | None = None
        self.now_ps = 0
        self.startup_s = 0.0
        self.simulate_s = 0.0
        self.total_s = 0.0

    def note(self, message: ToLauncher) -> None:
        """Update the outcome from one message of the broker."""
        match message:
            case RankResult():
                self._note_result(message)
            case RankFailed():
                facts: FoundFacts = {**_place_of(message), "time_ps": message.now_ps}
                if ERROR_KINDS.get(message.kind) == ERROR_KINDS[BadMessage.kind]:
                    facts["host"] = self.hosts.get(message.rank, "") or message.host
                # An unknown kind would have no exit code.
                kind = message.kind if message.kind in ERROR_KINDS else "internal"
                self.fail(RunError(kind, message.rank, message.message, message.detail, facts))
            case RankRecord():
                self._note_record(message)
            case Deadlock():
                self._note_deadlock(message)
            case SimTimeReached():
                self._note_limit(message)
            case Finished():
                self.sync = message
            case Status():
                self.now_ps = message.now_ps
            case Sync():
                self._note_sync(message)
            case RunStarted():
                pass

    def _note_result(self, result: RankResult) -> None:
        if not result.blob and result.partial:
            self.cut_short = True
            return
        try:
            outcome = outcome_from_bytes(result.blob)
        except BadFrame as error:
            self._fail_message(result.rank, f"the result of rank {result.rank} is {error}")
            return
        if outcome.rank != result.rank or result.rank >= self._size:
            self._fail_message(
                result.rank, f"rank {result.rank} of {self._size} has sent the result of rank {outcome.rank}"
            )
            return
        self.ranks[result.rank] = outcome
        self.cut_short = self.cut_short or result.partial
        if self.complete:
            self._note_mismatch()

    def _note_record(self, record: RankRecord) -> None:
        """Add the record of a completed collective; ignore records that a restarted rank sends again."""
        try:
            completed = record_from_bytes(record.blob)
        except BadFrame as error:
            self._fail_message(record.rank, f"the record of a collective that rank {record.rank} completed is {error}")
            return
        if record.rank < self._size and record.index == len(self._records[record.rank]):
            self._records[record.rank].append(completed)

    def _fail_message(self, rank: int, message: str) -> None:
        self.fail(RunError(BadMessage.kind, rank, message, facts={"host": self.hosts.get(rank, "")}))

    def finished_runs(self) -> list[FinishedRun]:
        """Return the collectives that all ranks of the collective's group have completed; see :func:`finished_runs`."""
        results = (self.ranks[rank].runs if rank in self.ranks else () for rank in range(self._size))
        return finished_runs(
            [max(result, known, key=len) for result, known in zip(results, self._records, strict=True)]
        )

    def _note_mismatch(self) -> None:
        """Add a failure if ranks disagree on a collective; this replaces failures that the mismatch may have caused."""
        calls, effect = [self.ranks[rank].calls for rank in range(self._size)], self.error
        mismatch = first_mismatch(calls)
        if mismatch is None and not self.cut_short:
            mismatch = missing_group(calls)
            if mismatch is None and effect is None:
                mismatch = missing_call(calls)
        if mismatch is None or (effect is not None and ERROR_KINDS[effect.kind] not in _EXITS_OF_THE_PROGRAM):
            return
        self.error = RunError(CollectiveMismatch.kind, mismatch.rank, mismatch.message)
        if effect is None:
            return
        if effect.kind != InvariantViolation.kind:
            raised = f"rank {effect.rank}: {effect.message}\n" if effect.detail and effect.rank is not None else ""
            self.error = replace(self.error, detail=raised + effect.detail)
        later, self.also = [effect, *self.also], []
        for each in later:
            self.fail(each)

    def _note_deadlock(self, deadlock: Deadlock) -> None:
        try:
            dumps = list(deadlock.dumps)
            kind, found = kind_of(dumps), explain_deadlock(dumps, self._folder)
        except BadFrame as error:
            message = f"nothing can happen any more; the waits are unknown, since the state that a SIP sent is {error}"
            self.fail(RunError(errors.Deadlock.kind, None, message))
            return
        what = WITH_QUEUES if found.facts["waits"] else EVERY_WAIT
        self.long_report = LongReport(DEADLOCK_FILE, found.whole, what)
        self.fail(RunError(kind, None, found.headline, found.report, {"deadlock": found.facts}))

    def _note_limit(self, reached: SimTimeReached) -> None:
        limit = re.sub("(?=[a-z])", " ", format_exact_time_ps(reached.limit_ps), count=1)
        message = f"simulated time has reached {limit} (--max-sim-time)"
        try:
            found = explain_positions([dump_from(blob) for blob in reached.dumps], folder=self._folder)
        except BadFrame as error:
            self.fail(
                RunError("timeout", None, f"{message}; the lines of code are unknown: the state of a SIP is {error}")
            )
            return
        facts: FoundFacts = {"time_ps": reached.limit_ps, "positions": found.facts}
        self.fail(RunError("timeout", None, message, found.text, facts))

    def _note_sync(self, sync: Sync) -> None:
        self.last_sync = sync if sync.last else self.last_sync
        self.known_sync = sync
        self.incarnations |= {sip.rank: sip.incarnation for sip in sync.sips if sip.incarnation}

    def fail(self, error: RunError) -> None:
        """Add a failure: the first failure becomes ``error``, later failures join ``also``, repetitions are dropped."""
        if self.error is None:
            self.error = error
        elif self.error.kind == CollectiveMismatch.kind and error.kind == InvariantViolation.kind:
            # Ranks that disagree on calls break each other's queues: the violation is no bug of the simulator.
            return
        elif len(self.also) < MOST_ALSO and not any(_same(error, known) for known in (self.error, *self.also)):
            self.also.append(error)

    def note_wrong(self) -> None:
        """Add a failure that lists every rank with wrong numbers in a result, if there are such ranks."""
        wrong = [(rank, run) for rank, outcome in sorted(self.ranks.items()) for run in outcome.runs if run.wrong]
        if wrong:
            message, *more = [f"rank {rank}: {run.wrong} wrong elements; {run.first_wrong}" for rank, run in wrong]
            self.fail(RunError("wrong_numbers", wrong[0][0], message, "\n".join(more)))

    def note_unread(self, is_error: bool) -> None:
        """Add notices of unfinished work, and a failure (a notice unless ``is_error``) for messages never received."""
        if self.error is None:
            ranks = sorted(self.ranks.items())
            self.notices += [f"rank {number}: {line}" for number, rank in ranks for line in rank.left]
        unread = sorted(each for rank in self.ranks.values() for each in rank.unread)
        if self.error is not None or not unread:
            return
        message = _unread_text(unread)
        if not is_error:
            self.notices.append(f"{message}; with --check-invariants this is an error")
            return
        _, cube, pe = unread[0].receiver
        # JSON objects; named tuples would become JSON arrays.
        rings: list[Any] = [each._asdict() for each in unread]
        facts: FoundFacts = {"cube": cube, "pe": pe, "direction": unread[0].receiver_direction, "unread": rings}
        self.fail(RunError(IpcqUnreadMessages.kind, unread[0].receiver[0], message, facts=facts))

    @property
    def restarts(self) -> int:
        """The number of restarts, over all ranks."""
        return sum(self.incarnations.values())

    @property
    def finished(self) -> bool:
        """Whether the broker has sent ``Finished``."""
        return self.sync is not None

    @property
    def complete(self) -> bool:
        """Whether every rank has sent its result."""
        return len(self.ranks) == self._size

    @property
    def status(self) -> str:
        """The status for result files: ``ok``, ``failed`` or ``interrupted``."""
        if self.error is None:
            return "ok"
        return "interrupted" if self.error.kind in INTERRUPTIONS else "failed"

    @property
    def exit_code(self) -> int:
        """The exit code of the launcher: 0, or the exit code of the error's kind (``docs/faults.md``)."""
        return 0 if self.error is None else ERROR_KINDS[self.error.kind]


def _unread_text(unread: list[Unread]) -> str:
    total, listed = sum(each.messages for each in unread), unread[:MOST_UNREAD]
    rings = [
        f"{each.messages} from {place_name(each.sender)} ({each.sender_direction}) "
        f"to {place_name(each.receiver)} ({each.receiver_direction})"
        for each in listed
    ]
    rest = sum(each.messages for each in unread[MOST_UNREAD:])
    rings += [f"{rest} in {len(unread) - MOST_UNREAD} other directions"] if rest else []
    return f"{total} {'message was' if total == 1 else 'messages were'} sent and never received: {', '.join(rings)}"


def _same(one: RunError, other: RunError) -> bool:
    return (one.kind, one.rank, one.message) == (other.kind, other.rank, other.message)


def _place_of(failed: RankFailed) -> FoundFacts:
    where = failed.where
    place: FoundFacts = {} if where.cube == -1 else {"cube": where.cube}
    if where.pe != -1:
        place["pe"] = where.pe
    if where.direction:
        place["direction"] = where.direction
    return place
