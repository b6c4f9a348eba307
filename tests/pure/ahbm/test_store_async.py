"""``tl.store_async``: the kernel goes on, its end waits, and the bytes are those of the call."""

import pytest
from hardware import Bench, hbm, pair_bench, refuse_late, tcm
from pair_times import load_ps, math_ps, put, run_pair, store_ps

from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import KernelError, MemoryAccessError

LOAD_PS = load_ps("tcm")
STORE_PS = store_ps("hbm")


def bench_with_data() -> Bench:
    bench = pair_bench()
    put(bench, tcm(0, 0), range(16), "<i4")
    return bench


def stored(bench: Bench, offset: int) -> list[int]:
    return list(memoryview(bench.sip.memory.read(hbm(0, offset), 64)).cast("i"))


@pytest.mark.ideal
def test_the_kernel_goes_on_and_its_end_waits() -> None:
    bench = bench_with_data()
    seen: list[tuple[int, bool]] = []

    def kernel(tl: TL) -> None:
        values = tl.load(tcm(0, 0), 16, "i32")
        store = tl.store_async(hbm(0, 0), values)
        seen.append((bench.engine.now_ps, store.is_completed()))
        values = values + values
        seen.append((bench.engine.now_ps, store.is_completed()))

    bench.kernel(0, 0, kernel)
    (task,) = bench.sip.tasks
    while not task.ended:
        assert bench.step()
    assert bench.engine.now_ps == LOAD_PS + STORE_PS, "the end of the kernel"
    assert seen == [(LOAD_PS, False), (LOAD_PS + math_ps(), False)]
    (write,) = bench.records("dma_write")
    assert (write.start_ps, write.end_ps) == (LOAD_PS, LOAD_PS + STORE_PS)
    assert stored(bench, 0) == list(range(16))


@pytest.mark.ideal
def test_wait_blocks_until_the_acknowledgement_and_returns_the_value() -> None:
    bench = bench_with_data()

    def kernel(tl: TL) -> None:
        values = tl.load(tcm(0, 0), 16, "i32")
        store = tl.store_async(hbm(0, 0), values)
        assert [tl.wait(store), bench.engine.now_ps] == [values, LOAD_PS + STORE_PS]
        assert [tl.wait(store), bench.engine.now_ps, store.is_completed()] == [values, LOAD_PS + STORE_PS, True]
        doubled = values + values
        tl.wait(tl.store_async(hbm(0, 64), doubled))

    run_pair(bench, kernel)
    assert stored(bench, 64) == list(range(0, 32, 2))


def test_only_a_handle_can_be_stored() -> None:
    bench = pair_bench()
    with pytest.raises(KernelError, match=r"^tl\.store_async takes an address and a handle, not int; "):
        run_pair(bench, lambda tl: tl.store_async(hbm(0, 0), 7))


@pytest.mark.parametrize("is_waited_for", [False, True])
@pytest.mark.parametrize("more", [0, 3])
def test_the_error_of_a_store_is_raised_once(is_waited_for: bool, more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is found after the store was given: where the kernel waits for it, or at the kernel's end."""
    refuse_late(monkeypatch)
    bench = pair_bench({"pe_scheduler.queue_depth": 16})
    put(bench, tcm(0, 0), range(16), "<i4")

    def kernel(tl: TL) -> None:
        values = tl.load(tcm(0, 0), 16, "i32")
        refused = tl.store_async(hbm(0, 0, sip=1), values)
        for _ in range(more):
            tl.wait(tl.store_async(hbm(0, 0), values))
        if is_waited_for:
            with pytest.raises(MemoryAccessError):
                tl.wait(refused)

    bench.kernel(0, 0, kernel)
    if is_waited_for:
        bench.run()
    else:
        with pytest.raises(MemoryAccessError, match="is on another SIP"):
            bench.run()
    assert len(bench.records("dma_write")) == more


@pytest.mark.ideal
def test_a_release_waits_for_the_stores_of_its_handle() -> None:
    """PE_DMA reads a value from its room until then."""
    bench = bench_with_data()

    def kernel(tl: TL) -> None:
        values = tl.load(tcm(0, 0), 16, "i32")
        tl.store_async(hbm(0, 0), values)
        tl.release(values)
        assert bench.engine.now_ps == LOAD_PS + STORE_PS

    run_pair(bench, kernel)
    assert stored(bench, 0) == list(range(16))
