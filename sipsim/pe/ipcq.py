"""PE_IPCQ: the control plane of inter-PE queues: pointers, backpressure and credits (ADR-0023, ADR-0025).

It moves no data: a send becomes an ``IpcqDmaToken`` for the data plane, and what arrives is matched to a direction
by the address it was written to, never by who sent it. Invariant I6: the data write and the update of
``peer_head_cache`` happen in one step; both are in :meth:`PeIpcq.arrive`.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple, Protocol

from sipsim.engine import Engine
from sipsim.errors import InvariantViolation, IpcqInvalidDirection, IpcqMessageTooLarge
from sipsim.memory import MemoryStore
from sipsim.pe.task import Task


class IpcqEndpoint(NamedTuple):
    """Where a peer's receive ring is (ADR-0023 D2.5). Addresses are encoded; sizes in bytes."""

    sip: int
    cube: int
    pe: int
    buffer_kind: str
    rx_base_pa: int
    rx_base_va: int
    n_slots: int
    slot_size: int


class IpcqInitEntry(NamedTuple):
    """One direction of one PE as installed (ADR-0023 D12). ``can_send`` is false for a receive-only opposite."""

    direction: str
    peer: IpcqEndpoint
    my_rx_base_pa: int
    n_slots: int
    slot_size: int
    can_send: bool
    credit_ps: int


class IpcqDmaToken(NamedTuple):
    """A message on its way: the data plane's order and, piggybacked, the head pointer (ADR-0023 D9, D12)."""

    dst_addr: int
    sender_seq: int
    src_sip: int
    src_cube: int
    src_pe: int
    src_direction: str
    data: bytes
    dtype: str
    shape: tuple[int, ...]


class IpcqCreditMetadata(NamedTuple):
    """A freed slot on its way back (ADR-0025 D3): matched at the sender by ``dst_rx_base_pa``."""

    consumer_seq: int
    dst_rx_base_pa: int
    src_sip: int
    src_cube: int
    src_pe: int
    src_direction: str


class Carrier(Protocol):
    """How tokens and credits get to the peer; the SIP knows whether that is here or behind a link."""

    def carry_token(self, queue: "QueuePair", token: IpcqDmaToken) -> None:
        """Write ``token.data`` to ``token.dst_addr``, and then tell the PE there."""

    def carry_credit(self, queue: "QueuePair", credit: IpcqCreditMetadata, arrival_ps: int) -> None:
        """Bring a credit to the peer at ``arrival_ps``."""


class Message(NamedTuple):
    """What lies in a slot, as it was sent."""

    nbytes: int
    dtype: str
    shape: tuple[int, ...]


class QueuePair:
    """One direction: a ring to the peer and a ring from it, with the four pointers of ADR-0023 D2."""

    __slots__ = (
        "can_send",
        "credit_ps",
        "direction",
        "messages",
        "my_head",
        "my_rx_base_pa",
        "my_tail",
        "n_slots",
        "peer",
        "peer_head_cache",
        "peer_tail_cache",
        "receiver",
        "sender",
        "slot_size",
    )

    def __init__(self, entry: IpcqInitEntry) -> None:
        self.direction = entry.direction
        self.peer = entry.peer
        self.my_rx_base_pa = entry.my_rx_base_pa
        self.n_slots = entry.n_slots
        self.slot_size = entry.slot_size
        self.can_send = entry.can_send
        self.credit_ps = entry.credit_ps
        self.my_head = self.my_tail = self.peer_head_cache = self.peer_tail_cache = 0
        self.sender: Task | None = None
        self.receiver: Task | None = None
        self.messages: dict[int, Message] = {}

    @property
    def is_full(self) -> bool:
        return self.my_head - self.peer_tail_cache >= self.peer.n_slots

    @property
    def is_empty(self) -> bool:
        return self.peer_head_cache <= self.my_tail

    def next_tx_slot_pa(self) -> int:
        """Where the next send is written: an address in the peer's ring."""
        return self.peer.rx_base_pa + (self.my_head % self.peer.n_slots) * self.peer.slot_size

    def next_rx_slot_pa(self) -> int:
        """Where the next message to receive lies."""
        return self.my_rx_base_pa + (self.my_tail % self.n_slots) * self.slot_size


class Received(NamedTuple):
    """A message taken from its slot ``slot_pa``; ``data`` was latched before the credit with ``consumer_seq`` left."""

    slot_pa: int
    consumer_seq: int
    data: bytes
    message: Message


class Waiting(NamedTuple):
    """What a task that blocks on a queue waits for."""

    op: str
    queue: QueuePair


class PeIpcq:
    """All queue pairs of one PE."""

    def __init__(
        self,
        place: tuple[int, int, int],
        entries: list[IpcqInitEntry],
        engine: Engine,
        memory: MemoryStore,
        carrier: Carrier,
        overhead_ps: int,
    ) -> None:
        self.place = place
        self.queues = {entry.direction: QueuePair(entry) for entry in entries}
        self._engine = engine
        self._memory = memory
        self._carrier = carrier
        self._overhead_ps = overhead_ps
        by_base = sorted((queue.my_rx_base_pa, queue.direction) for queue in self.queues.values())
        self._rx_bases = [base for base, _ in by_base]
        self._rx_queues = [self.queues[direction] for _, direction in by_base]
        self._by_peer_rx = {queue.peer.rx_base_pa: queue for queue in self.queues.values() if queue.can_send}

    def send(self, task: Task, direction: str, snapshot: Callable[[], bytes], message: Message) -> tuple[int, int]:
        """Put a message into the peer's next slot; waits while the ring is full, then returns at once.

        ``snapshot`` reads the source; it is called in the step that increments ``my_head``. Returns
        (slot address, sender_seq).

        Raises:
            IpcqInvalidDirection: F1.
            IpcqMessageTooLarge: more bytes than a slot has.
        """
        queue = self.queue(direction, sending=True)
        if message.nbytes > queue.peer.slot_size:
            raise IpcqMessageTooLarge(
                f"a send of {message.nbytes} bytes {direction} does not fit a slot of {queue.peer.slot_size}; "
                f"send it in chunks, or raise slot_size"
            )
        while queue.is_full:
            queue.sender = task
            task.wait(Waiting("send", queue))
        sip, cube, pe = self.place
        slot_pa, seq = queue.next_tx_slot_pa(), queue.my_head
        token = IpcqDmaToken(slot_pa, seq, sip, cube, pe, direction, snapshot(), message.dtype, message.shape)
        queue.my_head += 1
        self._carrier.carry_token(queue, token)
        return slot_pa, seq

    def receive(self, task: Task, direction: str) -> Received:
        """Take the next message of a direction; waits until there is one, and then for the credit's emission.

        Raises:
            IpcqInvalidDirection: F1.
        """
        queue = self.queue(direction, sending=False)
        while queue.is_empty:
            queue.receiver = task
            task.wait(Waiting("recv", queue))
        slot_pa = queue.next_rx_slot_pa()
        message = queue.messages.pop(queue.my_tail)
        data = self._memory.read(slot_pa, message.nbytes)
        queue.my_tail += 1
        received = Received(slot_pa, queue.my_tail, data, message)
        self._return_credit(task, queue)
        return received

    def arrive(self, token: IpcqDmaToken) -> None:
        """A message is here, its drain and write latency paid: make data and pointer visible in this one step (I6)."""
        queue = self._queue_at(token.dst_addr)
        if token.sender_seq != queue.peer_head_cache:
            raise InvariantViolation(
                f"I2: message {token.sender_seq} arrived in direction {queue.direction} of {self.place} "
                f"when {queue.peer_head_cache} was next"
            )
        self._memory.write(token.dst_addr, token.data)
        queue.messages[token.sender_seq] = Message(len(token.data), token.dtype, token.shape)
        queue.peer_head_cache = token.sender_seq + 1
        task, queue.receiver = queue.receiver, None
        if task is not None:
            task.resume()

    def credit(self, credit: IpcqCreditMetadata) -> None:
        """The peer freed a slot: a sender that waits goes on."""
        queue = self._by_peer_rx.get(credit.dst_rx_base_pa)
        if queue is None:
            raise InvariantViolation(f"a credit for ring {credit.dst_rx_base_pa:#x} came to {self.place} by mistake")
        queue.peer_tail_cache = max(queue.peer_tail_cache, credit.consumer_seq)
        task, queue.sender = queue.sender, None
        if task is not None:
            task.resume()

    def _return_credit(self, task: Task, queue: QueuePair) -> None:
        """Fast path: the credit takes the whole path's latency on its own wire, and the receiver waits for it."""
        arrival_ps = self._engine.now_ps + self._overhead_ps + queue.credit_ps
        credit = IpcqCreditMetadata(queue.my_tail, queue.my_rx_base_pa, *self.place, queue.direction)
        self._carrier.carry_credit(queue, credit, arrival_ps)
        self._engine.at(arrival_ps, task.resume)
        task.wait("credit emission")

    def queue(self, direction: str, sending: bool = True) -> QueuePair:
        """The queue pair of a direction; F1 when it is not installed (for sending)."""
        queue = self.queues.get(direction)
        if queue is None or (sending and not queue.can_send):
            installed = ", ".join(sorted(d for d, q in self.queues.items() if q.can_send or not sending))
            raise IpcqInvalidDirection(f"direction {direction!r} is not installed; installed: {installed or 'none'}")
        return queue

    def _queue_at(self, address: int) -> QueuePair:
        index = bisect_right(self._rx_bases, address) - 1
        if index >= 0:
            queue = self._rx_queues[index]
            if address < queue.my_rx_base_pa + queue.n_slots * queue.slot_size:
                return queue
        raise InvariantViolation(f"a message for address {address:#x} came to {self.place}, which has no ring there")
