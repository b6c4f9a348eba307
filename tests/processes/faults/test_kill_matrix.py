"""Every victim, killed at random moments by ``scripts/kill_matrix.py``; few moments here, more by hand."""

import subprocess
import sys

import pytest
from kill_matrix import CELLS
from launch import CHECKOUT, END_S

pytestmark = [pytest.mark.fault, pytest.mark.processes]

FEW = (
    *(("server", "die"), ("launcher", "die"), ("agent", "restart")),
    *(("sip", "again"), ("broker", "resume"), ("agent-sip", "pause")),
)
"""Each victim once, and each thing that a run may do; what the others assert has tests of its own."""


@pytest.mark.parametrize(
    ("moments", "nbytes", "cells"), [(1, "256K", FEW), pytest.param(3, "4M", CELLS, marks=pytest.mark.slow)]
)
def test_runs_end_as_they_must(moments: int, nbytes: str, cells: tuple[tuple[str, str], ...]) -> None:
    names = ",".join(map(":".join, cells))
    argv = ["--moments", str(moments), "--bytes", nbytes, "--seed", "5", "--cells", names]
    command = [sys.executable, CHECKOUT / "scripts" / "kill_matrix.py", *argv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * END_S)
    rows = [line.split() for line in done.stdout.splitlines()[2 : 2 + len(cells)]]
    assert [(*row[:2], int(row[2]) - int(row[3]), row[-1]) for row in rows] == [
        (*cell, moments, "none") for cell in cells
    ], done.stdout + done.stderr
