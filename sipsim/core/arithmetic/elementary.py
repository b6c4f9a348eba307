"""Exponential and logarithm of 64-bit floats from IEEE 754 operations that every machine rounds alike.

NumPy and the C library choose an implementation by the processor, and their last bits differ. This module uses only
``+ - * /``, rounding to integers, and ``ldexp`` and ``frexp``, which are exact for the arguments used here. Every step
is a separate NumPy call, so no compiler can fuse steps. Relative errors are below 1e-15: a result rounded to 32 bits is
rounded correctly unless the exact value is within this error of the midpoint between two floats.
"""

from math import factorial
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_LN2_HIGH, _LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
"""ln 2 in two parts. The first part ends in 21 zero bits, so its products with small integers are exact."""
_INV_LN2 = 1.4426950408889634
_EXP_FACTORS = [1.0 / factorial(power) for power in range(14)]
_LOG_FACTORS = [1.0 / (2 * term + 1) for term in range(10)]
_SQRT_HALF = 0.7071067811865476
_MIN_ARGUMENT, _MAX_ARGUMENT = -700.0, 709.0
"""Bounds of the argument: outside, the exponential is 0 or infinite in 32 bits; inside, a normal 64-bit number."""


def exp(x: Array) -> Array:
    """Return e to the power of ``x``, for elements of float64.

    Method: ``x = n ln 2 + r`` with an integer ``n``; the Taylor polynomial of degree 13 in ``r``, times ``2**n``.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        bounded = np.minimum(np.maximum(x, _MIN_ARGUMENT), _MAX_ARGUMENT)
        whole = np.rint(bounded * _INV_LN2)
        r = bounded - whole * _LN2_HIGH - whole * _LN2_LOW
        total = _polynomial(_EXP_FACTORS, r)
        result = np.ldexp(total, np.where(np.isnan(whole), 0.0, whole).astype(np.int32))
    result = np.where(x > _MAX_ARGUMENT, np.inf, result)
    return np.where(x < _MIN_ARGUMENT, 0.0, result)


def log(x: Array) -> Array:
    """Return the natural logarithm of elements of float64: minus infinity for 0, NaN for negative numbers.

    Method: ``x = 2**e m`` with ``m`` from sqrt(1/2) to sqrt(2); the series of ``2 atanh(s)`` in ``s = (m-1)/(m+1)``.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        is_normal = (x > 0) & np.isfinite(x)
        mantissa, exponent = np.frexp(np.where(is_normal, x, 1.0))
        is_low = mantissa < _SQRT_HALF
        mantissa = np.where(is_low, mantissa * 2.0, mantissa)
        e = np.where(is_low, exponent - 1, exponent).astype(np.float64)
        s = (mantissa - 1.0) / (mantissa + 1.0)
        z = s * s
        total = _polynomial(_LOG_FACTORS, z)
        result = e * _LN2_HIGH + (e * _LN2_LOW + 2.0 * s * total)
    result = np.where(x == 0, -np.inf, result)
    result = np.where(x == np.inf, np.inf, result)
    return np.where((x < 0) | np.isnan(x), np.nan, result)


def _polynomial(factors: list[float], x: Array) -> Array:
    """Return the sum of ``factors[n] x**n``, by Horner's method."""
    total = np.full_like(x, factors[-1])
    for factor in factors[-2::-1]:
        total = total * x + factor
    return total
