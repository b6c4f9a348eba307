"""Dump of a SIP: its tasks, queues and blocked hardware, for reports of deadlocks and hangs."""

import base64
import zlib
from types import FrameType
from typing import Annotated, NamedTuple

import msgspec

from broker.ids import MAX_FRAME_BYTES
from broker.wire import BadFrame, checked
from sipsim.collectives.call import OpenCall
from sipsim.core.fields import no_time
from sipsim.core.task import Task
from sipsim.records.code_place import code_place

Place = tuple[int, int, int]
"""A PE as (sip, cube, pe). Cube and PE are -1 for a task that runs on no PE, such as the host program."""


def place_name(place: Place) -> str:
    """Return a place as text: rank, cube and PE, or only the rank for a task that runs on no PE."""
    return f"rank {place[0]}" if place[1] < 0 else f"rank {place[0]} cube {place[1]} PE {place[2]}"


class QueueEnd(msgspec.Struct, frozen=True):
    """One end of a queue pair: the PE, the four pointers (ADR-0023 D2) and the receive ring."""

    rank: Annotated[int, no_time("The SIP of this end.")]
    cube: Annotated[int, no_time("The cube of this end.")]
    pe: Annotated[int, no_time("The PE of this end.")]
    direction: Annotated[str, no_time("The direction by which the kernel at this end names the queue pair.")]
    my_head: Annotated[int, no_time("Messages that this end has sent.")]
    my_tail: Annotated[
        int,
        no_time("Slots that this end has freed, of messages that it has received (with latch in_place: and used)."),
    ]
    peer_head_cache: Annotated[int, no_time("Messages of the peer that have arrived at this end.")]
    peer_tail_cache: Annotated[int, no_time("Messages sent by this end whose slots the peer has freed, as known here.")]
    rx_base_pa: Annotated[int, no_time("The physical address of the ring in which this end receives.")]
    rx_bytes: Annotated[int, no_time("The size of that ring in bytes.")]


class QueueState(QueueEnd, frozen=True):
    """One end of a queue pair, with the PE of the other end (``peer``) and further state for reports.

    ``tx_base_pa`` is 0 for a receive-only ring. ``in_use``: for each slot of this PE's ring whose message was taken,
    the name of the message's handle; "" during the read. ``generation``: distinguishes rings at one address; the ring
    of the lower number is closed and waits for credits.
    """

    peer: Place
    tx_base_pa: int
    n_slots: int
    in_use: tuple[str, ...] = ()
    generation: int = 0

    @property
    def place(self) -> Place:
        """The PE of this end."""
        return self.rank, self.cube, self.pe

    @property
    def unread(self) -> int:
        """The number of messages that have arrived at this end and that no recv has taken."""
        return self.peer_head_cache - self.my_tail - len(self.in_use)


class Waiting(NamedTuple):
    """The wait of a task on queues: ``op`` is send or recv, and any of ``directions`` resumes the task."""

    op: str
    directions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} {' or '.join(self.directions)}"


class TaskState(msgspec.Struct, frozen=True):
    """A task that has not ended. ``op``: send or recv if the task waits on queues of ``directions``, else "".

    ``file`` (absolute) and ``line``: code position, "" and 0 if unknown; ``word``: the function of ``tl`` that the task
    has called. ``waits_for`` is "" if the task runs. ``is_server``: the task may wait forever without being hung.
    """

    place: Place
    name: str
    waits_for: str
    op: str
    directions: tuple[str, ...]
    file: str = ""
    line: int = 0
    word: str = ""
    is_server: bool = False


class BlockedResource(msgspec.Struct, frozen=True):
    """A hardware resource that waits for another hardware resource, such as a channel of a router.

    Example of a name: ``SIP 2 eth8 receiver 0``; of a text: ``8 of its 8 slots hold packets``. A resource with several
    entries proceeds when the ``waits_for`` of any of these entries proceeds.
    """

    name: Annotated[str, no_time("What is blocked; the name is unique over the run.")]
    waits_for: Annotated[str, no_time("The name of the resource that must proceed first; it need not be blocked.")]
    text: Annotated[str, no_time("What the resource holds and lacks; may be empty.")]

    def __str__(self) -> str:
        text = f" ({self.text})" if self.text else ""
        return f"{self.name}{text} waits for {self.waits_for}"


class SipDump(msgspec.Struct, frozen=True):
    """The queues and tasks of one SIP. ``calls``: number of collectives that the script has called, by group;
    ``open_calls``: the calls that have not ended. ``blocked``: blocked hardware resources of the chip. ``has_ipcq``:
    whether the chip has IPCQ queues.
    """

    rank: int
    now_ps: int
    queues: tuple[QueueState, ...]
    tasks: tuple[TaskState, ...]
    calls: dict[int, int] = {}
    open_calls: tuple[OpenCall, ...] = ()
    blocked: tuple[BlockedResource, ...] = ()
    has_ipcq: bool = False


NOT_STARTED = "its start"
HOST_SCRIPT = "host script"
"""The task name of a SIP's host program."""
_DUMP = msgspec.json.Decoder(SipDump)


def task_state(rank: int, task: Task, frame: FrameType | None, chip_file: str) -> TaskState:
    """Return the state of a task of SIP ``rank``. ``frame``: the innermost frame of the task, for its position."""
    reason, position = task.waits_for, code_place(frame, chip_file)
    waiting = reason if isinstance(reason, Waiting) else Waiting("", ())
    waits_for = str(reason) if reason is not None else "" if frame is not None else NOT_STARTED
    op, directions = waiting
    place = (rank, *task.on_pe)
    return TaskState(place, task.name, waits_for, op, directions, *position, bool(task.is_server))


def dump_from(blob: bytes) -> SipDump:
    """Decode a dump from JSON.

    Raises:
        BadFrame: the bytes are not a dump.
    """
    return checked(_DUMP.decode, blob, "the dump of a SIP")


def dump_as_text(dump: SipDump) -> str:
    """Encode a dump as one line of text: base64 of compressed JSON."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(dump))).decode()


def dump_from_text(text: str) -> SipDump:
    """Decode the text of :func:`dump_as_text`.

    Raises:
        BadFrame: the text is not a dump.
    """
    try:
        blob = zlib.decompressobj().decompress(base64.b64decode(text), MAX_FRAME_BYTES)
    except (ValueError, zlib.error) as error:
        raise BadFrame(f"not the dump of a SIP: {error}") from None
    return dump_from(blob)
