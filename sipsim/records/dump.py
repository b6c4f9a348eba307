"""What a SIP tells of a run that did not end well: a dump of its tasks and queues."""

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
"""(sip, cube, pe). Cube and PE are -1 for what lies on none, such as the host program."""


def place_name(place: Place) -> str:
    """A PE as text; a SIP where it is on none."""
    return f"rank {place[0]}" if place[1] < 0 else f"rank {place[0]} cube {place[1]} PE {place[2]}"


class QueueEnd(msgspec.Struct, frozen=True):
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


class QueueState(QueueEnd, frozen=True):
    """One end of a queue pair, with its peer, and what else a report needs.

    ``tx_base_pa`` is 0 for a receive-only ring. ``in_use``: a handle for each slot of this PE's ring whose
    message was taken; empty for one that is being read. ``generation``: two of these may have rings at one address, of
    which the earlier one is closed and waits for credits.
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
        """Messages that have arrived and were not received."""
        return self.peer_head_cache - self.my_tail - len(self.in_use)


class Waiting(NamedTuple):
    """Why a task is blocked on queues: ``op`` is send or recv, and any of ``directions`` resumes it."""

    op: str
    directions: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.op} {' or '.join(self.directions)}"


class TaskState(msgspec.Struct, frozen=True):
    """A task that has not ended, and what it waits for: with ``op``, any of the queues of ``directions``.

    ``file`` (absolute) and ``line``: where its code is, "" and 0 if that is unknown; ``word``: that of ``tl`` which it
    has called. ``waits_for`` is "" for a task that runs. ``is_server``: nothing has to wake it.
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
    """A part of the hardware that cannot go on before another one does, such as a channel of a router.

    Its name is such as ``SIP 2 eth8 receiver 0``, its text such as ``8 of its 8 slots hold packets``. A name that is
    told several times goes on with any of those.
    """

    name: Annotated[str, no_time("What is blocked; the name is unique over the run.")]
    waits_for: Annotated[str, no_time("The name of what has to go on first, which need not be blocked.")]
    text: Annotated[str, no_time("What it holds and lacks; may be empty.")]

    def __str__(self) -> str:
        text = f" ({self.text})" if self.text else ""
        return f"{self.name}{text} waits for {self.waits_for}"


class SipDump(msgspec.Struct, frozen=True):
    """The queues and tasks of one SIP. ``calls``: how many collectives its host script has called, by group;
    ``open_calls``: those that have not ended. ``blocked``: what is in the chip and blocks there. ``has_ipcq``: whether
    it is a chip with queues.
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
"""The name of a SIP's host program."""
_DUMP = msgspec.json.Decoder(SipDump)


def task_state(rank: int, task: Task, frame: FrameType | None, chip_file: str) -> TaskState:
    """A task of SIP ``rank``, and the place of its code by the innermost frame of it; see ``code_place``."""
    reason, where = task.waits_for, code_place(frame, chip_file)
    waiting = reason if isinstance(reason, Waiting) else Waiting("", ())
    waits_for = str(reason) if reason is not None else "" if frame is not None else NOT_STARTED
    op, directions = waiting
    place = (rank, *task.on_pe)
    return TaskState(
        place, task.name, waits_for, op, directions, where.file, where.line, where.word, bool(task.is_server)
    )


def dump_from(blob: bytes) -> SipDump:
    """A dump from its JSON.

    Raises:
        BadFrame: for bytes that are no dump.
    """
    return checked(_DUMP.decode, blob, "the dump of a SIP")


def dump_as_text(dump: SipDump) -> str:
    """A dump as a short line of text."""
    return base64.b64encode(zlib.compress(msgspec.json.encode(dump))).decode()


def dump_from_text(text: str) -> SipDump:
    """The dump of :func:`dump_as_text`.

    Raises:
        BadFrame: for any other text.
    """
    try:
        blob = zlib.decompressobj().decompress(base64.b64decode(text), MAX_FRAME_BYTES)
    except (ValueError, zlib.error) as error:
        raise BadFrame(f"not the dump of a SIP: {error}") from None
    return dump_from(blob)
