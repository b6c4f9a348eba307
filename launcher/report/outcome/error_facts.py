"""The failure of a run as it stands in result files: every key that it may have, with its meaning.

``error`` of ``--json``, and ``error.json`` of ``--log-dir`` and ``--run-dir``. A key that is unknown, or of no meaning
for the kind of failure, is left out.
"""

from typing import Annotated, TypedDict

from sipsim.core.fields import no_time, simulated_time
from sipsim.insight.hangs.facts import CodeFacts, DeadlockFacts, PositionFacts
from sipsim.records.dump import Unread


class Failure(TypedDict):
    """What is known of every failure."""

    kind: Annotated[str, no_time("The kind of failure, from a closed list; it decides the exit code.")]
    rank: Annotated[int | None, no_time("The SIP that failed; null for a failure of no one SIP.")]
    message: Annotated[str, no_time("The failure in one line.")]


class FoundFacts(CodeFacts, total=False):
    """What may be known besides: :attr:`launcher.report.outcome.outcome.RunError.facts`, and what the launcher adds.

    A value of None, or an empty text, is left out of the files.
    """

    process: Annotated[str, no_time("The process that failed, such as sip-2 or broker.")]
    host: Annotated[str, no_time("The name of the host on which that process ran, or which was lost.")]
    pid: Annotated[int | None, no_time("The operating system's number of that process.")]
    signal: Annotated[str, no_time("The signal that ended the process, such as SIGKILL.")]
    exit_code: Annotated[int, no_time("The code with which the process ended by itself.")]
    oom_kills: Annotated[int, no_time("Processes that the kernel of this host killed for want of memory in the run.")]
    time_ps: Annotated[int, simulated_time("How far the rank had come when it failed, in ps.")]
    granted_ps: Annotated[int | None, simulated_time("The horizon of the rank's last grant, in ps.")]
    incarnation: Annotated[int, no_time("The number of the process that simulated the rank, from 0.")]
    restarts: Annotated[int, no_time("Restarts of processes in the run, of all ranks.")]
    last_lines: Annotated[list[str], no_time("The last lines that the process printed.")]
    log: Annotated[str, no_time("The path of all that the process printed, with --log-dir.")]
    peer: Annotated[int, no_time("The SIP to which the rank has lost its connection.")]
    ranks: Annotated[list[int], no_time("The SIPs that ran on a host that was lost.")]
    missing: Annotated[list[int], no_time("The SIPs that had not joined by the deadline.")]
    direction: Annotated[str, no_time("The direction of the queue pair that the failure is about.")]
    deadlock: Annotated[DeadlockFacts, no_time("Of a deadlock: who waits for what.")]
    positions: Annotated[list[PositionFacts], no_time("Of a run that was stopped: where the code of each task was.")]
    unread: Annotated[list[Unread], no_time("Of IpcqUnreadMessages: the rings that still held messages.")]
    record: Annotated[int, no_time("Of the second pass: the number of the wrong record in its rank's op log, from 1.")]
    record_text: Annotated[str, no_time("Of the second pass: the text of that record, shortened.")]
    also: Annotated[list[Failure], no_time("Later failures, in their order.")]


class ErrorFacts(Failure, FoundFacts):
    """The failure that ended the run: ``error`` of the result document."""


class ErrorFile(ErrorFacts):
    """``error.json``: the failure, and what makes it readable by itself."""

    schema: Annotated[int, no_time("Version of this format; keys may be added without another number.")]
    version: Annotated[str, no_time("The version of the simulator.")]
    status: Annotated[str, no_time("failed, or interrupted.")]
    detail: Annotated[str, no_time("Further lines, such as a traceback or the report of a deadlock; may be empty.")]
