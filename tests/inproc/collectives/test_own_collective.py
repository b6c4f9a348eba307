"""A collective of a user's module, ``lab.scatter``: named on the command line, called by a script, checked, told."""

from pathlib import Path
from typing import Any

import lab.scatter_ring
import pytest
from lab.gather import GATHER
from runs import Run, run, script_file

from sipsim.collectives.schedule import PAIRS, VECTOR
from sipsim.collectives.semantics import COLLECTIVES, define, every_rank, its_column, its_row
from sipsim.core.errors import ConfigError

SIPS, CUBES = 4, 2
SMALL = ("--sips", SIPS, "--set", f"sip.cube_mesh.w={CUBES}", "--set", "sip.cube_mesh.h=1")


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    file = tmp_path / "ccl.yaml"
    file.write_text("algorithms: {scatter_ring: {module: lab.scatter_ring, topology: none}}\n")
    return [*map(str, SMALL), "--ccl", str(file), "--algorithm", "scatter_ring"]


def script(folder: Path, body: str) -> str:
    lines = ["dist = torch.distributed", "dist.init_process_group()", *body.strip().splitlines()]
    source = "\n    ".join(["def worker(rank, world_size, torch):", *lines])
    return script_file(folder, f"import numpy as np\n{source}\n")


def failure(done: Run) -> str:
    assert done.outcome.error is not None
    return done.outcome.error.message


def test_as_the_built_in_job(flags: list[str]) -> None:
    done = run(*flags, "--collective", "lab.scatter", "--n-elem", "8,24", "-n", 2)
    first, second = done.document["runs"]
    told = {key: second[key] for key in ("collective", "algorithm", "op", "count", "bytes", "wrong", "checked")}
    assert told == {
        "collective": "lab.scatter",
        "algorithm": "scatter_ring",
        "op": "none",
        "count": 24 * SIPS * CUBES,
        "bytes": 24 * SIPS * CUBES * 2,
        "wrong": 0,
        "checked": True,
    }
    assert first["count"] == 8 * SIPS * CUBES
    assert second["busbw_GBps"] == pytest.approx(second["algbw_GBps"] * (SIPS - 1) / SIPS)
    text = done.table()
    assert "   none " in text
    assert "last bits" not in text  # nothing is added


def test_the_size_is_that_of_the_larger_tensor(flags: list[str]) -> None:
    (told,) = run(*flags, "--collective", "lab.scatter", "--bytes", 1024).document["runs"]
    assert (told["bytes"], told["count"]) == (1024, 512)
    with pytest.raises(ConfigError, match="on each of 2 cubes; use a multiple of 16 bytes, such as 992"):
        run(*flags, "--collective", "lab.scatter", "--bytes", 1000)


BODY = f"""
rows = np.arange({CUBES} * world_size * 3).reshape({CUBES}, -1)
data, piece = torch.zeros(rows.shape, dtype="i32"), torch.zeros(({CUBES}, 3), dtype="i32")
data.copy_(torch.from_numpy(rows + 1000 * rank))
dist.collective("lab.scatter")(piece, data, root=2)
assert (piece.numpy() == 2000 + rows[:, 3 * rank : 3 * rank + 3]).all()
"""


def test_from_a_script(flags: list[str], tmp_path: Path) -> None:
    done = run(*flags, script(tmp_path, BODY))
    assert done.outcome.error is None, failure(done)
    (told,) = done.document["runs"]
    assert (told["collective"], told["count"], told["wrong"], told["checked"]) == ("lab.scatter", 24, 0, True)
    assert told["busbw_GBps"] == pytest.approx(told["algbw_GBps"] * (SIPS - 1) / SIPS)


def test_a_wrong_result_is_found(flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel passes the pieces on in the wrong order: each rank but the last gets another's."""
    folder = Path(lab.scatter_ring.__file__)
    source = folder.read_text().replace("range(size - 1, 0, -1)", "range(1, size)")
    (tmp_path / "wrong_ring.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    wrong = [*flags, "--set", "algorithms.scatter_ring.module=wrong_ring"]
    for what in (("--collective", "lab.scatter", "--n-elem", 8), (script(tmp_path, BODY.partition("assert")[0]),)):
        done = run(*wrong, *what)
        (told,) = done.document["runs"]
        n_elem = told["count"] // (SIPS * CUBES)
        assert (told["wrong"], done.outcome.exit_code) == (2 * CUBES * n_elem, 1)


MISTAKES = [
    (
        "dist.collective('lab.scatter')(torch.zeros(2, 3), torch.zeros(2, 12), root=4)",
        "lab.scatter: rank 4 is not in the group, whose ranks are 0 to 3",
    ),
    (
        "dist.collective('lab.scatter')(torch.zeros(2, 3), torch.zeros(2, 9))",
        "lab.scatter: source and result have 9 and 3 elements per cube; with 4 ranks they must have 12 and 3",
    ),
    (
        "dist.collective('lab.scatter')(torch.zeros(2, 3), torch.zeros((2, 12), dtype='i32'))",
        "lab.scatter converts no types: source i32, result f16",
    ),
    (
        "dist.collective('lab.scatter')(torch.zeros(2, 3, dp=DPPolicy(num_cubes=1)), torch.zeros(2, 12))",
        "lab.scatter needs one row per cube: the tensor lies on 1 of 2 cubes",
    ),
    ("dist.collective('lab.nothing')", "cannot be imported: ModuleNotFoundError: No module named 'lab.nothing'"),
    ("dist.gather_all(torch.zeros(2, 3))", "'Distributed' object has no attribute 'gather_all'"),
    (
        "dist.collective('lab.scatter')(torch.zeros(2, 3), torch.zeros(2, 12), root=rank // 3)",
        "rank 0 calls lab.scatter of 24 f16 (none, 0), rank 3 lab.scatter of 24 f16 (none, 1)",
    ),
]


@pytest.mark.parametrize(("body", "message"), MISTAKES, ids=[message.partition(":")[0][:40] for _, message in MISTAKES])
def test_what_is_refused(flags: list[str], tmp_path: Path, body: str, message: str) -> None:
    assert message in failure(run(*flags, script(tmp_path, body)))


@pytest.mark.ideal
def test_a_kernel_that_takes_other_arguments_is_refused(flags: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        run(*map(str, SMALL), "--collective", "lab.scatter", "--n-elem", 8)
    assert "the source's address, the result's address, the root, 4 of kernel_args, rank, " in str(caught.value)


def test_methods_of_the_registered_collectives(tmp_path: Path) -> None:
    """Names that the registry lists are attributes with a docstring, and dir() has them."""
    body = "assert 'intercube_all_reduce' in dir(dist)\nassert 'sum of all rows' in dist.intercube_all_reduce.__doc__"
    done = run(*SMALL, script(tmp_path, body))
    assert done.outcome.error is None, failure(done)
    assert {"intercube", "all_reduce", "all_to_all"} < set(COLLECTIVES.names())


def test_a_name_in_a_message_imports_nothing() -> None:
    assert COLLECTIVES.loaded("lab.scatter") is not None
    assert COLLECTIVES.loaded("lab.scatter_ring") is None


GATHER_BODY = f"""
data, rows = torch.zeros(({CUBES}, 3), dtype="i32"), torch.zeros(({CUBES}, 3 * world_size), dtype="i32")
data.fill_(7 + rank)
dist.collective("lab.gather")(rows, data, root=2)
"""


@pytest.mark.parametrize("wrong_results", [False, True])
def test_a_result_that_may_be_anything_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_results: bool
) -> None:
    """Of a gather, the root's result alone is defined. A definition that defines all others, too, finds them wrong."""
    if wrong_results:
        everywhere = COLLECTIVES._entries["lab.gather"]._replace(thing=GATHER._replace(needs=every_rank))
        monkeypatch.setitem(COLLECTIVES._entries, "lab.gather", everywhere)
    file = tmp_path / "gather.yaml"
    file.write_text("algorithms: {gather_ring: {module: lab.gather_ring, topology: none}}\n")
    chosen = [*SMALL, "--ccl", file, "--algorithm", "gather_ring"]
    for what in (("--collective", "lab.gather", "--n-elem", 3), (script(tmp_path, GATHER_BODY),)):
        done = run(*chosen, *what)
        (told,) = done.document["runs"]
        others = (SIPS - 1) * CUBES * 3 * (SIPS - 1) if wrong_results else 0
        assert (told["checked"], told["wrong"]) == (True, others), failure(done)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"cut": "halves"}, "halves"),
        ({"ops": ("sum", "xor")}, "xor"),
        ({"name": "all_reduce"}, "all_reduce"),
        ({"ops": ("max",), "per_cube": True}, "max"),
        ({"holds": lambda unit, rank, size: True}, "holds"),
        ({"needs": 5}, "needs"),
        ({"has_root": "yes"}, "has_root"),
        ({"needs": lambda unit, rank, size, root: unit == (rank + 1) % size}, "rank 0 of 2 needs 1 of the 2 units"),
        ({"needs": lambda unit, rank, size, root: unit == rank or rank == root}, "rank 1 of 2 needs 1 of the 2 units"),
        ({"holds": lambda unit, rank, size, root: unit == rank == 0}, "unit 1 is needed, but no rank holds it"),
        ({"cut": VECTOR, "holds": every_rank, "needs": every_rank}, "2 ranks hold unit 0, but no operator"),
        ({"cut": PAIRS, "holds": its_column, "needs": its_row}, "rank 0 of 2 holds several units at the same offset"),
    ],
)
def test_a_row_that_cannot_be_is_refused_at_once(wrong: dict[str, Any], named: str) -> None:
    before = COLLECTIVES.get("all_reduce")
    with pytest.raises((TypeError, ValueError), match=named):
        define(GATHER._replace(**{"name": "lab.none", **wrong}))
    assert COLLECTIVES.loaded("lab.none") is None
    assert COLLECTIVES.get("all_reduce") is before
