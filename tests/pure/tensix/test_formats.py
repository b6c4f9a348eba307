"""Block floating point in tiles beside a plain formulation, its sizes, its rounding, and its sums."""

from fractions import Fraction
from math import floor, log2
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sipsim.chips.tensix.ccl.tensors import from_pages, pages_of, to_pages
from sipsim.chips.tensix.formats import BLOCK_FORMATS, FORMATS, Format, format_of
from sipsim.core.errors import KernelMisuse

BITS = {"bfp8": 7, "bfp4": 3}
"""Bits of a magnitude."""
BYTES = {"bfp8": 1088, "bfp4": 576}
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
BLOCKS = arrays(np.float32, (1, 16), elements=st.one_of(FLOATS, st.floats(-8, 8, width=32)))


def tile_of(blocks: Any) -> Any:
    """A tile whose first blocks are given, and whose other elements are 0."""
    tile = np.zeros((32, 32), np.float32)
    tile[: len(blocks), :16] = blocks
    return tile


def rounded(block: list[Fraction], bits: int) -> list[Fraction]:
    """The elements of a block after rounding, by exact arithmetic: nearest, ties to even, at most all ones."""
    largest = max(map(abs, block))
    if not largest:
        return [Fraction(0)] * len(block)
    exponent = max(exponent_of(largest), -126)
    unit = Fraction(2) ** (exponent - bits + 1)
    return [max(min(round(each / unit), 2**bits - 1), 1 - 2**bits) * unit for each in block]


def exponent_of(value: Fraction) -> int:
    """The whole number e for which 2**e <= value < 2**(e + 1)."""
    guess = floor(log2(value.numerator) - log2(value.denominator))
    return next(e for e in (guess - 1, guess, guess + 1) if Fraction(2) ** e <= value < Fraction(2) ** (e + 1))


def bytes_of(tile: Any, bits: int) -> bytes:
    """A tile's bytes, element by element."""
    exponents, codes = [], []
    for down in (0, 16):
        for right in (0, 16):
            for row in range(16):
                block = [Fraction(float(each)) for each in tile[down + row, right : right + 16]]
                values, largest = rounded(block, bits), max(map(abs, block))
                exponent = max(exponent_of(largest), -126) if any(values) else -127
                exponents.append(exponent + 127)
                unit = Fraction(2) ** (exponent - bits + 1)
                codes += [int(abs(each) / unit) | (each < 0) << bits for each in values]
    if bits == 3:
        codes = [low | high << 4 for low, high in zip(codes[::2], codes[1::2], strict=True)]
    return bytes(exponents + codes)


@pytest.mark.parametrize("name", BITS)
def test_random_tiles_are_those_of_a_plain_formulation(name: str) -> None:
    """Tiles of a tensor, in magnitudes from the least to the largest in f32."""
    rng = np.random.default_rng(5)
    tile = (rng.standard_normal((64, 64)) * 2.0 ** rng.integers(-150, 127, (64, 64))).astype(np.float32)
    tile[:32] = rng.standard_normal((32, 64))
    tile[:, 32:48] = rng.integers(-256, 256, (64, 16))  # ties
    tile[40] = 0
    dtype = FORMATS[name]
    pages = pages_of(tile.shape, dtype)
    data = to_pages(tile, dtype, pages)
    assert data == b"".join(bytes_of(tile[y : y + 32, x : x + 32], BITS[name]) for y in (0, 32) for x in (0, 32))
    found = from_pages(data, tile.shape, dtype, pages)
    right = [
        rounded([Fraction(float(each)) for each in tile[row, x : x + 16]], BITS[name])
        for row in range(64)
        for x in range(0, 64, 16)
    ]
    assert found.dtype == np.float32
    assert np.array_equal(found, np.array(right, np.float64).reshape(64, 64))


@pytest.mark.parametrize("name", BITS)
@given(blocks=BLOCKS)
def test_rounding(name: str, blocks: Any) -> None:
    """Bytes stay when they are decoded and encoded; an error is at most half a unit, one unit where it saturates; and
    the order of elements stays.
    """
    dtype, given = FORMATS[name], tile_of(blocks)
    data = dtype.encode(given)
    found = dtype.decode(data)
    assert dtype.encode(found) == data
    assert np.isfinite(found).all()
    given, found = given[0, :16].astype(np.float64), found[:16].astype(np.float64)
    unit = 2.0 ** (data[0] - 127 - BITS[name] + 1)
    largest = (2 ** BITS[name] - 1) * unit
    error = np.abs(found - given)
    assert (error[np.abs(given) <= largest] <= unit / 2).all() or not data[0]
    assert (error <= unit).all()
    order = np.argsort(given, kind="stable")
    assert (np.diff(found[order]) >= 0).all()
    assert (np.sign(found) * np.sign(given) >= 0).all()


@pytest.mark.parametrize("name", BITS)
def test_sizes(name: str) -> None:
    pages = pages_of((2, 64, 96), FORMATS[name])
    assert (pages.page_bytes, pages.n_pages, pages.is_tiled) == (BYTES[name], 12, True)
    assert len(FORMATS[name].encode(np.ones((32, 32), np.float32))) == BYTES[name]
    for shape in ((32, 33), (4, 4), (1024,)):
        with pytest.raises(KernelMisuse, match=name):
            pages_of(shape, FORMATS[name])
    with pytest.raises(KernelMisuse, match=name):
        pages_of((32, 32), FORMATS[name], "row_major")


def test_ties_and_ends_of_a_block() -> None:
    """Magnitudes in sixteenths of a block whose exponent is 127, so that a unit of bfp4 is a quarter."""
    block = np.array([16, 2, 6, 10, 14, 18, 22, 26, 30, 31, -2, -6, -31, 1, 0, 0], np.float32) / 16
    found = FORMATS["bfp4"].decode(FORMATS["bfp4"].encode(tile_of([block])))[:16] * 4
    assert found.tolist() == [4, 0, 2, 2, 4, 4, 6, 6, 7, 7, 0, -2, -7, 0, 0, 0]
    assert not np.signbit(found[10])


@pytest.mark.parametrize("name", BITS)
def test_sums_are_rounded_once_in_the_given_order(name: str) -> None:
    dtype = FORMATS[name]
    rng = np.random.default_rng(7)
    large, small = (rng.standard_normal((32, 32)).astype(np.float32) * scale for scale in (2.0**24, 1))
    coded = [dtype.encode(part) for part in (large, small, -large)]
    total = np.zeros(1024, np.float32)
    for each in coded:
        total = total + dtype.decode(each)
    assert dtype.add(coded) == dtype.encode(total)
    assert dtype.add(coded) != dtype.add([coded[0], coded[2], coded[1]])


@pytest.mark.parametrize("name", BITS)
def test_sums_beyond_f32_saturate(name: str) -> None:
    dtype = FORMATS[name]
    ends = np.zeros((32, 32), np.float32)
    ends[0, 0], ends[1, 0] = (sign * np.finfo(np.float32).max for sign in (1, -1))
    data = dtype.encode(ends)
    assert dtype.add([data, data]) == data
    strange = b"\xff" * BYTES[name]
    assert np.isfinite(dtype.decode(dtype.add([strange, data, data]))).all()


def test_plain_sums_wrap_and_round_as_their_type() -> None:
    most = np.full(4, 127, np.int8).tobytes()
    assert FORMATS["i8"].add([most, np.ones(4, np.int8).tobytes()]) == np.full(4, -128, np.int8).tobytes()
    large, one = (np.full(4, each, np.float16).tobytes() for each in (2048, 1))
    assert FORMATS["f16"].add([large, one, one]) == large


@pytest.mark.parametrize("dtype", [np.float16, np.float32, ml_dtypes.bfloat16])
def test_formats_of_arrays(dtype: Any) -> None:
    array = np.ones((32, 32), dtype)
    assert format_of(array, None).nbytes(1) == array.itemsize
    assert {name: format_of(array, name) for name in BITS} == BLOCK_FORMATS


@pytest.mark.parametrize(
    ("array", "name", "named"),
    [
        (np.ones(4), None, "float64"),
        (np.ones(4), "bfp8", "float64"),
        (np.ones(4, np.int32), "bfp8", "i32"),
        (np.ones(4, np.float32), "bfp2", "bfp2"),
        (np.array([1, np.inf], np.float32), "bfp8", r"\(1,\)"),
        (np.array([[1, 2], [np.nan, 3]], np.float16), "bfp4", r"\(1, 0\)"),
    ],
    ids=["plain", "f64", "integers", "name", "inf", "nan"],
)
def test_what_has_no_format(array: Any, name: str | None, named: str) -> None:
    with pytest.raises(KernelMisuse, match=named):
        format_of(array, name)


def test_names_of_formats() -> None:
    assert all(isinstance(each, Format) and str(each) == name for name, each in FORMATS.items())
    assert set(BITS) == set(BLOCK_FORMATS)
