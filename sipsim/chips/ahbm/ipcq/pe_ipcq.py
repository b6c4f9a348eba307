"""PE_IPCQ: the control plane of inter-PE queues: pointers, backpressure and credits (ADR-0023, ADR-0025).

It moves no data: a send becomes a ``Message`` for the data plane. A message that arrives is matched to a
direction by the address that it is written to, never by its sender (ADR-0025 D2). Invariant I6: the data write and the
update of ``peer_head_cache`` happen in one step; both are in :meth:`PeIpcq.arrive`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from sipsim.chips.ahbm.address import PePlace
from sipsim.chips.ahbm.ipcq.credits import CreditReturn
from sipsim.chips.ahbm.ipcq.generations import Generation, Generations, told_of, violation
from sipsim.chips.ahbm.ipcq.messages import Credit, IpcqInitEntry, Message, ReceiveRequest, SendRequest
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.ipcq.slots import Slots
from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.core.errors import AhbmError, IpcqInvalidDirection, IpcqMessageTooLarge
from sipsim.fabric.links.frames import UNSENT
from sipsim.records.dump import Waiting

POLL, WAKEUP = "poll", "wakeup"
"""The spans of a wait for the look, or of the wake-up, that sees an event."""


class PeIpcq:
    """All queue pairs of one PE: those that the plan makes, generation 0, and those of later generations.

    A kernel sees those of the generation in use (:meth:`use`): ``queues`` by short name, its ``rank`` and
    ``world_size``. ``call``: the collective that the kernel belongs to, as text.
    """

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        place, plan = PePlace(sip.sip, pe.cube, pe.pe), sip.plan
        self.place = place[:3]
        first = Generation(0, plan.entries_of(place), plan.rank_of.get(place), plan.world_size, plan.algorithm.name)
        self.generations = Generations(self.place, first, sip.closed)
        self._in_use = self.generations.live[0]
        self.queues = self._in_use.queues
        self.call = ""
        self._engine = sip.engine
        self._memory = sip.memory
        self._messages = sip.messages
        self._checker = sip.checker
        self._span = sip.recorder.span
        self._feed = sip.recorder.feed
        self._mmu = pe.mmu
        self._latch = plan.ipcq.latch
        self._backpressure = plan.backpressure
        self._delays = plan.backpressure.delays
        self._credit_return = CreditReturn(sip)
        self.name = f"cube{place[1]}.pe{place[2]}.ipcq"
        self._any_receivers: deque[ReceiveRequest] = deque()
        self._any_since_ps = 0
        self._any_wakes = False
        self.slots = Slots(sip, pe, self.name, self.every, self._credit_return, self._deliver)

    @property
    def every(self) -> dict[str, QueuePair]:
        """The queue pairs of all generations, by full name."""
        return self.generations.queues

    @property
    def rank(self) -> int | None:
        """The PE's rank among those of the generation in use; None where it has none."""
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
        """A kernel begins that runs with a generation, in collective ``call`` as text, empty for none.

        Raises:
            InvariantViolation: when the generation is not installed here.
        """
        self.call = call
        if generation != self._in_use.number:
            self._in_use = self.generations.get(generation, "a kernel is to run with")
            self.queues = self._in_use.queues

    def install(self, generation: int, entries: Iterable[IpcqInitEntry], rank: int | None, world_size: int) -> None:
        """Make the queue pairs of a generation, 1 or more; messages that have come for it are delivered in this step.

        Raises:
            InvariantViolation: for a number that is or was in use.
        """
        for message in self.generations.install(Generation(generation, entries, rank, world_size)):
            self.arrive(message)

    def check_idle(self, generation: int) -> None:
        """Check that a generation may be closed.

        Raises:
            IpcqInUse: while a ring holds a message that no receive has taken and released, or a send or receive waits.
            InvariantViolation: when it is not installed here, or is generation 0.
        """
        found = self.generations.get(generation, "to be closed:")
        found.check_idle(self.place, waits=found is self._in_use and bool(self._any_receivers))

    def close(self, generation: int) -> None:
        """End the queue pairs of a generation; they are known until all credits for what they sent have come.

        Raises:
            InvariantViolation: see :meth:`check_idle`.
        """
        self.check_idle(generation)
        if generation == self._in_use.number:
            self.use(0)
        closed = self.generations.live[generation]
        closed.is_closed = True
        if not closed.awaits_credits():
            self._forget(closed)

    def send(self, direction: str, send: SendRequest) -> None:
        """Send a message into the peer's next slot: now, or when a credit frees one. Sends are served in order.

        The source is read in the step that increments ``my_head``.

        Raises:
            IpcqInvalidDirection: F1.
            IpcqMessageTooLarge: more bytes than a slot.
        """
        queue, nbytes = self.queue(direction, sending=True), send.source.nbytes
        if nbytes > queue.peer.slot_size:
            raise IpcqMessageTooLarge(
                f"a send of {nbytes} bytes {direction} does not fit a slot of {queue.peer.slot_size}; "
                f"send it in chunks, or raise slot_size",
                direction=direction,
            )
        if not queue.sends and not queue.is_full:
            self._send_now(queue, send, send.cause)
            return
        if not queue.sends:
            queue.sender_since_ps = send.start_ps
        queue.sends.append(send)
        send.reason = queue.send_wait

    def post(self, direction: str, receive: ReceiveRequest) -> None:
        """Post a receive for the next message of a direction; returns at once.

        Raises:
            IpcqInvalidDirection: F1.
        """
        queue = self.queue(direction, sending=False)
        receive.reason = queue.recv_wait
        is_next = not (queue.is_empty or queue.posted or queue.blocked)
        if is_next and self._is_timed_ahead(receive):
            self.slots.take(queue, receive, receive.cause)
            return
        queue.posted.append(receive)
        if is_next:
            self._deliver(queue, receive.cause)

    def post_any(self, receive: ReceiveRequest) -> None:
        """Post a receive for the next message of any direction, searched from ``last_polled_dir`` on (ADR-0023 D4).

        Raises:
            IpcqInvalidDirection: when this PE has no queue pairs.
        """
        if not self._in_use.receive_ways:
            raise IpcqInvalidDirection("a recv without a direction needs a direction that receives; installed: none")
        receive.reason = Waiting("recv", tuple([self.queues[way].direction for way in self._in_use.receive_ways]))
        self._any_receivers.append(receive)
        if len(self._any_receivers) > 1:
            return
        if receive.start_ps > self._engine.now_ps:
            self._any_wakes = True
            self._engine.at(receive.start_ps, partial(self._serve_any, receive.cause))
        else:
            self._serve_any(receive.cause)

    def arrive(self, message: Message) -> None:
        """A message arrives, its drain and write latency paid: data and pointer become visible in this step (I6)."""
        generation = self.generations.live.get(message.generation)
        if generation is None or generation.is_closed:
            self.generations.hold(message)
            for credit in message.credits:
                self.credit(credit)
            return
        queue = generation.queue_of(self.place, message.dst_addr, len(message.data))
        if message.sender_seq != queue.peer_head_cache:
            raise violation(
                self.place,
                f"I2: message {message.sender_seq} arrived in direction {queue.direction} of {self.place} "
                f"when {queue.peer_head_cache} was next",
                queue.direction,
            )
        self._memory.write(message.dst_addr, message.data)
        if self._feed is not None:
            self._feed.arrived(
                message.dst_addr, message.sender_seq, message.sender, message.src_direction, message.data
            )
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
        """A credit arrives: the peer freed slots, and a send that waits is served."""
        generation = self.generations.live.get(credit.generation)
        queue = None if generation is None else generation.by_peer_rx.get(credit.dst_rx_base_pa)
        if queue is None or generation is None:
            raise violation(
                self.place,
                f"a credit for ring {credit.dst_rx_base_pa:#x}{told_of(credit)} arrived at {self.place}, "
                f"which sends to no such ring",
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

    def go_on_from(self, before: "PeIpcq", cause: int) -> None:
        """Take over the pointers of the same PE in the row before, of the queue pairs of the plan, by span ``cause``.

        Raises:
            InvariantViolation: when it was not idle, or has queue pairs that are not the plan's.
        """
        now_ps = self._engine.now_ps
        for queue, was in self.generations.go_on_from(before.generations):
            if queue.peer_tail_cache > was.peer_tail_cache:
                # What makes room for the first messages of the row.
                self._span(self.name, "credit", now_ps, now_ps, cause, queue.direction, queue.peer_tail_cache)
            if self._checker is not None:
                self._checker.goes_on(self.place, queue)

    def queue(self, direction: str, sending: bool = True) -> QueuePair:
        """The queue pair of a direction; F1 when it is not installed for sending, or for receiving."""
        return self._in_use.queue(direction, sending)

    def _forget(self, generation: Generation) -> None:
        """The last credit of a closed generation has come."""
        self.generations.forget(generation)
        for queue in generation.queues.values():
            self._messages.forget(queue)
            if self._checker is not None:
                self._checker.forget(self.place, queue)

    def _send_now(self, queue: QueuePair, send: SendRequest, cause: int) -> None:
        (snapshot, read_pa, nbytes, dtype, shape, tcm_pa), seq = send.source, queue.my_head
        slot_pa = queue.next_tx_slot_pa()
        if self._mmu is not None and queue.has_va:
            slot_pa = self._mmu.look_up(queue.tx_slot_va(), nbytes)
        piggybacked, now_ps = self._credit_return.piggybacked(queue.peer.place), self._engine.now_ps
        if send.start_ps > now_ps:
            sent_ps, cause = send.start_ps, send.cause
        else:
            sent_ps = now_ps
        span = self._span(self.name, "send", sent_ps, sent_ps, cause, queue.direction, seq, nbytes, read_pa, send.cause)
        message = Message(
            *UNSENT,
            queue.peer.cube,
            queue.peer.pe,
            slot_pa,
            seq,
            *self.place,
            queue.direction,
            snapshot(),
            dtype,
            shape,
            sent_ps,
            piggybacked,
            span,
            queue.generation,
            self.call,
        )
        queue.my_head += 1
        if self._checker is not None:
            self._checker.sent(self.place, queue, message)
        passed = send.passed if send.is_followed else None
        self._messages.carry_message(queue, message, tcm_pa if read_pa is None else read_pa, passed)
        if self._feed is not None:
            self._feed.values(message.data)
        send.sent(slot_pa, seq, span, sent_ps)

    def _serve_sends(self, queue: QueuePair, cause: int) -> None:
        queue.sender_wakes = False
        while queue.sends and not queue.is_full:
            send = queue.sends.popleft()
            try:
                self._send_now(queue, send, cause)
            except AhbmError as error:
                send.fail(error)
        queue.sender_since_ps = self._engine.now_ps

    def _serve_any(self, cause: int) -> None:
        self._any_wakes = False
        while self._any_receivers:
            direction = self._next_direction()
            if direction is None:
                break
            self._in_use.last_polled_dir = direction
            receive = self._any_receivers.popleft()
            receive.cause = cause
            receive.waits(self.queues[direction].recv_wait)
            self.post(direction, receive)
        self._any_since_ps = self._engine.now_ps

    def _next_direction(self) -> str | None:
        """The direction with a message that nothing else waits for, searched from ``last_polled_dir`` on."""
        directions, last = self._in_use.receive_ways, self._in_use.last_polled_dir
        if last is not None:
            first = directions.index(last) + 1
            directions = directions[first:] + directions[:first]
        for direction in directions:
            queue = self.queues[direction]
            if not (queue.is_empty or queue.posted or queue.blocked):
                return direction
        return None

    def _deliver(self, queue: QueuePair, cause: int) -> None:
        """Serve posted receives that have a message, after what it takes to see it; then one without a direction.

        ``cause``: the span that ends now and lets them go on.
        """
        while queue.posted and not queue.is_empty and not queue.blocked:
            if self._blocks_until_seen(queue, cause):
                return
            self.slots.take(queue, queue.posted.popleft(), cause)
        if self._any_receivers and not self._any_wakes and self._may_serve_any(queue):
            self._any_wakes = True
            begin = self._any_since_ps, self._any_receivers[0].cause
            self._wake(self._serve_any, begin, cause)

    def _may_serve_any(self, queue: QueuePair) -> bool:
        return queue.generation == self._in_use.number and not (queue.is_empty or queue.blocked)

    def _blocks_until_seen(self, queue: QueuePair, cause: int) -> bool:
        """Whether the first posted receive sees its message only later; the queue is blocked until then."""
        now_ps, first = self._engine.now_ps, queue.posted[0]
        if not self._delays and first.start_ps <= now_ps:
            return False
        since_ps = first.start_ps if self._backpressure.is_free else first.waits_since_ps
        if since_ps is None:
            # Its kernel does something else: PE_IPCQ serves it by itself.
            since_ps = max(first.start_ps, now_ps)
        begin = since_ps, first.cause
        seen_ps = self._backpressure.seen_ps(since_ps, now_ps)
        if seen_ps <= now_ps or (seen_ps == first.start_ps and self._is_timed_ahead(first)):
            return False
        queue.blocked = True
        self._wake(partial(self._deliver_first, queue), begin, cause)
        return True

    def _is_timed_ahead(self, receive: ReceiveRequest) -> bool:
        """Whether a receive can be done in this step though it is still being issued: only its credit takes time."""
        is_copied = receive.copy_to is not None or self._latch is not None
        return not is_copied or receive.start_ps <= self._engine.now_ps

    def _deliver_first(self, queue: QueuePair, cause: int) -> None:
        queue.blocked = False
        self.slots.take(queue, queue.posted.popleft(), cause)
        self._deliver(queue, cause)

    def _wake(self, serve: Callable[[int], None], begin: tuple[int, int], cause: int) -> None:
        """Serve what has waited since ``begin`` (or will, as it is being issued): when it sees the event of now."""
        now_ps, (since_ps, command) = self._engine.now_ps, begin
        seen_ps = self._backpressure.seen_ps(since_ps, now_ps)
        if seen_ps <= now_ps:
            serve(cause)
        elif since_ps >= now_ps:
            self._engine.at(seen_ps, partial(serve, command))
        else:
            self._engine.at(seen_ps, partial(self._seen, serve, begin, now_ps, cause))

    def _seen(self, serve: Callable[[int], None], begin: tuple[int, int], event_ps: int, cause: int) -> None:
        """The first look after an event, or a wake-up. ``begin``: of the wait, and what released its command."""
        polls = self._backpressure.polls
        name, facts = (POLL, begin) if polls else (WAKEUP, ())
        serve(self._span(self.name, name, event_ps, self._engine.now_ps, cause, *facts))
