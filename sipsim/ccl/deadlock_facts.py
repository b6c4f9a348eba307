"""A deadlock as it stands in result files: every key with its meaning."""

from typing import Annotated, TypedDict

from sipsim.record.fields import no_time, simulated_time


class QueueEnd(TypedDict):
    """One end of a queue pair: its PE, its four pointers (ADR-0023 D2) and where it receives."""

    rank: Annotated[int, no_time("The SIP of this end.")]
    cube: Annotated[int, no_time("The cube of this end.")]
    pe: Annotated[int, no_time("The PE of this end.")]
    direction: Annotated[str, no_time("The direction by which the kernel there names the queue pair.")]
    my_head: Annotated[int, no_time("Messages that this end has sent.")]
    my_tail: Annotated[int, no_time("Messages that this end has received.")]
    peer_head_cache: Annotated[int, no_time("Messages of the peer that have arrived here.")]
    peer_tail_cache: Annotated[int, no_time("Messages sent from here whose slots the peer has freed, as known here.")]
    rx_base_pa: Annotated[int, no_time("The physical address of the ring in which this end receives.")]
    rx_bytes: Annotated[int, no_time("The size of that ring in bytes.")]


class WaitFacts(TypedDict):
    """A PE that waits on a queue pair."""

    op: Annotated[str, no_time("What waits: send or recv.")]
    here: Annotated[QueueEnd, no_time("The end of the queue pair at the PE that waits.")]
    peer: Annotated[list[int], no_time("SIP, cube and PE of the far end.")]
    there: Annotated[QueueEnd | None, no_time("The far end; null where no SIP has told of it.")]


class DeadlockFacts(TypedDict):
    """Who waits for what when nothing can happen any more."""

    reason: Annotated[str, no_time("The cycle of waits, or what is missing, in one line.")]
    time_ps: Annotated[int, simulated_time("When the last thing happened, in ps.")]
    waits: Annotated[list[WaitFacts], no_time("Every PE that waits on a queue pair; those of the cause come first.")]
    cycle: Annotated[list[list[int]], no_time("SIP, cube and PE of each PE in the cycle; empty without a cycle.")]
