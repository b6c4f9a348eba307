"""``--explain`` from the command line: exit codes, and Ctrl-C in a run with a change."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import launched

ROOT = Path(__file__).parents[2]
SMALL = ("--sips", 2, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2", "--bytes", "8K")


@pytest.mark.parametrize("engine", ["local", "inproc"])
def test_the_explanation_is_the_same_on_every_engine(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "told.json"
    done = launched(*SMALL, "--explain", "--explain-reruns", 1, "--engine", engine, "--json", file)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("# where the time went: ") for line in lines)
    assert any(line.endswith("measured in a rerun") for line in lines)
    document = json.loads(file.read_text())
    (told,), (row,) = document["explain"], document["runs"]
    assert told["what_if"][0]["rerun_saved_ps"] is not None
    assert sum(part["ps"] for part in told["parts"]) == told["until_ps"] - told["since_ps"] == row["time_ns"] * 1000


def test_ctrl_c_in_a_run_with_a_change_is_told_by_the_exit_code(tmp_path: Path) -> None:
    """The script interrupts its launcher when it runs for the second time."""
    script = tmp_path / "twice.py"
    script.write_text(
        "import os, signal\n"
        "def worker(rank, world_size, torch):\n"
        "    torch.distributed.init_process_group()\n"
        "    torch.distributed.all_reduce(torch.ones((4, 64)))\n"
        f"    seen = {str(tmp_path / 'seen')!r}\n"
        "    if rank == 0 and os.path.exists(seen):\n"
        "        os.kill(int(os.environ['LAUNCHER_PID']), signal.SIGINT)\n"
        "    if rank == 0:\n"
        "        open(seen, 'w').close()\n"
    )
    flags = ["--explain", "--explain-reruns", "1", "--no-verify-data", "--engine", "inproc", str(script)]
    command = [sys.executable, "-c", LAUNCH, *map(str, SMALL[:6]), *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=600
    )
    assert done.returncode == 128 + signal.SIGINT, done.stderr
    assert "failed: interrupted by Ctrl-C" in done.stderr
    assert "# digest " in done.stdout


LAUNCH = (
    "import os, sys; os.environ['LAUNCHER_PID'] = str(os.getpid()); "
    "from launcher.commands.launch import main; sys.exit(main())"
)
