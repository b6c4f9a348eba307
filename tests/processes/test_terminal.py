"""Output on a terminal only: the progress line, in simulated time, and a closed pipe."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.processes


def on_terminal(words: list[str], gate: Path) -> str:
    """Everything that the command writes to a terminal. The gate opens when a line of progress is there."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "120"}
    command = subprocess.Popen([sys.executable, "-m", "launcher", *words], stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
            if b"simulated " in seen and gate.exists():
                gate.write_text("go")
                gate.unlink()
    except OSError:
        pass  # Linux ends a terminal's reading with EIO when its last writer has gone.
    finally:
        os.close(ours)
    assert command.wait() == 0
    return seen.decode()


def test_a_run_that_lasts_shows_simulated_time_and_then_the_table(tmp_path: Path) -> None:
    """Its script stands until the line is there."""
    os.mkfifo(tmp_path / "gate")
    path = tmp_path / "script.py"
    path.write_text(
        "def worker(rank, world_size, torch):\n"
        "    torch.distributed.init_process_group()\n"
        f"    rank or open({str(tmp_path / 'gate')!r}).read()\n"
    )
    seen = on_terminal(["--sips", "2", str(path)], tmp_path / "gate")
    assert " us in " in seen or " ps in " in seen
    assert seen.rstrip().splitlines()[-1].startswith("# digest ")


def test_a_closed_pipe_is_no_error_of_the_probe(tmp_path: Path) -> None:
    """The file is written; nobody reads standard output."""
    file = tmp_path / "probe.json"
    words = ["--from", "0.0.0", "--to", "0.1.0", "--json", str(file)]
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "launcher.probe.command", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=600)
    os.close(writer)
    assert (done.returncode, done.stderr, file.is_file()) == (0, "", True)
