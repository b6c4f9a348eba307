"""Flags of the built-in job over groups: what becomes of them, and every misuse, in one line before anything starts."""

import pytest

from launcher.options import parse
from launcher.run.prepare import check_flags, prepare
from sipsim.records.job import Job

GRID = "--topology torus_2d --shape 3x2"


def job_of(words: str) -> Job:
    chosen = parse(words.split())
    check_flags(chosen)
    return prepare(chosen).job


@pytest.mark.parametrize(
    ("words", "groups"),
    [
        ("--sips 4", ()),
        ("--sips 4 --group 2,0", ((2, 0),)),
        ("--sips 4 --group halves", ((0, 1), (2, 3))),
        (f"{GRID} --sips 6 --group rows", ((0, 1, 2), (3, 4, 5))),
        (f"{GRID} --sips 6 --group columns", ((0, 3), (1, 4), (2, 5))),
    ],
)
def test_groups(words: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert job_of(f"{words} --collective all_reduce").groups == groups


@pytest.mark.parametrize(
    ("words", "n_elems"),
    [
        ("all_reduce --bytes 64,66", (32, 33)),
        ("all_gather --bytes 64,79", (8, 9)),
        ("all_gather --group 1,2 --bytes 64", (16,)),
        ("reduce_scatter --n-elem 5", (5,)),
        ("reduce_scatter -b 16 -e 64 -f 4 --dtype f32", (1, 4)),
    ],
)
def test_sizes_are_those_of_the_larger_tensor(words: str, n_elems: tuple[int, ...]) -> None:
    """As in nccl-tests, and what is no whole number of elements is left out."""
    assert job_of(f"--sips 4 --collective {words}").n_elems == n_elems


@pytest.mark.parametrize(
    ("words", "collective", "names", "is_auto"),
    [
        ("--algorithm ring", "all_reduce", ("ring",), False),
        ("--collective all_gather", "all_gather", None, True),
        ("--collective all_gather --algorithm auto", "all_gather", None, True),
        ("--collective all_gather --algorithm auto,ring", "all_gather", None, False),
        ("--collective all_gather --set defaults.algorithm=ring", "all_gather", ("ring",), False),
        ("--collective all_gather --set defaults.algorithm=ring --algorithm auto", "all_gather", None, True),
    ],
)
def test_algorithms(words: str, collective: str, names: tuple[str, ...] | None, is_auto: bool) -> None:
    job = job_of(f"--sips 4 --bytes 64K,1M {words}")
    assert (job.collective, len(job.algorithms)) == (collective, 2)
    assert names is None or job.algorithms == (names, names)
    assert job.is_auto or not is_auto


@pytest.mark.parametrize(("words", "wanted"), [("", True), ("--in-place", True), ("--out-of-place", False)])
def test_in_place(words: str, wanted: bool) -> None:
    assert job_of(f"--sips 4 --collective all_reduce {words}").in_place is wanted
