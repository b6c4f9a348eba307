"""The state of synchronisation, printed by real runs: at the end, on Ctrl-C, on SIGUSR1, and when a run stalls.

Scripts report their progress on standard error and continue when a pipe is written to; nothing waits by the clock but
the stall itself, which is three seconds without progress.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch import END_S, environment, launched, launching, temporary_folder
from sweeps import some

pytestmark = pytest.mark.processes

MAILS = pytest.mark.parametrize("mail", ["zmq", "unix"])
ONE_MAIL = pytest.mark.parametrize("mail", ["zmq", pytest.param("unix", marks=pytest.mark.slow)])
"""Where a run stands still, and what is printed is asserted for each mail at its end."""
HEAD = "synchronisation ("

STANDING_STILL = """
import os
def worker(rank, world_size, torch):
    torch.distributed.init_process_group(backend="ahbm")
    if rank == 1:
        print("here", os.getpid(), flush=True)
        os.read(os.open(os.environ["GATE"], os.O_RDONLY), 1)
    torch.distributed.all_reduce(torch.zeros((16, 64), dtype="f16", dp=DPPolicy(num_cubes=16)))
"""


def script(folder: Path, source: str) -> Path:
    path = folder / "script.py"
    path.write_text(source)
    return path


def gate(folder: Path) -> Path:
    """A named pipe: a reader waits until it is opened for writing."""
    path = folder / "gate"
    os.mkfifo(path)
    return path


@MAILS
def test_at_the_end(mail: str) -> None:
    done = launched("--sips", 3, "--mail", mail, "--explain-sync")
    assert done.exit_code == 0
    assert done.stderr.count(HEAD) == 1
    rows = [line.split() for line in done.stderr.splitlines() if re.match(r"  \d ", line)]
    assert [row[0] for row in rows] == ["0", "1", "2"] * 2, "how each stands, and how it spent its time"
    assert [row[1] for row in rows[:3]] == ["idle"] * 3
    assert all(float(row[1]) > 0 for row in rows[3:]), "each has simulated"
    assert re.search(r"cost most.*\n(  \d\.[EW]>\d\.[EW]  \d+\.\d+ s\n){3}$", done.stderr)


@pytest.mark.ideal
def test_at_the_end_in_one_process() -> None:
    done = launched("--sips", 2, "--engine", "inproc", "--explain-sync")
    assert (done.exit_code, done.stderr.count(HEAD)) == (0, 1)
    bounds = r"^shortest windows, mean of SIPs: (\S+ \w+) by bounds for any PE, (\S+ \w+) by .*; (\d+\.\d)% lost"
    found = re.search(bounds, done.stderr)
    assert found is not None
    # PE_IPCQ 1 ns, a byte 0.016, the way from the nearest PE to a port 4.15, the link 10; whoever is wired.
    assert found.groups() == ("15.166 ns", "15.166 ns", "0.0")


@pytest.mark.parametrize("engine", ["local", "inproc"])
def test_times_are_those_of_the_result_file(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    done = launched("--sips", 2, "--engine", engine, "--bytes", "512K", "--explain-sync", "--json", file)
    rows = [line.split() for line in done.stderr.splitlines() if re.match(r"  \d ", line)][2:]
    assert done.document is not None
    ranks = done.document["ranks"]
    assert [(row[1], row[5]) for row in rows] == [(f"{r['run_s']:.3f}", f"{r['send_s']:.3f}") for r in ranks]
    assert engine == "inproc" or all(float(row[5]) > 0 for row in rows), "each has sent something"


def test_not_unless_asked_for() -> None:
    assert HEAD not in launched("--sips", 2).stderr


@pytest.mark.parametrize(
    ("mail", "explain"), [("zmq", True), pytest.param("unix", True, marks=pytest.mark.slow), ("zmq", False)]
)
def test_on_ctrl_c(mail: str, explain: bool, tmp_path: Path) -> None:
    flags = ["--explain-sync"] if explain else []
    words = ["--sips", 2, "--mail", mail, *flags, script(tmp_path, STANDING_STILL)]
    with launching(*words, GATE=gate(tmp_path)) as launch:
        launch.line(lambda line: "here" in line)
        launch.process.send_signal(signal.SIGINT)
        done = launch.end()
    assert done.exit_code == 130
    assert done.stderr.count(HEAD) == int(explain)
    assert not explain or re.search(r"  1 +starting .*its host script to reach the first wait", done.stderr)


@ONE_MAIL
def test_on_sigusr1_the_state_is_printed_and_the_run_continues(mail: str, tmp_path: Path) -> None:
    """Sent to the whole process group: no process ends by it."""
    with launching("--sips", 2, "--mail", mail, script(tmp_path, STANDING_STILL), GATE=gate(tmp_path)) as launch:
        launch.line(lambda line: "here" in line)
        for child in launch.watch():
            os.kill(child, signal.SIGUSR1)
        launch.line(lambda line: HEAD in line)
        launch.line(lambda line: "1    starting" in line)
        (tmp_path / "gate").write_text("go")
        done = launch.end()
    assert done.exit_code == 0
    assert done.stderr.count(HEAD) == 1


@ONE_MAIL
def test_a_stall_and_its_end_are_reported(mail: str, tmp_path: Path) -> None:
    """A host script that waits for something outside, then continues: reported once, and no failure."""
    with launching("--sips", 2, "--mail", mail, script(tmp_path, STANDING_STILL), GATE=gate(tmp_path)) as launch:
        launch.line(lambda line: "here" in line)
        launch.line(lambda line: "stalled: nothing has moved for" in line)
        named = launch.line(lambda line: "SIP 1" in line)
        assert re.search(r"SIP 1 has been starting for .* \(pid \d+\) sleeps", named)
        (tmp_path / "gate").write_text("go")
        launch.line(lambda line: "moves again after" in line)
        done = launch.end()
    assert done.exit_code == 0


@pytest.mark.parametrize("who", some(["broker", "sip"], "broker"))
def test_a_stopped_process_is_named(who: str, tmp_path: Path) -> None:
    with launching("--sips", 2, script(tmp_path, STANDING_STILL), GATE=gate(tmp_path)) as launch:
        pid = int(launch.line(lambda line: "here" in line).split()[-1])
        if who == "broker":
            tree = launch.watch()
            (server,) = tree[launch.pid]
            pid = tree[server][0]
        os.kill(pid, signal.SIGSTOP)
        launch.line(lambda line: "stalled" in line)
        launch.line(lambda line: f"(pid {pid}): its process is stopped" in line)
        if who == "broker":
            launch.line(lambda line: "the broker has not answered for" in line)
        os.kill(pid, signal.SIGCONT)
        (tmp_path / "gate").write_text("go")
        done = launch.end()
    assert done.exit_code == 0


OUTSIDE_THE_RUN = """\
import os, signal, sys

class Asking:
    def find_spec(self, name, path=None, target=None):
        if name == "launcher.commands.launch":
            os.kill(os.getpid(), signal.{0})

sys.meta_path.insert(0, Asking())
import ahbm_sim
from launcher.run import prepare

def asked(*_):
    os.kill(os.getpid(), signal.{0})

prepare.describe, really = (lambda prepared: asked() or really(prepared)), prepare.describe
sys.argv[1:] = ["--dry-run"]
sys.exit(ahbm_sim.launch())
"""


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2"])
def test_a_request_outside_the_run_is_ignored(name: str) -> None:
    with temporary_folder() as temp:
        command = [sys.executable, "-c", OUTSIDE_THE_RUN.format(name)]
        done = subprocess.run(command, env=environment(temp), capture_output=True, text=True, timeout=END_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert "would run" in done.stdout
