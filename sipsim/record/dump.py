"""What a SIP tells of a run that did not end well: a dump of its tasks and queues, and messages left unread."""

from typing import Annotated, NamedTuple

import msgspec

from sipsim.record.fields import no_time

Place = tuple[int, int, int]
"""(sip, cube, pe). Cube and PE are -1 for what lies on none, such as the host program."""


class Unread(NamedTuple):
    """Messages of one ring that were sent and not received."""

    sender: Annotated[Place, no_time("SIP, cube and PE that sent the messages.")]
    sender_direction: Annotated[str, no_time("The direction in which they were sent.")]
    receiver: Annotated[Place, no_time("SIP, cube and PE in whose ring they lie.")]
    receiver_direction: Annotated[str, no_time("The direction from which they were to be received.")]
    messages: Annotated[int, no_time("How many messages were left.")]


class QueueState(msgspec.Struct, frozen=True):
    """One queue pair: its place, direction, peer, the four pointers and the address range it receives in.

    ``tx_base_pa`` is 0 for a receive-only ring.
    """

    place: Place
    direction: str
    peer: Place
    my_head: int
    my_tail: int
    peer_head_cache: int
    peer_tail_cache: int
    rx_base_pa: int
    rx_bytes: int
    tx_base_pa: int
    n_slots: int

    @property
    def unread(self) -> int:
        """Messages that have arrived and were not received."""
        return self.peer_head_cache - self.my_tail


class TaskState(msgspec.Struct, frozen=True):
    """A task that has not ended, and what it waits for: with ``op``, any of the queues of ``directions``."""

    place: Place
    name: str
    waits_for: str
    op: str
    directions: tuple[str, ...]


class SipDump(msgspec.Struct, frozen=True):
    """The queues and tasks of one SIP."""

    rank: int
    now_ps: int
    queues: tuple[QueueState, ...]
    tasks: tuple[TaskState, ...]
