"""Exponential, logarithm and reciprocal root against Python's decimal arithmetic of 40 digits."""

import decimal
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from exact import FLOATS, patterns, rounded, same_bits

from sipsim.core.arithmetic import elementary
from sipsim.core.arithmetic.operations import elementwise
from sipsim.core.dtypes import DTYPES

decimal_40 = decimal.Context(prec=40, Emin=-999999, Emax=999999)
INF, NAN = math.inf, math.nan
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # NaNs of any pattern


def exact_exp(x: Decimal) -> Decimal:
    return decimal_40.exp(x)


def exact_log(x: Decimal) -> Decimal:
    return decimal_40.ln(x)


def exact_rsqrt(x: Decimal) -> Decimal:
    return decimal_40.divide(Decimal(1), decimal_40.sqrt(x))


def arguments(low: float, high: float, count: int) -> Any:
    """Numbers of 64 bits, and the numbers of 32 bits beside each power of two."""
    powers = np.ldexp(np.float32(1), np.arange(-149, 128)).astype(np.float32)
    beside = [powers, np.nextafter(powers, np.float32(0)), np.nextafter(powers, np.float32(INF))]
    ends = np.concatenate([np.concatenate(beside), -np.concatenate(beside)]).astype(np.float64)
    drawn = np.random.default_rng(1).uniform(low, high, count)
    found = np.concatenate([drawn, ends[(ends > low) & (ends < high)], np.linspace(0.70, 0.72, 50)])
    return found[(found > low) & (found < high) & (found != 0)]


@pytest.mark.parametrize(
    ("function", "exact", "low", "high"),
    [
        (elementary.exp, exact_exp, -104.0, 89.0),
        (elementary.log, exact_log, 0.0, 3.0),
        (elementary.log, exact_log, 0.0, 3e38),
    ],
)
def test_error_in_64_bits(function: Callable[[Any], Any], exact: Callable[[Decimal], Decimal], low, high) -> None:
    x = arguments(low, high, 3000)
    for each, got in zip(x, function(x), strict=True):
        true = exact(Decimal(float(each)))
        assert abs(Decimal(float(got)) - true) <= Decimal("1e-15") * abs(true), each


@pytest.mark.parametrize(("op", "exact"), [("exp", exact_exp), ("log", exact_log), ("rsqrt", exact_rsqrt)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_rounded_correctly(op: str, exact: Callable[[Decimal], Decimal], dtype: str) -> None:
    """By way of f32, as the rule says. Of f32, no result of these 4,000 arguments is off by a last bit."""
    x = patterns(dtype, 4000, 2)
    wide = x.astype(np.float32)
    x = x[np.isfinite(wide) & (wide != 0)]
    x = x[np.abs(x) < 200] if op == "exp" else np.abs(x)
    for each, got in zip(x, elementwise(op, (x,), DTYPES[dtype]), strict=True):
        single = rounded(Fraction(exact(Decimal(float(each)))), "f32")
        true = None if single is None else rounded(single, dtype)
        assert float(got) == (INF if true is None else true), each


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("op", "values"),
    [
        ("exp", [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e4, INF), (-1e4, 0.0)]),
        ("log", [(1.0, 0.0), (0.0, -INF), (-0.0, -INF), (INF, INF), (-INF, NAN), (-1.0, NAN), (NAN, NAN)]),
        ("rsqrt", [(1.0, 1.0), (0.0, INF), (-0.0, -INF), (INF, 0.0), (-INF, NAN), (-1.0, NAN), (NAN, NAN)]),
        ("sqrt", [(1.0, 1.0), (0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (NAN, NAN)]),
        ("gelu", [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, NAN), (NAN, NAN), (100.0, 100.0), (-100.0, -0.0)]),
        ("relu", [(0.0, 0.0), (-0.0, 0.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (100.0, 100.0), (-100.0, 0.0)]),
        ("abs", [(0.0, 0.0), (-0.0, 0.0), (INF, INF), (-INF, INF), (NAN, NAN), (-1.5, 1.5)]),
        ("neg", [(0.0, -0.0), (-0.0, 0.0), (INF, -INF), (-INF, INF), (NAN, NAN), (-1.5, 1.5)]),
    ],
)
def test_special_values(op: str, values: list[tuple[float, float]], dtype: str) -> None:
    kind = DTYPES[dtype].numpy
    x, expected = (np.array([*each], np.float32).astype(kind) for each in zip(*values, strict=True))
    assert same_bits(elementwise(op, (x,), DTYPES[dtype]), expected)


def test_gelu_is_near_its_exact_value() -> None:
    """Of the tanh form, in f32: within 4e-7 of the larger of 1 and the value, for f32 has no more."""
    x = np.concatenate([np.linspace(-12, 12, 2001), np.geomspace(1e-30, 1, 100)]).astype(np.float32)
    x64 = x.astype(np.float64)
    true = x64 / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x64 + 0.044715 * x64**3)))
    got = elementwise("gelu", (x,), DTYPES["f32"])
    assert np.max(np.abs(got - true) / np.maximum(np.abs(true), 1)) < 4e-7
    near_zero = np.abs(x) < 1
    assert np.max(np.abs(got - true)[near_zero] / np.abs(true)[near_zero].clip(1e-38)) < 5e-7


@pytest.mark.parametrize("shape", [(), (0,), (3, 1, 2)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    for op in ("exp", "log", "rsqrt", "gelu"):
        x = np.ones(shape, np.float32)
        got = elementwise(op, (x,), DTYPES["f32"])
        assert (np.shape(got), got.dtype) == (shape, x.dtype)
