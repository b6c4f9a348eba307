"""Algorithms of a user that cannot be carried out: named they end a run before it starts; ``auto`` goes on without."""

import re
from collections import Counter
from pathlib import Path

import pytest
from runs import ccl_file, run, script_file

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.collectives.semantics import Task
from sipsim.core.errors import ConfigError

SMALL = ("--sips", 3, "--set", "sip.cube_mesh={w: 2, h: 1}", "--set", "cube.pes=2")
STAR = """
from sipsim.collectives.group import pairwise_wiring, towards
from sipsim.collectives.schedule import OWN_FIRST, Transfer, flow_of

COLLECTIVES = ("all_reduce",)
RANK_IDENTICAL = True

def wiring(group):
    return pairwise_wiring({(0, rank) for rank in range(1, group.size)})

def schedule(task):
    there = [Transfer(rank, rank, towards(0), (0,), OWN_FIRST) for rank in range(1, task.size)]
    back = [Transfer(3 + rank, 0, towards(rank), (0,)) for rank in range(1, task.size)]
    return [flow_of(1, 1, there + back, wiring(task.group))]
"""
CHANGES = {
    "two senders": (
        "Transfer(rank, rank",
        "Transfer(1, rank",
        "ranks 1 and 2 send to rank 0 in round 1 (its directions to1, to2); a rank receives once in a round",
    ),
    "no such direction": (
        "rank, towards(0)",
        "rank, towards(2)",
        "rank 1 sends in direction 'to2' in round 1, which is not in wiring(); directions of rank 1: to0",
    ),
    "no such block": ("(0,), OWN", "(4,), OWN", "rank 1 sends block 4 in round 1; with 1 unit in 1 piece blocks"),
    "an exception in schedule": (
        "there = [",
        "1 / 0\n    there = [",
        "schedule raised ZeroDivisionError: division by zero (FOLDER/mine.py:",
    ),
    "an exception in wiring": ("return pairwise", "1 / 0\n    return pairwise", "wiring raised ZeroDivisionError"),
    "an exception in suits": ("def schedule", "def suits(task):\n    1 / 0\n\ndef schedule", "suits raised ZeroDivi"),
    "no import": ("COLLECTIVES =", "import nothing_like_it\nCOLLECTIVES =", "cannot be imported: ModuleNotFoundError"),
    "no wiring": ("def wiring", "def other", "exports no wiring; define wiring as a function"),
}


def broken(folder: Path, change: str) -> tuple[list[str], str]:
    """The flags of the ccl file with a broken algorithm, and what is said of it."""
    old, new, says = CHANGES[change]
    assert STAR.count(old) == 1
    words = ccl_file(folder, STAR.replace(old, new))
    return words[:2], f"algorithms.mine.module = {folder / 'mine.py'}: {says}".replace("FOLDER", folder.name)


@pytest.mark.parametrize("change", CHANGES)
def test_a_broken_algorithm_that_is_named_starts_nothing(change: str, tmp_path: Path) -> None:
    flags, says = broken(tmp_path, change)
    job = (*SMALL, *flags, "--collective", "all_reduce", "--n-elem", 60)
    for named in ("mine", "mine,ring"):
        with pytest.raises(ConfigError, match=re.escape(says)):
            run(*job, "--algorithm", named, "--dry-run")


@pytest.mark.parametrize("named", [("--algorithm", "auto"), ("--algorithm", "all"), ()])
@pytest.mark.parametrize("change", CHANGES)
def test_others_go_on_without_it(
    change: str, named: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags, says = broken(tmp_path, change)
    done = run(*SMALL, *flags, "--collective", "all_reduce", "--n-elem", "60,90", *named)
    rows = done.document["runs"]
    assert rows
    assert all(row["wrong"] == 0 and row["algorithm"] != "mine" for row in rows)
    assert "left out" not in capfd.readouterr().err, "told by the notes of the table"
    notes = [line for line in done.table().splitlines() if "left out" in line]
    assert [note.startswith(f"# algorithm mine is left out: {says}") for note in notes] == [True]


CALLS = """def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    for n in (8, 8, 16, 8):
        dist.all_reduce(torch.zeros((n,), dp=DPPolicy(num_cubes=1)), algorithm="{}")
"""


@pytest.mark.parametrize("change", ["two senders", "an exception in schedule", "no import"])
def test_in_scripts(change: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By the name of the call an error with its line; by ``auto`` one line of the first rank."""
    flags, says = broken(tmp_path, change)
    error = run(*SMALL, *flags, script_file(tmp_path, CALLS.format("mine"))).outcome.error
    assert error is not None
    assert (error.kind, error.message.startswith(says)) == ("config", True)
    assert "script.py:5: dist.all_reduce(" in error.detail
    assert run(*SMALL, *flags, script_file(tmp_path, CALLS.format("auto"))).outcome.error is None
    told = [line for line in capfd.readouterr().err.splitlines() if "left out" in line]
    assert [line.startswith(f"algorithm mine is left out: {says}") for line in told] == [True]


def test_a_schedule_is_checked_once_for_each_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that calls the same again pays nothing; what this package has is not checked."""
    checked, check = Counter[tuple[int, str, int]](), Algorithm.check_task

    def counted(algorithm: Algorithm, task: Task) -> None:
        checked[id(algorithm), algorithm.name, task.n_elem] += 1
        check(algorithm, task)

    monkeypatch.setattr(Algorithm, "check_task", counted)
    done = run(*SMALL, *ccl_file(tmp_path, STAR)[:2], script_file(tmp_path, CALLS.format("mine")))
    assert done.outcome.error is None
    assert {(name, n_elem) for _, name, n_elem in checked} == {("mine", 8), ("mine", 16)}
    assert set(checked.values()) == {1}


def test_a_choice_among_others_is_told() -> None:
    done = run(*SMALL, "--collective", "all_reduce", "--n-elem", "8,40000", "--algorithm", "ring,auto")
    rows = done.document["runs"]
    (note,) = [note for note in done.prepared.job.notes if note.startswith("auto chose ")]
    chosen = [f"{row['algorithm']} for {row['bytes']} B" for row in rows[1::2]]
    assert note == f"auto chose {'; '.join(chosen)}"
