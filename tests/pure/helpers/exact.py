"""Exact references for arithmetic: rounding of rational numbers to a floating type, bit patterns, plain loops."""

from fractions import Fraction
from typing import Any

import numpy as np

from sipsim.core.dtypes import DTYPES

Array = np.ndarray[Any, Any]
FLOATS = ("f16", "bf16", "f32")
_PRECISION = {"f16": (11, -24, 65504), "bf16": (8, -133, Fraction(2**8 - 1, 2**7) * 2**127)}
_PRECISION["f32"] = (24, -149, Fraction(2**24 - 1, 2**23) * 2**127)
"""Bits of the significand, exponent of the least number above 0, largest finite number."""


def rounded(value: Fraction, dtype: str) -> Fraction | None:
    """The nearest number of a floating type, ties to even; None beyond the largest."""
    bits, least, largest = _PRECISION[dtype]
    size = abs(value)
    if not size:
        return Fraction(0)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** max(exponent - bits + 1, least)
    near = round(size / unit) * unit
    if near > largest:
        return None
    return near if value > 0 else -near


def as_fraction(value: Any) -> Fraction:
    """A finite element, exactly."""
    return Fraction(float(value))


def patterns(dtype: str, count: int, seed: int) -> Array:
    """Elements of any bit pattern: all special ones and the ends of each range, then random ones."""
    kind = DTYPES[dtype].numpy
    bits = kind.itemsize * 8
    edges = [0, 1, 2, 3, 2 ** (bits - 1) - 1]
    if DTYPES[dtype].is_float:
        fraction = _PRECISION[dtype][0] - 1
        infinity = (2 ** (bits - 1 - fraction) - 1) << fraction
        one = (2 ** (bits - 2 - fraction) - 1) << fraction
        middles = (1 << fraction, one, one + (1 << fraction), infinity)
        edges += [near + step for near in middles for step in (-1, 0, 1)]
    edges += [edge | 1 << (bits - 1) for edge in edges]
    drawn = np.random.default_rng(seed).integers(0, 2**bits, count, np.uint64)
    found: Array = np.concatenate([np.array(edges, np.uint64), drawn]).astype(f"u{kind.itemsize}").view(kind)
    return found


def same_bits(got: Array, expected: Array) -> bool:
    """Equal in type, shape and bits; any NaN is equal to any."""
    if (got.dtype, got.shape) != (expected.dtype, expected.shape):
        return False
    bits = f"u{got.dtype.itemsize}"
    equal = np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(expected).view(bits)
    return bool(np.all(equal | (is_nan(got) & is_nan(expected))))


def is_nan(array: Array) -> Array:
    """Of any type; bf16's own comparison of a NaN gives a warning."""
    found: Array = np.isnan(array.astype(np.float64))
    return found


def wrapped(value: int, dtype: str) -> int:
    """An integer in two's complement of the type's size."""
    half = 2 ** (8 * DTYPES[dtype].itemsize - 1)
    return (value + half) % (2 * half) - half
