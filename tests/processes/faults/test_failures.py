"""Failures of runs of several processes: what is reported, and that nothing is left.

Each launch is waited for by pidfds of all its processes, and its temporary folder is checked. Scripts block where a
test needs them by reading from a pipe without a writer.
"""

import os
import re
import signal
import subprocess
import sys

import pytest
from failing_runs import RING, Standing, assert_partial, kill_standing
from launch import ALL_REDUCE, END_S, STAND, Done, environment, launched, launching, script, temporary_folder

pytestmark = pytest.mark.processes


class TestAKilledProcess:
    @pytest.mark.fault
    def test_a_sip(self, tmp_path):
        done = kill_standing(tmp_path, "sip-1")
        assert done.exit_code == 4
        assert_partial(done, "failed", "process_died")
        assert done.document["error"]["rank"] == 1
        first = done.own_lines[0]
        assert first.startswith("ahbm-launch: process_died: rank 1 (pid ")
        assert first.endswith(") was killed by SIGKILL")
        assert "  | stands" in done.stderr

    @pytest.mark.fault
    def test_the_broker(self, tmp_path):
        done = kill_standing(tmp_path, "broker")
        assert done.exit_code == 4
        assert_partial(done, "failed", "process_died")
        assert done.own_lines[0].startswith("ahbm-launch: process_died: the broker (pid ")
        assert done.own_lines[0].endswith(") was killed by SIGKILL")

    @pytest.mark.fault
    def test_the_server(self, tmp_path):
        done = kill_standing(tmp_path, "server")
        assert done.exit_code == 4
        assert_partial(done, "failed", "process_died")
        first = done.own_lines[0]
        assert first.startswith("ahbm-launch: process_died: the server that starts the processes (pid ")
        assert first.endswith(") was killed by SIGKILL")

    @pytest.mark.fault
    def test_the_launcher(self, tmp_path):
        """No report is possible; but every process has exited, and the folder with the sockets is removed."""
        done = kill_standing(tmp_path, "launcher")
        assert done.exit_code == -signal.SIGKILL
        assert done.document is None

    @pytest.mark.fault
    def test_a_sip_by_itself(self, tmp_path):
        path = script(tmp_path, f"{ALL_REDUCE}\nif rank == 2: os.kill(os.getpid(), signal.SIGKILL)\n{ALL_REDUCE}")
        done = launched(*RING, "--json", tmp_path / "out.json", path)
        assert done.exit_code == 4
        assert_partial(done, "failed", "process_died")
        assert "rank 2 (pid " in done.own_lines[0]
        assert done.own_lines[0].endswith(" was killed by SIGKILL")
        # The others were stopped in good order and told what they had.
        assert {each["rank"] for each in done.document["ranks"]} >= {0, 1}

    @pytest.mark.fault
    @pytest.mark.parametrize("code", [7, 0])
    def test_a_script_that_leaves_its_process(self, tmp_path, code):
        """Not even a clean exit is a normal end of a rank."""
        path = script(tmp_path, f"print('last words')\nif rank == 1: os._exit({code})\n{ALL_REDUCE}")
        done = launched(*RING, "--json", tmp_path / "out.json", path)
        assert done.exit_code == 4
        assert_partial(done, "failed", "process_died")
        first, *more = done.own_lines
        assert first.startswith("ahbm-launch: process_died: rank 1 (pid ")
        assert f"ended with exit code {code}" in first
        assert more[-2:] == ["last lines of the process's log:", "  | last words"]


class TestAStop:
    def test_a_timeout(self, tmp_path):
        """One rank never ends its turn. On a slow machine none has begun it; ``test_hangs`` asks where code is."""
        path = script(tmp_path, f"{ALL_REDUCE}\nif rank == 1:\n    while True: pass\n{ALL_REDUCE}")
        done = launched(*RING, "--timeout", "1", "--json", tmp_path / "out.json", path)
        assert done.exit_code == 124
        assert_partial(done, "interrupted", "timeout")
        assert done.own_lines[0] == "ahbm-launch: --timeout 1 s reached"

    @pytest.mark.fault
    @pytest.mark.parametrize(
        ("signum", "code", "kind", "line"),
        [
            (signal.SIGINT, 130, "interrupted", "interrupted by Ctrl-C"),
            (signal.SIGTERM, 143, "terminated", "terminated by a signal"),
            (signal.SIGHUP, 143, "terminated", "terminated by a signal"),
        ],
        ids=["SIGINT", "SIGTERM", "SIGHUP"],
    )
    def test_a_signal(self, tmp_path, signum, code, kind, line):
        done = kill_standing(tmp_path, "launcher", signum)
        assert done.exit_code == code
        assert_partial(done, "interrupted", kind)
        first, head, places = done.own_lines
        assert (first, head) == (f"ahbm-launch: {line}", "where the code is, at 0 ps of simulated time:")
        assert re.fullmatch(r"  ranks 0 to 2: host script runs at \S+/script\.py:5", places)
        assert done.stdout.splitlines()[-1] == "# interrupted: partial result, no digest"

    @pytest.mark.fault
    def test_a_signal_to_the_whole_group(self, tmp_path):
        """As Ctrl-C on a terminal: the whole group gets it, and the processes leave it to the launcher."""
        path = script(tmp_path, f"{STAND}\n{ALL_REDUCE}")
        with launching(*RING, "--json", tmp_path / "out.json", path) as launch:
            run = Standing(launch)
            for pid in (run.broker, *run.sips.values(), run.server, launch.pid):
                os.kill(pid, signal.SIGINT)
            done = launch.end()
        assert done.exit_code == 130
        assert done.left_files == []
        assert_partial(done, "interrupted", "interrupted")

    @pytest.mark.fault
    def test_a_second_ctrl_c_does_not_wait(self, tmp_path):
        path = script(tmp_path, f"{STAND}\n{ALL_REDUCE}")
        with launching(*RING, path) as launch:
            Standing(launch)
            launch.process.send_signal(signal.SIGINT)
            launch.process.send_signal(signal.SIGINT)
            done = launch.end()
        assert done.exit_code == 130
        assert done.left_files == []
        # Two signals that come before the first is looked at are one.
        first = done.own_lines[0]
        assert first in ("ahbm-launch: interrupted twice, stopped at once", "ahbm-launch: interrupted by Ctrl-C")

    def test_what_was_complete_before_is_in_the_partial_result(self, tmp_path):
        """Rank 0 blocks in its second collective and cannot answer; the others can."""
        (tmp_path / "mine.py").write_text(STANDS_IN_THE_SECOND)
        (tmp_path / "ccl.yaml").write_text(f"algorithms: {{mine: {{module: {tmp_path}/mine.py, topology: none}}}}\n")
        path = script(tmp_path, f"{ALL_REDUCE}\n{ALL_REDUCE}")
        flags = ("--ccl", tmp_path / "ccl.yaml", "--algorithm", "mine", "--json", tmp_path / "out.json")
        with launching(*RING, *flags, path) as launch:
            launch.words("stands", 1)
            launch.process.send_signal(signal.SIGINT)
            done = launch.end()
        assert (done.exit_code, done.document["status"], done.left_files) == (130, "interrupted", [])
        assert document_ranks(done) == [1, 2]


STANDS_IN_THE_SECOND = """
import os
from sipsim.chips.ahbm.collectives.algorithms import intercube_allreduce as real
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import TOPO_NAME_TO_KIND, kernel_args, neighbors
LAUNCHES = []

def kernel(*args):
    LAUNCHES.append(0)
    if len(LAUNCHES) > 4 and args[5] == 0:
        print("stands", os.getpid(), flush=True)
        os.read(os.pipe()[0], 1)
    real.kernel(*args)
"""


class TestAFailureOfTheProgram:
    def test_a_deadlock_across_sips(self, tmp_path):
        path = script(tmp_path, f"if rank != 1: {ALL_REDUCE}")
        done = launched(*RING, "--json", tmp_path / "out.json", path)
        assert done.exit_code == 3
        assert_partial(done, "failed", "IpcqDeadlock")
        first, *report = done.own_lines
        assert first.startswith("ahbm-launch: IpcqDeadlock: rank 1 has not called intercube of ")
        assert "; 8 PEs wait and nothing can happen any more, at " in first
        assert report[0].startswith("  missing: a send by rank 1 cube 3 PE 0, which waits for nothing, to rank 2 ")
        assert report[-1].endswith("give --log-dir DIR, and read DIR/deadlock.txt")
        assert len(document_ranks(done)) == 3

    def test_an_exception(self, tmp_path):
        path = script(tmp_path, f"{ALL_REDUCE}\nif rank == 1: open('/no/such/file')\n{ALL_REDUCE}")
        done = launched(*RING, "--json", tmp_path / "out.json", path)
        assert done.exit_code == 5
        assert_partial(done, "failed", "exception")
        assert done.document["error"]["rank"] == 1
        lines = done.own_lines
        assert lines[0].startswith("ahbm-launch: exception: FileNotFoundError: ")
        assert lines[1] == "Traceback (most recent call last):"
        assert lines[2] == f'  File "{path}", line 6, in worker'
        assert not lines[-1].startswith("FileNotFoundError: "), "the first line says it"
        assert "/sipsim/" not in done.stderr
        assert done.stderr.count("Traceback") == 1

    def test_the_same_exception_in_every_rank_is_printed_once(self, tmp_path):
        done = launched(*RING, script(tmp_path, "1 / 0"))
        assert (done.exit_code, done.stderr.count("ZeroDivisionError")) == (5, 1)

    def test_what_scripts_print_carries_their_rank(self, tmp_path):
        """Line by line, also an unfinished last line."""
        done = launched(*RING, script(tmp_path, f"print('first')\n{ALL_REDUCE}\nsys.stderr.write('two\\nthree')"))
        assert done.exit_code == 0
        for rank in range(3):
            mine = [line for line in done.stderr.splitlines() if line.startswith(f"[rank {rank}] ")]
            assert mine == [f"[rank {rank}] {word}" for word in ("first", "two", "three")]
        assert "first" not in done.stdout.split()


def document_ranks(done: Done) -> list[int]:
    return [each["rank"] for each in done.document["ranks"]]


LATE_MESSAGES = """
import sys
from broker.mail import zmq as zmq_mail
from launcher.commands import launch as cli
from launcher.processes import fork_server as server

gone = []
really_receive, really_events = zmq_mail.ZmqLauncher.receive_waiting, server.ForkServer.events

def receive(self):
    return really_receive(self) if len(gone) == 4 else iter(())

def events(self):
    found = really_events(self)
    gone.extend(event for event in found if isinstance(event, server.ProcessExited))
    return found

zmq_mail.ZmqLauncher.receive_waiting, server.ForkServer.events = receive, events
sys.exit(cli.main(sys.argv[1:]))
"""


def test_messages_may_arrive_after_the_last_process_has_exited():
    """The launcher reads its mail only after every process has exited."""
    with temporary_folder() as temp:
        done = subprocess.run(
            [sys.executable, "-c", LATE_MESSAGES, *RING],
            env=environment(temp),
            capture_output=True,
            text=True,
            timeout=END_S,
        )
        assert (done.returncode, done.stderr, os.listdir(temp)) == (0, "", [])
