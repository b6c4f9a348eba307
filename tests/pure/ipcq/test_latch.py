"""``latch``: when a slot is credited, whether its message is copied or used in place.

The pair and its times are those of ``pair_times``: PE 0 of cube 0 sends messages of 64 B to PE 0 of cube 1.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, tcm
from pair_times import (
    IPCQ_PS,
    PE_PS,
    READ_PS,
    RETURN_PS,
    WRITE_PS,
    arrival_ps,
    drain_ps,
    load_ps,
    math_ps,
    note_credits,
    put,
    recv_i32,
    send_i32,
)

from sipsim.dtypes import DTYPES
from sipsim.errors import InvariantViolation, KernelError
from sipsim.ipcq.invariants import InvariantChecker
from sipsim.ipcq.queue_pair import QueuePair
from sipsim.ipcq.slots import Slots, nothing
from sipsim.tl.language import TL
from sipsim.tl.values import TensorHandle

BYTES = 64
KINDS = ["tcm", "hbm", "sram"]
MATH_PS = math_ps(BYTES)


def bench_of(latch: str | None, kind: str = "tcm", n_slots: int = 8) -> Bench:
    bench = pair_bench({"defaults.latch": latch, "defaults.buffer_kind": kind, "defaults.n_slots": n_slots})
    put(bench, tcm(0, 0), range(16), "<i4")
    return bench


def credits_of(bench: Bench, receiver: Callable[[TL], object], messages: int = 1) -> list[tuple[int, int]]:
    """(time, consumer_seq) of the credits that come back to the sender."""
    seen = note_credits(bench, bench.ipcq(0, 0))
    bench.kernel(0, 0, lambda tl: [send_i32(tl, tcm(0, 0)) for _ in range(messages)])
    bench.kernel(1, 0, receiver)
    bench.run()
    return seen


@pytest.mark.ideal
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("posted", [False, True])
def test_a_copy_is_made_before_the_credit(kind: str, posted: bool) -> None:
    """A read of the ring and a write to the TCM, for a blocking receive as for a future; else the credit is free."""
    here_ps, copy_ps = arrival_ps(BYTES, kind), load_ps(kind) + WRITE_PS["tcm"]

    def receiver(tl: TL) -> None:
        if posted:
            tl.wait(tl.recv_async("W", 16, "i32"))
        else:
            recv_i32(tl)

    assert credits_of(bench_of(None, kind), receiver) == [(here_ps + RETURN_PS, 1)]
    bench = bench_of("copy", kind)
    assert credits_of(bench, receiver) == [(here_ps + copy_ps + RETURN_PS, 1)]
    assert bench.records("ipcq.recv")[0].end_ps == here_ps + copy_ps + RETURN_PS


def test_copied_values_need_no_fetch() -> None:
    bench = bench_of("copy", "hbm")
    credits_of(bench, lambda tl: [_twice(tl.recv("W", 16, "i32"))])
    (math,) = bench.records("math")
    assert math.end_ps - math.start_ps == MATH_PS


def _twice(handle: TensorHandle) -> TensorHandle:
    return handle + handle


@pytest.mark.ideal
def test_copies_are_made_one_after_the_other() -> None:
    """Two futures for two messages, which arrive 1 ns apart: the second copy begins when the first has ended."""
    bench = bench_of("copy", "hbm")
    first_ps, copy_ps = arrival_ps(BYTES, "hbm"), load_ps("hbm") + WRITE_PS["tcm"]

    def receiver(tl: TL) -> None:
        for each in [tl.recv_async("W", 16, "i32") for _ in range(2)]:
            tl.wait(each)

    expected = [(first_ps + copy_ps + RETURN_PS, 1), (first_ps + 2 * copy_ps + RETURN_PS, 2)]
    assert credits_of(bench, receiver, 2) == expected


PASS_PS = IPCQ_PS + PE_PS + drain_ps(BYTES)
FIRST_USES: dict[str, tuple[Callable[[TL, TensorHandle], object], int | None]] = {
    "add": (lambda tl, handle: handle + handle, MATH_PS),
    "store": (lambda tl, handle: tl.store(tcm(1, 0), handle), WRITE_PS["tcm"]),
    "send": (lambda tl, handle: tl.send("W", handle), PASS_PS),
    "release": (lambda tl, handle: tl.release(handle), 0),
    "the kernel's end": (lambda tl, handle: None, 0),
}


@pytest.mark.ideal
@pytest.mark.parametrize("name", FIRST_USES)
@pytest.mark.parametrize("later_ps", [0, 5_000])
def test_a_slot_of_the_tcm_is_credited_after_its_first_reading(name: str, later_ps: int) -> None:
    """``recv`` does not wait for a credit; the command that names the handle first gives the slot back at its end."""
    use, time_ps = FIRST_USES[name]
    bench = bench_of("in_place")
    got: list[Any] = []

    def receiver(tl: TL) -> None:
        handle = tl.recv("W", 16, "i32")
        got.append(bench.engine.now_ps)
        if later_ps:
            bench.pause(1, 0, later_ps)
        use(tl, handle)
        got.append(handle.array.tolist())

    here_ps = arrival_ps(BYTES)
    assert credits_of(bench, receiver)[0] == (here_ps + later_ps + time_ps + RETURN_PS, 1)
    assert got == [here_ps, list(range(16))]


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["hbm", "sram"])
@pytest.mark.parametrize("name", ["add", "store"])
def test_a_far_slot_is_credited_when_it_is_in_the_pe(kind: str, name: str) -> None:
    """The first command fetches it; a second one finds the values in the PE."""
    bench = bench_of("in_place", kind)

    def receiver(tl: TL) -> None:
        handle = tl.recv("W", 16, "i32")
        FIRST_USES[name][0](tl, handle)
        _twice(handle)

    here_ps = arrival_ps(BYTES, kind)
    assert credits_of(bench, receiver) == [(here_ps + load_ps(kind) + RETURN_PS, 1)]
    last = bench.records("math")[-1]
    assert last.end_ps - last.start_ps == MATH_PS


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["hbm", "sram"])
def test_a_far_slot_that_is_sent_on_is_credited_when_it_is_in_the_pe(kind: str) -> None:
    bench = bench_of("in_place", kind)
    seen = credits_of(bench, lambda tl: tl.send("W", tl.recv("W", 16, "i32")))
    assert seen[0] == (arrival_ps(BYTES, kind) + IPCQ_PS + load_ps(kind) + RETURN_PS, 1)


@pytest.mark.ideal
def test_slots_are_credited_in_order() -> None:
    """The second message is read first: its slot waits for the first one's, and one credit frees both."""
    bench = bench_of("in_place")

    def receiver(tl: TL) -> None:
        first, second = tl.recv("W", 16, "i32"), tl.recv("W", 16, "i32")
        _twice(second)
        bench.pause(1, 0, 100_000)
        tl.release(first)

    second_ps = arrival_ps(BYTES) + drain_ps(BYTES)
    released_ps = second_ps + MATH_PS + 100_000
    assert credits_of(bench, receiver, 2) == [(released_ps + RETURN_PS, 2)]


@pytest.mark.ideal
def test_a_copy_to_an_address_waits_for_the_slot_before_it() -> None:
    bench = bench_of("in_place")

    def receiver(tl: TL) -> None:
        first = tl.recv("W", 16, "i32")
        recv_i32(tl, dst_addr=tcm(1, 4096))
        bench.pause(1, 0, 10_000)
        tl.release(first)

    copied_ps = arrival_ps(BYTES) + drain_ps(BYTES) + READ_PS["tcm"] + WRITE_PS["tcm"]
    assert credits_of(bench, receiver, 2) == [(copied_ps + 10_000 + RETURN_PS, 2)]


@pytest.mark.ideal
def test_messages_of_any_direction_are_used_in_place_too() -> None:
    bench = bench_of("in_place")
    seen = credits_of(bench, lambda tl: tl.release(tl.recv(shape=16, dtype="i32")))
    assert seen == [(arrival_ps(BYTES) + RETURN_PS, 1)]


@pytest.mark.parametrize("latch", [None, "copy", "in_place"])
def test_a_released_handle_is_named_no_more(latch: str | None) -> None:
    """The same in every mode, so that a kernel that runs in one runs in all."""
    bench = bench_of(latch)
    said: list[str] = []

    def receiver(tl: TL) -> None:
        handle = tl.recv("W", 16, "i32")
        tl.release(handle)
        for word in (_twice, tl.release, lambda each: tl.send("W", each), lambda each: tl.store(tcm(1, 0), each)):
            with pytest.raises(KernelError) as caught:
                word(handle)
            said.append(str(caught.value))

    credits_of(bench, receiver)
    assert said == ["handle h0 was given to tl.release; no command can name it any more"] * 4


@pytest.mark.ideal
def test_a_slot_that_is_in_use_holds_its_sender_back() -> None:
    """One slot: the second message leaves when the first is named, and is not written over it."""
    bench = bench_of("in_place", n_slots=1)
    got: list[list[int]] = []

    def sender(tl: TL) -> None:
        for value in (1, 2):
            tl.send("E", TensorHandle(tl, np.full(16, value, "<i4"), DTYPES["i32"]))

    def receiver(tl: TL) -> None:
        first = tl.recv("W", 16, "i32")
        bench.pause(1, 0, 500_000)
        got.append(_twice(first).array.tolist())
        got.append(recv_i32(tl))

    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, receiver)
    bench.run()
    assert got == [[2] * 16, [2] * 16]
    read_ps = arrival_ps(BYTES) + 500_000 + MATH_PS
    assert [each.end_ps for each in bench.records("ipcq.send")] == [0, read_ps + RETURN_PS]


def test_an_early_credit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a slot that is used in place is credited when it is received."""
    real = Slots.take

    def take(slots: Slots, queue: QueuePair, receive: Any, cause: int) -> None:
        real(slots, queue, receive, cause)
        with monkeypatch.context() as patch:
            patch.setattr(InvariantChecker, "read", nothing_read)
            slots._was_read(queue.in_use[-1], cause, slots._engine.now_ps, nothing)

    def nothing_read(*_arguments: object) -> None:
        """Nothing was read."""

    monkeypatch.setattr(Slots, "take", take)
    bench = bench_of("in_place")
    with pytest.raises(InvariantViolation, match=r"^I7: the slot of message 0 is credited before it was read "):
        credits_of(bench, lambda tl: _twice(tl.recv("W", 16, "i32")))


@pytest.mark.ideal
def test_the_example_of_a_ring_in_hbm() -> None:
    """What was credited before it was read is credited after."""
    before, after = bench_of(None, "hbm"), bench_of("in_place", "hbm")

    def receiver(tl: TL) -> None:
        tl.store(hbm(1, 0), tl.recv("W", 16, "i32"))

    (early_ps, _), (late_ps, _) = credits_of(before, receiver)[0], credits_of(after, receiver)[0]
    assert late_ps - early_ps == load_ps("hbm")
