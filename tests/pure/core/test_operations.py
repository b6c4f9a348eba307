"""Element-wise operations, casts and reductions: against rational arithmetic and plain loops."""

import operator
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from exact import FLOATS, as_fraction, patterns, rounded, same_bits, wrapped

from sipsim.core.arithmetic.operations import OPERATIONS, along_axis, cast, elementwise, result_dtype
from sipsim.core.dtypes import DTYPES

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
}
COMPARISONS = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}
INTEGERS = ("i8", "i32")
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NaNs of any pattern


def pairs(dtype: str) -> tuple[Any, Any]:
    """All pairs of special patterns, and random ones."""
    some = patterns(dtype, 4, 3)
    x, y = map(np.array, zip(*product(some, repeat=2), strict=True))
    return np.concatenate([x, patterns(dtype, 2500, 4)]), np.concatenate([y, patterns(dtype, 2500, 5)])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ARITHMETIC)
def test_floats_are_rounded_once(op: str, dtype: str) -> None:
    x, y = pairs(dtype)
    results = elementwise(op, (x, y), DTYPES[dtype])
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    finite = np.isfinite(wide_x) & np.isfinite(wide_y)
    if op == "div":
        finite &= wide_y != 0
    for a, b, got in zip(x[finite], y[finite], results[finite], strict=True):
        exact = ARITHMETIC[op](as_fraction(a), as_fraction(b))
        true = rounded(exact, dtype)
        assert float(got) == (true if true is not None else np.copysign(np.inf, float(exact > 0) - 0.5)), (a, b)
    # What IEEE 754 says of the rest, f64 knows: signs of zero, infinities, NaN.
    with np.errstate(all="ignore"):
        wide = ARITHMETIC[op](wide_x, wide_y)
    rest = ~finite | (wide == 0)
    assert same_bits(results[rest], wide[rest].astype(DTYPES[dtype].numpy))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_integers_wrap(op: str, dtype: str) -> None:
    x, y = pairs(dtype)
    got = elementwise(op, (x, y), DTYPES[dtype])
    assert got.tolist() == [wrapped(ARITHMETIC[op](int(a), int(b)), dtype) for a, b in zip(x, y, strict=True)]
    assert got.dtype == DTYPES[dtype].numpy


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op: str, dtype: str) -> None:
    x, y = pairs(dtype)
    got = elementwise(op, (x, y), DTYPES[dtype])
    assert got.dtype == np.int8
    assert got.tolist() == [int(COMPARISONS[op](float(a), float(b))) for a, b in zip(x, y, strict=True)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("op", "better"), [("max", operator.gt), ("min", operator.lt)])
def test_the_larger_and_the_smaller(op: str, better: Callable[[float, float], bool], dtype: str) -> None:
    """The same element wherever it stands in the array: NaN, else the better one, else the second."""
    x, y = pairs(dtype)
    is_first = [bool(float(a) != float(a) or better(float(a), float(b))) for a, b in zip(x, y, strict=True)]
    assert same_bits(elementwise(op, (x, y), DTYPES[dtype]), np.where(is_first, x, y))


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_takes_its_operands_as_they_are(dtype: str) -> None:
    x, y = pairs(dtype)
    mask = (np.arange(len(x)) % 3).astype(np.int8)
    assert same_bits(elementwise("where", (mask, x, y), DTYPES[dtype]), np.where(mask != 0, x, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_results_have_the_type_that_is_told(op: str, dtype: str) -> None:
    operation = OPERATIONS[op]
    if operation.is_of_floats and not DTYPES[dtype].is_float:
        return
    x = np.ones((2, 3), DTYPES[dtype].numpy)
    operands = (np.ones((2, 3), np.int8), x, x) if op == "where" else (x,) * operation.operands
    assert elementwise(op, operands, DTYPES[dtype]).dtype == result_dtype(op, DTYPES[dtype]).numpy


# --- casts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "to"), [*product(FLOATS, repeat=2)])
def test_floats_to_floats(source: str, to: str) -> None:
    values = patterns(source, 3000, 6)
    for value, got in zip(values, cast(values, DTYPES[to]), strict=True):
        if not np.isfinite(float(value)):
            assert same_bits(np.float64(got), np.float64(value))
            continue
        true = rounded(as_fraction(value), to)
        assert float(got) == (true if true is not None else np.copysign(np.inf, float(value)))
        assert np.signbit(float(got)) == np.signbit(float(value))


@pytest.mark.parametrize(("source", "to"), [*product(FLOATS, INTEGERS)])
def test_floats_to_integers(source: str, to: str) -> None:
    """Towards zero, within the type's range, NaN as 0."""
    limits = np.iinfo(DTYPES[to].numpy)
    near = cast(
        np.array([-129.5, -128.5, -1.9, -0.5, 0.5, 1.9, 126.5, 127.5, 2147483520.0, -2147483648.0], np.float32),
        DTYPES[source],
    )
    values = np.concatenate([patterns(source, 2000, 7), near])
    for value, got in zip(values.astype(np.float64), cast(values, DTYPES[to]), strict=True):
        true = 0 if np.isnan(value) else max(min(value, limits.max), limits.min)
        assert got == int(true)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("to", DTYPES)
def test_integers_to_any(source: str, to: str) -> None:
    values = patterns(source, 2000, 8)
    for value, got in zip(values, cast(values, DTYPES[to]), strict=True):
        if not DTYPES[to].is_float:
            assert got == wrapped(int(value), to)
            continue
        single = rounded(Fraction(int(value)), "f32")
        true = rounded(single, to)
        assert float(got) == (true if true is not None else np.copysign(np.inf, int(value)))


# --- along an axis --------------------------------------------------------------------------------------------


def tree(join: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    """The documented order, an element at a time."""
    while len(values) > 1:
        half = (len(values) + 1) // 2
        values = [join(values[i], values[i + half]) if i + half < len(values) else values[i] for i in range(half)]
    return values[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 129])
@pytest.mark.parametrize(("op", "join"), [("sum", "add"), ("reduce_max", "max"), ("reduce_min", "min")])
def test_the_order_along_an_axis(op: str, join: str, n: int, dtype: str) -> None:
    kind = DTYPES[dtype]
    rng = np.random.default_rng(n)
    values = cast((rng.standard_normal((3, n, 2)) * 10.0 ** rng.integers(-2, 3, (3, n, 2))).astype(np.float32), kind)
    widened = values.astype(kind.accumulator.numpy)

    def joined(a: Any, b: Any) -> Any:
        return elementwise(join, (a, b), kind.accumulator)

    expected = tree(joined, [widened[:, i : i + 1] for i in range(n)])
    assert same_bits(along_axis(op, values, kind, 1), expected.astype(result_dtype(op, kind).numpy))
    moved = np.ascontiguousarray(np.moveaxis(values, 1, -1))
    assert same_bits(along_axis(op, moved, kind, -1), np.moveaxis(expected, 1, -1).astype(result_dtype(op, kind).numpy))


def test_the_order_can_be_seen() -> None:
    """The tree adds 1 + 1 first; from left to right, each 1 is lost."""
    values = np.array([2.0**24, 1, 0, 1], np.float32)
    assert along_axis("sum", values, DTYPES["f32"], 0) == 2.0**24 + 2


def test_sums_of_integers_wrap_in_their_accumulator() -> None:
    assert along_axis("sum", np.full(300, 127, np.int8), DTYPES["i8"], 0) == 38100
    assert along_axis("sum", np.full(2, 2**31 - 1, np.int32), DTYPES["i32"], 0) == -2


def test_extremes_of_nan_and_zeros() -> None:
    zeros = np.array([0.0, -0.0, 0.0, -0.0, -0.0], np.float32)
    for op, join in (("reduce_max", "max"), ("reduce_min", "min")):
        assert np.isnan(along_axis(op, np.array([1, np.nan, 2], np.float32), DTYPES["f32"], 0))[0]
        expected = tree(lambda a, b, join=join: elementwise(join, (a, b), DTYPES["f32"]), [*zeros.reshape(5, 1)])
        assert same_bits(along_axis(op, zeros, DTYPES["f32"], 0), expected)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_doubles_are_rounded_once(dtype: str) -> None:
    """Values beside the middle of two neighbours, nearer than f32 can tell, and what lies beyond the type."""
    neighbours = patterns(dtype, 200, 5).astype(np.float64)
    finite = neighbours[np.isfinite(neighbours) & (np.abs(neighbours) < 1e30)]
    step = 2.0 ** -{"f16": 11, "bf16": 8, "f32": 24}[dtype]
    middles = finite * (1 + step)
    doubles = np.concatenate([finite, middles, *(middles * (1 + sign * 2.0**-40) for sign in (-1, 1))])
    got = cast(doubles, DTYPES[dtype])
    for value, each in zip(doubles, got, strict=True):
        expected = rounded(Fraction(float(value)), dtype)
        assert (None if np.isinf(float(each)) else as_fraction(each)) == expected, (value, each)
    kind = DTYPES[dtype].numpy
    extremes = cast(np.array([np.inf, -np.inf, 1e300, -1e300, 0.0, -0.0, np.nan]), DTYPES[dtype])
    assert same_bits(extremes, np.array([np.inf, -np.inf, np.inf, -np.inf, 0.0, -0.0, np.nan], np.float32).astype(kind))
