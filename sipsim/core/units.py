"""Conversion of units: floats and config values with units become integers, once, at input.

Inside the simulator, time is an integer number of picoseconds and bandwidth an integer number of bytes per second.
No time in the event queue is a float.
"""

import re
from decimal import ROUND_HALF_EVEN, Decimal
from operator import index
from typing import Any

PS_PER_S = 10**12
PS_PER_NS = 1000
PS_PER_US = 10**6
BYTES_PER_KIB = 1024


_SIZE = re.compile(r"([0-9]{1,18})(?:([kmg])i?)?b?", re.ASCII | re.IGNORECASE)
_EXPONENT = {"": 0, "K": 1, "M": 2, "G": 3}
_TIME = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,12})?)(ps|ns|us|ms|s)", re.ASCII)
_TIME_SCALES = {"s": PS_PER_S, "ms": 10**9, "us": PS_PER_US, "ns": PS_PER_NS, "ps": 1}
LONGEST_TIME_S = 10**6


def as_whole(value: Any) -> int | None:
    """Return an integer of Python or NumPy as an int; None for anything else, including bool."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def _scaled(value: int | float, factor: int) -> int:
    """Return ``value * factor``, rounded half to even; exact for the decimal that the user wrote."""
    return int((Decimal(repr(value)) * factor).to_integral_value(rounding=ROUND_HALF_EVEN))


def ns_to_ps(nanoseconds: int | float) -> int:
    """Convert nanoseconds to integer picoseconds."""
    return _scaled(nanoseconds, PS_PER_NS)


def us_to_ps(microseconds: int | float) -> int:
    """Convert microseconds to integer picoseconds."""
    return _scaled(microseconds, PS_PER_US)


def ps_to_ns(ps: float) -> float:
    """Convert picoseconds to nanoseconds for reports, rounded to whole ps: at most three digits after the point."""
    return round(ps) / PS_PER_NS


def gbytes_per_s_to_bps(gigabytes_per_s: int | float) -> int:
    """Convert gigabytes (1e9 bytes) per second to integer bytes per second."""
    return _scaled(gigabytes_per_s, 10**9)


def drain_ps(nbytes: int, bytes_per_s: int) -> int:
    """Serialization time of ``nbytes`` at ``bytes_per_s``: ``ceil(n * 10**12 / B)`` picoseconds."""
    return -(-nbytes * PS_PER_S // bytes_per_s)


def parse_size_bytes(text: str) -> int:
    """Parse ``"64K"``, ``"1M"`` or ``"4096"`` to bytes; K, M and G are powers of 1024, as in nccl-tests.

    Raises:
        ValueError: when the text is not a size; the message states what is allowed.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write bytes or a number with K, M or G, such as 64K")
    return int(match[1]) * int(BYTES_PER_KIB ** _EXPONENT[(match[2] or "").upper()])


def format_size(nbytes: int) -> str:
    """Return the shortest exact text that :func:`parse_size_bytes` parses: ``65536`` is ``"64K"``."""
    for suffix, exponent in (("G", 3), ("M", 2), ("K", 1)):
        unit = BYTES_PER_KIB**exponent
        if nbytes and nbytes % unit == 0:
            return f"{nbytes // unit}{suffix}"
    return str(nbytes)


def parse_time_ps(text: str) -> int:
    """Parse ``"30us"``, ``"1.5ms"`` or ``"0"`` to picoseconds; any time except 0 must have a unit.

    Raises:
        ValueError: when the text is no time, or no whole number of picoseconds; the message states what is allowed.
    """
    match = _TIME.fullmatch("0ps" if text == "0" else text)
    if match is None:
        raise ValueError(f"{text!r} is not a time; write a number with ps, ns, us, ms or s, such as 30us")
    exact = Decimal(match[1]) * _TIME_SCALES[match[2]]
    if exact != int(exact) or exact > LONGEST_TIME_S * PS_PER_S:
        raise ValueError(f"{text!r} must be a whole number of ps, and at most {LONGEST_TIME_S} s")
    return int(exact)


def format_exact_time_ps(ps: int) -> str:
    """Return the shortest exact text that :func:`parse_time_ps` parses: ``30000000`` is ``"30us"``."""
    for unit, scale in _TIME_SCALES.items():
        if ps and ps % scale == 0:
            return f"{ps // scale}{unit}"
    return "0"


def format_time_ps(ps: int) -> str:
    """Format a time in ps as text with three decimals and the largest unit that fits, such as ``"1.235 us"``."""
    for unit, scale in (("s", PS_PER_S), ("ms", 10**9), ("us", 10**6), ("ns", PS_PER_NS)):
        if ps >= scale:
            return f"{ps / scale:.3f} {unit}"
    return f"{ps} ps"
