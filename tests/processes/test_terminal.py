"""Output on a terminal only: the progress line, in simulated time."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.processes

LONG = ["--sips", "4", "--topology", "torus_2d", "--bytes", "2M", "--no-verify-data"]


def on_terminal(words: list[str]) -> str:
    """Everything that the command writes to a terminal."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}
    command = subprocess.Popen([sys.executable, "-m", "launcher", *words], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:
        pass  # Linux ends a terminal's reading with EIO when its last writer has gone.
    finally:
        os.close(ours)
    assert command.wait() == 0
    return seen.decode()


def test_long_run_shows_simulated_time() -> None:
    seen = on_terminal(LONG)
    assert "simulated " in seen
    assert " us in " in seen
    assert seen.rstrip().splitlines()[-1].startswith("# digest ")


def test_pipe_gets_only_the_table() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "launcher", *LONG, "--bytes", "1M"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.splitlines()) == 8


def test_a_closed_pipe_is_no_error_of_the_probe(tmp_path: Path) -> None:
    """The file is written; nobody reads standard output."""
    file = tmp_path / "probe.json"
    words = ["--from", "0.0.0", "--to", "0.1.0", "--json", str(file)]
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "launcher.probe.command", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr, file.is_file()) == (0, "", True)
