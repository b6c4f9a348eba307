"""The checker alone, step by step, on queue pairs whose pointers are set by hand: each of its messages.

Whole runs with a broken part are in ``inproc/ipcq/test_ipcq_failures.py``.
"""

from collections.abc import Callable

import pytest
from hardware import pair_bench
from wire_packets import message_from

from sipsim.chips.ahbm.ipcq.invariants import InvariantChecker
from sipsim.chips.ahbm.ipcq.messages import Message, TakenSlot
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.core.errors import InvariantViolation

SENDER, RECEIVER = (0, 0, 0), (0, 1, 0)
DATA = b"abcd"


class Scene:
    """Both ends of a ring of two slots, and a new checker; ``do_...`` moves pointers and calls it."""

    def __init__(self) -> None:
        self.bench = pair_bench({"defaults.n_slots": 2})
        self.checker = InvariantChecker(self.bench.engine, self.bench.sip.memory)
        self.out: QueuePair = self.bench.queue(0, 0, "E")
        self.into: QueuePair = self.bench.queue(1, 0, "W")
        self.bench.engine.at(1_000, lambda: None)
        self.bench.run()

    def message(self, seq: int, slot: int | None = None, sent_ps: int = 0) -> Message:
        address = self.into.my_rx_base_pa + (seq % 2 if slot is None else slot) * self.into.slot_size
        return message_from(SENDER, address, seq, DATA, dtype="i32", shape=(1,), sent_ps=sent_ps)

    def sent(self, seq: int, head: int, slot: int | None = None) -> None:
        self.out.my_head = head
        self.checker.sent(SENDER, self.out, self.message(seq, slot))

    def arrived(self, seq: int, head: int, slot: int | None = None, data: bytes = DATA, sent_ps: int = 0) -> None:
        message = self.message(seq, slot, sent_ps)
        self.bench.sip.memory.write(message.dst_addr, data)
        self.into.peer_head_cache = head
        self.checker.arrived(RECEIVER, self.into, message)

    def landed(self, seq: int) -> None:
        self.checker.landed(RECEIVER, self.into, self.message(seq))

    def taken(self, tail: int, data: bytes = DATA) -> None:
        self.into.taken = tail
        self.checker.taken(RECEIVER, self.into, data)

    def read(self, seq: int) -> None:
        slot_pa = self.into.my_rx_base_pa + seq % 2 * self.into.slot_size
        self.checker.read(RECEIVER, self.into, TakenSlot("W", seq, slot_pa, len(DATA)), unread=False)

    def written(self, seq: int, data: bytes) -> None:
        self.bench.sip.memory.write(self.into.my_rx_base_pa + seq % 2 * self.into.slot_size, data)

    def freed(self, tail: int) -> None:
        self.into.my_tail = tail
        self.checker.freed(RECEIVER, self.into)

    def credited(self, tail: int) -> None:
        self.out.peer_tail_cache = tail
        self.checker.credited(SENDER, self.out)


def one_message(scene: Scene, seq: int = 0) -> None:
    scene.sent(seq, seq + 1)
    scene.arrived(seq, seq + 1)
    scene.taken(seq)
    scene.read(seq)
    scene.freed(seq + 1)
    scene.credited(seq + 1)


def two_here(scene: Scene) -> None:
    for seq in (0, 1):
        scene.sent(seq, seq + 1)
        scene.arrived(seq, seq + 1)


Steps = Callable[[Scene], None]
BROKEN: list[tuple[list[Steps], str, tuple[int, int], str]] = [
    ([lambda s: s.sent(1, 1)], "I2: sent 1 after -1", (0, 0), "E"),
    ([lambda s: s.sent(0, 2)], "I2: my_head is 2 after 1 sends", (0, 0), "E"),
    ([two_here, lambda s: s.sent(2, 3)], "I1: 3 messages in 2 slots", (0, 0), "E"),
    ([lambda s: s.sent(0, 1, slot=1)], "I3.1: ", (0, 0), "E"),
    ([lambda s: s.arrived(1, 1)], "I1: message 1 is a duplicate or early", (1, 0), "W"),
    ([one_message, lambda s: s.arrived(0, 1)], "I1: message 0 is a duplicate or early", (1, 0), "W"),
    ([lambda s: s.arrived(0, 2)], "I2: peer_head_cache is 2 after 1 arrivals", (1, 0), "W"),
    ([two_here, lambda s: s.arrived(2, 3)], "I1: 3 messages in 2 slots", (1, 0), "W"),
    ([lambda s: s.arrived(0, 1, slot=1)], "I3.1: ", (1, 0), "W"),
    ([lambda s: s.arrived(0, 1, sent_ps=1_000)], "I5: sent at 1000 ps, arrived at 1000 ps", (1, 0), "W"),
    ([lambda s: s.arrived(0, 1, data=b"abce")], "I6: message 0 arrived and is not in its slot", (1, 0), "W"),
    ([lambda s: s.landed(1)], "I1: message 1 was written twice, or early", (1, 0), "W"),
    ([lambda s: s.landed(0), lambda s: s.landed(0)], "I1: message 0 was written twice, or early", (1, 0), "W"),
    (
        [lambda s: s.landed(0), lambda s: s.landed(1), lambda s: s.landed(2)],
        "I7: message 2 was written to a slot in use",
        (1, 0),
        "W",
    ),
    ([lambda s: s.taken(0)], "I1: message 0 was taken before it arrived", (1, 0), "W"),
    ([two_here, lambda s: s.taken(1)], "I2: taken is 1, message 0 is next", (1, 0), "W"),
    ([two_here, lambda s: s.taken(0, b"abce")], "I7: message 0 changed in its slot", (1, 0), "W"),
    ([two_here, lambda s: s.taken(0), lambda s: s.freed(2)], "I2: my_tail is 2 after 1 frees", (1, 0), "W"),
    ([two_here, lambda s: s.freed(1)], "I1: a slot was freed before its message was taken", (1, 0), "W"),
    (
        [two_here, lambda s: s.taken(0), lambda s: s.freed(1)],
        "I7: the slot of message 0 is credited before it was read",
        (1, 0),
        "W",
    ),
    (
        [two_here, lambda s: s.taken(0), lambda s: s.written(0, b"abce"), lambda s: s.read(0)],
        "I7: message 0 was read from its slot after a write to the slot",
        (1, 0),
        "W",
    ),
    ([one_message, lambda s: s.credited(0)], "I2: peer_tail_cache went back from 1 to 0", (0, 0), "E"),
    ([one_message, lambda s: s.credited(2)], "I1: 2 slots were returned, 1 messages were sent", (0, 0), "E"),
]


@pytest.mark.parametrize(("steps", "says", "place", "direction"), BROKEN, ids=[says for _, says, _, _ in BROKEN])
def test_each_violation_is_named(steps: list[Steps], says: str, place: tuple[int, int], direction: str) -> None:
    """With the place and the direction, as fields and in words."""
    scene = Scene()
    for step in steps[:-1]:
        step(scene)
    with pytest.raises(InvariantViolation) as caught:
        steps[-1](scene)
    error = caught.value
    assert str(error).startswith(says)
    assert (error.cube, error.pe, error.direction) == (*place, direction)
    assert str(error).endswith(f" (queue pair {direction} of rank 0 cube {place[0]} PE {place[1]})")


def test_a_valid_sequence_raises_nothing() -> None:
    """Five messages through two slots, and two that stay."""
    scene = Scene()
    for seq in range(5):
        one_message(scene, seq)
    for seq in (5, 6):
        scene.sent(seq, seq + 1)
        scene.arrived(seq, seq + 1)


def test_directions_are_counted_apart() -> None:
    scene = Scene()
    one_message(scene)
    scene.out.direction = "N"
    scene.out.peer_tail_cache = 0
    scene.sent(0, 1)
