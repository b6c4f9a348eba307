"""What a command costs before its engine starts it: its issue on PE_CPU, and a place in the engine's queue.

The pair and its times are those of ``pair_times``; an issue takes 15 ns.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, refuse_late, tcm
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
    near_fetch_ps,
    put,
    run_pair,
    store_ps,
)

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.pe.commands import Completion, DmaRead, MathOp
from sipsim.chips.ahbm.pe.engine import EngineQueue
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.dtypes import DTYPES
from sipsim.core.errors import InvariantViolation, MemoryAccessError
from sipsim.records.recorder import Span

ISSUE_PS = 15_000
F32 = DTYPES["f32"]


def bench_with(issue_ns: float = 15, depth: int | None = None, **more: Any) -> Bench:
    settings = {"pe_cpu.issue_ns": issue_ns, "pe_scheduler.queue_depth": depth}
    return pair_bench({**settings, **{key.replace("__", "."): value for key, value in more.items()}})


@pytest.mark.ideal
@pytest.mark.parametrize("issue_ps", [0, ISSUE_PS])
@pytest.mark.parametrize("depth", [None, 1, 2, 5])
@pytest.mark.parametrize("every", [1, 3, 99])
def test_a_place_is_free_when_what_is_fetched_has_passed(depth: int | None, issue_ps: int, every: int) -> None:
    """A send leaves after its issue, when there is a place. PE_DMA passes 4 KiB in 64 ns, after 2 ns of PE_IPCQ and
    PE_DMA. One of ``every`` messages is fetched from HBM: its last byte passes PE_DMA as it comes, and a message from
    the TCM that is sent meanwhile passes behind it. Fetches of several at a time follow each other, as their bytes do.
    """
    bench = bench_with(issue_ps // 1000, depth, defaults__n_slots=16)
    spans = bench.sip.recorder.spans = list[Span]()
    sources = [hbm(0, 0) if number % every == 0 else tcm(0, 0) for number in range(1, 13)]

    def sender(tl: TL) -> None:
        for address in sources:
            tl.send("E", src_addr=address, shape=1024, dtype="i32")

    run_pair(bench, sender)
    passed, expected, clock, drain = list[int](), list[int](), 0, drain_ps(4096)
    for number, address in enumerate(sources):
        clock += issue_ps
        if depth and number >= depth:
            clock = max(clock, passed[number - depth])
        expected.append(clock)
        here_ps = clock + IPCQ_PS + PE_PS + (near_fetch_ps("hbm") if address == hbm(0, 0) else 0)
        passed.append(max(here_ps, passed[-1] if passed else 0) + drain)
    assert bench.ends("ipcq.send") == expected
    for each in spans:
        cause_ps = spans[each.cause[1] - 1].end_ps if each.cause[1] else 0
        assert (each.end_ps if each.is_wait else each.start_ps) == cause_ps, each


NEAR_LOAD_PS = load_ps("hbm")
COMMANDS: dict[str, tuple[Callable[[TL, TensorHandle], object], str, int]] = {
    "send": (lambda tl, x: tl.send("E", src_addr=tcm(0, 0), shape=16, dtype="f32"), "ipcq.send", 0),
    "load from the own TCM": (lambda tl, x: tl.load(tcm(0, 0), 16, "f32"), "dma_read", READ_PS["tcm"]),
    "load from HBM": (lambda tl, x: tl.load(hbm(0, 0), 16, "f32"), "dma_read", NEAR_LOAD_PS),
    "store": (lambda tl, x: tl.store(tcm(0, 64), x), "dma_write", WRITE_PS["tcm"]),
    "add": (lambda tl, x: x + x, "math", math_ps()),
    "recv": (lambda tl, x: tl.recv("W", 16, "i32"), "ipcq.recv", RETURN_PS),
}


@pytest.mark.ideal
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reaches_its_engine_after_its_issue(name: str) -> None:
    """Each of three, after that of the values: its issue, and then its own time."""
    word, kind, time_ps = COMMANDS[name]
    bench = bench_with()

    def kernel(tl: TL) -> None:
        x = TensorHandle(tl, np.ones(16, "<f4"), F32)
        for _ in range(3):
            word(tl, x)

    late_ps = 10**6 if name == "recv" else 0
    run_pair(bench, *((3, kernel, late_ps) if late_ps else (kernel,)))
    ends = [late_ps + ISSUE_PS + number * (ISSUE_PS + time_ps) for number in (1, 2, 3)]
    assert [(each.start_ps, each.end_ps) for each in bench.records(kind)] == [(end - time_ps, end) for end in ends]


@pytest.mark.ideal
def test_a_message_that_comes_during_the_issue_is_taken_at_its_end() -> None:
    """It arrives at 17,550 + 15,000; the receive is issued from 25,000 to 40,000, and its credit comes after that."""
    bench = run_pair(bench_with(), 1, lambda tl: tl.recv("W", 16, "i32"), 25_000)
    assert 25_000 < ISSUE_PS + arrival_ps(64) < 40_000
    assert [(each.start_ps, each.end_ps) for each in bench.records("ipcq.recv")] == [(40_000, 40_000 + RETURN_PS)]


def test_a_kernel_ends_when_its_last_command_is_issued() -> None:
    bench = bench_with()
    bench.kernel(0, 0, lambda tl: tl.send("E", src_addr=tcm(0, 0), shape=16, dtype="i32"))
    ended: list[int] = []
    while bench.sip.waiting() or not ended:
        assert bench.step()
        if not bench.sip.waiting():
            ended.append(bench.engine.now_ps)
    assert ended == [ISSUE_PS]


def several(bench: Bench, sizes: list[int], admitted: list[int]) -> list[tuple[int, int]]:
    """Additions of several sizes that a kernel gives without waiting in between: their starts and ends."""
    handles = [np.ones(size // 4, "<f4") for size in sizes]

    def kernel(tl: TL) -> None:
        operands = [TensorHandle(tl, each, F32) for each in handles]
        given = []
        for each in operands:
            given.append(tl._submit(MathOp("add", (each, each), TensorHandle(tl, None, F32))))
            admitted.append(bench.engine.now_ps)
        for each in given:
            each.wait(tl._task())

    run_pair(bench, kernel)
    return [(each.start_ps, each.end_ps) for each in bench.records("math")]


def test_an_engine_executes_its_queue_in_order() -> None:
    """PE_MATH has one unit: 64 KiB take 1,024 + 1 ns, and two of 64 B after it 2 ns each. Without a queue each starts
    when it is given. With two places, the third waits for the first to end."""
    sizes, first_ps, small_ps = [65536, 64, 64], math_ps(65536), math_ps()
    free: list[int] = []
    assert several(bench_with(0), sizes, free) == [(0, small_ps), (0, small_ps), (0, first_ps)]
    assert free == [0, 0, 0]
    queued: list[int] = []
    ends = [first_ps, first_ps + small_ps, first_ps + 2 * small_ps]
    assert several(bench_with(0, 2), sizes, queued) == [(0, ends[0]), (0, ends[1]), (first_ps, ends[2])]
    assert queued == [0, 0, first_ps]


def two_loads(tl: TL) -> None:
    """From HBM, and then from the TCM, which takes less time."""
    blocks = Block.piece(hbm(0, 0), 64), Block.piece(tcm(0, 0), 64)
    given = [tl._submit(DmaRead(block, (16,), F32, TensorHandle(tl, None, F32))) for block in blocks]
    given[1].wait(tl._task())
    assert given[0].ended


@pytest.mark.ideal
def test_loads_and_stores_share_a_queue() -> None:
    bench = bench_with(0, 4, pe_dma__outstanding_loads=1)
    assert run_pair(bench, two_loads).ends("dma_read") == [NEAR_LOAD_PS, NEAR_LOAD_PS + READ_PS["tcm"]]


def test_loads_and_stores_of_a_kernel_are_under_way_until_they_end() -> None:
    """In any order, and also with an error: a product would share PE_DMA with one that is gone for ever."""
    dma = bench_with(0).sip.pe(0, 0).dma
    assert not dma.has_kernel_commands
    command: Any = None
    first, second = dma._begin_kernel_command(command), dma._begin_kernel_command(command)
    second.end()
    assert dma.has_kernel_commands
    first.fail(MemoryAccessError("there is none"))
    assert not dma.has_kernel_commands


ABROAD = hbm(0, 0, sip=1)
REFUSED = {
    "load": lambda tl, _values: tl.load(ABROAD, 16, "f32"),
    "store": lambda tl, values: tl.store(ABROAD, values),
    "store_async": lambda tl, values: tl.store_async(ABROAD, values),
}


@pytest.mark.ideal
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("behind_a_store", [False, True])
@pytest.mark.parametrize("depth", [None, 1, 16])
def test_a_refused_command_leaves_its_queue_as_it_was(depth: int | None, behind_a_store: bool, name: str) -> None:
    """The kernel that gave it gets the error when it is issued, in a full queue when there is a place, and goes on."""
    bench = bench_with(0, depth)
    put(bench, hbm(0, 0), range(16))
    times: list[int] = []

    def kernel(tl: TL) -> None:
        values = TensorHandle(tl, np.ones(16, "<f4"), F32)
        if behind_a_store:
            tl.store_async(hbm(0, 64), values)
        with pytest.raises(
            MemoryAccessError, match=r"is on another SIP; tl\.load and tl\.store reach only the kernel's SIP"
        ):
            REFUSED[name](tl, values)
        times.append(bench.engine.now_ps)
        assert tl.load(hbm(0, 0), 16, "f32").array.tolist() == list(range(16))

    run_pair(bench, kernel)
    assert times == [store_ps("hbm") if behind_a_store and depth == 1 else 0]
    assert len(bench.records("dma_read")) == 1
    assert len(bench.records("dma_write")) == behind_a_store


@pytest.mark.ideal
@pytest.mark.parametrize("depth", [1, 2, 16])
@pytest.mark.parametrize("behind", [0, 1, 3])
@pytest.mark.parametrize("loads", [1, 4])
def test_a_command_that_cannot_start_ends_with_its_error_and_the_queue_goes_on(
    loads: int, depth: int, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is found when its turn comes: its own wait raises it, and no other command's."""
    refuse_late(monkeypatch)
    bench = bench_with(0, depth, pe_dma__outstanding_loads=loads)
    errors: list[str] = []

    def kernel(tl: TL) -> None:
        task = tl._task()

        def given(address: int) -> Completion:
            return tl._submit(DmaRead(Block.piece(address, 64), (16,), F32, TensorHandle(tl, None, F32)))

        ahead = [given(hbm(0, 0)) for _ in range(behind)]
        refused, after = given(ABROAD), [given(hbm(0, 0)) for _ in range(2)]
        for each in (*ahead, *after):
            each.wait(task)
        for _ in range(2):
            with pytest.raises(MemoryAccessError) as caught:
                refused.wait(task)
            errors.append(str(caught.value))

    run_pair(bench, kernel)
    assert len(errors) == 2
    ends = bench.ends("dma_read")
    if loads == 1 or depth == 1:
        assert ends == [(number + 1) * NEAR_LOAD_PS for number in range(behind + 2)]
    else:
        assert len(ends) == behind + 2


def test_an_engine_that_lets_commands_overtake_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a command is queued and starts at once all the same."""

    def enter(queue: EngineQueue, completion: Any, start: Any) -> None:
        queue._commands.append(completion)
        start(completion)

    monkeypatch.setattr(EngineQueue, "enter", enter)
    bench = bench_with(0, 4, pe_dma__outstanding_loads=1)
    bench.kernel(0, 0, two_loads)
    with pytest.raises(
        InvariantViolation, match=r"^engine PE_DMA: a DmaRead overtakes a command that it must wait for$"
    ):
        bench.run()


def test_costs_that_are_off_cost_no_event() -> None:
    """The events of a send are its start, the message's leaving, end and write; its issue adds the kernel's end."""
    ran = [run_pair(bench_with(issue_ns), 1) for issue_ns in (0, 15)]
    assert [bench.engine.events for bench in ran] == [4, 5]
