"""The second pass of products: what a wrong one is told as, and which bytes a race of one may explain."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hardware import Bench, pair_bench
from products import ptr, run

from sipsim.chips.ahbm.gemm import commands
from sipsim.chips.ahbm.gemm.engine import _MatrixTransfers
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import Pointer
from sipsim.core.dtypes import DTYPES
from sipsim.records.replay import Verdict

F16 = {"dtype": "f16", "out_dtype": "f16"}
QUEUES = {"pe_scheduler.queue_depth": 16}


def bench_of(settings: dict[str, Any] | None = None) -> Bench:
    bench = pair_bench(settings, replays=True)
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c", "bias"):
        data = rng.integers(-5, 6, 2**15).astype(np.float16).tobytes()
        bench.sip.memory.write_from_host(ptr(name), data)
    return bench


def verdict_of(bench: Bench, *bodies: Any) -> Verdict:
    run(bench, *bodies)
    verdict = bench.sip.verdict()
    assert verdict is not None
    return verdict


@contextmanager
def wrong_product(c: str) -> Iterator[None]:
    """Element [0, 0] of each block of outputs of a product is one more than it should be."""
    write, perform = _MatrixTransfers.write, commands.perform

    def one_more(*args: Any) -> Any:
        values = perform(*args).copy()
        values[0, 0] += 1
        return values

    def wrong_write(moves: _MatrixTransfers, *args: Any) -> None:
        with patch.object(commands, "perform", one_more if moves._command.c.address == ptr(c) else perform):
            write(moves, *args)

    with patch.object(_MatrixTransfers, "write", wrong_write):
        yield


def product(tl: TL, a: str, c: str, shape: tuple[int, int, int] = (64, 64, 64), **named: Any) -> Any:
    return tl.gemm_async(ptr(a), ptr("b"), ptr(c), shape, **F16, **named)


def a_chain(tl: TL) -> None:
    futures = [product(tl, "a", "c"), product(tl, "c", "bias")]
    for each in futures:
        tl.wait(each)


def test_a_wrong_product_is_told_by_rows_and_columns() -> None:
    bench = bench_of()
    with wrong_product("c"):
        verdict = verdict_of(bench, lambda tl: tl.wait(product(tl, "a", "c")))
    assert verdict.difference is not None
    found = re.search(
        r"ps: 2 of 4096 wrong, the first at \[0, 0\]: expected (\S+), got (\S+)$", verdict.difference.message
    )
    assert found is not None, verdict.difference.message
    assert float(found[2]) == float(found[1]) + 1
    assert (verdict.differences, verdict.races) == (1, 0), "what it has left in the memory is taken over"


def test_products_of_one_queue_are_in_order() -> None:
    assert verdict_of(bench_of(QUEUES), a_chain) == Verdict(records=2)
    with wrong_product("bias"):
        verdict = verdict_of(bench_of(QUEUES), a_chain)
    assert (verdict.differences, verdict.races) == (1, 0)
    assert verdict.difference is not None
    assert verdict.difference.number == 2


def stores(name: str, source: str, shape: tuple[int, int], times: int, offset: int = 0) -> Any:
    """The kernel of another PE."""

    def body(tl: TL) -> None:
        x = tl.load(ptr(source), shape, "f16")
        for _ in range(times):
            tl.store(ptr(name) + offset, x)

    return body


def small_products(tl: TL) -> None:
    """|A| + |B| = |C|, in bytes."""
    for _ in range(10):
        tl.wait(product(tl, "a", "c", (4, 2, 4)))


RACES = {
    "all of C": (stores("c", "b", (64, 64), 40), (64, 16, 64)),
    "half of C": (stores("c", "b", (64, 32), 40), (64, 256, 64)),
    "A": (stores("a", "c", (64, 64), 20), (64, 256, 64)),
}


@pytest.mark.parametrize("what", RACES)
def test_another_store_to_an_operand_or_the_output_is_a_race(what: str) -> None:
    other, shape = RACES[what]
    verdict = verdict_of(bench_of(), lambda tl: tl.wait(product(tl, "a", "c", shape)), other)
    assert (verdict.difference, verdict.races) == (None, 1), verdict.difference
    assert re.match(r"record \d+ \(gemm .*\) races with record \d+ \(dma_write ", verdict.first_race)


def test_a_race_on_an_operand_explains_outputs_at_other_offsets() -> None:
    verdict = verdict_of(bench_of(), small_products, stores("a", "c", (2, 2), 60, offset=8))
    assert verdict.difference is None
    assert verdict.races


@pytest.mark.parametrize("other", [stores("a", "c", (2, 2), 60, offset=32), stores("c", "b", (4, 4), 60, offset=32)])
def test_a_store_beside_the_operands_explains_nothing(other: Any) -> None:
    with wrong_product("c"):
        verdict = verdict_of(bench_of(), small_products, other)
    assert (verdict.differences, verdict.races) == (10, 0)


def test_two_rows_of_two_types_at_one_address() -> None:
    rows = [("bias", Pointer(ptr("bias"), DTYPES[each])) for each in ("f16", "f32")]
    bench = bench_of()
    data = np.linspace(-3, 3, 8, dtype=np.float32).tobytes()
    bench.sip.memory.write_from_host(ptr("bias"), data)
    assert verdict_of(bench, lambda tl: tl.wait(product(tl, "a", "c", (8, 8, 8), epilogue=rows))).difference is None
    a, b, c = (np.frombuffer(bench.sip.memory.read(ptr(each), 128), "<f2").reshape(8, 8) for each in "abc")
    sums = a.astype(np.float32) @ b.astype(np.float32)
    expected = sums + np.frombuffer(data[:16], "<f2").astype(np.float32) + np.frombuffer(data, "<f4")
    assert (c == expected.astype(np.float16)).all()
