"""Every victim, killed at random moments by ``scripts/kill_matrix.py``; few moments here, more by hand."""

import subprocess
import sys

import pytest
from launch import CHECKOUT

pytestmark = pytest.mark.processes

SCRIPT = CHECKOUT / "scripts" / "kill_matrix.py"
sys.path.insert(0, str(SCRIPT.parent))

from kill_matrix import CELLS  # noqa: E402

END_S = 300
MOMENTS = 1


@pytest.fixture(scope="module")
def filled() -> "subprocess.CompletedProcess[str]":
    argv = ["--moments", str(MOMENTS), "--bytes", "1M", "--seed", "5"]
    return subprocess.run([sys.executable, SCRIPT, *argv], capture_output=True, text=True, timeout=END_S)


@pytest.mark.parametrize(("victim", "may"), CELLS)
def test_a_run_ends_as_it_must(victim: str, may: str, filled: "subprocess.CompletedProcess[str]") -> None:
    (row,) = [line.split() for line in filled.stdout.splitlines() if line.split()[:2] == [victim, may]]
    runs, late = int(row[2]), int(row[3])
    assert (runs - late, row[-1]) == (MOMENTS, "none"), filled.stdout + filled.stderr


def test_what_is_no_cell() -> None:
    command = [sys.executable, SCRIPT, "--cells", "sip:resume"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S)
    assert done.returncode == 2
    assert "unknown cell 'sip:resume'; allowed: sip:die, server:die" in done.stderr
