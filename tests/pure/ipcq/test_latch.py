"""``latch``: when a slot is credited, whether its message is copied or used in place.

The pair and its times are those of ``pair_times``: PE 0 of cube 0 sends messages of 64 B to PE 0 of cube 1.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hardware import Bench, tcm
from pair_times import (
    IPCQ_PS,
    PE_PS,
    READ_PS,
    RETURN_PS,
    WRITE_PS,
    arrival_ps,
    credits_of,
    drain_ps,
    load_ps,
    math_ps,
    queue_bench,
    recv_i32,
    run_pair,
)

from sipsim.chips.ahbm.ipcq.invariants import InvariantChecker
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq, nothing
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair, Receiving
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.errors import InvariantViolation, KernelError

BYTES = 64
MATH_PS = math_ps(BYTES)


def bench_of(latch: str | None, kind: str = "tcm", n_slots: int = 8) -> Bench:
    return queue_bench(latch=latch, buffer_kind=kind, n_slots=n_slots)


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["tcm", "hbm", "sram"])
@pytest.mark.parametrize("posted", [False, True])
def test_a_copy_is_made_before_the_credit(kind: str, posted: bool) -> None:
    """A read of the ring and a write to the TCM, for a blocking receive as for a future; else the credit is free.
    Copied values need no fetch.
    """
    here_ps, copy_ps = arrival_ps(BYTES, kind), load_ps(kind) + WRITE_PS["tcm"]

    def receiver(tl: TL) -> None:
        _twice(tl.wait(tl.recv_async("W", 16, "i32")) if posted else tl.recv("W", 16, "i32"))

    assert credits_of(bench_of(None, kind), 1, receiver) == [(here_ps + RETURN_PS, 1)]
    bench = bench_of("copy", kind)
    assert credits_of(bench, 1, receiver) == [(here_ps + copy_ps + RETURN_PS, 1)]
    assert bench.ends("ipcq.recv") == [here_ps + copy_ps + RETURN_PS]
    assert bench.ends("math") == [here_ps + copy_ps + RETURN_PS + MATH_PS]


def _twice(handle: TensorHandle) -> TensorHandle:
    return handle + handle


@pytest.mark.ideal
def test_copies_are_made_one_after_the_other() -> None:
    """Two futures for two messages, which arrive 1 ns apart: the second copy begins when the first has ended."""
    first_ps, copy_ps = arrival_ps(BYTES, "hbm"), load_ps("hbm") + WRITE_PS["tcm"]

    def receiver(tl: TL) -> None:
        for each in [tl.recv_async("W", 16, "i32") for _ in range(2)]:
            tl.wait(each)

    expected = [(first_ps + copy_ps + RETURN_PS, 1), (first_ps + 2 * copy_ps + RETURN_PS, 2)]
    assert credits_of(bench_of("copy", "hbm"), 2, receiver) == expected


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
    bench, got = bench_of("in_place"), list[Any]()

    def receiver(tl: TL) -> None:
        handle = tl.recv("W", 16, "i32")
        got.append(bench.engine.now_ps)
        if later_ps:
            bench.pause(1, 0, later_ps)
        use(tl, handle)
        got.append(handle.array.tolist())

    here_ps = arrival_ps(BYTES)
    assert credits_of(bench, 1, receiver)[0] == (here_ps + later_ps + time_ps + RETURN_PS, 1)
    assert got == [here_ps, [0] * 16]


@pytest.mark.ideal
@pytest.mark.parametrize("kind", ["hbm", "sram"])
@pytest.mark.parametrize(("name", "before_ps"), [("add", 0), ("store", 0), ("send", IPCQ_PS)])
def test_a_far_slot_is_credited_when_it_is_in_the_pe(kind: str, name: str, before_ps: int) -> None:
    """The first command fetches it; what is sent on, PE_IPCQ a cycle later."""
    use, bench = FIRST_USES[name][0], bench_of("in_place", kind)
    credited = (arrival_ps(BYTES, kind) + before_ps + load_ps(kind) + RETURN_PS, 1)
    assert credits_of(bench, 1, lambda tl: use(tl, tl.recv("W", 16, "i32")))[0] == credited


@pytest.mark.ideal
def test_slots_are_credited_in_order() -> None:
    """The second message is read first: its slot waits for the first one's, and one credit frees both."""
    bench = bench_of("in_place")

    def receiver(tl: TL) -> None:
        first, second = tl.recv("W", 16, "i32"), tl.recv("W", 16, "i32")
        _twice(second)
        bench.pause(1, 0, 100_000)
        tl.release(first)

    released_ps = arrival_ps(BYTES) + drain_ps(BYTES) + MATH_PS + 100_000
    assert credits_of(bench, 2, receiver) == [(released_ps + RETURN_PS, 2)]


@pytest.mark.ideal
def test_a_copy_to_an_address_waits_for_the_slot_before_it() -> None:
    bench = bench_of("in_place")

    def receiver(tl: TL) -> None:
        first = tl.recv("W", 16, "i32")
        recv_i32(tl, dst_addr=tcm(1, 4096))
        bench.pause(1, 0, 10_000)
        tl.release(first)

    copied_ps = arrival_ps(BYTES) + drain_ps(BYTES) + READ_PS["tcm"] + WRITE_PS["tcm"]
    assert credits_of(bench, 2, receiver) == [(copied_ps + 10_000 + RETURN_PS, 2)]


@pytest.mark.ideal
def test_messages_of_any_direction_are_used_in_place_too() -> None:
    seen = credits_of(bench_of("in_place"), 1, lambda tl: tl.release(tl.recv(shape=16, dtype="i32")))
    assert seen == [(arrival_ps(BYTES) + RETURN_PS, 1)]


@pytest.mark.parametrize("latch", [None, "copy", "in_place"])
def test_a_released_handle_is_named_no_more(latch: str | None) -> None:
    """The same in every mode, so that a kernel that runs in one runs in all."""
    said: list[str] = []

    def receiver(tl: TL) -> None:
        handle = tl.recv("W", 16, "i32")
        tl.release(handle)
        for word in (_twice, tl.release, lambda each: tl.send("W", each), lambda each: tl.store(tcm(1, 0), each)):
            with pytest.raises(KernelError) as caught:
                word(handle)
            said.append(str(caught.value))

    credits_of(bench_of(latch), 1, receiver)
    assert said == ["handle h0 was given to tl.release; no command can use a released handle"] * 4


@pytest.mark.ideal
def test_a_slot_that_is_in_use_holds_its_sender_back() -> None:
    """One slot: the second message leaves when the first is named, and is not written over it."""
    bench, got = bench_of("in_place", n_slots=1), list[int]()

    def receiver(tl: TL) -> None:
        first = tl.recv("W", 16, "i32")
        bench.pause(1, 0, 500_000)
        got.extend((_twice(first).array[0], recv_i32(tl)[0]))

    run_pair(bench, 2, receiver)
    assert got == [0, 1]
    read_ps = arrival_ps(BYTES) + 500_000 + MATH_PS
    assert bench.ends("ipcq.send") == [0, read_ps + RETURN_PS]


def test_an_early_credit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a slot that is used in place is credited when it is received."""
    real = PeIpcq._take

    def take(ipcq: PeIpcq, queue: QueuePair, receiving: Receiving, cause: int) -> None:
        real(ipcq, queue, receiving, cause)
        with monkeypatch.context() as patch:
            patch.setattr(InvariantChecker, "read", nothing_read)
            ipcq._free_read_slots(queue.in_use[-1], cause, ipcq._engine.now_ps, nothing)

    def nothing_read(*_arguments: object) -> None:
        """Nothing was read."""

    monkeypatch.setattr(PeIpcq, "_take", take)
    with pytest.raises(InvariantViolation, match=r"^I7: the slot of message 0 is credited before it was read "):
        run_pair(bench_of("in_place"), 1, lambda tl: _twice(tl.recv("W", 16, "i32")))
