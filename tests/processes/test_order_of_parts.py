"""Parts of users over processes and restarts: one digest, and what becomes of faults of their order.

A fault is a memory of ``lab.disorder``, whose accesses wait for a time that depends on more than simulated time. It is
refused at the call, or two runs differ, or a restarted rank does.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from launch import CHECKOUT, Done, launched

pytestmark = pytest.mark.processes

HELPERS = CHECKOUT / "tests/inproc/helpers"
SMALL = ("--sips", 2, "--topology", "ring_1d", "--set", "sip.cube_mesh={w: 2, h: 1}", "--bytes", "16K")
RINGS = ("--set", "defaults.buffer_kind=hbm")
KILLED = ("--max-restarts", 1, "--fault")


def start(folder: Path, *flags: object, **more: str) -> Done:
    return launched(*SMALL, *RINGS, "--json", folder / "out.json", *flags, PYTHONPATH=str(HELPERS), **more)


def fault(name: str) -> tuple[str, str]:
    return "--set", f"hbm={{kind: lab.disorder, params: {{fault: {name}}}}}"


@pytest.fixture(scope="module")
def middle_ps(tmp_path_factory: pytest.TempPathFactory) -> int:
    """A time in a run of ``computing``, which is repeatable: messages have been sent, and credits have not. The other
    SIP, which needs these, takes the repeated messages before them.
    """
    done = start(tmp_path_factory.mktemp("end"), "--engine", "inproc", *fault("computing"))
    end_ps: int = done.document["ranks"][1]["sim_end_ps"]
    return end_ps * 6 // 10


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """The document of a run of a fault in one process, made once."""
    return cache(lambda name: start(tmp_path_factory.mktemp("one"), "--engine", "inproc", *fault(name)).document)


@pytest.mark.fault
@pytest.mark.parametrize("name", ["clock", "random", "numpy random", "process id"])
def test_a_restarted_rank_that_differs_is_named(name: str, tmp_path: Path, middle_ps: int) -> None:
    done = start(tmp_path, *KILLED, f"kill:1@{middle_ps}ps", *fault(name))
    assert (done.exit_code, done.document["error"]["kind"], done.document["digest"]) == (4, "nondeterministic", None)


@pytest.mark.fault
@pytest.mark.parametrize("name", ["clock", "random", "numpy random", "process id", "identities"])
def test_two_runs_differ(name: str, tmp_path: Path, in_one_process: Callable[[str], Any]) -> None:
    digests = {in_one_process(name)["digest"], start(tmp_path, "--engine", "inproc", *fault(name)).document["digest"]}
    assert len(digests - {None}) == 2


@pytest.mark.fault
@pytest.mark.parametrize("name", ["strings", "hashes"])
def test_two_seeds_of_python_s_hashes_differ(name: str, tmp_path: Path) -> None:
    """Each run has another one, unless the user sets it."""
    runs = [start(tmp_path, "--engine", "inproc", *fault(name), PYTHONHASHSEED=seed) for seed in ("1", "2", "1")]
    first, other, again = (done.document["digest"] for done in runs)
    assert first == again != other


@pytest.mark.fault
def test_state_that_sips_share_differs_between_engines(tmp_path: Path, in_one_process: Callable[[str], Any]) -> None:
    digests = {in_one_process("shared")["digest"], start(tmp_path, *fault("shared")).document["digest"]}
    assert len(digests - {None}) == 2


@pytest.mark.fault
def test_wall_time_that_passes_changes_nothing(
    tmp_path: Path, in_one_process: Callable[[str], Any], middle_ps: int
) -> None:
    """The reference for all others: such a memory without a fault has one digest."""
    done = start(tmp_path, *KILLED, f"kill:1@{middle_ps}ps", *fault("computing"))
    assert done.document["digest"] == in_one_process("computing")["digest"] is not None
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 1]
