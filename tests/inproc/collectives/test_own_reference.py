"""The built-in job with a user's algorithm: its ``reference`` says what is right, the exact sum does not."""

from pathlib import Path

import pytest
from runs import Run, ccl_file, run

FLAGS = ("--sips", 2, "--set", "sip.cube_mesh={w: 2, h: 1}", "--n-elem", "6,8")
REDUCE = """
import numpy as np

def kernel_args(world_size, n_elem):
    return n_elem, world_size

def kernel(t_ptr, n_elem, world_size, tl):
    rank = tl.rank()
    row = t_ptr + tl.program_id(1) * n_elem * t_ptr.dtype.itemsize
    total = tl.load(row, n_elem)
    if rank > 0:
        total = total + tl.recv("W", n_elem, t_ptr.dtype)
    if rank < world_size - 1:
        tl.send("E", total)
    else:
        tl.store(row, total)

def neighbors(rank, world_size, built_in):
    return {way: to for way, to in {"W": rank - 1, "E": rank + 1}.items() if 0 <= to < world_size}
"""
REFERENCE = """
def reference(tensors, system):
    rows = np.concatenate(tensors)
    rows[-1] = rows.sum(axis=0, dtype=rows.dtype)
    return np.split(rows, len(tensors))
"""
"""Only the last row of the last rank gets the sum."""


def done(folder: Path, source: str, *flags: object) -> Run:
    return run(*FLAGS, *flags, *ccl_file(folder, source, topology="none", rank_per="cube"))


def test_it_is_right_by_its_reference(tmp_path: Path) -> None:
    ran = done(tmp_path, REDUCE + REFERENCE, "-n", 2)
    assert ran.outcome.error is None
    assert [(row["wrong"], row["checked"]) for row in ran.document["runs"]] == [(0, True)] * 2
    assert "last bits" not in ran.table()


def test_without_one_the_sum_is_expected_everywhere(tmp_path: Path) -> None:
    ran = done(tmp_path, REDUCE)
    assert ran.document["runs"][0]["wrong"] == 3 * 6


def test_a_kernel_that_does_something_else_is_wrong(tmp_path: Path) -> None:
    """It leaves the sum in every row, which is no more right than another number."""
    source = (REDUCE + REFERENCE).replace("rows[-1] =", "rows[0] =")
    ran = done(tmp_path, source)
    assert ran.document["runs"][0]["wrong"] == 2 * 6
    assert ran.outcome.error is not None
    assert ran.outcome.error.kind == "wrong_numbers"


def test_the_reference_changes_no_digest(tmp_path: Path) -> None:
    """Of what was simulated: op log and tensors."""
    with_one, without = done(tmp_path, REDUCE + REFERENCE), done(tmp_path, REDUCE)
    assert with_one.results() == without.results()


def test_a_rank_whose_result_may_be_anything(tmp_path: Path) -> None:
    source = REDUCE + REFERENCE.replace("return np.split(rows, len(tensors))", "return [None, rows[2:]]")
    assert [row["wrong"] for row in done(tmp_path, source).document["runs"]] == [0, 0]


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ("[rows[:1, :3]] * 2", "reference() returned float16[1, 3] for rank 0; must return float16[2, 6]"),
        ("[rows.astype(np.float64)] * 2", "reference() returned float64[4, 6] for rank 0; must return float16[2, 6]"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_reference_that_is_wrong_itself(tmp_path: Path, returned: str, says: str) -> None:
    source = REDUCE + REFERENCE.replace("np.split(rows, len(tensors))", returned)
    error = done(tmp_path, source).outcome.error
    assert error is not None
    assert error.kind == "exception"
    assert says in error.message
