"""A deadlock as it stands in result files: every key with its meaning."""

from typing import Annotated, TypedDict

from sipsim.core.fields import no_time, simulated_time


class QueueEnd(TypedDict):
    """One end of a queue pair: its PE, its four pointers (ADR-0023 D2) and where it receives."""

    rank: Annotated[int, no_time("The SIP of this end.")]
    cube: Annotated[int, no_time("The cube of this end.")]
    pe: Annotated[int, no_time("The PE of this end.")]
    direction: Annotated[str, no_time("The direction by which the kernel there names the queue pair.")]
    my_head: Annotated[int, no_time("Messages that this end has sent.")]
    my_tail: Annotated[
        int,
        no_time("Slots that this end has freed: of messages that it has received, and read if they are used in place."),
    ]
    peer_head_cache: Annotated[int, no_time("Messages of the peer that have arrived here.")]
    peer_tail_cache: Annotated[int, no_time("Messages sent from here whose slots the peer has freed, as known here.")]
    rx_base_pa: Annotated[int, no_time("The physical address of the ring in which this end receives.")]
    rx_bytes: Annotated[int, no_time("The size of that ring in bytes.")]


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


class BlockedFacts(TypedDict):
    """A part of the hardware that cannot go on: :class:`sipsim.records.dump.BlockedResource`."""

    name: Annotated[str, no_time("What is blocked; the name is unique over the run.")]
    waits_for: Annotated[str, no_time("The name of what has to go on first, which need not be blocked.")]
    text: Annotated[str, no_time("What it holds and lacks; may be empty.")]


class BlockedChannelsFacts(TypedDict, total=False):
    """Of chips that tell what is blocked in them."""

    blocked: Annotated[list[BlockedFacts], no_time("Channels that are blocked; those of the cause come first.")]
    channel_cycle: Annotated[
        list[str],
        no_time("Names of channels, each waiting for the next and the last for the first; empty without a cycle."),
    ]


class DeadlockFacts(BlockedChannelsFacts):
    """Who waits for what when nothing can happen any more."""

    reason: Annotated[str, no_time("The cycle of waits, or what is missing, in one line.")]
    hint: Annotated[str, no_time("The likely cause in the program, in one line; may be empty.")]
    time_ps: Annotated[int, simulated_time("When the last thing happened, in ps.")]
    waits: Annotated[list[WaitFacts], no_time("Every PE that waits on a queue pair; those of the cause come first.")]
    others: Annotated[list[TaskFacts], no_time("Kernels and scripts that wait for something else than a queue pair.")]
    cycle: Annotated[list[list[int]], no_time("SIP, cube and PE of each PE in the cycle; empty without a cycle.")]
