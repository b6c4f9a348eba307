"""Flags of the built-in job over groups: what becomes of them, and every misuse, in one line before anything starts."""

import pytest

from launcher.run.options import Usage, parse
from launcher.run.prepare import prepare
from launcher.run.validate import check_flags
from sipsim.errors import ConfigError
from sipsim.plan.job import Job

GRID = "--topology torus_2d --shape 3x2"


def job_of(words: str) -> Job:
    chosen = parse(words.split())
    check_flags(chosen)
    return prepare(chosen).job


MISUSES = [
    ("--algorithm ring,", "--algorithm: 'ring,': a name is missing; write NAME or NAME,NAME"),
    ("--algorithm ring,ring", "--algorithm: 'ring,ring' has ring 2 times; name it once"),
    ("--algorithm ring,rin", "--algorithm: unknown algorithm 'rin'; did you mean 'ring'?"),
    (
        "--algorithm all",
        "--algorithm all: the algorithms of intercube are wired before the run; name one, or add a --collective over "
        "groups, such as --collective all_reduce, which runs several (docs/collectives.md)",
    ),
    ("--algorithm rin", "--algorithm: unknown algorithm 'rin'; did you mean 'ring'?"),
    (
        "--algorithm lab/mine.py",
        "--algorithm: unknown algorithm 'lab/mine.py'; to run a file, write 'algorithms: {mine: {module: lab/mine.py, "
        "topology: none}}' in a file for --ccl, and name mine; allowed: ",
    ),
    ("--algorithm ring,mine.py", "--algorithm: unknown algorithm 'mine.py'; to run a file, write"),
    ("--collective all_reduce --algorithm all,ring", "--algorithm: all is all that there are; name it alone"),
    ("--collective all_reduce --algorithm intercube_allreduce", "cannot run this all_reduce: it is wired before"),
    ("--collective all_reduce --algorithm intercube_allreduce", "those that can: "),
    (
        "--collective all_reduce --algorithm rign",
        "did you mean 'ring'? allowed: bidirectional_ring, direct, double_tree, halv",
    ),
    ("--collective all_reduce --algorithm rign", "halving_doubling, line, multidim_ring"),
    ("--collective intercube --algorithm ring", "algorithm ring runs all_reduce"),
    ("--algorithm ring,intercube_allreduce", "they have no collective in common; name those of one"),
    ("--algorithm ring,auto x.py", "--algorithm ring,auto: a script names an algorithm in each call; give one here"),
    ("--algorithm all x.py", "--algorithm all: a script names an algorithm in each call; give one here"),
    ("--group 0,1 x.py", "--group: has no effect with a script"),
    ("--in-place x.py", "--in-place/--out-of-place: has no effect with a script"),
    ("--collective all_reduce --root 1", "--root 1: all_reduce has no root; leave it out"),
    ("--collective broadcast --root 4", "--root 4: the group has 4 ranks, 0 to 3"),
    ("--collective broadcast --group 1,2 --root 2", "--root 2: the group has 2 ranks, 0 to 1"),
    ("--collective all_gather --in-place", "--in-place: all_gather has a source and a result of its own"),
    ("--collective all_gather --op max", "--op max: all_gather moves data and combines none; leave it out"),
    ("--collective all_reduce --op avg --dtype i32", "--op avg: needs a floating type, not i32; use --op sum, or"),
    ("--collective all_reduce --bytes 1", "--bytes: all_reduce on 4 ranks takes at least 2 bytes in f16"),
    ("--collective all_gather --bytes 4", "--bytes: all_gather on 4 ranks takes at least 8 bytes in f16"),
    ("--collective all_to_all -b 4 -e 64", "-b/-e: size: all_to_all on 4 ranks takes at least 8 bytes in f16"),
    ("--collective all_reduce --layout 2x4 --n-elem 20", "--layout 2x4: 8 PEs cannot share a tensor of 20 elements"),
    ("--collective all_reduce --layout 2x9", "--layout 2x9: a SIP has 16 cubes of 8 PEs; give at most 16x8"),
    (
        "--collective all_reduce --layout 2x1 --set sip.cube_mesh.w=1 --set sip.cube_mesh.h=1 --set cube.pes=1",
        "--layout 2x1: a SIP has 1 cube of 1 PE; give at most 1x1",
    ),
    ("--collective all_reduce --layout 2", "--layout: '2' is not a shape; write WIDTHxHEIGHT, such as 3x2"),
    ("--collective all_reduce --layout 1x1 --bytes 99G", "bytes of a PE's HBM, which has room for"),
    ("--collective all_reduce --group rows", "--group rows: SIPs of topology ring_1d stand in no grid; name ranks"),
    ("--collective all_reduce --group 0,9", "--group 0,9: there is no SIP 9; ranks are 0 to 3"),
    ("--collective all_reduce --group 0,0", "--group 0,0: a rank is named twice; name each once"),
    ("--collective all_reduce --group row", "--group row: must be ranks, such as 0,1, or rows, columns, halves"),
    ("--collective all_reduce --sips 3 --group halves", "--group halves: 3 SIPs have no equal halves; name the ranks"),
    ("--group 0,1", "--group 0,1: intercube runs on all SIPs, in one layout; leave it out, or name another"),
    ("--root 1", "--root 1: intercube runs on all SIPs"),
    ("--layout 2x2", "--layout: intercube runs on all SIPs"),
    ("--out-of-place", "--out-of-place: intercube runs on all SIPs"),
]


@pytest.mark.parametrize(("words", "wanted"), MISUSES)
def test_misuse_is_one_line(words: str, wanted: str) -> None:
    sips = "" if "--sips" in words else "--sips 4 "
    with pytest.raises((ConfigError, Usage)) as caught:
        job_of(sips + words)
    text = str(caught.value)
    assert wanted in text
    assert "\n" not in text


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
