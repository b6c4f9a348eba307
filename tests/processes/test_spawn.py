"""``mp.spawn`` in a script of PyTorch's shape, under ``ahbm-launch`` and as a Python program of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ahbm_sim.testing import launched

pytestmark = pytest.mark.processes
END_S = 600.0
HEAD = """
import os
import signal
import sys

import numpy as np

import ahbm_sim.torch as torch
import ahbm_sim.torch.distributed as dist
import ahbm_sim.torch.multiprocessing as mp
from ahbm_sim.torch import DPPolicy

MAIN = __name__ == "__main__"
"""
SUM = """
def work(rank, world_size, values):
    assert not MAIN and os.environ["WORLD_SIZE"] == str(world_size)
    dist.init_process_group("ahbm", rank=rank, world_size=world_size)
    tensor = torch.zeros(16, len(values), dtype=torch.float32, dp=DPPolicy(num_cubes=16))
    tensor.copy_(torch.from_numpy(np.tile(values, (16, 1)) + rank))
    dist.all_reduce(tensor)
    assert (tensor.numpy() == world_size * values + sum(range(world_size))).all()
    print(f"rank {rank} of {dist.get_world_size()}: {tensor.numpy()[0, 0]}")


if __name__ == "__main__":
    print("once", sys.argv[1:])
    mp.spawn(work, args=(2, np.arange(3, 8, dtype=np.float32)), nprocs=2)
    print("after")
"""
FAILING = """
def work(rank, how):
    if rank == 1:
        if how == "exit":
            os._exit(3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        1 / 0


if __name__ == "__main__":
    try:
        context = mp.spawn(work, args=(sys.argv[1],), nprocs=2, join=sys.argv[2] == "join")
        context.join()
    except mp.ProcessRaisedException as error:
        print("raised", error.error_index, "in work" in str(error), "ZeroDivisionError" in str(error))
    except mp.ProcessExitedException as error:
        print("exited", error.error_index, error.exit_code, error.signal_name)
"""


class Ended(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


def python(folder: Path, source: str, *args: str) -> Ended:
    """The script as a Python program of its own."""
    (folder / "script.py").write_text(HEAD + source)
    root = str(Path(__file__).resolve().parents[2])
    words = [sys.executable, str(folder / "script.py"), *args]
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=END_S)
    return Ended(done.returncode, done.stdout, done.stderr)


def launch(folder: Path, source: str, *args: str, flags: tuple[str, ...] = ("--sips", "2")) -> Ended:
    (folder / "script.py").write_text(HEAD + source)
    done = launched("-q", *flags, "script.py", *args, cwd=folder, timeout_s=END_S)
    return Ended(done.exit_code, done.stdout, done.stderr)


def test_a_script_runs_once_and_its_worker_on_every_rank(tmp_path: Path) -> None:
    """By hand: 2 * 3 + 0 + 1. Standard error has the ranks' output under ahbm-launch."""
    alone, under = python(tmp_path, SUM, "x"), launch(tmp_path, SUM, "x")
    for done in (alone, under):
        assert done.exit_code == 0, done.stderr
        text = done.stdout + done.stderr
        assert done.stdout.splitlines()[0] == "once ['x']"
        assert done.stdout.splitlines()[-1] == "after"
        assert all(text.count(f"rank {rank} of 2: 7.0") == 1 for rank in range(2))
        assert text.count("once") == 1


@pytest.mark.parametrize("join", ["join", "later"])
@pytest.mark.parametrize(
    ("how", "said"),
    [("raise", "raised 1 True True"), ("exit", "exited 1 3 None"), ("kill", f"exited 1 {-signal.SIGKILL} SIGKILL")],
)
def test_a_failed_rank_is_an_exception_of_the_script(tmp_path: Path, how: str, said: str, join: str) -> None:
    """A program goes on; the exit code of ahbm-launch is that of the run."""
    alone = python(tmp_path, FAILING, how, join)
    assert (alone.exit_code, alone.stdout.splitlines()[-1]) == (0, said)
    under = launch(tmp_path, FAILING, how, join)
    assert (under.exit_code, under.stdout.splitlines()[-1]) == (5 if how == "raise" else 4, said)


CALL = "def work(rank):\n    pass\n\n\nif MAIN:\n    {}\n"


@pytest.mark.parametrize(
    ("call", "flags", "says"),
    [
        ("mp.spawn(work, nprocs=4)", (), "nprocs=4, and the system has 2 SIPs"),
        ("mp.spawn(work, nprocs=2, topology='ring_1d')", (), "topology=... is refused under ahbm-launch"),
        ("mp.spawn(work, nprocs=2); mp.spawn(work, nprocs=2)", (), "ahbm-launch makes one run"),
        ("mp.spawn(lambda rank: 0, nprocs=2)", (), "a lambda has no module-level name"),
        ("mp.spawn(work, args=({1},), nprocs=2)", (), "args[0] is a set"),
        ("mp.spawn", (), "neither calls mp.spawn nor defines worker"),
        ("mp.spawn(work, nprocs=True)", (), "nprocs=True: must be a whole number"),
        ("torch.zeros(3); mp.spawn(work, nprocs=2)", (), "torch.zeros: this process runs no rank"),
    ],
)
def test_refused_in_one_line(tmp_path: Path, call: str, flags: tuple[str, ...], says: str) -> None:
    done = launch(tmp_path, CALL.format(call))
    assert done.exit_code == (5 if "torch.zeros" in says else 2)
    (line,) = [line for line in done.stderr.splitlines() if says in line]
    assert len(done.stderr.splitlines()) == 1 or "torch.zeros" in line


def test_a_call_on_a_rank_is_refused(tmp_path: Path) -> None:
    """Without the guard, each rank that loads the script calls spawn again."""
    for run in (python, launch):
        done = run(tmp_path, CALL.format("pass") + "mp.spawn(work, nprocs=2)\n")
        assert done.exit_code
        assert "mp.spawn: called on a rank" in done.stdout + done.stderr


def test_a_module_of_the_working_folder(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        HEAD + CALL.replace("    pass", "    print('rank', rank)").format("mp.spawn(work, nprocs=2)")
    )
    done = launched("-q", "-m", "script", cwd=tmp_path, timeout_s=END_S)
    assert (done.exit_code, sorted(done.stderr.splitlines())) == (0, ["[rank 0] rank 0", "[rank 1] rank 1"])


def test_a_program_chooses_its_system(tmp_path: Path) -> None:
    source = CALL.replace("    pass", "    print('rank', rank)")
    done = python(tmp_path, source.format("mp.spawn(work, nprocs=4, topology='torus_2d', engine='inproc')"))
    assert (done.exit_code, done.stdout.splitlines()) == (0, [f"rank {rank}" for rank in range(4)])
    wrong = python(tmp_path, source.format("mp.spawn(work, nprocs=3, topology='torus_2d')"))
    assert wrong.exit_code == 1
    assert "square" in wrong.stderr.splitlines()[-1]


def test_a_worker_of_three_parameters_runs_as_before(tmp_path: Path) -> None:
    source = "def worker(rank, world_size, api):\n    assert torch.ones.__self__ is api\n    print('rank', rank)\n"
    done = launch(tmp_path, f"{source}\n\nif MAIN:\n    mp.spawn(worker, args=(2, 0), nprocs=2)\n")
    assert done.exit_code == 0, done.stderr
    assert sorted(done.stderr.splitlines()) == ["[rank 0] rank 0", "[rank 1] rank 1"]
