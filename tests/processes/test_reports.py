"""Failures of real processes as they are reported, saved and resumed; injected faults."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from launch import Done, launched, launching
from sweeps import some

pytestmark = pytest.mark.processes

FOUR = ("--sips", "4", "--topology", "torus_2d", "--bytes", "64K", "--set", "sip.cube_mesh={w: 2, h: 2}")
DEADLINES = ("--progress-timeout", "1")
END = """
    dist.intercube_all_reduce(tensor)
"""
WORKER = """
import os, select, signal
from pathlib import Path

def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group(backend="ahbm")
    dp = DPPolicy(cube="row_wise", pe="replicate", num_cubes=16, num_pes=1)
    tensor = torch.zeros((16, 64), dtype="f16", dp=dp)
    dist.intercube_all_reduce(tensor)
"""


def script(folder: Path, *lines: str) -> Path:
    path = folder / "script.py"
    path.write_text(WORKER + "".join(f"    {line}\n" for line in lines) + END)
    return path


def error(done: Done) -> dict[str, Any]:
    told: dict[str, Any] = done.document["error"]
    return told


@pytest.fixture(scope="module")
def digest() -> str:
    """Of the undisturbed run."""
    return launched(*FOUR).digest


class TestOneDeath:
    @pytest.mark.parametrize(
        "name", some(["SIGKILL", "SIGTERM", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGXCPU"], "SIGKILL", "SIGSEGV")
    )
    def test_a_signal_by_its_name(self, tmp_path: Path, name: str) -> None:
        path = script(tmp_path, f"if rank == 2: os.kill(os.getpid(), signal.{name})")
        done = launched("--sips", "3", "--json", tmp_path / "o.json", path)
        assert done.exit_code == 4
        assert done.own_lines[0].startswith("ahbm-launch: process_died: rank 2 (pid ")
        assert f" was killed by {name}" in done.own_lines[0]
        told = error(done)
        assert (told["kind"], told["rank"], told["signal"], told["process"]) == ("process_died", 2, name, "sip-2")
        assert "exit_code" not in told
        assert f"(pid {told['pid']})" in told["message"]
        assert told["host"] == os.uname().nodename

    @pytest.mark.parametrize("code", some([1, 7, 255], 1, 255))
    def test_an_exit_code(self, tmp_path: Path, code: int) -> None:
        path = script(tmp_path, f"if rank == 1: os._exit({code})")
        done = launched("--sips", "3", "--json", tmp_path / "o.json", path)
        assert done.own_lines[0].endswith(f" ended with exit code {code}")
        assert (error(done)["exit_code"], error(done).get("signal")) == (code, None)

    def test_when_it_was(self, tmp_path: Path) -> None:
        path = script(tmp_path, "if rank == 1: os._exit(1)")
        done = launched("--sips", "3", "--json", tmp_path / "o.json", path)
        told = error(done)
        assert 0 < told["time_ps"] <= told["granted_ps"]
        assert " of simulated time, granted to " in done.own_lines[1]
        assert (told["incarnation"], told["restarts"]) == (0, 0)

    def test_the_end_of_its_log_and_no_others(self, tmp_path: Path) -> None:
        lines = ["for n in range(30): print(f'rank {rank} line {n}')", "if rank == 1: os._exit(1)"]
        logs = tmp_path / "logs"
        done = launched("--sips", "3", "--json", tmp_path / "o.json", "--log-dir", logs, script(tmp_path, *lines))
        wanted = [f"rank 1 line {n}" for n in range(10, 30)]
        assert error(done)["last_lines"] == wanted
        assert error(done)["log"] == str(logs / "rank-1.log")
        assert done.own_lines[-21:] == [
            f"last lines of the process's log (complete: {logs}/rank-1.log):",
            *(f"  | {line}" for line in wanted),
        ]
        assert (logs / "rank-1.log").read_text().splitlines() == [f"rank 1 line {n}" for n in range(30)]
        assert (logs / "rank-0.log").read_text().splitlines() == [f"rank 0 line {n}" for n in range(30)]

    def test_the_same_in_a_file(self, tmp_path: Path) -> None:
        path = script(tmp_path, "if rank == 1: os._exit(9)")
        done = launched("--sips", "2", "--json", tmp_path / "o.json", "--log-dir", tmp_path / "logs", path)
        told = json.loads((tmp_path / "logs/error.json").read_text())
        assert {key: told[key] for key in error(done)} == error(done)
        assert (told["schema"], told["status"]) == (1, "failed")


class TestTwoDeaths:
    def test_the_first_is_the_cause(self, tmp_path: Path) -> None:
        """Rank 2 exits because rank 1 has exited."""
        path = script(
            tmp_path,
            f"pid_file = Path({str(tmp_path)!r}) / 'pid'",
            "if rank == 1:",
            "    os.mkfifo(pid_file)",
            "    with open(pid_file, 'w') as out: out.write(str(os.getpid()))",
            "    os.kill(os.getpid(), signal.SIGKILL)",
            "if rank == 2:",
            "    while not pid_file.exists(): pass",
            "    with open(pid_file) as told: other = int(told.read())",
            "    while os.path.exists(f'/proc/{other}'): pass",
            "    os._exit(3)",
        )
        done = launched("--sips", "3", "--json", tmp_path / "o.json", path)
        first, *_ = done.own_lines
        assert first.startswith("ahbm-launch: process_died: rank 1 (pid ")
        then = [line for line in done.own_lines if line.startswith("  then: ")]
        assert len(then) == 1
        assert then[0].startswith("  then: process_died: rank 2 (pid ")
        assert then[0].endswith(" ended with exit code 3")
        assert [(each["kind"], each["rank"]) for each in error(done)["also"]] == [("process_died", 2)]


class TestShowing:
    def test_ranks_that_were_chosen(self, tmp_path: Path) -> None:
        done = launched("--sips", "3", "--tee", "0,2", script(tmp_path, "print('hello')"))
        assert sorted(done.stderr.splitlines()) == ["[rank 0] hello", "[rank 2] hello"]

    def test_none_but_kept(self, tmp_path: Path) -> None:
        path = script(tmp_path, "print('hello', rank)")
        done = launched("--sips", "2", "--tee", "none", "--log-dir", tmp_path / "logs", path)
        assert (done.exit_code, done.stderr) == (0, "")
        assert (tmp_path / "logs/rank-1.log").read_text() == "hello 1\n"
        assert not (tmp_path / "logs/error.json").exists()

    @pytest.mark.fault
    def test_a_log_that_could_not_be_kept(self, tmp_path: Path, small_disk: Path) -> None:
        """The disk fills during the run: the run succeeds, and the loss is reported, also by the exit code."""
        logs = small_disk / "logs"
        path = script(tmp_path, "if rank == 1: print('lost' * 20_000)")
        done = launched("--sips", "2", "--json", tmp_path / "o.json", "--log-dir", logs, path)
        assert (done.exit_code, done.document["status"]) == (4, "ok")
        assert done.own_lines == [
            f"ahbm-launch: --log-dir {logs}/rank-1.log: No space left on device; the logs there are incomplete"
        ]


class TestFaults:
    @pytest.mark.fault
    @pytest.mark.parametrize(
        ("fault", "kind", "says"),
        [
            ("kill:2@1us", "process_died", "was killed by SIGKILL"),
            pytest.param("exit:2@1us:7", "process_died", "ended with exit code 7", marks=pytest.mark.slow),
            ("exit:2@1us:0", "process_died", "ended with exit code 0 before the run was over"),
            ("stop:2@1us", "hung", "its process is stopped"),
            ("hang:2@1us", "hung", "its process computes"),
            ("mute:2@1us", "hung", "has made no progress"),
        ],
    )
    def test_each_is_named(self, tmp_path: Path, fault: str, kind: str, says: str) -> None:
        done = launched(*FOUR, *DEADLINES, "--json", tmp_path / "o.json", "--fault", fault)
        assert done.exit_code == 4
        assert (error(done)["kind"], error(done)["rank"]) == (kind, 2)
        assert says in error(done)["message"]
        # One that is mute goes on to the end of its window.
        assert error(done)["time_ps"] < (10**6 if not fault.startswith("mute") else 1.2 * 10**6)
        assert error(done)["last_lines"] == [f"fault {fault} is injected"]

    @pytest.mark.fault
    @pytest.mark.parametrize(
        "fault",
        some(
            ["kill:2@1us", "exit:1@join:1", "hang:0@2us", "mute:3@500ns", "slow:1@0:x4"],
            *("exit:1@join:1", "hang:0@2us", "slow:1@0:x4"),
        ),
    )
    def test_none_moves_the_digest(self, tmp_path: Path, fault: str, digest: str) -> None:
        wanted = 0 if fault.startswith("slow") else 1
        done = launched(*FOUR, *DEADLINES, "--max-restarts", "1", "--json", tmp_path / "o.json", "--fault", fault)
        assert (done.exit_code, done.document["digest"]) == (0, digest)
        assert sum(rank["restarts"] for rank in done.document["ranks"]) == wanted
        assert done.document["ranks"][int(fault[5])]["restarts"] == wanted

    def test_a_rank_that_hangs_before_it_has_joined_is_restarted(self, tmp_path: Path, digest: str) -> None:
        flags = ("--join-timeout", "5", "--max-restarts", "1", "--json", tmp_path / "o.json")
        done = launched(*FOUR, *flags, "--fault", "hang:3@join")
        assert (done.exit_code, done.document["digest"]) == (0, digest), done.stderr
        assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, 0, 1]
        assert " has not joined within 5 s, --join-timeout; started again (1 of --max-restarts 1)" in done.stderr

    @pytest.mark.fault
    def test_the_next_incarnation_has_its_own(self, tmp_path: Path, digest: str) -> None:
        faults = ("--fault", "kill:2@2us", "--fault", "kill:2@1us#1")
        done = launched(*FOUR, "--max-restarts", "2", "--json", tmp_path / "o.json", *faults)
        assert (done.exit_code, done.document["digest"]) == (0, digest)
        assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, 2, 0]

    def test_the_broker(self, tmp_path: Path) -> None:
        done = launched(*FOUR, "-n", "5", "--json", tmp_path / "o.json", "--fault", "broker@1us")
        assert (done.exit_code, error(done)["rank"]) == (4, None)
        assert done.own_lines[0].startswith("ahbm-launch: process_died: the broker (pid ")
        assert done.own_lines[0].endswith(" was killed by SIGKILL")

    def test_random_ones_end_in_one_of_two_ways(self, tmp_path: Path, digest: str) -> None:
        done = launched(
            *FOUR, *DEADLINES, "--max-restarts", "9", "--json", tmp_path / "o.json", "--fault", "random:3:4"
        )
        assert (done.exit_code, done.document["digest"]) == (0, digest)
        assert done.own_lines[0].startswith("ahbm-launch: faults drawn: ")


class TestResuming:
    def test_after_a_death(self, tmp_path: Path, digest: str) -> None:
        kept = tmp_path / "kept"
        done = launched(*FOUR, "--run-dir", kept, "--json", tmp_path / "o.json", "--fault", "kill:1@2us")
        assert done.exit_code == 4
        assert json.loads((kept / "error.json").read_text())["rank"] == 1
        again = launched("--resume", kept, "--json", tmp_path / "again.json")
        assert (again.exit_code, again.document["digest"]) == (0, digest)
        assert not (kept / "error.json").exists()
        over = launched("--resume", kept)
        assert (over.exit_code, over.made_files) == (2, False)
        assert over.own_lines == [
            f"ahbm-launch: --resume {kept}: the run has succeeded, so nothing is left to resume; begin a new run"
        ]

    @pytest.mark.fault
    def test_after_the_launchers_own(self, tmp_path: Path, digest: str) -> None:
        kept = tmp_path / "kept"
        with launching(*FOUR, "-n", "1", "--run-dir", kept, "--fault", "launcher@0") as launch:
            assert launch.end().exit_code == -signal.SIGKILL
        assert json.loads((kept / "run.json").read_text())["status"] == "running"
        again = launched("--resume", kept)
        assert (again.exit_code, again.digest) == (0, digest)

    @pytest.mark.fault
    def test_not_while_it_runs(self, tmp_path: Path) -> None:
        kept = tmp_path / "kept"
        path = script(tmp_path, "print('stands')", "while rank == 1: pass")
        with launching("--sips", "2", "--run-dir", kept, path) as launch:
            launch.words("stands", 2)
            done = launched("--resume", kept)
            assert done.exit_code == 2
            assert done.own_lines == [
                f"ahbm-launch: --resume {kept}: process {launch.pid} still executes this run; wait for its end"
            ]
            launch.process.terminate()
            assert launch.end().exit_code == 143


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("kill:1@10s", "rank 1 ended at "),
        ("broker@10s", "the run ended at "),
        ("launcher@90s", "the run ended after "),
    ],
)
def test_a_fault_that_comes_too_late_is_reported(fault: str, why: str) -> None:
    done = launched("--sips", "2", "--fault", fault)
    assert done.exit_code == 0
    assert done.stderr.startswith(f"ahbm-launch: fault {fault} was not injected: {why}")
    assert done.stderr.count("\n") == 1


class TestABusyPeer:
    def test_a_rank_that_waits_for_a_busy_peer_is_not_hung(self, tmp_path: Path) -> None:
        """Rank 0 makes calls without simulated time for five seconds, which is progress; rank 1 is killed, and needs
        rank 0's packets.
        """
        path = tmp_path / "busy.py"
        path.write_text(BUSY)
        flags = (
            "--sips",
            "2",
            "--set",
            "sip.cube_mesh.w=2",
            "--set",
            "sip.cube_mesh.h=2",
            "--progress-timeout",
            "2",
            "--json",
            tmp_path / "out.json",
        )
        hurt = launched(*flags, "--max-restarts", "1", path, "die")
        assert hurt.exit_code == 0, hurt.stderr
        assert [rank["restarts"] for rank in hurt.document["ranks"]] == [0, 1]
        assert hurt.digest == launched(*flags, path, "live").digest


BUSY = """
import os, signal, sys, time
def worker(rank, world_size, torch):
    dist = torch.distributed
    dist.init_process_group()
    mine = torch.ones(4, 8)
    dist.all_reduce(mine)
    if rank == 1 and sys.argv[1] == "die" and os.environ.get("AHBM_INCARNATION") == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0 and sys.argv[1] == "die":
        until = time.monotonic() + 5
        while time.monotonic() < until:
            torch.Event().record()
    dist.all_reduce(torch.ones(4, 8))
"""


class TestRefusals:
    @pytest.mark.fault
    @pytest.mark.parametrize(
        "words",
        [
            "--tee 9",
            "--fault kill:9@1us",
            "--fault klil:1@1us",
            "--hosts a:2",
            "--engine inproc --fault kill:1@1us",
            "--run-dir /proc/no",
            "--log-dir /proc/no",
            "--resume /proc",
            "--max-restarts -1",
        ],
    )
    def test_one_line_before_anything_starts(self, tmp_path: Path, words: str) -> None:
        done = launched("--sips", "4", "--json", tmp_path / "o.json", *words.split())
        assert (done.exit_code, done.stdout, done.made_files) == (2, "", False)
        assert len(done.own_lines) == 1
        assert words.split()[-2] in done.own_lines[0]
        assert error(done)["kind"] == "config"

    def test_a_folder_that_is_not_empty(self, tmp_path: Path) -> None:
        (tmp_path / "mine").write_text("")
        done = launched("--sips", "2", "--run-dir", tmp_path)
        assert (done.exit_code, done.own_lines) == (
            2,
            [f"ahbm-launch: --run-dir {tmp_path}: is not empty; name an empty folder or a new one"],
        )
