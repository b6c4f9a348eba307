"""PE_IPCQ takes the sends and receives of a kernel.

In ``return_slot`` mode a received message stays in its slot, and one in HBM or SRAM is fetched when its values are
first used; a slot in the PE's own TCM needs no fetch. The bytes are latched when the receive takes the message, so the
slot may be written again.
"""

import math
from functools import partial

import numpy as np

from sipsim.errors import IpcqTypeMismatch
from sipsim.ipcq.messages import Received
from sipsim.ipcq.requests import Source
from sipsim.pe.commands import Completion, Direction, IpcqRecv, IpcqSend
from sipsim.pe.engines import CommandEngine, PeParts, SipParts, engine_for
from sipsim.record.oplog import as_text, record_kind
from sipsim.record.trace import TraceLine

SEND = record_kind(
    "ipcq.send", "src", "dst", "space", "addr", "nbytes", "dir", "dtype", "shape", "sender_seq", "source"
)
RECV_FIELDS = ("recv_mode", "src", "dst", "space", "addr", "nbytes", "dir", "dtype", "shape", "consumer_seq")
RECV = record_kind("ipcq.recv", *RECV_FIELDS, "result", "dst_addr")
NO_ADDRESS = "-"
RETURN_SLOT, COPY_TO_DST = "return_slot", "copy_to_dst"


class IpcqEngine(CommandEngine):
    """What sends and receives share."""

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__(sip, pe)
        self._ipcq = pe.ipcq
        self._here = f"{sip.sip}.{pe.cube}.{pe.pe}"
        self.is_strict = sip.plan.ipcq.strict_validation
        self.rings_are_far = sip.plan.ipcq.buffer_kind != "tcm"

    def _trace(self, op: str, direction: str, nbytes: int) -> None:
        tracer = self._recorder.tracer
        if tracer is not None:
            tracer(TraceLine(self._sip.sip, self._pe.cube, self._pe.pe, self._engine.now_ps, op, direction, nbytes))


class Sending(Completion):
    """A send, which ends when its message leaves; nobody waits for the arrival."""

    def __init__(self, engine: "SendEngine", command: IpcqSend, now_ps: int, source: Source) -> None:
        self.command = self.reason = command
        self.start_ps = now_ps
        self.cause = engine._cause()
        self._engine = engine
        self.source = source

    def sent(self, slot_pa: int, seq: int, span: int) -> None:
        """The message has left."""
        self._engine.record(self, slot_pa, seq)
        self._engine.end(self, span)


@engine_for(IpcqSend)
class SendEngine(IpcqEngine):
    """The op log has a send at the step in which its message leaves."""

    def take(self, command: IpcqSend) -> Completion:
        direction, source, nbytes, dims, dtype = command
        if isinstance(source, int):
            taken = Source(partial(self._sip.memory.read, source, nbytes), source, nbytes, dtype.name, dims)
        else:
            taken = Source(source.array.tobytes, source.slot_pa, nbytes, dtype.name, dims)
        sending = Sending(self, command, self._engine.now_ps, taken)
        self._ipcq.send(direction, sending)
        return sending

    def end(self, sending: Sending, span: int) -> None:
        """The message has left by ``span``."""
        self._release(sending, span, "send")

    def record(self, sending: Sending, slot_pa: int, seq: int) -> None:
        """To the trace and the op log."""
        direction, source, nbytes, dims, dtype = sending.command
        queue, now_ps = self._ipcq.queues[direction], self._engine.now_ps
        self._trace("send", direction, nbytes)
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


class Receiving(Completion):
    """A receive, which ends when the credit for its slot has been emitted. ``value``: its message, once it is taken."""

    def __init__(self, engine: "ReceiveEngine", command: IpcqRecv, now_ps: int) -> None:
        self.command = self.reason = command
        self.start_ps = self.freed_ps = now_ps
        self.cause = engine._cause()
        self._engine = engine
        self.copy_to = command.copy_to

    def take(self, received: Received) -> None:
        """Its message was taken from the slot; it may be of another size or type."""
        self.value = received
        self.error = mismatch(self.command, received, self._engine.is_strict)

    def returned(self) -> None:
        """The credit for its slot has been emitted."""
        self._engine.record(self)
        if self.error is None:
            received, command, result = self.value, self.command, self.command.result
            result.array = np.frombuffer(received.data, command.dtype.numpy).reshape(command.dims)
            if command.copy_to is None and self._engine.rings_are_far:
                result.slot_pa = received.slot_pa
        self._engine.end(self)


@engine_for(IpcqRecv)
class ReceiveEngine(IpcqEngine):
    """The op log has a receive at its end, in the order in which receives end."""

    def take(self, command: IpcqRecv) -> Completion:
        receiving = Receiving(self, command, self._engine.now_ps)
        direction = command.direction
        if direction is Direction.ANY:
            self._ipcq.post_any(receiving)
        else:
            self._ipcq.post(direction, receiving)
        return receiving

    def end(self, receiving: Receiving) -> None:
        """The slot was freed by the cause, and its credit has been emitted since."""
        component, now_ps = self._ipcq.name, self._engine.now_ps
        span = self._recorder.span(component, "recv", receiving.freed_ps, now_ps, receiving.cause)
        self._release(receiving, span, "recv")

    def record(self, receiving: Receiving) -> None:
        """To the trace and the op log."""
        received, command = receiving.value, receiving.command
        direction, nbytes = received.direction, len(received.data)
        queue = self._ipcq.queues[direction]
        self._trace("recv", direction, nbytes)
        self._log(
            RECV,
            receiving.start_ps,
            self._engine.now_ps,
            self._pe.cube,
            self._pe.pe,
            RETURN_SLOT if command.copy_to is None else COPY_TO_DST,
            queue.peer_name,
            self._here,
            queue.peer.buffer_kind,
            received.slot_pa,
            nbytes,
            direction,
            command.dtype.name,
            as_text(command.dims),
            received.consumer_seq,
            command.result.name,
            NO_ADDRESS if command.copy_to is None else command.copy_to.address,
        )


def mismatch(command: IpcqRecv, received: Received, is_strict: bool) -> IpcqTypeMismatch | None:
    """The error of a message that is not what a receive expects: of another size, or if strict of another type."""
    kind, dims, arrived = command.dtype, command.dims, len(received.data)
    nbytes = math.prod(dims) * kind.itemsize
    if arrived == nbytes and not (is_strict and (received.dtype, received.shape) != (kind.name, dims)):
        return None
    return IpcqTypeMismatch(
        f"recv {received.direction} expects {kind}{list(dims)} ({nbytes} bytes), but the message is "
        f"{received.dtype}{list(received.shape)} ({arrived} bytes); make send and recv agree",
        direction=received.direction,
    )
