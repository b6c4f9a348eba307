"""Queue pair: one direction of one PE, with a ring to and a ring from its peer and the four pointers of ADR-0023 D2."""

from collections import deque
from collections.abc import Callable

from sipsim.chips.ahbm.address import space_of
from sipsim.chips.ahbm.ipcq.messages import IpcqInitEntry, Message, TakenSlot
from sipsim.chips.ahbm.pe.commands import Completion
from sipsim.core.task import Task
from sipsim.records.dump import Waiting

Ps = int


class Sending(Completion, kw_only=True):
    """Send that waits while the peer's ring is full, and ends when its message leaves, before the message arrives.

    ``read_pa``: address from which PE_DMA fetches the bytes, None if the bytes are in the PE's TCM. ``tcm_pa``: TCM
    address of the bytes, or None. ``phase``: name of the kernel's phase.
    """

    read_pa: int | None
    tcm_pa: int | None
    phase: str


class Receiving(Completion, kw_only=True):
    """Receive that ends when the credit for its slot has been emitted. ``value``: the message, once it is taken.

    ``phase``, ``call``: the kernel's phase and collective call. ``waits_since_ps``: time at which the kernel began to
    wait, or None. ``slot``: slot of the handle; if None, span ``freed_by`` freed the slot at ``freed_ps``.
    """

    issued_ps: Callable[[], Ps]
    phase: str
    call: str
    waits_since_ps: Ps | None = None
    slot: TakenSlot | None = None
    freed_ps: Ps = 0
    freed_by: int = 0

    def wait(self, task: Task) -> None:
        """Block the kernel until the receive ends, and set ``waits_since_ps``."""
        if not self.ended:
            self.waits_since_ps = self.issued_ps()
        super().wait(task)


def full_name(short_name: str, generation: int) -> str:
    """Return the name of a queue pair in logs, reports and messages: ``E``, or ``E#3`` in generation 3."""
    return f"{short_name}#{generation}" if generation else short_name


class QueuePair:
    """Send and receive state of one direction of a PE. Pointers only grow; a pointer modulo ``n_slots`` is a slot.

    ``taken``: number of messages that receives have taken. ``in_use``: the taken slots that are not credited yet, in
    order. Span ``freed_by`` freed the last slot at ``freed_ps``. ``sends``: sends that wait for a free slot, in order,
    the first since ``sender_since_ps``. ``sender_wakes``: a credit has arrived; the sends are
    served at the next poll. ``posted``: receives without a message, in order; none is served while the queue is
    ``blocked`` by a pending poll or copy. ``messages``: arrived messages that no receive has taken, by number.
    ``landed``: messages that are in their slots and wait for their doorbells, in order.

    ``direction``: full name, such as ``E``, or ``E#3`` in ``generation`` 3; ``short_name``: the name in kernels.
    ``has_far_ring``: whether its receive ring is outside the PE's TCM.
    """

    __slots__ = (
        "blocked",
        "can_receive",
        "can_send",
        "credit_mode",
        "credit_ps",
        "direction",
        "freed_by",
        "freed_ps",
        "generation",
        "has_far_ring",
        "in_use",
        "landed",
        "messages",
        "my_head",
        "my_rx_base_pa",
        "my_tail",
        "n_slots",
        "peer",
        "peer_head_cache",
        "peer_name",
        "peer_tail_cache",
        "posted",
        "recv_wait",
        "send_wait",
        "sender_since_ps",
        "sender_wakes",
        "sends",
        "short_name",
        "slot_size",
        "taken",
    )

    def __init__(self, entry: IpcqInitEntry, generation: int = 0) -> None:
        self.generation = generation
        self.short_name = entry.direction
        self.direction = full_name(entry.direction, generation)
        self.peer = entry.peer
        self.my_rx_base_pa = entry.my_rx_base_pa
        self.n_slots = entry.n_slots
        self.slot_size = entry.slot_size
        self.can_send = entry.can_send
        self.can_receive = entry.can_receive
        self.has_far_ring = space_of(entry.my_rx_base_pa) != "tcm"
        self.credit_ps = entry.credit_ps
        self.credit_mode = entry.credit_mode
        self.taken = self.freed_ps = self.freed_by = 0
        self.in_use: deque[TakenSlot] = deque()
        self.my_head = self.my_tail = self.peer_head_cache = self.peer_tail_cache = 0
        self.sends: deque[Sending] = deque()
        self.sender_since_ps = 0
        self.sender_wakes = False
        self.blocked = False
        self.posted: deque[Receiving] = deque()
        self.messages: dict[int, Message] = {}
        self.landed: deque[Message] = deque()
        self.peer_name = ".".join(map(str, self.peer.place))
        self.send_wait = Waiting("send", (self.direction,))
        self.recv_wait = Waiting("recv", (self.direction,))

    def continue_from(self, before: "QueuePair") -> None:
        """Continue the numbers of ``before``, the idle queue pair of the previous row, from the next round of the ring.

        A row starts at the first slot, and no two messages of a run have the same number.
        """
        self.my_head = self.peer_tail_cache = _whole_rounds(before.my_head, self.peer.n_slots)
        self.taken = self.my_tail = self.peer_head_cache = _whole_rounds(before.my_tail, self.n_slots)

    @property
    def is_idle(self) -> bool:
        """Whether all messages were received and all credits have arrived."""
        is_sent, is_received = self.my_head == self.peer_tail_cache, self.peer_head_cache == self.my_tail
        return is_sent and is_received and not (self.sends or self.posted or self.blocked)

    @property
    def is_full(self) -> bool:
        return self.my_head - self.peer_tail_cache >= self.peer.n_slots

    @property
    def is_empty(self) -> bool:
        return self.peer_head_cache <= self.taken

    def next_tx_slot_pa(self) -> int:
        """Return the address, in the peer's ring, of the slot for the next send."""
        return self.peer.rx_base_pa + (self.my_head % self.peer.n_slots) * self.peer.slot_size

    @property
    def has_va(self) -> bool:
        """Whether the peer's ring has a virtual address."""
        return self.peer.rx_base_va > 0

    def tx_slot_va(self, ahead: int = 0) -> int:
        """Return the virtual address, in the peer's ring, of the slot for the send after the next ``ahead`` sends."""
        return self.peer.rx_base_va + ((self.my_head + ahead) % self.peer.n_slots) * self.peer.slot_size

    def last_tx_slot_va(self) -> int:
        """Return the virtual address of the slot for a send that is issued now, behind all waiting sends."""
        return self.tx_slot_va(len(self.sends))

    def next_rx_slot_pa(self) -> int:
        """Return the address of the slot with the next message to receive."""
        return self.my_rx_base_pa + (self.taken % self.n_slots) * self.slot_size

    @property
    def rx_stop_pa(self) -> int:
        """The first address after the receive ring."""
        return self.my_rx_base_pa + self.n_slots * self.slot_size


def _whole_rounds(pointer: int, n_slots: int) -> int:
    return -(-pointer // n_slots) * n_slots
