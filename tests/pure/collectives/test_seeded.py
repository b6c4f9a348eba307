"""Test data whose sums are exact, and the exact comparison."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeded import seeded_rows

from sipsim.chips.ahbm.host.builtin_job import JobData
from sipsim.collectives.schedule import RANKS, VECTOR
from sipsim.collectives.semantics import COLLECTIVES, INTERCUBE, Collective, every_rank, its_own, only_root
from sipsim.collectives.testdata import check_contributions, compare
from sipsim.core.dtypes import DTYPES, DType
from sipsim.core.errors import ConfigError

SIPS, CUBES, N = 16, 16, 64
LARGEST = SIPS * CUBES
GOLDEN = {"i32": [[-501176263, 1853398635, 113532185, -125060951]], "f16": [[5, -8, -3, 1], [-5, 7, 5, -6]]}
types = pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)


def expected_row(ranks: int, shape: tuple[int, int], dtype: DType, seed: int) -> np.ndarray:
    """The row that every row of every rank becomes, by the data of the built-in job."""
    found = JobData(COLLECTIVES.get(INTERCUBE), shape, tuple(range(ranks)), dtype, "sum", seed).result(ranks - 1, 0)
    assert found is not None
    return found


def rows_of_all(dtype: DType, ranks: int = SIPS, seed: int = 0) -> list[np.ndarray]:
    return [seeded_rows(rank, (CUBES, N), dtype, seed, ranks * CUBES) for rank in range(ranks)]


@types
def test_no_element_is_zero(dtype: DType) -> None:
    """A dropped zero could not be seen."""
    for rank in range(SIPS):
        rows = seeded_rows(rank, (CUBES, 1000), dtype, 3, LARGEST)
        assert np.all(rows != 0)
        assert np.all(rows.astype(dtype.numpy) == rows)


@types
def test_both_signs_and_the_whole_range(dtype: DType) -> None:
    rows = seeded_rows(0, (CUBES, 1000), dtype, 0, LARGEST)
    limit = np.iinfo(dtype.numpy).max if dtype.exact_int is None else dtype.exact_int // LARGEST
    assert rows.min() < -limit * 0.9
    assert rows.max() > limit * 0.9
    assert np.abs(rows).max() <= limit
    if dtype.name == "f16":
        assert set(np.unique(rows)) == {*range(-8, 0), *range(1, 9)}


@pytest.mark.parametrize("dtype", [DTYPES["f16"], DTYPES["bf16"], DTYPES["f32"]], ids=str)
@pytest.mark.parametrize("order", ["in order", "backwards", "pairwise", "worst first"])
def test_floating_sums_are_exact_in_any_order_at_16_sips_of_16_cubes(dtype: DType, order: str) -> None:
    """Every partial sum in the type equals the integer's."""
    rows = np.concatenate(rows_of_all(dtype))
    if order == "worst first":
        rows = np.sort(rows, axis=0)
    terms = list(rows.astype(dtype.numpy))
    if order == "backwards":
        terms.reverse()
    if order == "pairwise":
        while len(terms) > 1:
            terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    assert total.dtype == dtype.numpy
    assert np.array_equal(total.astype(np.int64), rows.sum(axis=0))
    assert compare(total, expected_row(SIPS, (CUBES, N), dtype, 0)).elements == 0


@pytest.mark.parametrize("name", ["i32", "i8"])
def test_integers_wrap(name: str) -> None:
    """The sum of 256 large numbers leaves the type, and the expectation wraps with it."""
    dtype = DTYPES[name]
    rows = np.concatenate(rows_of_all(dtype))
    assert np.any(np.abs(rows.sum(axis=0)) >= 2 ** (8 * dtype.itemsize - 1))
    total = np.zeros(N, dtype.numpy)
    with np.errstate(over="ignore"):
        for row in rows:
            total += row.astype(dtype.numpy)
    assert compare(total, expected_row(SIPS, (CUBES, N), dtype, 0)).elements == 0


@types
def test_a_dropped_contribution_shows_in_every_element(dtype: DType) -> None:
    expected = expected_row(4, (CUBES, N), dtype, 0)
    for rank, rows in enumerate(rows_of_all(dtype, ranks=4)):
        for cube, row in enumerate(rows):
            with np.errstate(over="ignore"):
                without = (expected.astype(np.int64) - row).astype(dtype.numpy)
            assert compare(without, expected).elements == N, f"rank {rank}, cube {cube}"


def test_a_sum_of_rows_follows_the_definition() -> None:
    """Who needs it, and which part."""
    reduce = Collective("reduce_rows", "", VECTOR, every_rank, only_root, ("sum",), True, True)
    scatter = Collective("scatter_rows", "", RANKS, every_rank, its_own, ("sum",), per_cube=True)
    whole = expected_row(SIPS, (CUBES, N), DTYPES["f32"], 0)
    made = [JobData(row, (CUBES, N), tuple(range(SIPS)), DTYPES["f32"], "sum", 0) for row in (reduce, scatter)]
    for rank in range(SIPS):
        found, part = (data.result(rank, 3) for data in made)
        assert np.array_equal(found, whole) if rank == 3 else found is None
        assert np.array_equal(part, np.split(whole, SIPS)[rank])


@types
def test_no_two_contributions_are_equal(dtype: DType) -> None:
    """Two rows that are the same could be exchanged unseen."""
    rows = np.concatenate(rows_of_all(dtype, ranks=4))
    assert len({row.tobytes() for row in rows}) == len(rows)


@types
@given(data=st.data())
def test_changing_any_one_element_is_seen(dtype: DType, data: st.DataObject) -> None:
    """By a single bit, and where it is."""
    expected = expected_row(2, (4, 8), dtype, 1)
    got = np.array(np.broadcast_to(expected, (4, 8)))
    row, column = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 7))
    bit = data.draw(st.integers(0, dtype.itemsize * 8 - 1))
    bits = got.view(f"u{dtype.itemsize}")
    bits[row, column] ^= 1 << bit
    wrong = compare(got, expected)
    assert wrong.elements == 1
    assert wrong.first == f"first wrong at [{row}, {column}]: expected {expected[column]}, got {got[row, column]}"


def test_signed_zero_is_compared_by_its_bits() -> None:
    zero = np.zeros(1, "<f2")
    assert compare(-zero, zero).elements == 1


@pytest.mark.parametrize("name", ["f16", "bf16", "f32"])
def test_any_nan_equals_any_nan(name: str) -> None:
    kind = DTYPES[name].numpy
    got = np.array([1, np.nan, np.nan, 4], kind)
    got.view(f"u{kind.itemsize}")[1] ^= 1 << (8 * kind.itemsize - 1)
    assert compare(got, np.array([1, np.nan, np.nan, 4], kind)).elements == 0
    assert compare(got, np.array([2, np.nan, 3, np.nan], kind)).elements == 3


def test_the_first_of_several_and_their_number() -> None:
    expected = np.arange(6, dtype="<i4")
    got = np.array([expected, expected])
    got[0, 4], got[1, 0], got[1, 1] = 40, 7, 8
    assert compare(got, expected) == (3, "first wrong at [0, 4]: expected 4, got 40")


def test_golden_values() -> None:
    """They are in published digests."""
    assert seeded_rows(0, (1, 4), DTYPES["i32"], 0, 4).tolist() == GOLDEN["i32"]
    assert seeded_rows(1, (2, 4), DTYPES["f16"], 7, 256).tolist() == GOLDEN["f16"]


def test_other_seeds_and_ranks_give_other_data() -> None:
    data = {seeded_rows(rank, (2, 8), DTYPES["i32"], seed, 4).tobytes() for rank in range(4) for seed in range(4)}
    assert len(data) == 16


def test_seeds_of_any_size() -> None:
    assert seeded_rows(3, (2, 2), DTYPES["f32"], 2**80 + 1, 4).shape == (2, 2)


@pytest.mark.parametrize(("name", "most"), [("f16", 2048), ("bf16", 256), ("f32", 2**24)])
def test_more_contributions_than_can_be_exact(name: str, most: int) -> None:
    check_contributions(DTYPES[name], most)
    assert np.all(np.abs(seeded_rows(0, (1, 100), DTYPES[name], 0, most)) == 1)
    message = f"{most + 1} contributions cannot be summed exactly in {name}; use --dtype f32 or --dtype i32"
    with pytest.raises(ConfigError, match=f"^{message}$"):
        check_contributions(DTYPES[name], most + 1)


@pytest.mark.parametrize("name", ["i32", "i8"])
def test_integers_have_no_limit(name: str) -> None:
    check_contributions(DTYPES[name], 2**40)
