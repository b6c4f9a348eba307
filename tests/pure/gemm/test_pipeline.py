"""The stages of products: times by hand, units that do one thing at a time, and parts that add up."""

import random
from collections import defaultdict
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hardware import Bench, pair_bench
from products import Case, ptr, put, run, run_gemm, values

from sipsim.chips.ahbm.gemm.pipeline import (
    CYCLES,
    DMA_IN,
    DMA_OUT,
    EPILOGUE,
    FETCH,
    FILL,
    OTHERS,
    PARTS,
    STORE,
    Pipeline,
    TimeBreakdown,
)
from sipsim.chips.ahbm.gemm.tiling import Product, SystolicArray
from sipsim.chips.ahbm.pe.engine import FETCH_STORE, GEMM, MATH, TransferUnit
from sipsim.core.arithmetic.matmul import matmul
from sipsim.core.arithmetic.operations import cast, elementwise
from sipsim.core.dtypes import DTYPES

NS = 1000
PORTS = {"tcm.kind": "tcm_ports", "tcm.params": {"bandwidth_GBps": 128, "ports": "read_and_write"}}


def parts_of(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The parts of the time of each command that ends from now on."""
    found: list[tuple[int, ...]] = []
    end = TimeBreakdown.end

    def noted(self: TimeBreakdown, last: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        parts, way = end(self, last)
        found.append(parts)
        assert (sum(way), min(way) >= 0) == (sum(parts), True)
        return parts, way

    monkeypatch.setattr(TimeBreakdown, "end", noted)
    return found


def span_ps(bench: Bench, kind: str = "gemm") -> int:
    (record,) = bench.records(kind)
    return record.end_ps - record.start_ps


# --- times that are sums by hand, on the machine of the ADRs --------------------------------------------------


def load_ps(rows: int, row_bytes: int, bench: Bench) -> int:
    """Of a block alone, by PE_DMA: as `tl.load` of a stride takes."""
    found: list[int] = []

    def body(tl: Any) -> None:
        start_ps = bench.engine.now_ps
        tl.load(ptr("a"), (rows, row_bytes), "i8", stride=2 * row_bytes)
        found.append(bench.engine.now_ps - start_ps)

    run(bench, body)
    return found[0]


def write_ps(rows: int, row_bytes: int, bench: Bench) -> int:
    """Of a block, by PE_DMA: as `tl.store` takes."""
    found: list[int] = []

    def body(tl: Any) -> None:
        value = tl.load(ptr("a"), (rows, row_bytes), "i8")
        start_ps = bench.engine.now_ps
        tl.store(ptr("c"), value, stride=row_bytes)
        found.append(bench.engine.now_ps - start_ps)

    run(bench, body)
    return found[0]


@pytest.mark.ideal
def test_one_token_takes_the_sum_of_its_stages(monkeypatch):
    """16 x 16 x 16: both pieces come at once; fetch 1 ns without ports; 16 steps + 62 - 1 cycles; a cast of 1 KiB at 64
    GB/s and 1 ns; store 1 ns; write."""
    found = parts_of(monkeypatch)
    case = Case(16, 16, 16)
    bench, _ = run_gemm(case, values(case))
    (parts,) = found
    assert parts[FETCH] == 1 * NS
    assert (parts[CYCLES], parts[FILL]) == (16 * NS, 61 * NS)
    assert parts[EPILOGUE] == 1 * NS + 16 * NS
    assert parts[STORE] == 1 * NS
    assert parts[DMA_OUT] == write_ps(16, 32, pair_bench())
    assert parts[OTHERS] == 0
    assert sum(parts) == span_ps(bench)


@pytest.mark.ideal
def test_the_first_piece_takes_what_a_load_of_it_takes(monkeypatch):
    """A of one byte, B of a row of 32: both come at once, and nothing hides them."""
    found = parts_of(monkeypatch)
    bench = pair_bench()
    put(bench, "a", values(Case(1, 1, 32, "i8"))["a"])

    def body(tl: Any) -> None:
        tl.gemm(ptr("a"), ptr("b"), ptr("c"), (1, 1, 32), dtype="i8", out_dtype="i32")

    run(bench, body)
    (parts,) = found
    alone = load_ps(1, 32, pair_bench())
    # The command of the second piece follows that of the first, 16 B at 64 GB/s; its bytes are more.
    assert alone <= parts[DMA_IN] <= alone + 1 * NS
    assert parts[EPILOGUE] == 0, "sums leave as they are"


def test_a_dot_takes_its_operands_once_through_the_read_port(monkeypatch):
    """32 x 64 x 32 in f16: 4 KiB and 4 KiB at 128 GB/s, 1 ns of latency and 1 ns to start; 125 cycles; 4 KiB back."""
    found = parts_of(monkeypatch)
    case = Case(32, 64, 32)
    given = values(case)
    bench = pair_bench(PORTS)
    put(bench, "a", given["a"])
    put(bench, "b", given["b"])

    def body(tl: Any) -> None:
        tl.dot(tl.load(ptr("a"), (32, 64), "f16"), tl.load(ptr("b"), (64, 32), "f16"))

    run(bench, body)
    (parts,) = found
    assert parts[FETCH] == 64 * NS + 2 * NS
    assert parts[CYCLES] + parts[FILL] == 125 * NS
    assert parts[STORE] == 32 * NS + 2 * NS
    assert sum(parts) == span_ps(bench, "dot") == 66 * NS + 125 * NS + 34 * NS


def test_an_acc_is_fetched_too(monkeypatch):
    found = parts_of(monkeypatch)
    bench = pair_bench(PORTS)

    def body(tl: Any) -> None:
        a = tl.load(ptr("a"), (32, 32), "f16")
        tl.dot(a, a, tl.load(ptr("c"), (32, 32), "f32"))

    run(bench, body)
    assert found[0][FETCH] == 32 * NS + 32 * NS + 2 * NS


# --- what holds for every product -----------------------------------------------------------------------------

SOME = [
    (Case(100, 300, 200), {}, ()),
    (Case(64, 1000, 40, "f32"), PORTS, ("relu",)),
    (Case(130, 70, 300, "i8", "i32"), {"pe_gemm.buffer_KiB": 40, **PORTS}, ()),
    (Case(200, 64, 260, "bf16", "f32"), {"pe_gemm.buffer_KiB": 64}, ("gelu", ("scale", 0.5))),
    (Case(96, 33, 96), {"pe_gemm.rows": 4, "pe_gemm.columns": 8, "pe_gemm.outstanding_stores": 1, **PORTS}, ("gelu",)),
]


@pytest.mark.parametrize("dataflow", ["os", "ws", "is"])
@pytest.mark.parametrize(("case", "settings", "epilogue"), SOME)
def test_parts_fill_the_span_and_cycles_are_those_of_the_array(case, settings, epilogue, dataflow, monkeypatch):
    parts_and_cycles(case, settings, epilogue, dataflow, monkeypatch)


def parts_and_cycles(
    case: Case, settings: dict[str, Any], epilogue: object, dataflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a product alone, and check where its time went."""
    found = parts_of(monkeypatch)
    settings = {**settings, "pe_gemm.dataflow": dataflow}
    bench, _ = run_gemm(case, values(case, largest=2), settings, epilogue)
    (parts,) = found
    array = SystolicArray(settings.get("pe_gemm.rows", 32), settings.get("pe_gemm.columns", 32), dataflow)
    assert len(parts) == len(PARTS)
    assert min(parts) >= 0
    assert sum(parts) == span_ps(bench)
    assert parts[OTHERS] == 0, "nothing else runs here"
    cycles = array.cycles(Product(case.m, case.k, case.n))
    assert parts[CYCLES] + parts[FILL] == cycles * NS, "cycles are not those of the array"
    assert bench.sip.pe(0, 0).units.gemm.busy_ps == parts[CYCLES] + parts[FILL]


UNIT_OF = {FETCH: FETCH_STORE, STORE: FETCH_STORE, EPILOGUE: MATH}


class Witness:
    """Sees when stages of all products on a PE worked, and on which unit, by what they say of themselves: no two at a
    time on one unit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work: dict[str, list[tuple[int, int]]] = defaultdict(list)
        stage, array = TimeBreakdown.stage, TimeBreakdown.array

        def noted(self_: TimeBreakdown, part: int, start_ps: int, end_ps: int, before: Any) -> Any:
            if part in UNIT_OF:
                self.work[UNIT_OF[part]].append((start_ps, end_ps))
            return stage(self_, part, start_ps, end_ps, before)

        def noted_array(self_: TimeBreakdown, start_ps: int, *rest: Any) -> Any:
            done = array(self_, start_ps, *rest)
            self.work[GEMM].append((start_ps, done.end_ps))
            return done

        monkeypatch.setattr(TimeBreakdown, "stage", noted)
        monkeypatch.setattr(TimeBreakdown, "array", noted_array)

    def check(self) -> None:
        assert self.work.keys() >= {GEMM, FETCH_STORE}
        for pieces in self.work.values():
            for (_, end_ps), (start_ps, _) in pairwise(sorted(pieces)):
                assert start_ps >= end_ps, "two pieces of work on one unit"


def both(tl: Any) -> None:
    """Two products at once, of which none waits for the other where there are no queues."""
    first = tl.gemm_async(ptr("a"), ptr("b"), ptr("c"), (64, 256, 64), dtype="f16", out_dtype="f32")
    second = tl.gemm_async(ptr("a"), ptr("b"), ptr("bias"), (64, 256, 64), dtype="f16", out_dtype="f16")
    tl.wait(first)
    tl.wait(second)


def units_of_two_products(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run two products at once: no unit does two things at a time."""
    witness, bench = Witness(monkeypatch), pair_bench(PORTS)
    run(bench, both)
    witness.check()
    return bench


def test_units_do_one_thing_at_a_time_whoever_asks(monkeypatch):
    """Two products share the array: their spans overlap, and each waits for the other's tokens."""
    found = parts_of(monkeypatch)
    first, second = units_of_two_products(monkeypatch).records("gemm")
    assert max(first.start_ps, second.start_ps) < min(first.end_ps, second.end_ps)
    for parts, record in zip(found, (first, second), strict=True):
        assert sum(parts) == record.end_ps - record.start_ps
    assert sum(parts[OTHERS] for parts in found) > 100 * NS


def test_operations_of_a_kernel_count_as_busy_with_and_without_a_queue():
    """16 KiB at 64 GB/s and 1 ns. Without a queue two at once keep PE_MATH busy for twice the time that passes; a
    product beside them waits for them only with a queue."""

    def body(tl: Any) -> None:
        x = tl.load(ptr("a"), (64, 64), "f32")
        before = tl.gemm_async(ptr("b"), ptr("b"), ptr("c"), (32, 32, 32), dtype="f32", out_dtype="f32")
        tl.wait(before)
        for _ in range(2):
            x + x

    for settings in ({}, {"pe_scheduler.queue_depth": 4}):
        bench = pair_bench({**PORTS, **settings})
        run(bench, body)
        operations = bench.records("math")
        busy = sum(each.end_ps - each.start_ps for each in operations)
        assert bench.sip.pe(0, 0).units.math.busy_ps == busy == 2 * 257 * NS


def test_an_epilogue_and_an_operation_take_turns_on_pe_math(monkeypatch):
    pieces, end = defaultdict(list), TransferUnit.end

    def noted(unit: TransferUnit, begin_ps: int, end_ps: int) -> None:
        pieces[unit.name].append((begin_ps, end_ps))
        end(unit, begin_ps, end_ps)

    monkeypatch.setattr(TransferUnit, "end", noted)

    def body(tl: Any) -> None:
        x, product = tl.load(ptr("a"), (64, 64), "f32"), (64, 256, 64)
        gemm = tl.gemm_async(ptr("a"), ptr("b"), ptr("c"), product, dtype="f16", out_dtype="f16", epilogue=["relu"])
        for _ in range(20):
            x + x
        tl.wait(gemm)

    bench = pair_bench({"pe_scheduler.queue_depth": 16, **PORTS})
    run(bench, body)
    assert len(pieces[MATH]) > 20
    assert all(end_ps <= begin_ps for (_, end_ps), (begin_ps, _) in pairwise(sorted(pieces[MATH])))
    assert bench.sip.pe(0, 0).units.math.busy_ps == sum(end_ps - begin_ps for begin_ps, end_ps in pieces[MATH])


def test_with_a_queue_one_product_follows_the_other(monkeypatch):
    found, bench = parts_of(monkeypatch), pair_bench({"pe_scheduler.queue_depth": 16, **PORTS})
    run(bench, both)
    first, second = bench.records("gemm")
    assert found[0][OTHERS] == 0
    assert found[1][OTHERS] == first.end_ps - second.start_ps
    assert [sum(parts) for parts in found] == [each.end_ps - each.start_ps for each in (first, second)]


def test_a_pipeline_that_ends_leaves_nothing_behind(monkeypatch):
    """Its parts refer to each other and to the operands: they must not stay until a collection of cycles."""
    import gc
    import weakref

    made: list[Any] = []
    init = Pipeline.__init__

    def noted(self: Pipeline, tiling: Any, stages: Any, transfers: Any, *rest: Any) -> None:
        made.append(weakref.ref(transfers))
        init(self, tiling, stages, transfers, *rest)

    monkeypatch.setattr(Pipeline, "__init__", noted)
    case = Case(64, 64, 64)
    given = values(case)
    gc.disable()
    try:
        run_gemm(case, given)
        assert made
        assert made[0]() is None
    finally:
        gc.enable()


# --- overlap --------------------------------------------------------------------------------------------------


def test_hidden_time_is_most_of_what_the_dependences_allow(monkeypatch):
    """DMA, GEMM and MATH in one PE: see ``hidden_share``."""
    for case, epilogue in ((Case(128, 512, 256), ("gelu",)), (Case(256, 256, 256), ("relu", "gelu"))):
        found = hidden_share(monkeypatch, case, epilogue)
        assert found >= 0.8, (case, found)


def hidden_share(monkeypatch: pytest.MonkeyPatch, case: Case, epilogue: object) -> float:
    """(Sum of the busy times - span) / (sum - the longest of them). That is less than the share of what dependences
    allow, since the first token and the last output pass stages in which nothing else is left to do."""
    with monkeypatch.context() as patch:
        found = parts_of(patch)
        bench, _ = run_gemm(case, values(case, largest=2), PORTS, epilogue)
    units = bench.sip.pe(0, 0).units
    nbytes = 2 * (case.m * case.k + case.k * case.n + case.m * case.n)
    busy = [unit.busy_ps for unit in units] + [nbytes * NS // 64]
    (parts,) = found
    span = sum(parts)
    least = max(busy)
    return (sum(busy) - span) / (sum(busy) - least)


# --- any machine ----------------------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[Case, dict[str, Any], list[str]]:
    """A product, a machine and an epilogue."""
    rng = random.Random(seed)
    dtype = rng.choice(["f16", "bf16", "f32", "i8", "i32"])
    outs = ["f16", "bf16", "f32"] if dtype in ("f16", "bf16", "f32") else ["i8", "i32"]
    case = Case(*(rng.choice((1, 2, 5, 16, 31, 64, 90)) for _ in range(3)), dtype, rng.choice(outs), rng.choice((0, 3)))
    settings = {
        "pe_gemm.rows": rng.choice((1, 4, 16, 32)),
        "pe_gemm.columns": rng.choice((1, 8, 32)),
        "pe_gemm.dataflow": rng.choice(["os", "ws", "is"]),
        "pe_gemm.accumulators": rng.choice((1, 2, 4)),
        "pe_gemm.buffer_KiB": rng.choice((12, 24, 200)),
        "pe_gemm.chunk_bytes": rng.choice((8, 64, 256)),
        "pe_gemm.outstanding_loads": rng.choice((1, 2, 8)),
        "pe_gemm.outstanding_stores": rng.choice((1, 3)),
        "pe_scheduler.queue_depth": rng.choice((None, 4)),
        **rng.choice(({}, PORTS, {**PORTS, "tcm.params": {"bandwidth_GBps": 16, "ports": "shared"}})),
    }
    return case, settings, rng.choice(([], ["relu"], ["relu", "abs"]))


@pytest.mark.parametrize("seed", range(60))
def test_any_product_on_any_machine(seed, monkeypatch):
    """The bits of the definition, the cycles of the array, parts that fill the span, one thing at a time on a unit."""
    case, settings, epilogue = drawn(seed)
    given = values(case, seed)
    found, witness = parts_of(monkeypatch), Witness(monkeypatch)
    bench, c = run_gemm(case, given, settings, epilogue)
    witness.check()
    kind = DTYPES[case.dtype].accumulator
    expected = matmul(given["a"], given["b"], DTYPES[case.dtype])
    for name in epilogue:
        expected = elementwise(name, (expected,), kind)
    assert c[:, : case.n].tobytes() == np.ascontiguousarray(cast(expected, DTYPES[case.out])).tobytes()
    (parts,) = found
    array = SystolicArray(*(settings[f"pe_gemm.{name}"] for name in ("rows", "columns", "dataflow")))
    assert parts[CYCLES] + parts[FILL] == array.cycles(Product(case.m, case.k, case.n)) * NS
    assert (sum(parts), parts[OTHERS]) == (span_ps(bench), 0)
