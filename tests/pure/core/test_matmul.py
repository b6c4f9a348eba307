"""The matrix product: against the accumulation rule in a plain loop, bit for bit."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from exact import same_bits, wrapped
from hypothesis import given, settings
from hypothesis import strategies as st

from sipsim.core.arithmetic import matmul as module
from sipsim.core.arithmetic.matmul import matmul
from sipsim.core.arithmetic.operations import cast
from sipsim.core.dtypes import DTYPES

Array = np.ndarray[Any, Any]


def by_the_rule(a: Array, b: Array, dtype: str, start: Array | None = None) -> Array:
    """One product after the other, in the order of k."""
    kind = DTYPES[dtype].accumulator.numpy
    result = np.zeros((len(a), b.shape[1]), kind)
    for i, j in np.ndindex(*result.shape):
        total = kind.type(0) if start is None else start[i, j]
        for k in range(a.shape[1]):
            if DTYPES[dtype].is_float:
                total = np.float32(total + np.float32(np.float32(a[i, k]) * np.float32(b[k, j])))
            else:
                total = wrapped(int(total) + int(a[i, k]) * int(b[k, j]), "i32")
        result[i, j] = total
    return result


def values(kind: str, shape: tuple[int, int], dtype: str, rng: Any) -> Array:
    """``fractions``: no exact sums; ``digits``: all sums exact; ``wide``: integers whose sums are not."""
    if kind == "fractions":
        drawn = rng.standard_normal(shape) * (100 if dtype[0] == "i" else 1)
    elif kind == "digits":
        drawn = rng.integers(-3, 4, shape)
    elif kind == "wide":
        drawn = np.ldexp(rng.integers(-255, 256, shape), 23 if dtype == "i32" else 4)
    else:
        drawn = rng.choice([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-7, 6e4], shape)
    return cast(drawn.astype(np.float32), DTYPES[dtype])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("has_start", [False, True])
@pytest.mark.parametrize("kind", ["fractions", "digits", "wide", "special"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_rule(dtype: str, kind: str, has_start: bool) -> None:
    rng = np.random.default_rng(11)
    for m, k, n in ((1, 1, 1), (1, 70, 1), (3, 17, 5), (9, 16, 2), (2, 5, 9)):
        a, b = values(kind, (m, k), dtype, rng), values(kind, (k, n), dtype, rng)
        start = values(kind, (m, n), DTYPES[dtype].accumulator.name, rng) if has_start else None
        assert same_bits(matmul(a, b, DTYPES[dtype], start), by_the_rule(a, b, dtype, start)), (m, k, n)


@pytest.mark.parametrize("swap", [False, True])
def test_blas_is_used_only_where_sums_are_exact(swap: bool) -> None:
    """In order, each 1 is lost at 2**24; in an order that adds ones first, they are not."""
    k = 4096
    a, b = np.ones((1, k), np.float32), np.ones((k, 1), np.float32)
    a[0, 0] = 2.0**24
    if swap:
        a, b = b.T, a.T
    got = matmul(a, b, DTYPES["f32"])
    assert got == 2.0**24
    assert a @ b != got, "BLAS must add otherwise here, or this shows nothing"


def test_the_start_counts_for_what_is_exact() -> None:
    a, b = np.ones((1, 4), np.float32), np.ones((4, 1), np.float32)
    assert matmul(a, b, DTYPES["f32"], np.array([[2.0**24]], np.float32)) == 2.0**24
    assert matmul(a, b, DTYPES["f32"], np.array([[2.0**24 - 4]], np.float32)) == 2.0**24


@pytest.mark.parametrize("is_exact", [False, True])
def test_the_path_that_is_taken(is_exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    in_order = module._in_order
    monkeypatch.setattr(module, "_in_order", lambda *given: taken.append(1) or in_order(*given))
    a = np.full((4, 2**10), 128.0 if is_exact else 128.5, np.float32)
    matmul(a, a.T, DTYPES["f32"])
    assert bool(taken) != is_exact, "the bound is 2**24 here"


def test_zeros_of_both_signs() -> None:
    """An accumulator that starts at +0 never becomes -0; one that starts at -0 does if all products are -0."""
    a, b = np.array([[-1.0, 1.0]], np.float32), np.array([[0.0], [-0.0]], np.float32)
    assert same_bits(matmul(a, b, DTYPES["f32"]), np.array([[0.0]], np.float32))
    assert same_bits(matmul(a, b, DTYPES["f32"], np.array([[-0.0]], np.float32)), np.array([[-0.0]], np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "k", "n"), [(0, 2, 3), (2, 0, 3), (2, 3, 0), (0, 0, 0)])
def test_empty(m: int, k: int, n: int, dtype: str) -> None:
    a, b = (np.full(shape, 3, np.float32).astype(DTYPES[dtype].numpy) for shape in ((m, k), (k, n)))
    start = np.full((m, n), 7, DTYPES[dtype].accumulator.numpy)
    assert same_bits(matmul(a, b, DTYPES[dtype]), np.zeros((m, n), start.dtype))
    assert same_bits(matmul(a, b, DTYPES[dtype], start), start)
    if DTYPES[dtype].is_float and k:
        assert matmul(a / 7, b / 7, DTYPES[dtype]).shape == (m, n)


def test_integers_beyond_what_f64_adds_exactly() -> None:
    a, b = np.full((1, 300), 2**31 - 1, np.int32), np.full((300, 1), 2**30 + 1, np.int32)
    assert matmul(a, b, DTYPES["i32"]) == wrapped(300 * (2**31 - 1) * (2**30 + 1), "i32")


@settings(max_examples=80)
@given(
    st.sampled_from([*DTYPES]),
    st.sampled_from(["fractions", "digits", "wide"]),
    st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 9)),
    st.lists(st.integers(0, 40), max_size=4),
    st.integers(0, 99),
)
def test_parts_of_k_in_order_equal_the_whole(
    dtype: str, kind: str, dims: tuple[int, int, int], cuts: list[int], seed: int
) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), dims
    a, b = values(kind, (m, k), dtype, rng), values(kind, (k, n), dtype, rng)
    whole, total = matmul(a, b, DTYPES[dtype]), None
    ends = [0, *sorted(min(cut, k) for cut in cuts), k]
    for first, last in pairwise(ends):
        total = matmul(a[:, first:last], b[first:last], DTYPES[dtype], total)
    assert total is not None
    assert same_bits(total, whole)
    rows, columns = m // 2, n // 2
    corner = matmul(a[rows:], b[:, columns:], DTYPES[dtype])
    assert same_bits(corner, whole[rows:, columns:]), "nor do tiles of the result change a bit"


def test_blocks_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """More accumulators than are worked on at a time, in both directions."""
    rng = np.random.default_rng(5)
    a, b = values("fractions", (7, 6), "f32", rng), values("fractions", (6, 11), "f32", rng)
    expected = by_the_rule(a, b, "f32")
    for cells in (1, 4, 11, 25, 1000):
        monkeypatch.setattr(module, "_CELLS", cells)
        assert same_bits(matmul(a, b, DTYPES["f32"]), expected)
        assert same_bits(matmul(b.T, a.T, DTYPES["f32"]), expected.T)
