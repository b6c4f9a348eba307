"""One direction of one PE: a ring to the peer and a ring from it, with the four pointers of ADR-0023 D2."""

from collections import deque
from typing import TYPE_CHECKING

from sipsim.ipcq.messages import IpcqDmaToken, IpcqInitEntry, Waiting
from sipsim.task import Task

if TYPE_CHECKING:
    from sipsim.ipcq.receives import Receive


class QueuePair:
    """Pointers only grow; the slot of a pointer is that pointer modulo the ring's slots.

    ``sender`` waits since ``sender_since_ps`` for a free slot. ``posted`` are the receives that have not got their
    message yet, in order; none is served while the queue ``blocked`` by a pending poll or copy. ``messages`` says what
    lies in the slots between ``my_tail`` and ``peer_head_cache``.
    """

    __slots__ = (
        "blocked",
        "can_receive",
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
        "peer_name",
        "peer_tail_cache",
        "posted",
        "recv_wait",
        "send_wait",
        "sender",
        "sender_since_ps",
        "slot_size",
    )

    def __init__(self, entry: IpcqInitEntry) -> None:
        self.direction = entry.direction
        self.peer = entry.peer
        self.my_rx_base_pa = entry.my_rx_base_pa
        self.n_slots = entry.n_slots
        self.slot_size = entry.slot_size
        self.can_send = entry.can_send
        self.can_receive = entry.can_receive
        self.credit_ps = entry.credit_ps
        self.my_head = self.my_tail = self.peer_head_cache = self.peer_tail_cache = 0
        self.sender: Task | None = None
        self.sender_since_ps = 0
        self.blocked = False
        self.posted: deque[Receive] = deque()
        self.messages: dict[int, IpcqDmaToken] = {}
        self.peer_name = ".".join(map(str, self.peer.place))
        self.send_wait = Waiting("send", (self.direction,))
        self.recv_wait = Waiting("recv", (self.direction,))

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

    @property
    def rx_stop_pa(self) -> int:
        """The first address after the receive ring."""
        return self.my_rx_base_pa + self.n_slots * self.slot_size
