"""How a command ends that was started in odd ways, or whose code of a user ends, crashes or keeps its own process.

Both engines: with ``inproc`` that code runs in the launcher itself.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from failing_runs import RING
from launch import ALL_REDUCE, END_S, Done, environment, launched, launching, script, temporary_folder

pytestmark = pytest.mark.processes

ENGINES = pytest.mark.parametrize("engine", ["local", "inproc"])
USUAL = "from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import *\n"
ALGORITHM = ("--variant", "adr", "--sips", "2", "--set", "algorithms.intercube_allreduce.module=mine.py")


def by_shell(command: str, folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """Run the launcher by a line of bash, in which ``"$@"`` is its command line."""
    with temporary_folder() as temp:
        argv = [sys.executable, "-m", "launcher", *map(str, words)]
        done = subprocess.run(
            ["bash", "-c", command, "bash", *argv],
            cwd=folder,
            env=environment(temp),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * END_S,
        )
        assert os.listdir(temp) == []
        return done


class TestStreams:
    @ENGINES
    @pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "| true", "2>/dev/full"])
    def test_results_are_written_without_them(self, tmp_path, engine, closed):
        """What the script does to its own changes nothing, either."""
        files = tmp_path / "out.json", tmp_path / "out.csv"
        path = script(tmp_path, f"print('told')\nsys.stdout.close()\nsys.stderr.close()\n{ALL_REDUCE}")
        command = f'set -o pipefail; "$@" {closed}'
        done = by_shell(command, tmp_path, *RING, "--engine", engine, "--json", files[0], "--csv", files[1], path)
        assert done.returncode == 0, done.stderr
        document = json.loads(files[0].read_text())
        assert (document["status"], len(files[1].read_text().splitlines())) == ("ok", 1 + len(document["runs"]))

    def test_a_table_that_is_lost_is_told(self, tmp_path):
        done = by_shell('"$@" >/dev/full', tmp_path, *RING, "--json", tmp_path / "out.json")
        assert (done.returncode, len(done.stderr.splitlines())) == (4, 1)
        assert json.loads((tmp_path / "out.json").read_text())["status"] == "ok"


class TestTheHost:
    @pytest.mark.parametrize("program", ["launch", "probe", "bench", "races"])
    def test_a_working_folder_that_was_deleted(self, tmp_path, program):
        gone = tmp_path / "gone"
        gone.mkdir()
        call = f"import os; os.rmdir({str(gone)!r}); import ahbm_sim; raise SystemExit(ahbm_sim.{program}())"
        done = subprocess.run(
            [sys.executable, "-c", call],
            cwd=gone,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=END_S,
        )
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
        assert done.stderr.startswith(f"ahbm-{program}: the working directory ")

    @pytest.mark.parametrize("kib", [20_000, 150_000])
    def test_too_little_memory_to_start(self, tmp_path, kib):
        done = by_shell(f'ulimit -v {kib}; "$@"', tmp_path, *RING)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1) or kib == 20_000
        assert kib == 20_000 or f"{kib} KiB" in done.stderr

    @ENGINES
    def test_no_more_memory(self, tmp_path, engine):
        """The rank and the line are named; Python's own report would be 150 lines."""
        path = script(tmp_path, "import numpy as np\nkeep = [np.ones(2**22) for _ in range(40)]")
        out = tmp_path / "out.json"
        done = by_shell('ulimit -v 700000; "$@"', tmp_path, *RING, "--engine", engine, "--json", out, path)
        error = json.loads(out.read_text())["error"]
        assert (done.returncode, error["kind"]) == (4, "host_memory"), done.stderr
        assert f"{path}" in done.stderr
        assert "/sipsim/" not in done.stderr

    def test_a_log_that_is_full(self, tmp_path):
        """What a script prints is kept in the temporary folder: no error of the script."""
        path = script(tmp_path, "print('x' * 100_000)")
        out = tmp_path / "out.json"
        done = by_shell('ulimit -f 60; "$@" 2>&1 | cat', tmp_path, *RING, "-q", "--json", out, path)
        error = json.loads(out.read_text())["error"]
        assert error["kind"] == "not_kept"
        assert ".log: " in error["message"]
        assert "Traceback" not in done.stdout


class TestOwnProcess:
    """What code of a user does to the process that it runs in."""

    @ENGINES
    @pytest.mark.parametrize(
        ("where", "call"),
        [
            ("script", "os._exit(0)"),
            ("script", "os.execv('/bin/true', ['true'])"),
            ("script", "__import__('posix')._exit(0)"),
            ("kernel", "os._exit(0)"),
            ("thread", "os._exit(0)"),
        ],
    )
    def test_leaving_it_is_no_success(self, tmp_path, engine, where, call):
        thread = f"import threading\nif rank == 1:\n    one = threading.Thread(target=lambda: {call})"
        body = {
            "script": f"if rank == 1: {call}",
            "kernel": f"torch.launch(lambda tl: rank == 1 and {call})",
            "thread": f"{thread}\n    one.start()\n    one.join()",
        }[where]
        path = script(tmp_path, f"{ALL_REDUCE}\n{body}\n{ALL_REDUCE}")
        done = launched(*RING, "--engine", engine, "--json", tmp_path / "out.json", path)
        assert done.exit_code == 4
        error = done.document["error"]
        assert (error["kind"], error["rank"]) == ("process_died", 1)
        if engine == "inproc":
            assert (error["file"], error["line"]) == (str(path), 8 if where == "thread" else 6)

    @pytest.mark.parametrize("where", ["script", "kernel"])
    def test_a_crash_in_c_says_where(self, tmp_path, where):
        done = crashed(tmp_path, where, "local")
        error = done.document["error"]
        assert (done.exit_code, error["kind"], error["signal"]) == (4, "process_died", "SIGSEGV")
        assert (error["file"], error["line"]) == (str(tmp_path / "script.py"), 5)
        assert "script.py:5" in error["message"]

    @pytest.mark.parametrize("where", ["script", "kernel"])
    def test_a_crash_of_the_launcher_says_where(self, tmp_path, where):
        done = crashed(tmp_path, where, "inproc")
        assert done.exit_code == -signal.SIGSEGV
        assert f'File "{tmp_path / "script.py"}", line 5 in ' in done.stderr

    def test_signals_that_ask_processes_of_a_run_end_nothing(self, tmp_path):
        """Also under nohup, a terminal that goes."""
        asks = "for name in ('SIGUSR1', 'SIGUSR2', 'SIGPIPE'): os.kill({}, getattr(signal, name))"
        for engine, who in (("local", "int(os.environ['LAUNCHER'])"), ("inproc", "os.getpid()")):
            path = script(tmp_path, f"{ALL_REDUCE}\n{asks.format(who)}\n{ALL_REDUCE}")
            done = by_shell('LAUNCHER=$$ exec "$@"', tmp_path, *RING, "--engine", engine, path)
            assert done.returncode == 0, done.stderr
        path = script(tmp_path, f"{ALL_REDUCE}\nos.kill(int(os.environ['LAUNCHER']), signal.SIGHUP)\n{ALL_REDUCE}")
        done = by_shell('trap "" HUP; LAUNCHER=$$ exec "$@"', tmp_path, *RING, path)
        assert done.returncode == 0, done.stderr


def crashed(folder: Path, where: str, engine: str) -> Done:
    """A run with a null pointer on rank 0."""
    crash = "__import__('ctypes').string_at(0)"
    body = {"script": f"rank or {crash}", "kernel": f"torch.launch(lambda tl: {crash})"}[where]
    path = script(folder, f"{body}\n{ALL_REDUCE}")
    flags = RING if where == "script" else ("--sips", "1")
    with launching(*flags, "--engine", engine, "--json", folder / "out.json", path) as launch:
        return launch.end()


class TestPreparation:
    """Hooks of an algorithm run in the launcher, before anything has started."""

    def run(self, folder: Path, code: str, *flags: str) -> Done:
        (folder / "mine.py").write_text(f"{USUAL}import os, signal, threading\n{code}\n")
        done = launched(*ALGORITHM, *flags, "--json", folder / "out.json", cwd=folder)
        assert not done.made_files
        return done

    @pytest.mark.parametrize(
        ("code", "name"),
        [
            ("def neighbors(*_):\n    while True: pass", "neighbors"),
            ("def neighbors(*_):\n    threading.Event().wait()", "neighbors"),
            ("def kernel_args(*_):\n    while True: pass", "kernel_args"),
            ("if True:\n    while True: pass", "top level"),
        ],
    )
    def test_one_that_does_not_return_is_named(self, tmp_path, code, name):
        done = self.run(tmp_path, code, "--progress-timeout", "1")
        (line,) = done.stderr.splitlines()
        assert (done.exit_code, done.document["error"]["kind"]) == (2, "config")
        assert "mine.py:4: " in line
        assert name in line

    @pytest.mark.parametrize("call", ["os._exit(0)", "os.execv('/bin/true', ['true'])"])
    @pytest.mark.parametrize("hook", ["def neighbors(*_): {}", "{}"])
    def test_one_that_would_end_the_launcher_is_refused(self, tmp_path, call, hook):
        done = self.run(tmp_path, hook.format(call))
        assert (done.exit_code, len(done.stderr.splitlines()), done.document["error"]["kind"]) == (2, 1, "config")

    @pytest.mark.parametrize(
        ("act", "flags", "code", "kind"),
        [
            ("os.kill(os.getpid(), signal.SIGINT)", (), 130, "interrupted"),
            ("os.kill(os.getpid(), signal.SIGTERM)", (), 143, "terminated"),
            ("pass", ("--timeout", "1"), 124, "timeout"),
        ],
    )
    def test_it_is_stopped_as_a_run_is(self, tmp_path, act, flags, code, kind):
        done = self.run(tmp_path, f"def neighbors(*_):\n    {act}\n    while True: pass", *flags)
        (line,) = done.stderr.splitlines()
        assert (done.exit_code, done.document["status"], done.document["error"]["kind"]) == (code, "interrupted", kind)
        assert kind == "timeout" or "mine.py:5" in line

    def test_a_reference_that_does_not_return(self, tmp_path):
        """It is asked after the run, by the check of a script's data and by the table."""
        (tmp_path / "mine.py").write_text(f"{USUAL}def reference(*_):\n    while True: pass\n")
        path = script(tmp_path, "dist.all_reduce(torch.ones(16, 8))")
        flags = ("--progress-timeout", "1", "--json", tmp_path / "out.json")
        done = launched(*ALGORITHM, *flags, path, cwd=tmp_path)
        assert (done.exit_code, done.document["error"]["kind"]) == (4, "hung")
        assert "mine.py:3" in done.document["error"]["message"]
