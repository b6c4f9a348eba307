"""Every victim, killed at random moments by ``scripts/kill_matrix.py``; few moments here, more by hand."""

import subprocess
import sys

import pytest
from launch import CHECKOUT

# One worker runs it all, so that the matrix is filled once.
pytestmark = [pytest.mark.fault, pytest.mark.processes, pytest.mark.xdist_group("kill matrix")]

SCRIPT = CHECKOUT / "scripts" / "kill_matrix.py"

from kill_matrix import CELLS  # noqa: E402

END_S = 900
FEW = (
    *(("server", "die"), ("launcher", "die"), ("agent", "restart")),
    *(("sip", "again"), ("broker", "resume"), ("agent-sip", "pause")),
)
"""Each victim once, and each thing that a run may do; what the others assert has tests of its own."""
MATRICES = {"few": ("1", "1M", FEW), "all": ("3", "4M", CELLS)}


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest) -> "tuple[str, subprocess.CompletedProcess[str]]":
    """How many moments each cell has, and the run that prints the table."""
    moments, nbytes, cells = MATRICES[request.param]
    argv = ["--moments", moments, "--bytes", nbytes, "--seed", "5", "--cells", ",".join(map(":".join, cells))]
    return moments, subprocess.run([sys.executable, SCRIPT, *argv], capture_output=True, text=True, timeout=END_S)


@pytest.mark.parametrize(
    ("matrix", "victim", "may"),
    [*(("few", *cell) for cell in FEW), *(pytest.param("all", *cell, marks=pytest.mark.slow) for cell in CELLS)],
    indirect=["matrix"],
    scope="module",
)
def test_a_run_ends_as_it_must(victim: str, may: str, matrix: "tuple[str, subprocess.CompletedProcess[str]]") -> None:
    moments, done = matrix
    (row,) = [line.split() for line in done.stdout.splitlines() if line.split()[:2] == [victim, may]]
    runs, late = int(row[2]), int(row[3])
    assert (runs - late, row[-1]) == (int(moments), "none"), done.stdout + done.stderr


def test_what_is_no_cell() -> None:
    command = [sys.executable, SCRIPT, "--cells", "sip:resume"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=END_S)
    assert done.returncode == 2
    assert "unknown cell 'sip:resume'; allowed: sip:die, server:die" in done.stderr
