"""``--mail``: the same runs and failures with every kind of mail.

Scripts and kills are those of ``test_failures``.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from failing_runs import RING, assert_partial, kill_standing
from launch import ALL_REDUCE, CHECKOUT, END_S, Done, environment, launched, script, temporary_folder
from sweeps import crossed

from broker.mail.kinds import MAIL_KINDS

pytestmark = pytest.mark.processes

KINDS = list(MAIL_KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadlock(tmp_path: Path, kind: str) -> None:
    path = script(tmp_path, f"if rank != 1: {ALL_REDUCE}")
    done = launched(*RING, "--mail", kind, "--json", tmp_path / "out.json", path)
    assert done.exit_code == 3
    assert_partial(done, "failed", "IpcqDeadlock")
    assert "; 8 PEs wait and nothing can happen any more, at " in done.own_lines[0]
    assert [each["rank"] for each in done.document["ranks"]] == [0, 1, 2]


@pytest.mark.parametrize(("kind", "who"), crossed(KINDS, ["sip-1", "broker", "launcher"]))
def test_a_killed_process(tmp_path: Path, kind: str, who: str) -> None:
    """``kill_standing`` checks that the folder with the sockets is removed."""
    done = kill_standing(tmp_path, who, signal.SIGKILL, "--mail", kind)
    if who == "launcher":
        assert done.exit_code == -signal.SIGKILL
        return
    assert done.exit_code == 4
    assert_partial(done, "failed", "process_died")
    named = {"sip-1": "rank 1", "broker": "the broker"}[who]
    assert done.own_lines[0].startswith(f"ahbm-launch: process_died: {named} (pid ")
    assert done.own_lines[0].endswith(") was killed by SIGKILL")


@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c(tmp_path: Path, kind: str) -> None:
    done = kill_standing(tmp_path, "launcher", signal.SIGINT, "--mail", kind)
    assert done.exit_code == 130
    assert_partial(done, "interrupted", "interrupted")


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_in_every_rank_with_a_long_message(tmp_path: Path, kind: str) -> None:
    """All ranks report to the broker at once, which stops all."""
    path = script(tmp_path, f"{ALL_REDUCE}\nraise ValueError('x' * 300000)")
    done = launched(*RING, "--mail", kind, "--json", tmp_path / "out.json", path)
    assert done.exit_code == 5
    assert_partial(done, "failed", "exception")


@pytest.mark.parametrize(("kind", "length"), crossed(KINDS, [84, 91, 92, 93, 94]))
def test_a_folder_as_long_as_goes(kind: str, length: int) -> None:
    """The run's folder has this length. It is refused in one line, or the run succeeds."""
    with temporary_folder() as temp:
        done = in_a_folder_of(temp, length, kind)
    assert done.left_files == []
    if length > 84 and done.exit_code == 2:
        assert "too long for socket names; set TMPDIR to a shorter path" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    else:
        assert (done.exit_code, done.stderr) == (0, "")


def in_a_folder_of(temp: Path, length: int, kind: str) -> Done:
    """A run whose private folder, ``ahbm-`` and eight characters in TMPDIR, has a path of ``length``."""
    deep = temp / ("x" * (length - len(str(temp)) - len("//ahbm-12345678")))
    deep.mkdir()
    command = [sys.executable, "-m", "launcher", *RING, "--mail", kind]
    ended = subprocess.run(
        command, env=environment(str(deep)), cwd=CHECKOUT, capture_output=True, text=True, timeout=END_S
    )
    return Done(ended.returncode, ended.stdout, ended.stderr, None, True, os.listdir(deep))
