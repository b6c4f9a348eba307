"""PE_IPCQ: sends and receives of a kernel; pointers, backpressure and credits of its queues (ADR-0023, ADR-0025).

PE_IPCQ moves no data: a send becomes a ``Message`` for the data plane. An arriving message is matched to a direction by
the address that it is written to, never by its sender (ADR-0025 D2). Invariant I6: the data write and the update of
``peer_head_cache`` happen in one step; both are in :meth:`PeIpcq.arrive`. With ``head_update: doorbell`` the update
happens later, in :meth:`PeIpcq.ring`, and never before the write.

In ``return_slot`` mode a received message stays in its slot. Unless it was copied, a message in HBM or SRAM is fetched
when its values are first used; a slot in the PE's TCM needs no fetch. ``latch`` of ``ccl.yaml`` decides when the slot
may be overwritten (:mod:`sipsim.chips.ahbm.ipcq.messages`). A slot is credited only after it and all earlier slots were
read.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.ipcq.credits import CreditReturn
from sipsim.chips.ahbm.ipcq.generations import Generation, Generations, origin_of, violation
from sipsim.chips.ahbm.ipcq.messages import (
    COPY,
    IN_PLACE,
    PASS,
    Acknowledgement,
    Credit,
    Doorbell,
    IpcqInitEntry,
    Message,
    Received,
    TakenSlot,
)
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair, Receiving, Sending
from sipsim.chips.ahbm.ipcq.records import COPY_TO_DST, NO_ADDRESS, RECV, RELEASE, RETURN_SLOT, SEND
from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.chips.ahbm.pe.commands import Completion, Direction, IpcqRecv, IpcqRelease, IpcqSend
from sipsim.chips.ahbm.pe.cpu import ROOM
from sipsim.chips.ahbm.pe.engine import CommandEngine, Issue, SendSlots, Take, engine_for
from sipsim.collectives.call import call_difference
from sipsim.core.errors import (
    AhbmError,
    CollectiveMismatch,
    IpcqInvalidDirection,
    IpcqMessageTooLarge,
    IpcqTypeMismatch,
)
from sipsim.core.task import Task
from sipsim.core.units import drain_ps, gbytes_per_s_to_bps
from sipsim.fabric.links.frames import UNSENT
from sipsim.records.dump import Waiting
from sipsim.records.oplog import TraceLine, as_text
from sipsim.records.replay import message_crc

Ps = int


def nothing() -> None:
    """Do nothing: no completion waits for the credit."""


POLL, WAKEUP = "poll", "wakeup"
"""Names of the spans from an event to the poll that sees it, or to the end of the wake-up."""


@engine_for(IpcqSend, IpcqRecv, IpcqRelease)
class PeIpcq(CommandEngine):
    """All queue pairs of one PE: the plan's (generation 0) and the pairs of later generations.

    A kernel sees the generation in use (:meth:`use`): ``queues`` by short name, ``rank`` and ``world_size``. ``call``:
    text of the collective call that the kernel belongs to.
    """

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__(sip, pe)
        place, plan = PePlace(sip.sip, pe.cube, pe.pe), sip.plan
        self.place = place[:3]
        first = Generation(0, plan.entries_of(place), plan.rank_of.get(place), plan.world_size, plan.algorithm.name)
        self.generations = Generations(self.place, first, sip.closed)
        self._in_use = self.generations.live[0]
        self.queues = self._in_use.queues
        self.call = ""
        self._here = f"{sip.sip}.{pe.cube}.{pe.pe}"
        self._memory = sip.memory
        self._messages = sip.messages
        self._checker = sip.checker
        self._span = sip.recorder.span
        self._mmu = pe.mmu
        self._latch = plan.ipcq.latch
        self._has_doorbells = plan.ipcq.has_doorbells
        parts = plan.resolved.components
        self._dma_bps = gbytes_per_s_to_bps(parts.pe_dma.bandwidth_GBps)
        depth = parts.pe_scheduler.queue_depth
        self._send_slots = None if depth is None else SendSlots(depth)
        self._backpressure = plan.backpressure
        self._delays = plan.backpressure.delays
        self._credit_return = CreditReturn(sip)
        self.name = f"cube{place[1]}.pe{place[2]}.ipcq"
        self._any_receivers: deque[Receiving] = deque()
        self._any_since_ps = 0
        self._any_wakes = False

    @property
    def every(self) -> dict[str, QueuePair]:
        """The queue pairs of all generations, by full name."""
        return self.generations.queues

    @property
    def rank(self) -> int | None:
        """The PE's rank in the generation in use; None if the PE takes no part."""
        return self._in_use.rank

    @property
    def world_size(self) -> int:
        """The number of ranks of the generation in use."""
        return self._in_use.world_size

    @property
    def last_polled_dir(self) -> str | None:
        """The direction, by its short name, that served the last receive without a direction."""
        return self._in_use.last_polled_dir

    def use(self, generation: int = 0, call: str = "") -> None:
        """Select the generation of a kernel that begins. ``call``: text of its collective call, empty if there is none.

        Raises:
            InvariantViolation: if the generation is not installed on this PE.
        """
        self.call = call
        if generation != self._in_use.number:
            self._in_use = self.generations.get(generation, "a kernel cannot run with")
            self.queues = self._in_use.queues

    def install(self, generation: int, entries: Iterable[IpcqInitEntry], rank: int | None, world_size: int) -> None:
        """Install the queue pairs of generation 1 or later, and deliver the messages that arrived for it early.

        Raises:
            InvariantViolation: for a number that is or was in use.
        """
        for message in self.generations.install(Generation(generation, entries, rank, world_size)):
            self.arrive(message)

    def check_idle(self, generation: int) -> None:
        """Check that a generation may be closed.

        Raises:
            IpcqInUse: if a ring holds a message that is not received and released, or a send or receive waits.
            InvariantViolation: if the generation is not installed on this PE.
        """
        closing = self.generations.get(generation, "cannot close")
        closing.check_idle(self.place, any_receive_waits=closing is self._in_use and bool(self._any_receivers))

    def close(self, generation: int) -> None:
        """Close the queue pairs of a generation; they still accept credits for messages that they sent.

        Raises:
            InvariantViolation, IpcqInUse: as :meth:`check_idle`.
        """
        self.check_idle(generation)
        if generation == self._in_use.number:
            self.use(0)
        closed = self.generations.live[generation]
        closed.is_closed = True
        if not closed.awaits_credits():
            self._forget(closed)

    def accepts(self, command: type) -> tuple[Issue, Take]:
        """Return the issue and take functions of a command type. A receive may be posted during its issue."""
        if command is IpcqSend:
            return self._issue_send, self.send
        if command is IpcqRecv:
            return self._pe.cpu.issue, self.receive
        return self.issue, self.release

    def _issue_send(self, task: Task) -> None:
        """Issue a send; then block the kernel until PE_DMA's queue has a free slot."""
        cpu, slots = self._pe.cpu, self._send_slots
        cpu.catch_up(task)
        cpu.issue(task)
        if slots is None:
            return
        now_ps = cpu.issued_ps()
        while (free_ps := slots.free_ps(now_ps)) is None:
            slots.wait(task, self._engine, ROOM)
        if free_ps > now_ps:
            cpu.pause_until(task, free_ps, ROOM, since_ps=now_ps)

    def send(self, command: IpcqSend) -> Completion:
        """Send a message into the peer's next slot, now or when a credit frees a slot. Sends are served in order.

        The source is read in the step that increments ``my_head``.

        Raises:
            IpcqInvalidDirection: if the direction is not installed for sending (F1 of ADR-0023).
            IpcqMessageTooLarge: if the message does not fit a slot.
        """
        direction, source, nbytes = command.direction, command.source, command.nbytes
        read_pa, tcm_pa = (source, None) if isinstance(source, int) else (source.slot_pa, source.tcm_pa)
        start_ps, cause, phase = self._pe.cpu.issued_ps(), self._cause(), self._pe.phase
        sending = Sending(command, start_ps, cause, read_pa=read_pa, tcm_pa=tcm_pa, phase=phase)
        if not isinstance(source, int):
            self._claim(sending, source)
            if sending.reads:
                source.slot_pa = None
        queue = self.queue(direction, sending=True)
        if nbytes > queue.peer.slot_size:
            raise IpcqMessageTooLarge(
                f"a send of {nbytes} bytes in direction {direction} does not fit a slot of "
                f"{queue.peer.slot_size} bytes; split the message, or raise slot_size",
                direction=direction,
            )
        if not queue.sends and not queue.is_full:
            self._send_now(queue, sending, cause)
            return sending
        if not queue.sends:
            queue.sender_since_ps = start_ps
        queue.sends.append(sending)
        sending.reason = queue.send_wait
        return sending

    def receive(self, command: IpcqRecv) -> Completion:
        """Post a receive for the next message of one direction, or of any direction; return at once. The search over
        all directions starts after ``last_polled_dir`` (ADR-0023 D4).

        Raises:
            IpcqInvalidDirection: if the direction is not installed for receiving (F1); if no direction is.
        """
        start_ps, cause, phase = self._pe.cpu.issued_ps(), self._cause(), self._pe.phase
        receiving = Receiving(command, start_ps, cause, issued_ps=self._pe.cpu.issued_ps, phase=phase, call=self.call)
        if command.direction is Direction.ANY:
            self._post_any(receiving)
        else:
            self._post(command.direction, receiving)
        return receiving

    def release(self, command: IpcqRelease) -> Completion:
        """Free a slot. The release ends when the credit is emitted, or at once while an earlier slot is in use."""
        completion, handle = self._begin(command), command.handle
        slot, handle.in_slot = handle.in_slot, None
        assert slot is not None
        slot.handle = ""
        fields = slot.direction, slot.seq + 1, handle.name
        emitted = partial(self._end, completion, RELEASE, *fields, work=(slot.direction,))
        self.release_slot(slot, completion.cause, emitted, unread=True)
        return completion

    def _post(self, direction: str, receiving: Receiving) -> None:
        queue = self.queue(direction, sending=False)
        receiving.reason = queue.recv_wait
        is_next = not (queue.is_empty or queue.posted or queue.blocked)
        if is_next and self._is_timed_ahead(receiving):
            self._take(queue, receiving, receiving.cause)
            return
        queue.posted.append(receiving)
        if is_next:
            self._deliver(queue, receiving.cause)

    def _post_any(self, receiving: Receiving) -> None:
        if not self._in_use.receive_directions:
            raise IpcqInvalidDirection("recv without a direction: no direction is installed for receiving")
        receiving.reason = Waiting(
            "recv", tuple([self.queues[name].direction for name in self._in_use.receive_directions])
        )
        self._any_receivers.append(receiving)
        if len(self._any_receivers) > 1:
            return
        if receiving.start_ps > self._engine.now_ps:
            self._any_wakes = True
            self._engine.at(receiving.start_ps, partial(self._serve_any, receiving.cause))
        else:
            self._serve_any(receiving.cause)

    def arrive(self, message: Message) -> None:
        """Take a message after its drain and write latency: data and pointer become visible in this step (I6), or with
        doorbells the data only. A message for a ring that is not installed yet is written at its installation.
        """
        generation = self.generations.live.get(message.generation)
        if generation is None or generation.is_closed:
            self.generations.hold(message)
            for credit in message.credits:
                self.credit(credit)
            return
        queue = generation.queue_of(self.place, message.dst_addr, len(message.data))
        number = queue.peer_head_cache + len(queue.landed)
        if message.sender_seq != number:
            raise violation(
                self.place,
                f"I2: message {message.sender_seq} arrived in direction {queue.direction} of {self.place} "
                f"when message {number} was next",
                queue.direction,
            )
        self._memory.write(message.dst_addr, message.data)
        if self._recorder.feed is not None:
            seq, direction, ends = message.sender_seq, message.src_direction, (message.sender, self.place)
            self._recorder.feed.arrived(message.dst_addr, seq, direction, message.data, message.crc, *ends)
        if not self._has_doorbells:
            self._move_head(queue, message)
            return
        queue.landed.append(message)
        if self._checker is not None:
            self._checker.landed(self.place, queue, message)
        self._messages.acknowledge(queue, message)

    def acknowledged(self, notice: Acknowledgement) -> None:
        """Take the acknowledgement of a message that this PE has sent, and ring the receiver's doorbell."""
        queue = self.every.get(notice.src_direction)
        if queue is None or notice.sender_seq >= queue.my_head:
            raise violation(
                self.place,
                f"message {notice.sender_seq} of {notice.src_direction} was acknowledged to {self.place}, which has "
                f"not sent it",
            )
        self._messages.ring(queue, notice)

    def ring(self, doorbell: Doorbell) -> None:
        """Move ``peer_head_cache`` behind the next message, which is in its slot already."""
        generation = self.generations.get(doorbell.generation, "a doorbell cannot ring for")
        queue = generation.queue_of(self.place, doorbell.dst_addr, 1)
        if not queue.landed or queue.landed[0].sender_seq != doorbell.sender_seq:
            waits = f"message {queue.landed[0].sender_seq}" if queue.landed else "no message"
            raise violation(
                self.place,
                f"I6: a doorbell for message {doorbell.sender_seq} arrived in direction {queue.direction} of "
                f"{self.place}, where {waits} waits for one",
                queue.direction,
            )
        self._move_head(queue, queue.landed.popleft())

    def _move_head(self, queue: QueuePair, message: Message) -> None:
        """Make a message in its slot visible to the kernel, and serve the receives that wait for it."""
        queue.messages[message.sender_seq] = message
        queue.peer_head_cache = message.sender_seq + 1
        if self._checker is not None:
            self._checker.arrived(self.place, queue, message)
        now_ps = self._engine.now_ps
        seq, sending = message.sender_seq, (message.src_sip, message.span)
        cause = self._span(self.name, "message", message.sent_ps, now_ps, sending, queue.direction, seq)
        for credit in message.credits:
            self.credit(credit)
        self._deliver(queue, cause)

    def credit(self, credit: Credit) -> None:
        """Apply a credit for slots that the peer freed, and serve the sends that wait for a slot."""
        generation = self.generations.live.get(credit.generation)
        queue = None if generation is None else generation.by_peer_rx.get(credit.dst_rx_base_pa)
        if queue is None or generation is None:
            raise violation(
                self.place,
                f"a credit for ring {credit.dst_rx_base_pa:#x}{origin_of(credit)} arrived at {self.place}, "
                f"which does not send to this ring",
                credit.src_direction if credit.generation else "",
            )
        queue.peer_tail_cache = max(queue.peer_tail_cache, credit.consumer_seq)
        if self._checker is not None:
            self._checker.credited(self.place, queue)
        freeing, now_ps = (credit.src_sip, credit.span), self._engine.now_ps
        cause = self._span(self.name, "credit", credit.sent_ps, now_ps, freeing, queue.direction, credit.consumer_seq)
        if queue.sends and not queue.sender_wakes:
            if self._delays:
                queue.sender_wakes = True
                begin = queue.sender_since_ps, queue.sends[0].cause
                self._wake(partial(self._serve_sends, queue), begin, cause)
            else:
                self._serve_sends(queue, cause)
        if generation.is_closed and not generation.awaits_credits():
            self._forget(generation)

    def continue_from(self, before: "PeIpcq", cause: int) -> None:
        """Take over the pointers of this PE's plan queue pairs from the previous row, because of span ``cause``.

        Raises:
            InvariantViolation: if ``before`` is not idle, or has queue pairs that the plan does not contain.
        """
        now_ps = self._engine.now_ps
        for queue, previous in self.generations.continue_from(before.generations):
            if queue.peer_tail_cache > previous.peer_tail_cache:
                # This span frees the slots for the first messages of the row.
                self._span(self.name, "credit", now_ps, now_ps, cause, queue.direction, queue.peer_tail_cache)
            if self._checker is not None:
                self._checker.continued(self.place, queue)

    def queue(self, direction: str, sending: bool = True) -> QueuePair:
        """Return the queue pair of a direction, as :meth:`Generation.queue` does, in the generation in use."""
        return self._in_use.queue(direction, sending)

    def _forget(self, generation: Generation) -> None:
        """Drop a closed generation, whose last credit has arrived."""
        self.generations.forget(generation)
        for queue in generation.queues.values():
            self._messages.forget(queue)
            if self._checker is not None:
                self._checker.forget(self.place, queue)

    def _send_now(self, queue: QueuePair, sending: Sending, cause: int) -> None:
        """Send a message now, and log the send."""
        command: IpcqSend = sending.command
        source, nbytes, dims, dtype = command.source, command.nbytes, command.dims, command.dtype
        read_pa, seq, slot_pa = sending.read_pa, queue.my_head, queue.next_tx_slot_pa()
        if self._mmu is not None and queue.has_va:
            slot_pa = self._mmu.look_up(queue.tx_slot_va(), nbytes)
        piggybacked, now_ps = self._credit_return.piggybacked(queue.peer.place), self._engine.now_ps
        if sending.start_ps > now_ps:
            sent_ps, cause = sending.start_ps, sending.cause
        else:
            sent_ps = now_ps
        message = Message(
            *UNSENT,
            queue.peer.cube,
            queue.peer.pe,
            slot_pa,
            seq,
            *self.place,
            queue.direction,
            self._memory.read(source, nbytes) if isinstance(source, int) else source.array.tobytes(),
            dtype.name,
            dims,
            sent_ps,
            piggybacked,
            0,
            queue.generation,
            self.call,
            0,
        )
        if self._recorder.feed is not None:
            message.crc = message_crc(slot_pa, seq, queue.direction, message.data)
        trace = None if self._recorder.tracer is None else self._trace("send", sent_ps, queue, nbytes, sending)
        record = (
            SEND,
            sent_ps,
            sent_ps,
            self._pe.cube,
            self._pe.pe,
            self._here,
            queue.peer_name,
            queue.peer.buffer_kind,
            slot_pa,
            nbytes,
            queue.direction,
            dtype.name,
            as_text(dims),
            seq,
            source if isinstance(source, int) else source.name,
        )
        facts = queue.direction, seq, nbytes, read_pa, sending.cause
        span = message.span = self._recorder.end_operation(
            self.name, "send", sent_ps, cause, facts, record, message.data, crc=message.crc, trace=trace
        )
        queue.my_head += 1
        if self._checker is not None:
            self._checker.sent(self.place, queue, message)
        is_followed = bool(sending.reads) or self._send_slots is not None
        on_dma_done = partial(self._on_dma_done, sending) if is_followed else None
        self._messages.send_message(queue, message, sending.tcm_pa if read_pa is None else read_pa, on_dma_done)
        if self._send_slots is not None:
            self._send_slots.add()
        # The message has a copy of the values; the kernel, which may resume below, may reuse the handle.
        del source, command
        sending.command = None
        if sending.waiter is None:
            sending.ended = True
        else:
            self._release(sending, span, "send", now_ps)

    def _on_dma_done(self, sending: Sending, message: Message, passed_ps: Ps) -> None:
        """Free the queue slot and the read slots of a message whose last byte passes PE_DMA at ``passed_ps``."""
        if self._send_slots is not None:
            wire_bytes = self._sip.wire_format.message_bytes(len(message.data))
            self._send_slots.passes(passed_ps, drain_ps(wire_bytes, self._dma_bps))
        if not sending.reads:
            return
        read = self._span(self.name, PASS, message.sent_ps, passed_ps, message.span)
        self._free_slots(sending, read, passed_ps)

    def _trace(self, what: str, now_ps: Ps, queue: QueuePair, nbytes: int, command: Sending | Receiving) -> TraceLine:
        ended = *self.place, now_ps, what, queue.direction, nbytes
        return TraceLine(*ended, self._pe.run, command.start_ps, queue.peer_name, command.phase)

    def _serve_sends(self, queue: QueuePair, cause: int) -> None:
        queue.sender_wakes = False
        while queue.sends and not queue.is_full:
            sending = queue.sends.popleft()
            try:
                self._send_now(queue, sending, cause)
            except AhbmError as error:
                sending.fail(error)
        queue.sender_since_ps = self._engine.now_ps

    def _serve_any(self, cause: int) -> None:
        self._any_wakes = False
        while self._any_receivers:
            direction = self._next_direction()
            if direction is None:
                break
            self._in_use.last_polled_dir = direction
            receiving = self._any_receivers.popleft()
            receiving.cause = cause
            receiving.waits(self.queues[direction].recv_wait)
            self._post(direction, receiving)
        self._any_since_ps = self._engine.now_ps

    def _next_direction(self) -> str | None:
        """Return the first direction after ``last_polled_dir`` with a message that no other receive waits for."""
        directions, last = self._in_use.receive_directions, self._in_use.last_polled_dir
        if last is not None:
            first = directions.index(last) + 1
            directions = directions[first:] + directions[:first]
        for direction in directions:
            queue = self.queues[direction]
            if not (queue.is_empty or queue.posted or queue.blocked):
                return direction
        return None

    def _deliver(self, queue: QueuePair, cause: int) -> None:
        """Serve the posted receives whose message has arrived and is seen; then receives without a direction.

        ``cause``: the span that ends now and makes the receives ready.
        """
        while queue.posted and not queue.is_empty and not queue.blocked:
            if self._blocks_until_seen(queue, cause):
                return
            self._take(queue, queue.posted.popleft(), cause)
        if self._any_receivers and not self._any_wakes and self._may_serve_any(queue):
            self._any_wakes = True
            begin = self._any_since_ps, self._any_receivers[0].cause
            self._wake(self._serve_any, begin, cause)

    def _may_serve_any(self, queue: QueuePair) -> bool:
        return queue.generation == self._in_use.number and not (queue.is_empty or queue.blocked)

    def _blocks_until_seen(self, queue: QueuePair, cause: int) -> bool:
        """Return whether the first posted receive sees its message only later; block the queue until then."""
        now_ps, first = self._engine.now_ps, queue.posted[0]
        if not self._delays and first.start_ps <= now_ps:
            return False
        since_ps = first.start_ps if self._backpressure.is_free else first.waits_since_ps
        if since_ps is None:
            # The kernel does other work and does not poll: PE_IPCQ serves the receive.
            since_ps = max(first.start_ps, now_ps)
        begin = since_ps, first.cause
        seen_ps = self._backpressure.seen_ps(since_ps, now_ps)
        if seen_ps <= now_ps or (seen_ps == first.start_ps and self._is_timed_ahead(first)):
            return False
        queue.blocked = True
        self._wake(partial(self._deliver_first, queue), begin, cause)
        return True

    def _is_timed_ahead(self, receiving: Receiving) -> bool:
        """Return whether a receive can be served now, even during its issue, because only its credit takes time."""
        is_copied = receiving.command.copy_to is not None or self._latch is not None
        return not is_copied or receiving.start_ps <= self._engine.now_ps

    def _deliver_first(self, queue: QueuePair, cause: int) -> None:
        queue.blocked = False
        self._take(queue, queue.posted.popleft(), cause)
        self._deliver(queue, cause)

    def _wake(self, serve: Callable[[int], None], begin: tuple[int, int], cause: int) -> None:
        """Call ``serve`` when a wait sees an event that happens now. ``begin``: start of the wait, and its cause."""
        now_ps, (since_ps, command) = self._engine.now_ps, begin
        seen_ps = self._backpressure.seen_ps(since_ps, now_ps)
        if seen_ps <= now_ps:
            serve(cause)
        elif since_ps >= now_ps:
            self._engine.at(seen_ps, partial(serve, command))
        else:
            self._engine.at(seen_ps, partial(self._seen, serve, begin, now_ps, cause))

    def _seen(self, serve: Callable[[int], None], begin: tuple[int, int], event_ps: int, cause: int) -> None:
        """Serve at the first poll after an event, or after the wake-up. ``begin``: start and cause of the wait."""
        polls = self._backpressure.polls
        name, facts = (POLL, begin) if polls else (WAKEUP, ())
        serve(self._span(self.name, name, event_ps, self._engine.now_ps, cause, *facts))

    # --- slots, from the step in which a message is taken until the credit is returned

    def _take(self, queue: QueuePair, receiving: Receiving, cause: int) -> None:
        """Take the next message, whose size or type may be wrong. ``latch`` decides when its slot is read and freed
        (:mod:`sipsim.chips.ahbm.ipcq.messages`).
        """
        slot_pa, message = queue.next_rx_slot_pa(), queue.messages.pop(queue.taken)
        nbytes = len(message.data)
        data = self._memory.read(slot_pa, nbytes)
        if self._checker is not None:
            self._checker.taken(self.place, queue, data)
        taken = TakenSlot(queue.direction, queue.taken, slot_pa, nbytes)
        queue.taken += 1
        queue.in_use.append(taken)
        dtype, shape, sender, call = message.dtype, message.shape, message.src_sip, message.call
        receiving.value = Received(queue.direction, slot_pa, queue.taken, data, dtype, shape, sender, call)
        receiving.error = self._mismatch_of(receiving, receiving.value)
        copy_to = receiving.command.copy_to
        if copy_to is not None and copy_to.nbytes == nbytes:
            self._copy(taken, receiving, cause)
        elif self._latch == IN_PLACE:
            receiving.freed_by, receiving.freed_ps = cause, self._engine.now_ps
            receiving.slot, taken.handle = taken, receiving.command.result.name
            self._received(receiving)
        elif self._latch == COPY:
            self._copy(taken, receiving, cause)
        else:
            self._end_reading(taken, receiving, cause)

    def _mismatch_of(self, receiving: Receiving, received: Received) -> AhbmError | None:
        """Return the error if a message is not the one that its receive expects; else None."""
        kind, dims = receiving.command.dtype, receiving.command.dims
        if received.call != receiving.call and received.call and receiving.call:
            return _other_call(self.place[0], receiving.call, received)
        is_equal = not self._sip.plan.ipcq.strict_validation or (received.dtype, received.shape) == (kind.name, dims)
        if is_equal and len(received.data) == math.prod(dims) * kind.itemsize:
            return None
        return _mismatch(receiving.command, received)

    def _copy(self, taken: TakenSlot, receiving: Receiving, cause: int) -> None:
        """Copy a message to its receive's destination or to the PE's TCM; then free its slot."""
        queue, taken_ps, dma = self.every[taken.direction], self._engine.now_ps, self._pe.dma
        slot_pa, nbytes, copy_to = taken.slot_pa, taken.nbytes, receiving.command.copy_to
        queue.blocked = True
        if copy_to is None:
            tcm_pa = receiving.command.result.tcm_pa
            name, address = "latch", dma.tcm.address if tcm_pa is None else tcm_pa
        else:
            name, address = "copy", copy_to.address

        def copied() -> None:
            queue.blocked = False
            copy = self._span(self.name, name, taken_ps, self._engine.now_ps, cause, slot_pa, address, nbytes)
            self._end_reading(taken, receiving, copy)
            self._deliver(queue, copy)

        if copy_to is None:
            dma.latch(slot_pa, address, nbytes, copied)
        else:
            dma.copy(slot_pa, address, self._memory.read(slot_pa, nbytes), copied)

    def _end_reading(self, taken: TakenSlot, receiving: Receiving, cause: int) -> None:
        """Free the slot of a message whose bytes were read for its receive."""
        now_ps = self._engine.now_ps
        if receiving.start_ps > now_ps:
            receiving.freed_by, receiving.freed_ps = receiving.cause, receiving.start_ps
        else:
            receiving.freed_by, receiving.freed_ps = cause, now_ps
        self._free_read_slots(taken, receiving.freed_by, receiving.freed_ps, partial(self._received, receiving))

    def _received(self, receiving: Receiving) -> None:
        """End a receive whose handle refers to the slot, or whose data are copied and whose slot is credited.

        The op log contains receives in the order in which they end.
        """
        received, command = receiving.value, receiving.command
        dims, dtype, copy_to, result = command.dims, command.dtype, command.copy_to, command.result
        direction, nbytes, now_ps = received.direction, len(received.data), self._engine.now_ps
        queue = self.every[direction]
        trace = None if self._recorder.tracer is None else self._trace("recv", now_ps, queue, nbytes, receiving)
        if receiving.error is None:
            result.array = np.frombuffer(received.data, dtype.numpy).reshape(dims)
            result.in_slot = receiving.slot
            if copy_to is None and queue.has_far_ring and self._latch != COPY:
                result.slot_pa = received.slot_pa
        record = (
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
        facts = direction, received.consumer_seq - 1, receiving.cause
        values = result if receiving.error is None else None
        end = self._recorder.end_operation
        span = end(self.name, "recv", receiving.freed_ps, receiving.freed_by, facts, record, values, trace=trace)
        del result, command, values
        receiving.command = None
        self._release(receiving, span, "recv", now_ps)

    def release_slot(
        self,
        taken: TakenSlot,
        cause: int,
        emitted: Callable[[], None] = nothing,
        unread: bool = False,
        read_ps: Ps | None = None,
    ) -> None:
        """Release a slot, because of span ``cause``, that is read at ``read_ps``, by default now; never if ``unread``.

        ``emitted`` is called when the credit is emitted, or at once while an earlier slot is in use.
        """
        if taken.read_ps is not None:
            emitted()
            return
        self._free_read_slots(taken, cause, self._engine.now_ps if read_ps is None else read_ps, emitted, unread=unread)

    def release_all(self, cause: int) -> None:
        """Release all slots that the kernel, which has ended, still uses in place."""
        for queue in self.every.values():
            for taken in [each for each in queue.in_use if each.handle]:
                self.release_slot(taken, cause, unread=True)

    def _free_read_slots(
        self, taken: TakenSlot, cause: int, read_ps: Ps, emitted: Callable[[], None], unread: bool = False
    ) -> None:
        """Note that a slot is read at ``read_ps``. Free the oldest slots up to the first whose read time is unknown, at
        the latest of their read times.
        """
        queue, taken.read_ps, taken.read_by = self.every[taken.direction], read_ps, cause
        if self._checker is not None:
            self._checker.read(self.place, queue, taken, unread)
        before, freed_ps, freed_by = queue.my_tail, queue.freed_ps, queue.freed_by
        while queue.in_use and (last_ps := queue.in_use[0].read_ps) is not None:
            freed = queue.in_use.popleft()
            if last_ps >= freed_ps:
                freed_ps, freed_by = last_ps, freed.read_by
            queue.my_tail += 1
            if self._checker is not None:
                self._checker.freed(self.place, queue)
        if queue.my_tail == before:
            emitted()
            return
        queue.freed_ps, queue.freed_by = freed_ps, freed_by
        credit = Credit(
            queue.my_tail, queue.my_rx_base_pa, *self.place, queue.direction, freed_ps, freed_by, queue.generation
        )
        self._credit_return.return_credit(queue, credit, emitted)


def _other_call(rank: int, call: str, received: Received) -> CollectiveMismatch:
    """Return the error for a message that was sent in another collective call than its receive."""
    other_call, this_call = call_difference(received.call, call)
    return CollectiveMismatch(
        f"rank {received.src_sip} called {other_call}, rank {rank} called {this_call}; "
        f"every rank must make the same calls in the same order",
        direction=received.direction,
    )


def _mismatch(command: IpcqRecv, received: Received) -> IpcqTypeMismatch:
    """Return the error for a message whose size, type or shape is not what its receive expects."""
    kind, dims = command.dtype, command.dims
    nbytes, arrived = math.prod(dims) * kind.itemsize, len(received.data)
    return IpcqTypeMismatch(
        f"recv {received.direction} expects {kind}{list(dims)} ({nbytes} bytes), but the message is "
        f"{received.dtype}{list(received.shape)} ({arrived} bytes); make send and recv agree",
        direction=received.direction,
    )
