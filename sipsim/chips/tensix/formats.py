"""Formats of a tensor's elements, plain or block floating point in tiles: bytes, elements and sums. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sipsim.chips.tensix.arguments import one_of
from sipsim.core.dtypes import DTYPES, DType, dtype_of_numpy
from sipsim.core.errors import KernelMisuse

Array = np.ndarray[Any, Any]
FACE = 16
"""Rows and columns of a face; a tile has two faces by two. A row of a face is a block of block floating point."""
TILE_BLOCKS = 2 * 2 * FACE
BIAS, LEAST_EXPONENT = 127, 1
"""Bias of a shared exponent, as in f32, and the least exponent of a block that is not zero."""
LARGEST = float(np.finfo(np.float32).max)


class Format(ABC):
    """Format of elements in memory and on the wire. ``FORMATS`` has one object per format.

    ``has_rows``: whether a page may be a row of elements; otherwise pages are tiles.
    """

    has_rows: ClassVar[bool]

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @abstractmethod
    def nbytes(self, count: int) -> int:
        """Return the size in bytes of ``count`` elements, a whole tile or more if the format has no rows."""

    @abstractmethod
    def encode(self, elements: Array) -> bytes:
        """Return the bytes of elements, which are rounded to the format. Elements of a tile follow one another, row by
        row.
        """

    @abstractmethod
    def decode(self, data: bytes) -> Array:
        """Return the elements in ``data`` as a one-dimensional array, in the order of :meth:`encode`."""

    def add(self, parts: Sequence[bytes]) -> bytes:
        """Return the elementwise sum of ``parts``, added from first to last in the type of :meth:`decode`. Integers
        wrap. Elements of a plain type are rounded after each addition, elements of block formats once, at the end.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            total = self.decode(parts[0])
            for part in parts[1:]:
                total = total + self.decode(part)
        return self.encode(total)


class PlainFormat(Format):
    """Format of a plain element type, whose elements follow one another."""

    has_rows = True

    def __init__(self, dtype: DType) -> None:
        super().__init__(dtype.name)
        self.dtype = dtype

    def nbytes(self, count: int) -> int:
        """Return the size in bytes of ``count`` elements."""
        return count * self.dtype.itemsize

    def encode(self, elements: Array) -> bytes:
        """Return the bytes of elements."""
        return bytes(np.ascontiguousarray(elements, self.dtype.numpy).tobytes())

    def decode(self, data: bytes) -> Array:
        """Return the elements in ``data``."""
        return np.frombuffer(data, self.dtype.numpy)


class BlockFormat(Format):
    """Block floating point in tiles of 32 x 32 elements: one exponent of 8 bits per row of a face of 16 x 16.

    A tile is its 64 exponents and then its elements of ``bits``, face by face (upper left, upper right, lower left,
    lower right) and row by row in a face; of two elements in a byte, the first has the low bits. An element is a sign
    and a magnitude ``m`` of ``bits`` - 1 bits, with the value ``m`` * 2**(exponent - 127 - (``bits`` - 2)).

    Rounding: the exponent is that of the largest magnitude in the block, as in f32, at least 1; each magnitude is
    rounded to the nearest, ties to even, and saturates at the largest ``m``. A zero has no sign, and a block of zeros
    has exponent 0. Sums beyond f32 saturate. Infinities and NaN are refused as elements of a tensor; bytes
    that no encoding made may have the sum NaN, which becomes 0. Source: layout and rounding of tt-metal's
    ``blockfloat_common.cpp``, which differs in two cases: it drops bits below 2**-23 of the block's unit before it
    rounds, and its magnitudes of f32's subnormals have a leading one.
    """

    has_rows = False

    def __init__(self, name: str, bits: int) -> None:
        super().__init__(name)
        self.bits = bits
        self._most = 2 ** (bits - 1) - 1

    def nbytes(self, count: int) -> int:
        """Return the size in bytes of ``count`` elements with their exponents."""
        return count // FACE + count * self.bits // 8

    def encode(self, elements: Array) -> bytes:
        """Return the tiles of elements, rounded as the class says."""
        finite: Array = np.nan_to_num(np.asarray(elements, np.float32), nan=0.0, posinf=LARGEST, neginf=-LARGEST)
        rows = finite.reshape(-1, 2, FACE, 2, FACE).swapaxes(2, 3).reshape(-1, TILE_BLOCKS, FACE)
        # frexp's fraction is in [1/2, 1), and that of f32 in [1, 2)
        exponents = np.maximum(np.frexp(np.abs(rows).max(-1))[1] + (BIAS - 1), LEAST_EXPONENT)
        units = np.ldexp(np.abs(rows).astype(np.float64), -self._unit(exponents)[..., None])
        magnitudes = np.minimum(np.rint(units), self._most).astype(np.uint8)
        exponents[~magnitudes.any(-1)] = 0
        signs = np.where((rows < 0) & (magnitudes > 0), self._most + 1, 0).astype(np.uint8)
        codes = (magnitudes | signs).reshape(len(rows), -1)
        if self.bits == 4:
            codes = codes[:, ::2] | codes[:, 1::2] << 4
        return bytes(np.concatenate((exponents.astype(np.uint8), codes), 1).tobytes())

    def decode(self, data: bytes) -> Array:
        """Return the elements of tiles, in f32."""
        tiles = np.frombuffer(data, np.uint8).reshape(-1, self.nbytes(TILE_BLOCKS * FACE))
        exponents, codes = tiles[:, :TILE_BLOCKS], tiles[:, TILE_BLOCKS:]
        if self.bits == 4:
            codes = np.stack((codes & 15, codes >> 4), -1)
        codes = codes.reshape(-1, TILE_BLOCKS, FACE)
        values = np.ldexp((codes & self._most).astype(np.float64), self._unit(exponents.astype(np.int32))[..., None])
        values = np.where(codes > self._most, -values, values)
        with np.errstate(over="ignore"):
            rows = values.astype(np.float32).reshape(-1, 2, 2, FACE, FACE).swapaxes(2, 3)
        elements: Array = rows.reshape(-1)
        return elements

    def _unit(self, exponents: Array) -> Array:
        """Return the powers of two that a magnitude of 1 stands for."""
        units: Array = exponents - (BIAS + self.bits - 2)
        return units


BLOCK_FORMATS: dict[str, Format] = {each.name: each for each in (BlockFormat("bfp8", 8), BlockFormat("bfp4", 4))}
FORMATS: dict[str, Format] = {**{dtype.name: PlainFormat(dtype) for dtype in DTYPES.values()}, **BLOCK_FORMATS}


def format_of(array: Array, name: str | None) -> Format:
    """Return the format of an array's tensor: the array's own type, or the block format ``name``.

    Raises:
        KernelMisuse: if no tensor can have this type, or the block format is unknown or cannot have these elements.
    """
    own = dtype_of_numpy(array.dtype)
    if own is None:
        raise KernelMisuse(f"elements of type {array.dtype}: no tensor has them; give one of {', '.join(DTYPES)}")
    if name is None:
        return FORMATS[own.name]
    block = BLOCK_FORMATS[one_of("dtype", name, BLOCK_FORMATS)]
    if not own.is_float:
        raise KernelMisuse(f"dtype={name!r}: the elements of the array are {own}; give an array of floats")
    wrong = np.argwhere(~np.isfinite(array.astype(np.float32)))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        what = f"element {at} of the array is {array[at]}, which no block can hold"
        raise KernelMisuse(f"dtype={name!r}: {what}; give finite numbers")
    return block
