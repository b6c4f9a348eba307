"""Loads and stores of a kernel, several at a time: their times, and an order in which no byte depends on how many.

The pair and its times are those of ``pair_times``.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hardware import Bench, hbm, pair_bench, tcm
from pair_times import drain_ps, load_ps, put, run_pair, store_ps

from sipsim.chips.ahbm.address import Block, PhysAddr
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.chips.config import load
from sipsim.config.schema import PeDma
from sipsim.core.dtypes import DTYPES
from sipsim.core.units import PS_PER_S
from sipsim.insight.replay.second_pass import Verdict
from sipsim.records.recorder import Span

KIB = 1024
AT_A_TIME = (1, 2, 4, 8)


def bench_with(loads: int, stores: int, replays: bool = False, **more: Any) -> Bench:
    settings = {"pe_dma.outstanding_loads": loads, "pe_dma.outstanding_stores": stores}
    return pair_bench({**settings, **{key.replace("__", "."): value for key, value in more.items()}}, replays)


def queued(loads: int, stores: int, **more: Any) -> Bench:
    """With queues, for tests of the machine whose costs are off."""
    return bench_with(loads, stores, pe_scheduler__queue_depth=16, **more)


def zeros(tl: TL, nbytes: int) -> TensorHandle:
    return TensorHandle(tl, np.zeros(nbytes, "i1"), DTYPES["i8"])


# --- times ------------------------------------------------------------------------------------------------------


def test_loads_of_the_own_slice_come_at_the_rate_of_pe_dma() -> None:
    """At least 90 % of 64 GB/s: HBM refreshes and opens rows, and the first latency passes alone."""
    bench, count = pair_bench(), 64

    def kernel(tl: TL) -> None:
        for each in [tl.load_async(hbm(0, i * 4 * KIB), 4 * KIB, "i8") for i in range(count)]:
            tl.wait(each)

    run_pair(bench, kernel)
    first, last = bench.records("dma_read")[0], bench.records("dma_read")[-1]
    assert count * 4 * KIB * PS_PER_S / (last.end_ps - first.start_ps) > 0.9 * 64e9


@pytest.mark.ideal
@pytest.mark.parametrize("at_a_time", AT_A_TIME)
def test_blocking_loads_and_stores_take_what_each_takes_alone(at_a_time: int) -> None:
    bench = queued(at_a_time, at_a_time)

    def kernel(tl: TL) -> None:
        for i in range(3):
            tl.load(hbm(0, i * 4 * KIB), 4 * KIB, "i8")
            tl.store(hbm(0, i * 4 * KIB), zeros(tl, 4 * KIB))

    run_pair(bench, kernel)
    load, store = load_ps("hbm", 4 * KIB), store_ps("hbm", 4 * KIB)
    assert bench.ends("dma_read") == [i * (load + store) + load for i in range(3)]
    assert bench.ends("dma_write") == [i * (load + store) for i in range(1, 4)]


@pytest.mark.ideal
@pytest.mark.parametrize("at_a_time", [1, 2, 3])
def test_latencies_overlap(at_a_time: int) -> None:
    """Those of one slice pass their way one behind the other, and one begins when there is a place."""
    bench, load = queued(at_a_time, 1), load_ps("hbm", 4 * KIB)

    def kernel(tl: TL) -> None:
        for each in [tl.load_async(hbm(0, i * 4 * KIB), 4 * KIB, "i8") for i in range(6)]:
            tl.wait(each)

    run_pair(bench, kernel)
    ends: list[int] = []
    for number in range(6):
        begin = ends[number - at_a_time] if number >= at_a_time else 0
        ends.append(max(begin + load, ends[-1] + drain_ps(4 * KIB) if ends else 0))
    assert bench.ends("dma_read") == ends


@pytest.mark.ideal
def test_loads_and_stores_are_counted_apart() -> None:
    """Both begin at once, and share an edge with the load's command; the short one ends first. The second store waits
    for the first one's end, and the load behind it begins no sooner."""
    bench = queued(4, 1)
    commands: list[Callable[[TL], Any]] = [
        lambda tl: tl.load_async(hbm(0, 0), 4 * KIB, "i8"),
        lambda tl: tl.store_async(hbm(0, 8 * KIB), zeros(tl, 64)),
        lambda tl: tl.store_async(hbm(0, 12 * KIB), zeros(tl, 64)),
        lambda tl: tl.load_async(tcm(0, 0), 64, "i8"),
    ]
    run_pair(bench, lambda tl: [tl.wait(each) for each in [command(tl) for command in commands]])
    first, second = bench.ends("dma_write")
    near, far = bench.ends("dma_read")
    assert store_ps("hbm") <= first <= store_ps("hbm") + drain_ps(16)
    assert (second, near) == (first + store_ps("hbm"), first + load_ps("tcm"))
    assert load_ps("hbm", 4 * KIB) <= far <= load_ps("hbm", 4 * KIB) + drain_ps(16)


@pytest.mark.ideal
@pytest.mark.parametrize("has_channels", [False, True])
def test_with_one_channel_stores_leave_one_at_a_time(has_channels: bool) -> None:
    """As messages do, in whose train they are then. Beside each other both take twice their drain."""
    bench = queued(4, 4, defaults__virtual_channels=has_channels)

    def kernel(tl: TL) -> None:
        for each in [tl.store_async(hbm(0, 0, pe), zeros(tl, 4 * KIB)) for pe in (0, 1)]:
            tl.wait(each)

    run_pair(bench, kernel)
    alone = store_ps("hbm", 4 * KIB)
    assert (bench.ends("dma_write")[0] == alone) is not has_channels
    assert bench.ends("dma_write")[0] <= alone + drain_ps(4 * KIB)


def test_the_defaults_are_those_of_the_file() -> None:
    """What is in no digest must be what was simulated before."""
    defaults = dict(zip(reversed(PeDma.__struct_fields__), reversed(PeDma.__struct_defaults__), strict=False))
    cost = load().components.pe_dma
    assert (
        {key: getattr(cost, key) for key in defaults} == defaults == {"outstanding_loads": 4, "outstanding_stores": 4}
    )


# --- order ------------------------------------------------------------------------------------------------------


def store_of(tl: TL, address: int, value: int, count: int = 64) -> Any:
    return tl.store_async(address, TensorHandle(tl, np.full(count, value, "<i4"), DTYPES["i32"]))


def sram(offset: int, pe: int) -> int:
    """One memory a cube: an address of each PE."""
    return PhysAddr(0, 0, pe, "sram", offset).encode()


PLACES = {
    "own HBM": (hbm(0, 0), hbm(0, 128)),
    "far HBM": (hbm(1, 0), hbm(1, 128)),
    "TCM": (tcm(0, 0), tcm(0, 128)),
    "SRAM by two names": (sram(0, 0), sram(128, 1)),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_load_behind_a_store_of_its_bytes_finds_them(place: str) -> None:
    """A large store is on its way for long; the load is of its last byte and more."""
    bench = bench_with(8, 8)
    begin, later = PLACES[place]
    found: list[int] = []

    def kernel(tl: TL) -> None:
        store_of(tl, begin, 7, 33)
        found.extend(tl.wait(tl.load_async(later, 2, "i32")).array.tolist())

    run_pair(bench, kernel)
    assert found == [7, 0]
    assert bench.ends("dma_read") > bench.ends("dma_write")


@pytest.mark.parametrize("place", PLACES)
def test_a_store_behind_a_load_of_its_bytes_leaves_them_to_it(place: str) -> None:
    bench = bench_with(8, 8)
    begin, later = PLACES[place]
    put(bench, later, [5], "<i4")
    found: list[int] = []

    def kernel(tl: TL) -> None:
        coming = tl.load_async(begin, 16 * KIB, "i32")
        store = store_of(tl, later, 9, 1)
        found.append(int(tl.wait(coming).array[32]))
        tl.wait(store)

    run_pair(bench, kernel)
    assert found == [5]


@pytest.mark.parametrize("place", PLACES)
def test_the_later_store_of_a_byte_stays(place: str) -> None:
    bench = bench_with(8, 8)
    begin, later = PLACES[place]

    def kernel(tl: TL) -> None:
        for each in [store_of(tl, begin, 1, 16 * KIB), store_of(tl, later, 2, 1)]:
            tl.wait(each)

    run_pair(bench, kernel)
    assert memoryview(bench.sip.memory.read(later, 8)).cast("i").tolist() == [2, 1]


@pytest.mark.ideal
def test_blocks_between_each_other_do_not_wait() -> None:
    """Two halves of a matrix by its columns: their rows take turns, and no byte is in both."""
    bench = queued(4, 4)

    def kernel(tl: TL) -> None:
        half = TensorHandle(tl, np.ones((8, 64), "i1"), DTYPES["i8"])
        for each in [tl.store_async(hbm(0, column), half, stride=128) for column in (0, 64)]:
            tl.wait(each)

    run_pair(bench, kernel)
    assert bench.ends("dma_write_block") == [store_ps("hbm", 512), store_ps("hbm", 512) + drain_ps(512)]


@pytest.mark.parametrize("seed", range(20))
def test_blocks_meet_if_a_byte_is_in_both(seed: int) -> None:
    rng = random.Random(seed)

    def drawn() -> Block:
        row_bytes = rng.randint(1, 6)
        return Block(rng.randint(0, 60), rng.randint(1, 5), row_bytes, row_bytes + rng.choice((0, 1, 5, 12)))

    def bytes_of(block: Block) -> set[int]:
        return {at + i for at in block.addresses for i in range(block.row_bytes)}

    outcomes = set()
    for _ in range(300):
        one, other = drawn(), drawn()
        outcomes.add(one.meets(other))
        assert one.meets(other) == other.meets(one) == bool(bytes_of(one) & bytes_of(other)), (one, other)
    assert outcomes == {False, True}


class Program:
    """Drawn loads and stores that often have bytes in common, and what they find if each ends before the next."""

    BYTES = 1536

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.steps: list[tuple[str, int, int, int, int, int]] = []
        for number in range(60):
            rows, row_bytes = rng.choice(((1, 8), (1, 256), (1, 1024), (4, 16), (8, 64)))
            pitch = row_bytes + rng.choice((0, 16, 64)) if rows > 1 else row_bytes
            offset = rng.randrange(0, self.BYTES - rows * pitch, 8)
            self.steps.append((rng.choice(("load", "store")), rng.randrange(3), offset, rows, row_bytes, pitch))
            if rng.random() < 0.1:
                self.steps.append(("wait", 0, 0, 0, 0, number))

    def places(self) -> list[int]:
        return [hbm(0, 0), hbm(1, 0), sram(0, 0)]

    def perform(self, tl: TL) -> list[bytes]:
        """On a PE. SRAM has two names."""
        given: list[tuple[str, Any]] = []
        for number, (what, place, offset, rows, row_bytes, pitch) in enumerate(self.steps):
            if what == "wait":
                tl.wait(given[-1][1])
                continue
            address = sram(offset, number % 2) if place == 2 else self.places()[place] + offset
            shape = (rows, row_bytes) if rows > 1 else (row_bytes,)
            stride = pitch if rows > 1 else None
            if what == "load":
                given.append((what, tl.load_async(address, shape, "i8", stride=stride)))
            else:
                values = TensorHandle(tl, np.full(shape, number % 100, "i1"), DTYPES["i8"])
                given.append((what, tl.store_async(address, values, stride=stride)))
        return [tl.wait(each).array.tobytes() for what, each in given if what == "load"]

    def expected(self) -> tuple[list[bytes], list[bytes]]:
        """What the loads find, and the memories at the end."""
        memories = [np.zeros(self.BYTES, "i1") for _ in range(3)]
        found: list[bytes] = []
        for number, (what, place, offset, rows, row_bytes, pitch) in enumerate(self.steps):
            parts = [slice(offset + row * pitch, offset + row * pitch + row_bytes) for row in range(rows)]
            if what == "load":
                found.append(b"".join(memories[place][part].tobytes() for part in parts))
            elif what == "store":
                for part in parts:
                    memories[place][part] = number % 100
        return found, [each.tobytes() for each in memories]


def drawn_run(seed: int, at_a_time: int) -> tuple[list[bytes], list[bytes], list[str], Verdict]:
    """What the loads found, the memories, the records without their times, and the verdict of the second pass."""
    program, bench = Program(seed), bench_with(at_a_time, at_a_time, replays=True)
    found: list[bytes] = []
    run_pair(bench, lambda tl: found.extend(program.perform(tl)))
    memories = [bench.sip.memory.read(place, Program.BYTES) for place in program.places()]
    records = sorted(str((each[0], *each[3:])) for each in bench.sip.oplog.records)
    bench.sip.recorder.feed.drain()
    return found, memories, records, bench.sip.second_pass.verdict(bench.sip.memory)


@pytest.mark.parametrize("seed", range(12))
def test_results_do_not_depend_on_how_many_are_on_their_way(seed: int) -> None:
    found, memories = Program(seed).expected()
    runs = [drawn_run(seed, at_a_time) for at_a_time in AT_A_TIME]
    for run in runs:
        assert run[:2] == (found, memories)
        assert run[2] == runs[0][2]
        assert run[3] == Verdict(records=len(run[2])), "no difference, and no race"


def test_transfers_that_do_not_wait_for_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: no command waits for another one's bytes."""
    monkeypatch.setattr(Block, "meets", lambda *_: False)
    wrong = [seed for seed in range(12) if drawn_run(seed, 8)[:2] != Program(seed).expected()]
    assert len(wrong) > 6


def message(tl: TL) -> None:
    tl.send("E", src_addr=tcm(0, 0), shape=1024, dtype="i32")


@pytest.mark.parametrize("latch", [None, "in_place"])
def test_two_stores_of_a_message_fetch_its_slot_once(latch: str | None) -> None:
    """The second one waits until the values are in the PE; the slot may be used again by then."""
    bench = bench_with(4, 4, defaults__buffer_kind="hbm", defaults__latch=latch)
    spans = bench.sip.recorder.spans = list[Span]()

    def receiver(tl: TL) -> None:
        values = tl.recv("W", 1024, "i32")
        for each in [tl.store_async(hbm(1, i << 20), values) for i in (1, 2)]:
            tl.wait(each)

    put(bench, tcm(0, 0), range(1024), "<i4")
    run_pair(bench, message, receiver)
    fetched = [each.facts[0] for each in spans if each.name == "dma_write" and not each.is_wait]
    assert [len(each or ()) for each in fetched] == [1, 0]


@pytest.mark.parametrize("depth", [None, 16])
def test_what_two_engines_fetch_at_a_time_has_its_address(depth: int | None) -> None:
    """PE_DMA and PE_MATH: each span says what its command has fetched."""
    bench = bench_with(4, 4, defaults__buffer_kind="hbm", defaults__latch="in_place", pe_scheduler__queue_depth=depth)
    spans = bench.sip.recorder.spans = list[Span]()

    def receiver(tl: TL) -> None:
        values = tl.recv("W", 1024, "i32")
        store = tl.store_async(hbm(1, 1 << 20), values)
        values + values
        tl.wait(store)

    run_pair(bench, message, receiver)
    by_name = {each.name: each.facts[0] for each in spans if each.facts and not each.is_wait}
    [(address, nbytes)] = by_name["dma_write"]
    assert by_name["math"] == by_name["dma_write"]
    assert address
    assert nbytes == 4096
