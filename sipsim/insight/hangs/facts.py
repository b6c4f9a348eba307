"""A deadlock as it stands in result files: every key with its meaning."""

from typing import Annotated, NotRequired, TypedDict

from sipsim.core.fields import no_time, simulated_time
from sipsim.records.dump import BlockedResource, QueueEnd


class WaitFacts(TypedDict):
    """A PE that waits on a queue pair."""

    op: Annotated[str, no_time("What waits: send or recv.")]
    file: Annotated[str, no_time("The file of the kernel's line that waits; empty where it is not known.")]
    line: Annotated[int, no_time("The number of that line, from 1; 0 where it is not known.")]
    here: Annotated[QueueEnd, no_time("The end of the queue pair at the PE that waits.")]
    peer: Annotated[list[int], no_time("SIP, cube and PE of the far end.")]
    there: Annotated[QueueEnd | None, no_time("The far end; null where no SIP has told of it.")]


class CodeFacts(TypedDict, total=False):
    """The line of user code that runs or waits, and the PE of a kernel."""

    cube: Annotated[int, no_time("The cube on which a kernel runs, or failed.")]
    pe: Annotated[int, no_time("The PE of that cube.")]
    file: Annotated[str, no_time("The file of the line; empty where it is not known.")]
    line: Annotated[int, no_time("The number of the line, from 1; 0 where it is not known.")]


class TaskFacts(CodeFacts, total=False):
    """A kernel or a host script, and where its code is."""

    rank: Annotated[int, no_time("The SIP.")]
    task: Annotated[str, no_time("What it is: a kernel by its place, or the host script.")]
    waits_for: Annotated[str, no_time("What it waits for; empty while it runs.")]


class PositionFacts(TaskFacts, total=False):
    """The same. Of a rank that could not tell, only why."""

    unknown: Annotated[str, no_time("Why nothing is known of the rank.")]


class DeadlockFacts(TypedDict):
    """Who waits for what when nothing can happen any more; channels only of chips that tell what is blocked in them."""

    blocked: NotRequired[
        Annotated[list[BlockedResource], no_time("Channels that are blocked; those of the cause come first.")]
    ]
    channel_cycle: NotRequired[
        Annotated[
            list[str],
            no_time("Names of channels, each waiting for the next and the last for the first; empty without a cycle."),
        ]
    ]
    reason: Annotated[str, no_time("The cycle of waits, or what is missing, in one line.")]
    hint: Annotated[str, no_time("The likely cause in the program, in one line; may be empty.")]
    time_ps: Annotated[int, simulated_time("When the last thing happened, in ps.")]
    waits: Annotated[list[WaitFacts], no_time("Every PE that waits on a queue pair; those of the cause come first.")]
    others: Annotated[list[TaskFacts], no_time("Kernels and scripts that wait for something else than a queue pair.")]
    cycle: Annotated[list[list[int]], no_time("SIP, cube and PE of each PE in the cycle; empty without a cycle.")]
