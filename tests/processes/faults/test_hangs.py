"""Code that never ends, code that makes no progress, and deadlocks: each is told with its file and line.

In ``local``, where the launcher asks the processes of SIPs, and in ``inproc``, where all is one process. Scripts print
a line when they have come to the place that a test is about; deadlines are those of the flags under test.
"""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from launch import Done, Launch, launched, launching
from sweeps import crossed, some

pytestmark = pytest.mark.processes

FLAGS = ("--sips", 2, "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=1", "-q")
RING = "algorithms:\n  ring: {module: ring.py, topology: ring_1d, rank_per: cube}\ndefaults: {algorithm: ring}\n"
ENGINES = pytest.mark.parametrize("engine", ["local", "inproc"])
IN_PROCESSES = pytest.mark.parametrize("engine", some(["local", "inproc"], "local"))
"""Where what is told in one process is asserted for other code that never ends."""
KERNELS = """
import os, time


def spin(t, tl):
    if tl.rank() == 1:
        print("here", flush=True)
        while True:
            pass
    tl.recv("W", 4, t.dtype)


def livelock(t, tl):
    if tl.rank() == 1:
        print("here", flush=True)
        while True:
            tl.load(t, 4)
    tl.recv("W", 4, t.dtype)


def wrong(t, tl):
    tl.send("E", tl.load(t, 4))
    tl.recv("E", 4, t.dtype)


def in_c(t, tl):
    if tl.rank() == 1:
        print("here", flush=True)
        sum(iter(int, 1))


def idle(t, tl):
    if tl.rank() == 1:
        print("here", flush=True)
        os.read(os.open(os.environ["GATE"], os.O_RDONLY), 1)


def worker(rank, world_size, torch):
    import sys
    if sys.argv[1] == "script":
        print("here", flush=True)
        while rank == 1:
            time.sleep(0.01)
    else:
        torch.launch(globals()[sys.argv[1]], torch.zeros(2, 4))
"""
LINES = {line.strip(): number for number, line in enumerate(KERNELS.splitlines(), start=1)}


def line_of(text: str) -> int:
    """The line of ``KERNELS`` that is ``text``, the last one if there are several."""
    return LINES[text]


SPIN, LOAD, RECV = line_of("pass"), line_of("tl.load(t, 4)"), line_of('tl.recv("E", 4, t.dtype)')


def folder_with(tmp_path: Path) -> Path:
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "ring.yaml").write_text(RING)
    (tmp_path / "ring.py").write_text("def kernel(t, n, tl): ...\ndef kernel_args(world_size, n): return (n,)\n")
    return tmp_path


def hang(tmp_path: Path, engine: str, what: str, *flags: object, **env: str) -> Done:
    words = (*FLAGS, "--ccl", "ring.yaml", "--engine", engine, "--json", tmp_path / "o.json", *flags)
    return launched(*words, "kernels.py", what, cwd=folder_with(tmp_path), **env)


def report(done: Done) -> list[str]:
    """The launcher's own lines."""
    return [line for line in done.own_lines if line != "here"]


@ENGINES
def test_an_endless_loop_is_told_by_progress_timeout(engine: str, tmp_path: Path) -> None:
    done = hang(tmp_path, engine, "spin", "--progress-timeout", 1)
    assert done.exit_code == 4
    first = report(done)[0]
    place = rf"cube 1, PE 0 runs at kernels\.py:({SPIN}|{SPIN - 1})"
    assert re.match(rf"ahbm-launch: hung: rank 0 .*has made no progress for .* s at \d.*: {place}", first)
    error = done.document["error"]
    place = {"kind": "hung", "rank": 0, "cube": 1, "pe": 0, "file": str(tmp_path / "kernels.py")}
    assert {key: error[key] for key in place} == place
    assert error["line"] in (SPIN - 1, SPIN)
    assert error["time_ps"] >= 0


@IN_PROCESSES
def test_an_endless_script_is_told_by_progress_timeout(engine: str, tmp_path: Path) -> None:
    done = hang(tmp_path, engine, "script", "--progress-timeout", 1)
    assert done.exit_code == 4
    error = done.document["error"]
    assert (error["kind"], error["rank"], error["file"]) == ("hung", 1, str(tmp_path / "kernels.py"))
    assert error["line"] in (line_of("while rank == 1:"), line_of("time.sleep(0.01)"))
    assert "cube" not in error


def until_here(launch: Launch, engine: str) -> None:
    """Wait for the line that the code prints before it runs on for ever."""
    if engine == "inproc":
        assert launch.process.stdout.readline() == "here\n"
    else:
        launch.line(lambda line: "here" in line)


PLACES = {
    "spin": rf"  rank 0 cube 1 PE 0: runs at kernels\.py:({SPIN}|{SPIN - 1})",
    "livelock": rf"  rank 0 cube 1 PE 0: (tl\.load|runs) at kernels\.py:({LOAD}|{LOAD - 1})",
}


@pytest.mark.parametrize(("engine", "what"), crossed(["local", "inproc"], ["livelock", "spin"]))
def test_code_that_never_ends_is_told_by_a_signal(engine: str, what: str, tmp_path: Path) -> None:
    words = (*FLAGS, "--ccl", "ring.yaml", "--engine", engine, "--json", tmp_path / "o.json", "kernels.py", what)
    with launching(*words, cwd=folder_with(tmp_path)) as launch:
        until_here(launch, engine)
        launch.process.send_signal(signal.SIGTERM)
        done = launch.end()
    assert done.exit_code == 143
    first, head, place, *others = report(done)
    assert (first, head[:21]) == ("ahbm-launch: terminated by a signal", "where the code is, at")
    assert re.fullmatch(PLACES[what], place)
    assert len(others) <= 4
    told = [each for each in done.document["error"]["positions"] if each.get("cube") == 1 and each["rank"] == 0]
    assert [each["file"] for each in told] == [str(tmp_path / "kernels.py")]


@ENGINES
def test_ctrl_c_and_sigusr1_tell_where_the_code_is(engine: str, tmp_path: Path) -> None:
    words = (*FLAGS, "--ccl", "ring.yaml", "--engine", engine, "--json", tmp_path / "o.json", "kernels.py", "spin")
    with launching(*words, cwd=folder_with(tmp_path)) as launch:
        until_here(launch, engine)
        launch.process.send_signal(signal.SIGUSR1)
        # The broker answers for the one, and SIPs for the other, in any order.
        wanted = {"synchronisation (", "where the code is, at ", "  rank 0 cube 1 PE 0: runs at kernels.py:"}
        while wanted:
            line = launch.line(lambda line, starts=tuple(wanted): line.startswith(starts))
            wanted = {start for start in wanted if not line.startswith(start)}
        launch.process.send_signal(signal.SIGINT)
        done = launch.end()
    assert done.exit_code == 130
    assert done.stderr.count("  rank 0 cube 1 PE 0: runs at kernels.py:") == 2
    assert report(done).index("ahbm-launch: interrupted by Ctrl-C") > 0


@ENGINES
def test_a_wrong_direction_on_every_rank(engine: str, tmp_path: Path) -> None:
    done = hang(tmp_path, engine, "wrong", "--log-dir", tmp_path / "logs")
    assert done.exit_code == 3
    first, second, waits, scripts, *pointers, where = report(done)
    assert sum("my_head=" in line for line in pointers) == 8
    assert first.startswith(
        "ahbm-launch: IpcqDeadlock: perhaps a wrong direction: 4 PEs on SIPs 0 to 1, cubes 0 to 1, PE 0 wait in "
        f"recv E at kernels.py:{RECV}, with unread messages from W; 4 PEs wait "
    )
    assert second.startswith("  a cycle: ")
    assert waits == (f"  4 PEs on SIPs 0 to 1, cubes 0 to 1, PE 0: recv E at kernels.py:{RECV}; unread messages from W")
    assert scripts.startswith("  ranks 0 to 1: host script waits for a launched kernel at kernels.py:")
    assert where.endswith(f": {tmp_path / 'logs' / 'deadlock.txt'}")
    whole = (tmp_path / "logs" / "deadlock.txt").read_text()
    assert whole.count("my_head=1 my_tail=0") == 4
    assert json.loads((tmp_path / "logs" / "error.json").read_text())["kind"] == "IpcqDeadlock"
    found = done.document["error"]["deadlock"]["waits"]
    assert [(wait["file"], wait["line"]) for wait in found] == [(str(tmp_path / "kernels.py"), RECV)] * 4


def test_code_in_c_does_not_answer_and_does_not_block_the_launcher(tmp_path: Path) -> None:
    done = hang(tmp_path, "local", "in_c", "--progress-timeout", 1)
    assert done.exit_code == 4
    why = "being stopped or in a long call of C code"
    assert f"has not reported its line of code within 2 s, {why}" in report(done)[0]
    assert "file" not in done.document["error"]


def test_a_stopped_process_does_not_answer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    words = (*FLAGS, "--ccl", "ring.yaml", "kernels.py", "idle")
    with launching(*words, cwd=folder_with(tmp_path), GATE=str(tmp_path / "gate")) as launch:
        launch.line(lambda line: "here" in line)
        tree = launch.watch()
        (server,) = tree[launch.pid]
        stopped = tree[server][1]
        os.kill(stopped, signal.SIGSTOP)
        launch.process.send_signal(signal.SIGINT)
        done = launch.end()
    assert done.exit_code == 130
    assert re.search(r"  rank 0: has not reported its line of code within 2 s, ", done.stderr)
    assert re.search(r"  ranks? 1: ", done.stderr), "the other rank has answered"
