"""Values of the two passes, compared bit for bit; any NaN equals any NaN, as IEEE 754 leaves its payload open."""

from typing import Any, NamedTuple

import numpy as np

from sipsim.records.replay.rules import Array, Values

BYTE = np.dtype(np.uint8)


def are_same(told: Values, expected: Values | None) -> bool:
    """Whether two values are the same, bit for bit; two arrays are also of the same shape and type."""
    if isinstance(told, bytes) or not isinstance(expected, np.ndarray):
        return _data(told) == _data(expected)
    return told.dtype == expected.dtype and told.shape == expected.shape and told.tobytes() == expected.tobytes()


def _data(values: Values | None) -> bytes:
    if values is None:
        return b""
    return values if isinstance(values, bytes) else values.tobytes()


class Wrong(NamedTuple):
    """Where values differ: ``offsets`` of the bytes of wrong elements, sorted, None where shape, type or size do;
    ``text``: the first of them.
    """

    offsets: np.ndarray[Any, np.dtype[np.int64]] | None
    text: str


def where_wrong(told: Values, expected: Values | None) -> Wrong | None:
    """How the values of the first pass differ from those expected; None if only NaNs do."""
    shape = told.shape if isinstance(told, np.ndarray) else expected.shape if isinstance(expected, np.ndarray) else None
    dtype = told.dtype if isinstance(told, np.ndarray) else expected.dtype if isinstance(expected, np.ndarray) else BYTE
    got, right = _data(told), _data(expected)
    if isinstance(told, np.ndarray) and isinstance(expected, np.ndarray):
        kinds = [f"{each.dtype}{list(each.shape)}" for each in (expected, told)]
        if kinds[0] != kinds[1]:
            return Wrong(None, f"expected {kinds[0]}, got {kinds[1]}")
    if len(got) != len(right):
        return Wrong(None, f"expected {len(right)} bytes, got {len(got)}")
    a, b = np.frombuffer(got, dtype), np.frombuffer(right, dtype)
    wrong = _differing(a, b)
    if not len(wrong):
        return None
    first, size = int(wrong[0]), dtype.itemsize
    index = [int(i) for i in np.unravel_index(first, shape)] if shape else [first]
    offsets = (wrong[:, None] * size + np.arange(size)).reshape(-1)
    return Wrong(offsets, f"{len(wrong)} of {len(a)} wrong, the first at {index}: expected {b[first]}, got {a[first]}")


def _differing(a: Array, b: Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The indices of the elements that differ."""
    bits = np.dtype(f"u{a.dtype.itemsize}")
    differs = np.ascontiguousarray(a).view(bits) != np.ascontiguousarray(b).view(bits)
    if a.dtype.kind not in "iu" and differs.any():
        differs &= ~(np.isnan(a) & np.isnan(b))
    return np.flatnonzero(differs)
