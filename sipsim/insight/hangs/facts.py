"""Records of deadlocks and code positions in result files, with a description of every key."""

from typing import Annotated, NotRequired, TypedDict

from sipsim.core.fields import no_time, simulated_time
from sipsim.records.dump import BlockedResource, QueueEnd


class WaitFacts(TypedDict):
    """A PE that waits on a queue pair."""

    op: Annotated[str, no_time("The operation that waits: send or recv.")]
    file: Annotated[str, no_time("The file of the kernel's line that waits; empty if unknown.")]
    line: Annotated[int, no_time("The line number in the file, from 1; 0 if unknown.")]
    here: Annotated[QueueEnd, no_time("The end of the queue pair at the PE that waits.")]
    peer: Annotated[list[int], no_time("SIP, cube and PE of the far end.")]
    there: Annotated[QueueEnd | None, no_time("The far end; null if no SIP has reported it.")]


class CodeFacts(TypedDict, total=False):
    """The line of user code that runs or waits, and the PE of a kernel."""

    cube: Annotated[int, no_time("The cube on which a kernel runs, or failed.")]
    pe: Annotated[int, no_time("The PE of that cube.")]
    file: Annotated[str, no_time("The file of the line; empty if unknown.")]
    line: Annotated[int, no_time("The number of the line, from 1; 0 if unknown.")]


class TaskFacts(CodeFacts, total=False):
    """A kernel or a host script, and its code position."""

    rank: Annotated[int, no_time("The rank of the SIP.")]
    task: Annotated[str, no_time("The task: a kernel by its place, or the host script.")]
    waits_for: Annotated[str, no_time("What the task waits for; empty while the task runs.")]


class PositionFacts(TaskFacts, total=False):
    """The code position of a kernel or host script; of a rank that did not report, only ``rank`` and ``unknown``."""

    unknown: Annotated[str, no_time("Why no position of the rank is known.")]


class DeadlockFacts(TypedDict):
    """A deadlock: which tasks and channels wait for what. Only some chips report blocked channels."""

    blocked: NotRequired[
        Annotated[list[BlockedResource], no_time("Blocked channels; the channels of the cause are first.")]
    ]
    channel_cycle: NotRequired[
        Annotated[
            list[str],
            no_time("Names of channels, each waiting for the next and the last for the first; empty without a cycle."),
        ]
    ]
    reason: Annotated[str, no_time("The cycle of waits, or what is missing, in one line.")]
    hint: Annotated[str, no_time("The likely cause in the program, in one line; may be empty.")]
    time_ps: Annotated[int, simulated_time("The time of the last event, in ps.")]
    waits: Annotated[list[WaitFacts], no_time("Each wait of a PE on a queue pair; the waits of the cause are first.")]
    others: Annotated[list[TaskFacts], no_time("Kernels and scripts that do not wait on a queue pair.")]
    cycle: Annotated[list[list[int]], no_time("SIP, cube and PE of each PE in the cycle; empty without a cycle.")]
