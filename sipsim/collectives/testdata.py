"""Test data and their exact check: seeded integers, all of whose partial sums are exact in the data type.

No element is zero, so that a missing contribution changes every element. The generator is splitmix64 (Steele, Lea and
Flood, OOPSLA 2014), implemented here so that digests do not depend on a library's random stream.
"""

from typing import Any, NamedTuple

import numpy as np

from sipsim.core.dtypes import DType
from sipsim.core.errors import ConfigError

Array = np.ndarray[Any, Any]
_GOLDEN = 0x9E3779B97F4A7C15
_SEED_STEP = 0xD1B54A32D192ED03
_MASK = 2**64 - 1
PIECE = 2**13
"""Elements per generated chunk: 64 KiB of int64 fit into a cache, and malloc reuses them without a system call."""


class Mismatch(NamedTuple):
    """Result of a comparison: number of different elements, and a text about the first different element."""

    elements: int
    first: str


NONE_WRONG = Mismatch(0, "")


def check_contributions(dtype: DType, contributions: int) -> None:
    """Check that sums of ``contributions`` nonzero integers can be exact in ``dtype``.

    Raises:
        ConfigError: even contributions of +-1 could leave the exact range.
    """
    if dtype.exact_int is not None and contributions > dtype.exact_int:
        raise ConfigError(
            f"{contributions} contributions cannot be summed exactly in {dtype}; use --dtype f32 or --dtype i32"
        )


def seeded_values(first: int, count: int, dtype: DType, seed: int, contributions: int) -> Array:
    """Return ``count`` elements as int64, beginning at element ``first`` of the concatenated data of all ranks."""
    state = (seed * _SEED_STEP + first * _GOLDEN + _GOLDEN) & _MASK
    mixed = np.arange(count, dtype=np.uint64)
    mixed *= np.uint64(_GOLDEN)
    mixed += np.uint64(state)
    _splitmix64(mixed)
    if dtype.exact_int is None:
        return (mixed >> np.uint64(32)).astype(np.uint32).view(np.int32).astype(dtype.numpy).astype(np.int64) | 1
    limit = dtype.exact_int // contributions
    # Remainder by floor division: NumPy replaces division by a constant with multiplication, but not the % operator.
    mixed -= mixed // np.uint64(2 * limit) * np.uint64(2 * limit)
    values: Array = mixed.view(np.int64)
    values -= limit
    values += values >= 0
    return values


def compare(got: Array, expected: Array) -> Mismatch:
    """Compare bit for bit, but count any two NaNs as equal; ``expected`` is broadcast to the shape of ``got``.

    The sign and payload of a NaN are not compared, since IEEE 754 does not define them for a sum.
    """
    expected = np.broadcast_to(expected, got.shape)
    bits = np.dtype(f"u{got.dtype.itemsize}")
    differs = np.ascontiguousarray(got).view(bits) != np.ascontiguousarray(expected).view(bits)
    if differs.any() and got.dtype.kind not in "iu":
        differs &= ~(np.isnan(got) & np.isnan(expected))
    count = int(differs.sum())
    if not count:
        return NONE_WRONG
    index = tuple(int(i) for i in np.argwhere(differs)[0])
    return Mismatch(count, f"first wrong at {list(index)}: expected {expected[index]}, got {got[index]}")


def _splitmix64(state: Array) -> None:
    """Replace an array of generator states by their outputs, in place."""
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
