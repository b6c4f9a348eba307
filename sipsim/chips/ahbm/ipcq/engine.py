"""PE_IPCQ takes the sends and receives of a kernel.

In ``return_slot`` mode a received message stays in its slot, and one in HBM or SRAM is fetched when its values are
first used, unless it was copied; a slot in the PE's own TCM needs no fetch. When its slot may be written again, says
:mod:`sipsim.chips.ahbm.ipcq.messages`.
"""

import math
from functools import partial

import numpy as np

from sipsim.chips.ahbm.ipcq.messages import COPY, PASS, CopyTo, Message, Received, Source, TakenSlot, WireFormat
from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.chips.ahbm.pe.commands import Completion, Direction, IpcqRecv, IpcqRelease, IpcqSend
from sipsim.chips.ahbm.pe.cpu import ROOM
from sipsim.chips.ahbm.pe.engine import CommandEngine, SendPlaces, engine_for
from sipsim.chips.ahbm.pe.tcm import Array
from sipsim.collectives.call import differing
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import CollectiveMismatch, IpcqTypeMismatch
from sipsim.core.task import Task
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps
from sipsim.records.oplog import TraceLine, as_text, record_kind, shape_of
from sipsim.records.replay import READ, ReplayPe, replays

SEND = record_kind(
    "ipcq.send", "src", "dst", "space", "addr", "nbytes", "dir", "dtype", "shape", "sender_seq", "source"
)
RECV_FIELDS = ("recv_mode", "src", "dst", "space", "addr", "nbytes", "dir", "dtype", "shape", "consumer_seq")
RECV = record_kind("ipcq.recv", *RECV_FIELDS, "result", "dst_addr")
RELEASE = record_kind("ipcq.release", "dir", "consumer_seq", "handle")
NO_ADDRESS = "-"
RETURN_SLOT, COPY_TO_DST = "return_slot", "copy_to_dst"


class IpcqEngine(CommandEngine):
    """What sends and receives share."""

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__(sip, pe)
        self._ipcq = pe.ipcq
        self._place = sip.sip, pe.cube, pe.pe
        self.rank = sip.sip
        self._here = f"{sip.sip}.{pe.cube}.{pe.pe}"
        self.is_strict = sip.plan.ipcq.strict_validation
        self._stays_in_slot = sip.plan.ipcq.latch != COPY


class Sending(Completion, kw_only=True):
    """A send, which ends when its message leaves; nobody waits for the arrival."""

    engine: "SendEngine"
    source: Source
    phase: str
    is_followed: bool = False

    def sent(self, slot_pa: int, seq: int, span: int, sent_ps: int) -> None:
        """The message leaves at ``sent_ps``."""
        self.engine.end(self, slot_pa, seq, span, sent_ps)

    def passed(self, message: Message, passed_ps: int) -> None:
        """Note that the last byte of the message passes PE_DMA at ``passed_ps``."""
        self.engine.passed(self, message, passed_ps)


@engine_for(IpcqSend)
class SendEngine(IpcqEngine):
    """The op log has a send at the step in which its message leaves."""

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__(sip, pe)
        parts, self._wire_format = sip.plan.resolved.components, WireFormat(sip.plan.ipcq.hw_strict)
        self._bandwidth_bps = gbytes_per_s_to_bps(parts.pe_dma.bandwidth_GBps)
        depth = parts.pe_scheduler.queue_depth
        self._places = None if depth is None else SendPlaces(depth)

    def issue(self, task: Task) -> None:
        """The kernel waits for a place in PE_DMA's queue, too. A send is decided when its issue begins."""
        cpu = self._pe.cpu
        cpu.catch_up(task)
        cpu.issue(task)
        if self._places is not None:
            self._wait_for_place(task, self._places)

    def _wait_for_place(self, task: Task, places: SendPlaces) -> None:
        now_ps = self.now_on_cpu_ps()
        while (free_ps := places.free_ps(now_ps)) is None:
            places.wait(task, self._engine, ROOM)
        if free_ps > now_ps:
            self._pe.cpu.pause_until(task, free_ps, ROOM, since_ps=now_ps)

    def take(self, command: IpcqSend) -> Completion:
        direction, source, nbytes, dims, dtype = command
        if isinstance(source, int):
            taken = Source(partial(self._sip.memory.read, source, nbytes), source, nbytes, dtype.name, dims)
        else:
            taken = Source(source.array.tobytes, source.slot_pa, nbytes, dtype.name, dims, source.tcm_pa)
        start_ps, phase = self.now_on_cpu_ps(), self._pe.phase
        sending = Sending(command, start_ps, self._cause(), engine=self, source=taken, phase=phase)
        if not isinstance(source, int):
            self._claim(sending, source)
            if sending.reads:
                source.slot_pa = None
        sending.is_followed = bool(sending.reads) or self._places is not None
        self._ipcq.send(direction, sending)
        return sending

    def passed(self, sending: Sending, message: Message, passed_ps: int) -> None:
        """The last byte of a message passes PE_DMA then, now or later: its slot is read, and its place free."""
        if self._places is not None:
            wire_bytes = self._wire_format.message_bytes(len(message.data))
            self._places.passes(passed_ps, drain_ps(wire_bytes, self._bandwidth_bps))
        if not sending.reads:
            return
        read = self._recorder.span(self._ipcq.name, PASS, message.sent_ps, passed_ps, message.span)
        reads, sending.reads = sending.reads, ()
        for slot in reads:
            self._ipcq.slots.release(slot, read, read_ps=passed_ps)

    def end(self, sending: Sending, slot_pa: int, seq: int, span: int, sent_ps: int) -> None:
        """The message leaves by ``span``."""
        short_name, source, nbytes, dims, dtype = sending.command
        queue, now_ps = self._ipcq.queues[short_name], sent_ps
        direction = queue.direction
        if self._places is not None:
            self._places.add()
        if self._recorder.tracer is not None:
            done = *self._place, now_ps, "send", direction, nbytes
            run, peer = self._pe.run, queue.peer_name
            self._recorder.tracer(TraceLine(*done, run, sending.start_ps, peer, sending.phase))
        self._log(
            SEND,
            now_ps,
            now_ps,
            self._pe.cube,
            self._pe.pe,
            self._here,
            queue.peer_name,
            queue.peer.buffer_kind,
            slot_pa,
            nbytes,
            direction,
            dtype.name,
            as_text(dims),
            seq,
            source if isinstance(source, int) else source.name,
        )
        # Its values have left, whatever the kernel, which may go on below, does with the handle.
        del source
        sending.command = None
        if sending.waiter is None:
            sending.ended = True
        else:
            self._release(sending, span, "send", self._engine.now_ps)


class Receiving(Completion, kw_only=True):
    """A receive, which ends when the credit for its slot has been emitted. ``value``: its message, once it is taken."""

    engine: "ReceiveEngine"
    copy_to: CopyTo | None
    phase: str
    call: str
    waits_since_ps: int | None = None
    slot: TakenSlot | None = None
    freed_ps: int = 0
    freed_by: int = 0

    @property
    def tcm_pa(self) -> int | None:
        """The TCM address that its values will have, if any."""
        address: int | None = self.command.result.tcm_pa
        return address

    def wait(self, task: Task) -> None:
        """Its kernel waits from now on."""
        if not self.ended:
            self.waits_since_ps = self.engine.now_on_cpu_ps()
        super().wait(task)

    def take(self, received: Received) -> None:
        """Its message was taken from the slot; it may be of another size or type."""
        self.value = received
        kind, dims = self.command.dtype, self.command.dims
        if received.call != self.call and received.call and self.call:
            self.error = _other_call(self.engine.rank, self.call, received)
            return
        fits = len(received.data) == math.prod(dims) * kind.itemsize
        if not fits or (self.engine.is_strict and (received.dtype, received.shape) != (kind.name, dims)):
            self.error = _mismatch(self.command, received)

    def keep(self, taken: TakenSlot) -> None:
        """Its handle stands for the slot, whose credit comes later."""
        self.slot, taken.handle = taken, self.command.result.name
        self.engine.end(self)

    def returned(self) -> None:
        """The credit for its slot has been emitted."""
        self.engine.end(self)


@engine_for(IpcqRecv)
class ReceiveEngine(IpcqEngine):
    """The op log has a receive at its end, in the order in which receives end."""

    starts_later = True

    def take(self, command: IpcqRecv) -> Completion:
        start_ps, copy_to, phase = self.now_on_cpu_ps(), command.copy_to, self._pe.phase
        receiving = Receiving(
            command, start_ps, self._cause(), engine=self, copy_to=copy_to, phase=phase, call=self._ipcq.call
        )
        direction = command.direction
        if direction is Direction.ANY:
            self._ipcq.post_any(receiving)
        else:
            self._ipcq.post(direction, receiving)
        return receiving

    def end(self, receiving: Receiving) -> None:
        """The slot was freed by the cause, and its credit has been emitted since."""
        received, (_, dims, dtype, copy_to, result) = receiving.value, receiving.command
        direction, nbytes, now_ps = received.direction, len(received.data), self._engine.now_ps
        queue = self._ipcq.every[direction]
        if self._recorder.tracer is not None:
            done = *self._place, now_ps, "recv", direction, nbytes
            run, peer = self._pe.run, queue.peer_name
            self._recorder.tracer(TraceLine(*done, run, receiving.start_ps, peer, receiving.phase))
        if receiving.error is None:
            result.array = np.frombuffer(received.data, dtype.numpy).reshape(dims)
            result.in_slot = receiving.slot
            if copy_to is None and queue.has_far_ring and self._stays_in_slot:
                result.slot_pa = received.slot_pa
            if self._feed is not None:
                self._feed.result(result)
        self._log(
            RECV,
            receiving.start_ps,
            now_ps,
            self._pe.cube,
            self._pe.pe,
            RETURN_SLOT if copy_to is None else COPY_TO_DST,
            queue.peer_name,
            self._here,
            queue.peer.buffer_kind,
            received.slot_pa,
            nbytes,
            direction,
            dtype.name,
            as_text(dims),
            received.consumer_seq,
            result.name,
            NO_ADDRESS if copy_to is None else copy_to.address,
        )
        span = self._recorder.span(
            self._ipcq.name,
            "recv",
            receiving.freed_ps,
            now_ps,
            receiving.freed_by,
            direction,
            received.consumer_seq - 1,
            receiving.cause,
        )
        del result
        receiving.command = None
        self._release(receiving, span, "recv", now_ps)


@engine_for(IpcqRelease)
class ReleaseEngine(IpcqEngine):
    """A release ends when the credit of its slot has been emitted, or at once if an earlier slot is still in use."""

    def take(self, command: IpcqRelease) -> Completion:
        completion, handle = self._begin(command), command.handle
        slot, handle.in_slot = handle.in_slot, None
        assert slot is not None
        slot.handle = ""
        self._ipcq.slots.release(
            slot, completion.cause, partial(self._emitted, completion, slot, handle.name), unread=True
        )
        return completion

    def _emitted(self, completion: Completion, slot: TakenSlot, name: str) -> None:
        self._end(completion, RELEASE, slot.direction, slot.seq + 1, name)


def _other_call(rank: int, call: str, received: Received) -> CollectiveMismatch:
    """The error of a message that a rank has sent in another call than the one that its receive belongs to."""
    theirs, own = differing(received.call, call)
    return CollectiveMismatch(
        f"rank {received.src_sip} called {theirs}, rank {rank} called {own}; "
        f"every rank must make the same calls in the same order",
        direction=received.direction,
    )


def _mismatch(command: IpcqRecv, received: Received) -> IpcqTypeMismatch:
    """The error of a message that is not what a receive expects."""
    kind, dims = command.dtype, command.dims
    nbytes, arrived = math.prod(dims) * kind.itemsize, len(received.data)
    return IpcqTypeMismatch(
        f"recv {received.direction} expects {kind}{list(dims)} ({nbytes} bytes), but the message is "
        f"{received.dtype}{list(received.shape)} ({arrived} bytes); make send and recv agree",
        direction=received.direction,
    )


@replays(SEND, values=READ)
def replay_send(
    pe: ReplayPe,
    _src: str,
    dst: str,
    _space: str,
    address: int,
    nbytes: int,
    direction: str,
    _dtype: str,
    _shape: str,
    seq: int,
    source: str | int,
) -> bytes:
    """The bytes of its source, which leave."""
    data = pe.value(source).tobytes() if isinstance(source, str) else pe.read(source, nbytes)
    pe.send(dst, address, seq, direction, data)
    return data


@replays(RECV, values=READ)
def replay_recv(
    pe: ReplayPe,
    _mode: str,
    _src: str,
    _dst: str,
    _space: str,
    address: int,
    nbytes: int,
    _direction: str,
    dtype: str,
    shape: str,
    consumer_seq: int,
    _result: str,
    dst_address: int | str,
) -> Array | None:
    """The message of its slot, also where it was copied to. One of another size than its receive ends the kernel."""
    data, kind, dims = pe.message(address, consumer_seq - 1, nbytes), DTYPES[dtype].numpy, shape_of(shape)
    if len(data) != math.prod(dims) * kind.itemsize:
        return None
    if isinstance(dst_address, int):
        pe.write(dst_address, data)
    return np.frombuffer(data, kind).reshape(dims)


@replays(RELEASE)
def replay_release(_pe: ReplayPe, _direction: str, _consumer_seq: int, _handle: str) -> None:
    """It changes no values."""
