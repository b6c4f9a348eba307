"""Units at the edge: every conversion by a value worked out by hand, rounding on the written decimal."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipsim.core.units import (
    drain_ps,
    format_exact_time_ps,
    format_size,
    format_time_ps,
    gbytes_per_s_to_bps,
    ns_to_ps,
    parse_size_bytes,
    parse_time_ps,
)


@pytest.mark.parametrize(
    ("nanoseconds", "picoseconds"),
    [
        (0, 0),
        (1, 1000),
        (0.1, 100),
        (2.675, 2675),
        (0.0005, 0),
        (0.0015, 2),
        (0.0025, 2),
        (0.00251, 3),
        (1e12, 10**15),
    ],
)
def test_ns_to_ps(nanoseconds: float, picoseconds: int) -> None:
    """Half a picosecond is rounded to even."""
    assert ns_to_ps(nanoseconds) == picoseconds


@pytest.mark.parametrize("thousandths", range(0, 3000, 7))
def test_ns_to_ps_reads_the_decimal_that_was_written(thousandths: int) -> None:
    """``1.001`` is 1001 ps although the float is a little less."""
    assert ns_to_ps(float(f"{thousandths // 1000}.{thousandths % 1000:03d}")) == thousandths


@pytest.mark.parametrize(
    ("gigabytes", "bps"), [(64, 64 * 10**9), (12.5, 12_500_000_000), (0.1, 10**8), (1e-9, 1), (51.2, 51_200_000_000)]
)
def test_gbytes_per_s_to_bps(gigabytes: float, bps: int) -> None:
    """A gigabyte is 1e9 bytes."""
    assert gbytes_per_s_to_bps(gigabytes) == bps


@pytest.mark.parametrize(
    ("nbytes", "bps", "picoseconds"),
    [
        (0, 1, 0),
        (1, 10**12, 1),
        (1, 10**12 + 1, 1),
        (1, 3, 333_333_333_334),
        (64, 64 * 10**9, 1000),
        (65, 64 * 10**9, 1016),
        (4096, 64 * 10**9, 64_000),
    ],
)
def test_drain_by_hand(nbytes: int, bps: int, picoseconds: int) -> None:
    """A started picosecond counts."""
    assert drain_ps(nbytes, bps) == picoseconds


@given(st.integers(0, 2**40), st.integers(1, 10**15))
def test_drain_is_the_least_whole_time_that_suffices(nbytes: int, bps: int) -> None:
    drain = drain_ps(nbytes, bps)
    exact = Fraction(nbytes * 10**12, bps)
    assert exact <= drain < exact + 1


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("64K", 65536),
        ("64k", 65536),
        (" 64KB ", 65536),
        ("64KiB", 65536),
        ("1M", 2**20),
        ("3G", 3 * 2**30),
    ],
)
def test_parse_size(text: str, nbytes: int) -> None:
    """K, M and G are powers of 1024."""
    assert parse_size_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "K", "-1", "1.5K", "64KK", "0x10", "1T", "\u0661", "\u00b2K", "1 K"])
def test_parse_size_raises(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; write bytes or a number with K, M or G, such as 64K"):
        parse_size_bytes(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0"), (1, "1"), (1023, "1023"), (1024, "1K"), (1536, "1536"), (2**20, "1M"), (2**40, "1024G")],
)
def test_format_size(nbytes: int, text: str) -> None:
    assert format_size(nbytes) == text


@given(st.integers(0, 2**50))
def test_format_size_is_read_back(nbytes: int) -> None:
    assert parse_size_bytes(format_size(nbytes)) == nbytes


@pytest.mark.parametrize(
    ("picoseconds", "text"),
    [
        (0, "0 ps"),
        (999, "999 ps"),
        (1000, "1.000 ns"),
        (1_500_000, "1.500 us"),
        (2 * 10**9, "2.000 ms"),
        (3 * 10**12, "3.000 s"),
    ],
)
def test_format_time(picoseconds: int, text: str) -> None:
    assert format_time_ps(picoseconds) == text


@pytest.mark.parametrize(
    ("text", "picoseconds"),
    [("0", 0), ("1ps", 1), ("30us", 30_000_000), ("1.5ms", 15 * 10**8), ("0.25s", 25 * 10**10), ("1.001ns", 1001)],
)
def test_times_are_read_exactly(text: str, picoseconds: int) -> None:
    assert parse_time_ps(text) == picoseconds


@pytest.mark.parametrize("text", ["", "1", "us", "1 us", "-1us", "1e3us", "1us ", "٣us", "1.us", "0.5ps", "1000001s"])
def test_invalid_times_raise(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a time|must be a whole number of ps"):
        parse_time_ps(text)


@given(st.integers(0, 10**18))
def test_an_exact_time_is_read_back(picoseconds: int) -> None:
    assert parse_time_ps(format_exact_time_ps(picoseconds)) == picoseconds
