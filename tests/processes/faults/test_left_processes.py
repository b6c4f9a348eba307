"""Processes that code of a user forks or starts: they have no part in the run, end with it, and are named.

That none is left, at any depth, is checked after each test by a mark in their environment.
"""

import os
import re
import signal

import pytest
from failing_runs import RING, Standing
from launch import ALL_REDUCE, STAND, Done, launched, launching, script

pytestmark = pytest.mark.processes

LEFT = re.compile(
    r"ahbm-launch: (.*) left (?:a process|[0-9]+ processes) \(pids? [0-9, ]+\) running, ended by the launcher"
)
ENDLESS = "os.read(os.pipe()[0], 1)"
ENGINES = pytest.mark.parametrize("engine", ["local", "inproc"])
FORK = f"if os.fork() == 0: {ENDLESS}"
WAYS = {
    "fork": FORK,
    "one that ignores SIGTERM": f"""
ready, tell = os.pipe()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(tell, b"!")
    {ENDLESS}
os.read(ready, 1)
""",
    "one with a child": f"if os.fork() == 0:\n    os.fork()\n    {ENDLESS}",
    "a daemon": f"if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: {ENDLESS}\n    os._exit(0)",
    "multiprocessing": """
import multiprocessing
multiprocessing.get_context("fork").Process(target=os.read, args=(os.pipe()[0], 1)).start()
""",
    "a program": "import subprocess\nsubprocess.Popen(['sleep', '1000'], start_new_session=True)",
    "jobs of a shell": "os.system('sleep 1000 & sleep 1000 &')",
}
"""How to leave a process."""


def on_rank_1(body: str) -> str:
    return "if rank == 1:\n    " + body.strip().replace("\n", "\n    ")


def left_by(done: Done) -> list[str]:
    """Whose processes were left, as the launcher tells it, a line each."""
    found = [LEFT.match(line) for line in done.stderr.splitlines()]
    return [each[1] for each in found if each is not None]


@pytest.fixture(scope="module")
def digest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of the run without such processes."""
    return launched(*RING, script(tmp_path_factory.mktemp("plain"), f"{ALL_REDUCE}\n{ALL_REDUCE}")).digest


@ENGINES
@pytest.mark.parametrize("way", WAYS)
def test_they_end_with_the_run_and_are_named(tmp_path, digest, engine, way):
    path = script(tmp_path, f"{ALL_REDUCE}\n{on_rank_1(WAYS[way])}\n{ALL_REDUCE}")
    done = launched(*RING, "--engine", engine, path)
    assert (done.exit_code, done.digest) == (0, digest)
    assert left_by(done), done.stderr
    if way in ("fork", "one that ignores SIGTERM", "multiprocessing"):
        assert all(who.startswith("rank 1") for who in left_by(done))


@ENGINES
@pytest.mark.parametrize(
    ("act", "code", "words"),
    [
        ("return", 0, ""),
        ("sys.exit(7)", 7, ""),
        ("[][3]", 1, "IndexError: "),
        (ALL_REDUCE, 1, "it cannot use the simulator"),
        ("torch.launch(lambda tl: tl.program_id(0))", 1, "it cannot use the simulator"),
    ],
)
def test_one_that_the_script_waits_for_ends_as_its_code_does(tmp_path, digest, engine, act, code, words):
    body = f"pid = os.fork()\nif pid == 0:\n    {act}\n    return\nassert os.waitpid(pid, 0)[1] == {code} << 8"
    done = launched(*RING, "--engine", engine, script(tmp_path, f"{ALL_REDUCE}\n{on_rank_1(body)}\n{ALL_REDUCE}"))
    assert (done.exit_code, done.digest, left_by(done)) == (0, digest, []), done.stderr
    assert words in done.stderr
    assert "/sipsim/" not in done.stderr


@ENGINES
def test_of_a_kernel(tmp_path, engine):
    top = f"import os\ndef kernel(tl):\n    {FORK}\n"
    path = script(tmp_path, "torch.launch(kernel)")
    path.write_text(top + path.read_text())
    done = launched(*RING, "--engine", engine, path)
    assert done.exit_code == 0
    assert len(left_by(done)) == (1 if engine == "inproc" and "kernel" in left_by(done)[0] else 3)


@pytest.mark.parametrize("restarts", [0, 1])
def test_of_a_rank_that_is_killed(tmp_path, digest, restarts):
    """Its next incarnation forks, too."""
    die = "if os.environ['AHBM_INCARNATION'] == '0': os.kill(os.getpid(), signal.SIGKILL)"
    path = script(tmp_path, "\n".join([ALL_REDUCE, on_rank_1(f"{FORK}\n{die}"), ALL_REDUCE]))
    done = launched(*RING, "--max-restarts", restarts, path)
    assert done.exit_code == (0 if restarts else 4)
    assert len(left_by(done)) == 1 + restarts
    assert not restarts or done.digest == digest


@pytest.mark.parametrize("who", ["launcher", "server", "broker"])
def test_of_a_run_whose_other_processes_are_killed(tmp_path, who):
    path = script(tmp_path, f"{FORK}\n{STAND}\n{ALL_REDUCE}")
    with launching(*RING, path) as launch:
        run = Standing(launch)
        os.kill({"launcher": launch.pid, "server": run.server, "broker": run.broker}[who], signal.SIGKILL)
        # Of all descendants of the launcher: each rank has one.
        done = launch.end()
    assert done.left_files == []
    assert done.exit_code == (-signal.SIGKILL if who == "launcher" else 4)


def test_of_code_that_runs_before(tmp_path):
    """An algorithm's module is loaded by the launcher itself; what it forks is no second launcher."""
    (tmp_path / "forks.py").write_text(
        f"import os\nif os.fork() == 0:\n    if os.fork() == 0: {ENDLESS}\nelse:\n"
        "    from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import *\n"
    )
    done = launched(
        "--sips",
        2,
        "--algorithm",
        "intercube_allreduce",
        "--set",
        "algorithms.intercube_allreduce.module=forks.py",
        "--dry-run",
        cwd=tmp_path,
    )
    assert done.exit_code == 0
    assert done.stdout.count("would run") == 1
    assert left_by(done) == ["code of a user"]
