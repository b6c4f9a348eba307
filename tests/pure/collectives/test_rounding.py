"""Whether ranks may differ in the last bits, derived from what an algorithm's reference does."""

from typing import Any

import numpy as np
import pytest

from launcher.options import parse
from launcher.run.prepare import prepare
from sipsim.chips.api.run_plan import RowReduction
from sipsim.collectives.reduction import rows_differ
from sipsim.core.dtypes import DTYPES

SHAPE = (2, 24)


def in_one_order(tensors: Any, system: Any) -> Any:
    return [np.concatenate(tensors).sum(axis=0, dtype=tensors[0].dtype)] * len(tensors)


def each_from_itself(tensors: Any, system: Any) -> Any:
    rows = list(np.concatenate(tensors))
    sums = []
    for rank in range(len(tensors)):
        total = rows[rank]
        for back in range(1, len(rows)):
            total = total + rows[rank - back]
        sums.append(total)
    return sums


def only_the_first(tensors: Any, system: Any) -> Any:
    return [in_one_order(tensors, system)[0], *tensors[1:]]


def rows_of_a_rank_apart(tensors: Any, system: Any) -> Any:
    """Both rows of a rank are the sum of both, each begun with its own, of three terms."""
    first, second = (np.stack([t[0] + t[1] + t[0], t[0] + t[0] + t[1]]) for t in tensors[:2])
    return [first, second, *tensors[2:]]


def fails(tensors: Any, system: Any) -> Any:
    raise ValueError("not with these")


def of_no_shape(tensors: Any, system: Any) -> Any:
    return [None] * len(tensors)


CASES = [
    (in_one_order, "f16", 3, False),
    (each_from_itself, "f16", 3, True),
    (each_from_itself, "f32", 3, True),
    (each_from_itself, "bf16", 3, True),
    (in_one_order, "bf16", 3, False),
    (each_from_itself, "i32", 3, False),
    (each_from_itself, "i8", 3, False),
    (only_the_first, "f32", 3, False),
    (rows_of_a_rank_apart, "f32", 2, True),
    (fails, "f32", 2, False),
    (of_no_shape, "f32", 2, False),
]


@pytest.mark.parametrize(("reference", "dtype", "ranks", "wanted"), CASES)
def test_rows_that_are_equal_in_integers(reference: Any, dtype: str, ranks: int, wanted: bool) -> None:
    assert rows_differ(reference, None, ranks, SHAPE, DTYPES[dtype]) is wanted


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--sips 2", False),
        ("--sips 3", True),
        ("--sips 4 --topology torus_2d", False),
        ("--sips 6 --topology torus_2d --shape 3x2", True),
        ("--sips 6 --topology mesh_2d_no_wrap --shape 3x2", False),
    ],
)
def test_the_algorithm_of_this_package(words: str, wanted: bool) -> None:
    """Two ranks add two numbers, in either order the same; a mesh adds along one chain."""
    plan = prepare(parse(words.split())).plan
    found = [
        plan.rows_differ(RowReduction("intercube", plan.algorithm.name, "sum", name, 2048))
        for name in ("f16", "f32", "i32")
    ]
    assert found == [wanted, wanted, False]


@pytest.mark.parametrize(
    ("collective", "op", "dtype", "is_identical", "wanted"),
    [
        ("all_reduce", "sum", "f16", False, True),
        ("all_reduce", "prod", "bf16", False, True),
        ("all_reduce", "avg", "f32", None, True),
        ("all_reduce", "sum", "f16", True, False),
        ("all_reduce", "max", "f16", False, False),
        ("all_reduce", "sum", "i8", False, False),
        ("reduce", "sum", "f16", False, False),
        ("reduce_scatter", "sum", "f16", False, False),
    ],
)
def test_over_a_group(collective: str, op: str, dtype: str, is_identical: bool | None, wanted: bool) -> None:
    """By what the algorithm says of itself, where several ranks get the same, rounded, combination."""
    plan = prepare(parse(["--collective", "all_reduce"])).plan
    plan.catalog.get("ring").rank_identical = is_identical
    assert plan.rows_differ(RowReduction(collective, "ring", op, dtype, 8)) is wanted
