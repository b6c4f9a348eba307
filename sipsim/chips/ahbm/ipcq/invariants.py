"""Checker of the queue invariants of ADR-0023 D14 and ADR-0025 D6, enabled by ``--check-invariants``.

The checker repeats the bookkeeping of PE_IPCQ independently and compares after each step. I3, I3.1 and I4 concern the
wiring and are checked at install, in every run.

With doorbells (``head_update``) the data are in their slot before the pointer, so I6 in its strict form, one step for
both, does not hold by construction. The rest of I6 is checked: no pointer moves before its data are in the slot.
"""

from zlib import crc32

from sipsim.chips.ahbm.ipcq.messages import Message, TakenSlot
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.core.engine import Engine
from sipsim.core.errors import InvariantViolation
from sipsim.records.dump import Place


class _Counts:
    """Counts of one queue pair's steps, independent of its pointers, and CRC-32 checksums of its messages by number."""

    __slots__ = ("arrived", "credited", "freed", "landed", "read", "sent", "slots", "taken")

    def __init__(self, sent: int = 0, received: int = 0) -> None:
        self.sent = self.credited = sent
        self.arrived = self.landed = self.taken = self.freed = received
        self.slots: dict[int, int] = {}
        self.read: set[int] = set()


class InvariantChecker:
    """Checks all queue pairs of one SIP. PE_IPCQ calls each method directly after the step of that name.

    Raises:
        InvariantViolation: from every method, with the invariant, the place and the direction.
    """

    def __init__(self, engine: Engine, memory: MemoryStore) -> None:
        self._engine = engine
        self._memory = memory
        self._counts: dict[tuple[Place, str], _Counts] = {}

    def continued(self, place: Place, queue: QueuePair) -> None:
        """Start to count from the current pointers of a queue pair, which continues from the previous row."""
        self._counts[place, queue.direction] = _Counts(queue.my_head, queue.my_tail)

    def sent(self, place: Place, queue: QueuePair, message: Message) -> None:
        """Check a send after ``my_head`` was incremented and before the message leaves."""
        counts = self._of(place, queue)
        self._check(
            message.sender_seq == counts.sent, "I2", place, queue, f"sent {message.sender_seq} after {counts.sent - 1}"
        )
        counts.sent += 1
        self._check(
            queue.my_head == counts.sent, "I2", place, queue, f"my_head is {queue.my_head} after {counts.sent} sends"
        )
        ahead = queue.my_head - queue.peer_tail_cache
        self._check(ahead <= queue.peer.n_slots, "I1", place, queue, f"{ahead} messages in {queue.peer.n_slots} slots")
        peer = queue.peer
        slot_pa = peer.rx_base_pa + message.sender_seq % peer.n_slots * peer.slot_size
        self._check(
            message.dst_addr == slot_pa, "I3.1", place, queue, f"{message.dst_addr:#x} is not slot {slot_pa:#x}"
        )

    def landed(self, place: Place, queue: QueuePair, message: Message) -> None:
        """Check a message that was written to its slot and waits for its doorbell: it is the next one, and its slot was
        free.
        """
        counts = self._of(place, queue)
        number = message.sender_seq
        self._check(number == counts.landed, "I1", place, queue, f"message {number} was written twice, or early")
        counts.landed += 1
        held = counts.landed - counts.freed
        self._check(held <= queue.n_slots, "I7", place, queue, f"message {number} was written to a slot in use")

    def arrived(self, place: Place, queue: QueuePair, message: Message) -> None:
        """Check an arrival after the message was written and ``peer_head_cache`` was updated."""
        counts, now_ps = self._of(place, queue), self._engine.now_ps
        self._check(
            message.sender_seq == counts.arrived,
            "I1",
            place,
            queue,
            f"message {message.sender_seq} is a duplicate or early",
        )
        counts.arrived += 1
        head = queue.peer_head_cache
        self._check(
            head == counts.arrived, "I2", place, queue, f"peer_head_cache is {head} after {counts.arrived} arrivals"
        )
        held = counts.arrived - counts.freed
        self._check(held <= queue.n_slots, "I1", place, queue, f"{held} messages in {queue.n_slots} slots")
        slot_pa = queue.my_rx_base_pa + message.sender_seq % queue.n_slots * queue.slot_size
        self._check(
            message.dst_addr == slot_pa, "I3.1", place, queue, f"{message.dst_addr:#x} is not slot {slot_pa:#x}"
        )
        self._check(
            message.sent_ps < now_ps, "I5", place, queue, f"sent at {message.sent_ps} ps, arrived at {now_ps} ps"
        )
        is_written = self._memory.read(slot_pa, len(message.data)) == message.data
        self._check(is_written, "I6", place, queue, f"message {message.sender_seq} arrived and is not in its slot")
        counts.slots[message.sender_seq] = crc32(message.data)

    def taken(self, place: Place, queue: QueuePair, data: bytes) -> None:
        """Check, before ``taken`` is incremented, that a receive took the next message unchanged."""
        counts = self._of(place, queue)
        number = counts.taken
        self._check(number in counts.slots, "I1", place, queue, f"message {number} was taken before it arrived")
        checksum = counts.slots[number]
        self._check(queue.taken == number, "I2", place, queue, f"taken is {queue.taken}, message {number} is next")
        self._check(checksum == crc32(data), "I7", place, queue, f"message {number} changed in its slot")
        counts.taken += 1

    def read(self, place: Place, queue: QueuePair, taken: TakenSlot, unread: bool) -> None:
        """Check that a slot still held its message when it was read; ``unread``: the slot was freed without a read."""
        counts, number = self._of(place, queue), taken.seq
        checksum = counts.slots.pop(number, None)
        is_there = unread or checksum == crc32(self._memory.read(taken.slot_pa, taken.nbytes))
        self._check(is_there, "I7", place, queue, f"message {number} was read from its slot after a write to the slot")
        counts.read.add(number)

    def freed(self, place: Place, queue: QueuePair) -> None:
        """Check, after ``my_tail`` was incremented, that the freed slot's message was taken and read before."""
        counts = self._of(place, queue)
        counts.freed += 1
        self._check(
            queue.my_tail == counts.freed, "I2", place, queue, f"my_tail is {queue.my_tail} after {counts.freed} frees"
        )
        self._check(counts.freed <= counts.taken, "I1", place, queue, "a slot was freed before its message was taken")
        number = counts.freed - 1
        is_read = number in counts.read
        self._check(is_read, "I7", place, queue, f"the slot of message {number} is credited before it was read")
        counts.read.discard(number)

    def credited(self, place: Place, queue: QueuePair) -> None:
        """Check a credit that was applied to ``peer_tail_cache``."""
        counts, tail = self._of(place, queue), queue.peer_tail_cache
        self._check(
            tail >= counts.credited, "I2", place, queue, f"peer_tail_cache went back from {counts.credited} to {tail}"
        )
        self._check(
            tail <= counts.sent, "I1", place, queue, f"{tail} slots were returned, {counts.sent} messages were sent"
        )
        counts.credited = tail

    def forget(self, place: Place, queue: QueuePair) -> None:
        """Drop the counts of a closed queue pair."""
        self._counts.pop((place, queue.direction), None)

    def _of(self, place: Place, queue: QueuePair) -> _Counts:
        key = (place, queue.direction)
        if key not in self._counts:
            self._counts[key] = _Counts()
        return self._counts[key]

    def _check(self, holds: bool, invariant: str, place: Place, queue: QueuePair, otherwise: str) -> None:
        if not holds:
            sip, cube, pe = place
            raise InvariantViolation(
                f"{invariant}: {otherwise} (queue pair {queue.direction} of rank {sip} cube {cube} PE {pe})",
                cube=cube,
                pe=pe,
                direction=queue.direction,
            )
