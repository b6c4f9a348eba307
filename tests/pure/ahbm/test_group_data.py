"""The data of the built-in job over a group: its results are those of the definition, and what goes wrong shows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sipsim.chips.ahbm.host import builtin_job as group_data
from sipsim.chips.ahbm.host.builtin_job import JobData
from sipsim.collectives.call import Array
from sipsim.collectives.reduction import NO_OP
from sipsim.collectives.semantics import COLLECTIVES, Collective
from sipsim.collectives.testdata import compare
from sipsim.core.dtypes import DTYPES

SIPS = (5, 2, 0, 7, 3)
"""Of a group of five in no order."""
SIZE = len(SIPS)
ROOT = 3
N_ELEM = 40


def definition(name: str) -> Collective:
    found = COLLECTIVES.get(name)
    return found


NAMES = [name for name in COLLECTIVES.names() if not COLLECTIVES.get(name).per_cube]
KINDS = [
    (name, op, dtype)
    for name in NAMES
    for op in definition(name).ops or (NO_OP,)
    for dtype in DTYPES
    if op != "avg" or DTYPES[dtype].is_float
]


def data_of(name: str, op: str, dtype: str) -> JobData:
    return JobData(definition(name), definition(name).elements(N_ELEM, SIZE)[:1], SIPS, DTYPES[dtype], op, 1)


def carried_out(name: str, op: str, sources: list[Array], rank: int, root: int = ROOT) -> Array | None:
    """A rank's result from the sources of all, by the definition."""
    with np.errstate(all="ignore"):
        return definition(name).result_of(sources, SIZE, root, op, rank)


def total(op: str, sources: list[Array]) -> Array:
    """All sources by an operator of NumPy."""
    reduces = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[op].reduce
    found = reduces(np.stack(sources), axis=0, dtype=sources[0].dtype)
    return np.asarray(found / found.dtype.type(SIZE) if op == "avg" else found)


def part(whole: Array, rank: int) -> Array:
    return np.split(whole, SIZE)[rank]


BY_NUMPY: dict[str, Callable[[str, list[Array], int], Array | None]] = {
    "all_gather": lambda _, all_of, rank: np.concatenate(all_of),
    "all_reduce": lambda op, all_of, rank: total(op, all_of),
    "all_to_all": lambda _, all_of, rank: np.concatenate([part(each, rank) for each in all_of]),
    "broadcast": lambda _, all_of, rank: all_of[ROOT],
    "gather": lambda _, all_of, rank: np.concatenate(all_of) if rank == ROOT else None,
    "reduce": lambda op, all_of, rank: total(op, all_of) if rank == ROOT else None,
    "reduce_scatter": lambda op, all_of, rank: part(total(op, all_of), rank),
    "scatter": lambda _, all_of, rank: part(all_of[ROOT], rank),
}


@pytest.mark.parametrize(("name", "op", "dtype"), KINDS)
def test_the_result_is_that_of_the_sources(name: str, op: str, dtype: str) -> None:
    """By the data, by the definition, and by NumPy."""
    data = data_of(name, op, dtype)
    sources = [data.source(rank) for rank in range(SIZE)]
    for rank in range(SIZE):
        wanted = BY_NUMPY[name](op, sources, rank)
        for found in (data.result(rank, ROOT), carried_out(name, op, sources, rank)):
            assert (found is None) == (wanted is None)
            if found is not None and wanted is not None:
                assert found.dtype == wanted.dtype == DTYPES[dtype].numpy
                assert compare(found, wanted).elements == 0


def reversed_sum(terms: list[Array]) -> Array:
    total = terms[-1]
    for term in terms[-2::-1]:
        total = total + term
    return total


@pytest.mark.parametrize(("name", "op", "dtype"), [kind for kind in KINDS if kind[2] in ("bf16", "i8")])
def test_it_does_not_depend_on_the_pieces_in_which_it_is_made(
    name: str, op: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> list[bytes]:
        data = data_of(name, op, dtype)
        arrays = [each(rank) for rank in range(SIZE) for each in (data.source, lambda rank: data.result(rank, ROOT))]
        return [b"" if array is None else array.tobytes() for array in arrays]

    whole = made()
    monkeypatch.setattr(group_data, "PIECE", 7)
    assert made() == whole


@pytest.mark.parametrize("dtype", [name for name in DTYPES if DTYPES[name].is_float])
def test_sums_are_exact_in_every_order(dtype: str) -> None:
    data = data_of("all_reduce", "sum", dtype)
    expected = data.result(0, 0)
    assert expected is not None
    assert compare(reversed_sum([data.source(rank) for rank in range(SIZE)]), expected).elements == 0


@pytest.mark.parametrize("dtype", [name for name in DTYPES if DTYPES[name].is_float])
def test_products_of_many_ranks_are_exact_in_every_order(dtype: str) -> None:
    """Of 64, those with a factor of 2 first: 256 is the most, 1/256 the least."""
    data = JobData(definition("all_reduce"), (8,), tuple(range(64)), DTYPES[dtype], "prod", 0)
    terms = [data.source(rank) for rank in (*range(1, 64, 2), *range(0, 64, 2))]
    total = terms[0]
    for term in terms[1:]:
        total = total * term
    expected = data.result(0, 0)
    assert expected is not None
    assert np.isfinite(expected).all()
    assert compare(total, expected).elements == 0


def without_one(name: str, op: str, sources: list[Array], rank: int) -> Array | None:
    """What is left without the contribution of one rank: its neutral element, for an average also its count."""
    less = [*sources]
    neutral = {"sum": 0, "avg": 0, "prod": 1, "max": sources[0].min(), "min": sources[0].max()}
    less[1] = np.full_like(less[1], neutral[op])
    return carried_out(name, op, less, rank)


def of_another_root(name: str, op: str, sources: list[Array], rank: int) -> Array | None:
    return carried_out(name, op, sources, rank, ROOT - 1)


def with_swapped_blocks(name: str, op: str, sources: list[Array], rank: int) -> Array | None:
    found = carried_out(name, op, sources, rank)
    if found is None:
        return None
    quarter = len(found) // 4
    return np.concatenate([found[quarter : 2 * quarter], found[:quarter], found[2 * quarter :]])


Fault = Callable[[str, str, list[Any], int], Any]


def faults() -> list[tuple[Fault, str, str, str]]:
    found: list[tuple[Fault, str, str, str]] = []
    for name, op, dtype in KINDS:
        found.append((with_swapped_blocks, name, op, dtype))
        if op != NO_OP:
            found.append((without_one, name, op, dtype))
    # Who gets the result of a reduction or of a gather is not in the data: another rank's stays what it was.
    return [*found, *((of_another_root, name, NO_OP, dtype) for name in ("broadcast", "scatter") for dtype in DTYPES)]


@pytest.mark.parametrize(("fault", "name", "op", "dtype"), faults())
def test_a_fault_shows(fault: Fault, name: str, op: str, dtype: str) -> None:
    data = data_of(name, op, dtype)
    sources = [data.source(rank) for rank in range(SIZE)]
    for rank in range(SIZE):
        expected = data.result(rank, ROOT)
        if expected is not None:
            got = fault(name, op, sources, rank)
            assert compare(got, expected).elements > 0


def test_groups_have_data_of_their_own() -> None:
    """What another group sends by mistake shows."""
    one, other = (
        JobData(definition("all_reduce"), (64,), sips, DTYPES["f16"], "sum", 0).result(0, 0)
        for sips in ((0, 1), (2, 3))
    )
    assert one is not None
    assert other is not None
    assert compare(one, other).elements > 32
