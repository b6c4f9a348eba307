"""A checker of the queue invariants of ADR-0023 D14 and ADR-0025 D6, beside the code that must keep them.

It repeats the bookkeeping of PE_IPCQ on its own and compares after each step, so it costs time and is asked for
(``--check-invariants``). I3, I3.1 and I4 are about the wiring and are checked when it is installed, in every run.
"""

from zlib import crc32

from sipsim.engine import Engine
from sipsim.errors import InvariantViolation
from sipsim.ipcq.messages import IpcqDmaToken, Place
from sipsim.ipcq.queue_pair import QueuePair
from sipsim.memory.store import MemoryStore


class _Seen:
    """What one queue pair has done so far, counted independently of its pointers; checksums of what its slots hold."""

    __slots__ = ("arrived", "credited", "freed", "sent", "slots", "taken")

    def __init__(self) -> None:
        self.sent = self.arrived = self.taken = self.freed = self.credited = 0
        self.slots: dict[int, int] = {}


class InvariantChecker:
    """All queue pairs of one SIP. Each method is called right after the step that it is named after.

    Raises:
        InvariantViolation: from every method, naming the invariant, the place and the direction.
    """

    def __init__(self, engine: Engine, memory: MemoryStore) -> None:
        self._engine = engine
        self._memory = memory
        self._seen: dict[tuple[Place, str], _Seen] = {}

    def sent(self, place: Place, queue: QueuePair, token: IpcqDmaToken) -> None:
        """``my_head`` has been moved past a message, which has not left yet."""
        seen = self._of(place, queue)
        self._hold(token.sender_seq == seen.sent, "I2", place, queue, f"sent {token.sender_seq} after {seen.sent - 1}")
        seen.sent += 1
        self._hold(queue.my_head == seen.sent, "I2", place, queue, f"my_head is {queue.my_head}, {seen.sent} were sent")
        ahead = queue.my_head - queue.peer_tail_cache
        self._hold(ahead <= queue.peer.n_slots, "I1", place, queue, f"{ahead} messages in {queue.peer.n_slots} slots")
        peer = queue.peer
        slot_pa = peer.rx_base_pa + token.sender_seq % peer.n_slots * peer.slot_size
        self._hold(token.dst_addr == slot_pa, "I3.1", place, queue, f"{token.dst_addr:#x} is not slot {slot_pa:#x}")

    def arrived(self, place: Place, queue: QueuePair, token: IpcqDmaToken) -> None:
        """A message was written and ``peer_head_cache`` moved."""
        seen, now_ps = self._of(place, queue), self._engine.now_ps
        self._hold(
            token.sender_seq == seen.arrived, "I1", place, queue, f"message {token.sender_seq} came again or early"
        )
        seen.arrived += 1
        head = queue.peer_head_cache
        self._hold(head == seen.arrived, "I2", place, queue, f"peer_head_cache is {head}, {seen.arrived} have arrived")
        held = seen.arrived - seen.freed
        self._hold(held <= queue.n_slots, "I1", place, queue, f"{held} messages in {queue.n_slots} slots")
        slot_pa = queue.my_rx_base_pa + token.sender_seq % queue.n_slots * queue.slot_size
        self._hold(token.dst_addr == slot_pa, "I3.1", place, queue, f"{token.dst_addr:#x} is not slot {slot_pa:#x}")
        self._hold(token.sent_ps < now_ps, "I5", place, queue, f"sent at {token.sent_ps} ps, here at {now_ps} ps")
        lies_there = self._memory.read(slot_pa, len(token.data)) == token.data
        self._hold(lies_there, "I6", place, queue, f"message {token.sender_seq} is announced and not in its slot")
        seen.slots[token.sender_seq] = crc32(token.data)

    def taken(self, place: Place, queue: QueuePair, data: bytes) -> None:
        """A message was read from its slot, which ``my_tail`` still names."""
        seen = self._of(place, queue)
        number = seen.taken
        self._hold(number in seen.slots, "I1", place, queue, f"message {number} was taken and has not arrived")
        checksum = seen.slots.pop(number)
        self._hold(queue.my_tail == number, "I2", place, queue, f"my_tail is {queue.my_tail}, message {number} is next")
        self._hold(checksum == crc32(data), "I7", place, queue, f"message {number} changed while it lay in its slot")
        seen.taken += 1

    def freed(self, place: Place, queue: QueuePair) -> None:
        """``my_tail`` has been moved past a message that was taken."""
        seen = self._of(place, queue)
        seen.freed += 1
        self._hold(
            queue.my_tail == seen.freed, "I2", place, queue, f"my_tail is {queue.my_tail}, {seen.freed} were freed"
        )
        self._hold(seen.freed <= seen.taken, "I1", place, queue, "a slot was freed whose message nobody took")

    def credited(self, place: Place, queue: QueuePair) -> None:
        """``peer_tail_cache`` may have moved."""
        seen, tail = self._of(place, queue), queue.peer_tail_cache
        self._hold(
            tail >= seen.credited, "I2", place, queue, f"peer_tail_cache went back from {seen.credited} to {tail}"
        )
        self._hold(tail <= seen.sent, "I1", place, queue, f"{tail} slots came back, {seen.sent} messages were sent")
        seen.credited = tail

    def _of(self, place: Place, queue: QueuePair) -> _Seen:
        key = (place, queue.direction)
        if key not in self._seen:
            self._seen[key] = _Seen()
        return self._seen[key]

    def _hold(self, holds: bool, invariant: str, place: Place, queue: QueuePair, otherwise: str) -> None:
        if not holds:
            sip, cube, pe = place
            raise InvariantViolation(
                f"{invariant}: {otherwise} (queue pair {queue.direction} of rank {sip} cube {cube} PE {pe})",
                cube=cube,
                pe=pe,
                direction=queue.direction,
            )
