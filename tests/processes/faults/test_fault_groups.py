"""Limits of this machine: files, processes, disk space, closed output. One line each, or the run succeeds."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launch import CHECKOUT, END_S, Done, environment, launched, temporary_folder

from launcher.processes import this_host
from sipsim.core.errors import NO_MEMORY

pytestmark = pytest.mark.processes

SMALL = ("--sips", "4", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
STAND = """
import os
def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    print("stands", flush=True)
    os.read(os.pipe()[0], 1)
"""
ALL_REDUCE = """
def worker(rank, world_size, torch):
    torch.distributed.init_process_group()
    torch.distributed.all_reduce(torch.ones(16, 8192))
"""

EATS = """    eaten = b"x" * (1 << 30) if rank == 1 else b""
"""
MEMORY_LIMITS = ("memory.limit_in_bytes", "memory.max")


def under(
    words: tuple[object, ...], *argv: object, json_file: Path | None = None, stdout: int = subprocess.PIPE
) -> Done:
    """``ahbm-launch``, started by a program that limits a resource; nothing may be left."""
    flags = ("--json", json_file) if json_file else ()
    command = [str(word) for word in (*words, sys.executable, "-m", "launcher", *argv, *flags)]
    with temporary_folder() as temp:
        before = temp.stat().st_mtime_ns
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment(temp),
            cwd=CHECKOUT,
            text=True,
            timeout=END_S,
        )
        made = temp.stat().st_mtime_ns != before
        assert os.listdir(temp) == []
    document = json.loads(json_file.read_text()) if json_file and json_file.is_file() else None
    return Done(ended.returncode, ended.stdout or "", ended.stderr, document, made, [])


@pytest.fixture(scope="module")
def digest() -> str:
    return launched(*SMALL).digest


class TestOpenFiles:
    """By the launcher's own limit: 64 is enough for few SIPs; for many it is refused before anything starts."""

    @pytest.mark.fault
    def test_few_are_enough_for_few(self, digest: str) -> None:
        assert under(("prlimit", "--nofile=72:72"), *SMALL).digest == digest

    def test_the_soft_limit_is_raised(self, digest: str) -> None:
        assert under(("prlimit", "--nofile=20:4096"), *SMALL).digest == digest

    @pytest.mark.fault
    def test_too_few_for_many(self, tmp_path: Path) -> None:
        many = ("--sips", "64", "--topology", "torus_2d", *SMALL[2:])
        done = under(("prlimit", "--nofile=64:64"), *many, json_file=tmp_path / "o.json")
        line = "64 SIPs need 120 open files in one process; raise ulimit -n from 64, or use fewer --sips"
        assert (done.exit_code, done.stdout, done.made_files) == (2, "", False)
        assert done.stderr == f"ahbm-launch: {line}\n"
        assert done.document["error"] == {"kind": "config", "rank": None, "message": line}


class TestProcesses:
    @pytest.fixture
    def cgroup(self) -> Iterator[Path]:
        """A cgroup with a low limit."""
        around = this_host.cgroups()
        if not around or os.geteuid():
            pytest.skip("no cgroup of our own can be made here")
        folder = around[0] / f"ahbm-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            pytest.skip(f"no cgroup of our own can be made here: {error}")
        try:
            if not (folder / "pids.max").exists():
                pytest.skip("cgroups here do not count processes")
            yield folder
        finally:
            with contextlib.suppress(OSError):
                folder.rmdir()
            assert not folder.exists(), f"{folder} is left"

    @pytest.mark.fault
    def test_too_few(self, cgroup: Path) -> None:
        (cgroup / "pids.max").write_text("12")
        enter = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh")
        done = under(enter, *SMALL)
        assert (done.exit_code, done.stdout, done.made_files) == (2, "", False)
        what = f"4 SIPs need 19 processes and threads; raise {cgroup}/pids.max from 12"
        assert done.stderr == f"ahbm-launch: {what}, or use fewer --sips\n"

    @pytest.mark.fault
    def test_just_enough(self, cgroup: Path, digest: str) -> None:
        """The number in the message is enough."""
        (cgroup / "pids.max").write_text(str(this_host.processes_needed(4, "zmq")))
        enter = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh")
        assert under(enter, *SMALL).digest == digest


class TestMemory:
    """A rank that takes 1 GiB: the kernel kills it, or refuses the memory."""

    def script(self, folder: Path) -> Path:
        path = folder / "eats.py"
        path.write_text(ALL_REDUCE.replace("    torch.distributed.all", EATS + "    torch.distributed.all"))
        return path

    @pytest.fixture
    def cgroup(self) -> Iterator[Path]:
        """A cgroup with a low limit."""
        mounts = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")]
        if os.geteuid():
            pytest.skip("no cgroup of our own can be made here")
        folder = next(each for each in mounts if each.is_dir()) / f"ahbm-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError as error:
            pytest.skip(f"no cgroup of our own can be made here: {error}")
        try:
            limit = next((folder / name for name in MEMORY_LIMITS if (folder / name).exists()), None)
            if limit is None:
                pytest.skip("cgroups here do not limit memory")
            limit.write_text(str(400 << 20))
            yield folder
        finally:
            folder.rmdir()

    @pytest.mark.fault
    def test_the_kernels_victim(self, cgroup: Path, tmp_path: Path) -> None:
        enter = ("sh", "-c", f'echo $$ > {cgroup}/cgroup.procs && exec "$@"', "sh")
        done = under(enter, *SMALL, "--json", tmp_path / "o.json", self.script(tmp_path))
        error = json.loads((tmp_path / "o.json").read_text())["error"]
        assert (done.exit_code, error["kind"], error["rank"]) == (4, "process_died", 1)
        first, second, *_ = done.stderr.splitlines()
        assert first.endswith(" was killed by SIGKILL")
        assert (
            second
            == "  perhaps by the kernel's out-of-memory killer, which killed a process on this host during the run"
        )

    @pytest.mark.fault
    def test_no_more_addresses(self, tmp_path: Path) -> None:
        done = under(("prlimit", "--as=1000000000"), *SMALL, self.script(tmp_path))
        assert (done.exit_code, done.stderr.splitlines()[0]) == (
            4,
            f"ahbm-launch: host_memory: MemoryError; {NO_MEMORY} (rank 1, host script, at 0 ps)",
        )


class TestFullDisk:
    """``/dev/full``, or a limit to the size of files, after which writing fails as on a full disk."""

    @pytest.mark.fault
    @pytest.mark.parametrize("flags", [("--max-restarts", "1"), ("--run-dir",)])
    def test_packets_that_cannot_be_kept(self, tmp_path: Path, flags: tuple[str, ...]) -> None:
        where = (tmp_path / "kept",) if flags == ("--run-dir",) else ()
        sized = (*SMALL, "--bytes", "256K", *flags, *where)
        done = under(("prlimit", "--fsize=60000"), *sized, json_file=tmp_path / "o.json")
        assert (done.exit_code, done.document["status"], done.document["error"]["kind"]) == (4, "failed", "not_kept")
        first, *_ = done.stderr.splitlines()
        assert first.startswith("ahbm-launch: not_kept: ")
        assert ".packets: cannot write packets: File too large; free disk space, or choose another " in first
        assert "Traceback" not in done.stderr

    @pytest.mark.fault
    def test_a_trace(self, tmp_path: Path) -> None:
        done = under((), *SMALL, "--trace-ccl", "/dev/full", json_file=tmp_path / "o.json")
        assert (done.exit_code, done.document["status"]) == (4, "ok")
        line = "--trace-ccl /dev/full: No space left on device; the trace is incomplete"
        assert done.stderr == f"ahbm-launch: {line}\n"

    @pytest.mark.fault
    def test_a_trace_of_a_rank(self, tmp_path: Path) -> None:
        flags = (*SMALL, "--bytes", "4M", "--trace-ccl", tmp_path / "trace.csv")
        done = under(("prlimit", "--fsize=60000"), *flags, json_file=tmp_path / "o.json")
        assert done.document is not None, done
        assert (done.exit_code, done.document["error"]["kind"]) == (4, "not_kept")
        first = done.stderr.splitlines()[0]
        assert ": the trace cannot be written: File too large; free disk space there, set TMPDIR to another " in first
        assert "Traceback" not in done.stderr

    @pytest.mark.fault
    def test_data_to_be_checked(self, tmp_path: Path) -> None:
        """The disk is full, the script is correct."""
        (tmp_path / "script.py").write_text(ALL_REDUCE)
        flags = (*SMALL, tmp_path / "script.py")
        done = under(("prlimit", "--fsize=60000"), "--json", tmp_path / "o.json", *flags)
        assert json.loads((tmp_path / "o.json").read_text())["error"]["kind"] == "not_kept"
        assert done.exit_code == 4
        first = done.stderr.splitlines()[0]
        assert ": data for the check cannot be written: " in first
        assert "; free space on that disk, set TMPDIR to another folder, or give --no-verify-data (rank " in first
        assert "Traceback" not in done.stderr

    @pytest.mark.fault
    def test_a_result(self) -> None:
        done = under((), *SMALL, "--json", "/dev/full")
        line = "the result file cannot be written: [Errno 28] No space left on device: '/dev/full'"
        assert (done.exit_code, done.stderr) == (4, f"ahbm-launch: {line}\n")
        assert "# digest " in done.stdout

    @pytest.mark.fault
    def test_the_table(self, tmp_path: Path, digest: str) -> None:
        with open("/dev/full", "wb") as full:
            done = under((), *SMALL, json_file=tmp_path / "o.json", stdout=full.fileno())
        line = "standard output cannot be written: No space left on device"
        assert (done.exit_code, done.stderr) == (4, f"ahbm-launch: {line}\n")
        assert (done.document["status"], done.document["digest"]) == ("ok", digest)


class TestClosedOutput:
    @pytest.mark.fault
    def test_a_terminal_that_is_closed(self, tmp_path: Path) -> None:
        """Its processes get SIGHUP, and writing to it is an error from then on."""
        (tmp_path / "script.py").write_text(STAND)
        words = [sys.executable, "-m", "launcher", *SMALL, "--json", tmp_path / "o.json", tmp_path / "script.py"]
        with temporary_folder() as temp:
            env = environment(temp)
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve(sys.executable, [str(word) for word in words], env)
            seen = b""
            try:
                while seen.count(b"stands") < 4:
                    seen += os.read(terminal, 4096)
            finally:
                os.close(terminal)
                _, status = os.waitpid(pid, 0)
            assert os.listdir(temp) == []
        assert os.waitstatus_to_exitcode(status) == 143
        told = json.loads((tmp_path / "o.json").read_text())
        assert (told["status"], told["error"]["kind"]) == ("interrupted", "terminated")

    @pytest.mark.fault
    def test_standard_error_that_is_closed(self, tmp_path: Path) -> None:
        """``2>&1 | head``: the exit code is the failure's all the same."""
        ours, theirs = os.pipe()
        os.close(ours)
        words = [*SMALL, "--fault", "kill:1@1us", "--json", tmp_path / "o.json"]
        with temporary_folder() as temp:
            ended = subprocess.run(
                [sys.executable, "-m", "launcher", *map(str, words)],
                stdout=subprocess.DEVNULL,
                stderr=theirs,
                env=environment(temp),
                cwd=CHECKOUT,
                timeout=END_S,
            )
            os.close(theirs)
            assert os.listdir(temp) == []
        assert ended.returncode == 4
        assert json.loads((tmp_path / "o.json").read_text())["error"]["kind"] == "process_died"
