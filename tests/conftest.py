"""House-keeping for every test: what a test starts or opens, it has ended and closed when it is over.

After each test: no new child process, no new open file descriptor, no socket file in the temporary
directory. After a test that is marked ``processes`` or ``cluster``, and after the session: no process that a test
started, however far down and whoever its parent is now. A session in which no test ran fails.

The temporary directory (``tempfile`` and ``TMPDIR``) is one of the session's own, so that other programs on
the machine are not mistaken for a test's; ``tmp_path`` stays where pytest puts it. Without ``/proc`` only
the socket files are looked at.
"""

import contextlib
import gc
import os
import select
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import psutil
import pytest

HAS_FDS = os.path.isdir("/proc/self/fd")
HAS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
MARK = "AHBM_TEST_SESSION"
CHECK = "AHBM_CHECK_INVARIANTS"
"""Every run of a test has the checker on, also in processes that it starts."""
END_GRACE_MS = 2000
"""What a process that has been told to end may still take."""


# --- what can be left -----------------------------------------------------------------------------------------


def open_fds() -> set[int]:
    """This process's open descriptors. psutil lists files only."""
    if not HAS_FDS:
        return set()
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    # The one that read the list is among them. It had the lowest free number, which is free again.
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    return found - {lowest_free}


def children() -> set[int]:
    """The direct children of this process, including zombies. psutil would scan all processes, around each test."""
    found: set[int] = set()
    if HAS_CHILDREN:
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as file:
                found.update(map(int, file.read().split()))
    return found - _of_multiprocessing(*HELPER_PIDS)


def socket_files(*roots: Path) -> list[Path]:
    """The socket files below ``roots``."""
    found = []
    for root in roots:
        for folder, _, names in os.walk(root):
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if stat.S_ISSOCK(path.lstat().st_mode):
                        found.append(path)
    return found


def marked_processes(mark: str) -> set[int]:
    """The processes that run with this session's mark in their environment, but for this one."""
    found = {process.pid for process in psutil.process_iter(["environ"]) if _mark_of(process) == mark}
    return found - {os.getpid()} - _of_multiprocessing(*HELPER_PIDS)


def _mark_of(process: psutil.Process) -> str | None:
    # None for processes of other users.
    environ: dict[str, str] = process.info["environ"] or {}
    return environ.get(MARK)


def _of_multiprocessing(*names: str) -> set[int]:
    """Its two helpers live as long as this process: their pids, or their descriptors."""
    modules = ("multiprocessing.resource_tracker", "_resource_tracker"), ("multiprocessing.forkserver", "_forkserver")
    helpers = [getattr(sys.modules.get(module), helper, None) for module, helper in modules]
    found = {getattr(helper, name, None) for helper in helpers for name in names}
    return {number for number in found if isinstance(number, int)}


HELPER_PIDS = ("_pid", "_forkserver_pid")
HELPER_FDS = ("_fd", "_forkserver_alive_fd", "_forkserver_fd")


# --- the checks -----------------------------------------------------------------------------------------------


def new_fds(before: set[int]) -> list[str]:
    """Each descriptor that was not open ``before``, as ``number -> what it is``."""
    if open_fds() <= before:
        return []
    # Rubbish that holds a descriptor is the collector's to close, and the thread that pyzmq keeps for
    # messages sent without a copy is pyzmq's.
    gc.collect()
    if zmq_garbage := sys.modules.get("zmq.utils.garbage"):
        zmq_garbage.gc.stop()
    found = []
    for fd in sorted(open_fds() - before - _of_multiprocessing(*HELPER_FDS)):
        # Another thread may have closed it by now.
        with contextlib.suppress(FileNotFoundError):
            found.append(f"{fd} -> {os.readlink(f'/proc/self/fd/{fd}')}")
    return found


def still_running(pids: set[int]) -> list[str]:
    """Those of ``pids`` that do not end within a moment, as ``pid: command``; they are killed."""
    found = []
    for pid in sorted(pids):
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            if not poll.poll(END_GRACE_MS):
                found.append(f"{pid}: {_command(pid)}")
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except ProcessLookupError:
            continue
        finally:
            os.close(handle)
    return found


def left_children(before: set[int]) -> list[str]:
    """Each child that was not there ``before``, as ``pid: command``; it is killed and waited for."""
    if children() <= before:
        return []
    gc.collect()
    found = []
    for pid in sorted(children() - before):
        found.append(f"{pid}: {_command(pid)}")
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return found


def left_socket_files(*roots: Path) -> list[str]:
    """Each socket file below ``roots``; it is removed."""
    found = socket_files(*roots)
    for path in found:
        path.unlink(missing_ok=True)
    return [str(path) for path in found]


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline()).strip() or "ended, not waited for"
    except psutil.ZombieProcess:
        return "ended, not waited for"
    except psutil.Error:
        return "ended"


def _tell(**left: list[str]) -> str:
    lines = [f"  {what.replace('_', ' ')}: {item}" for what, items in left.items() for item in items]
    return "\n".join(["left behind:", *lines]) if lines else ""


# --- pytest ---------------------------------------------------------------------------------------------------


class _Session:
    def __init__(self) -> None:
        # Short: a socket's path has 108 bytes at most.
        self.temp = Path(tempfile.mkdtemp(prefix="ahbm-"))
        self.mark = self.temp.name
        self.ran = 0
        names = ("TMPDIR", "PYTEST_DEBUG_TEMPROOT", MARK, CHECK)
        self.first = (tempfile.tempdir, {name: os.environ.get(name) for name in names})
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(self.temp.parent))
        os.environ.update({"TMPDIR": str(self.temp), MARK: self.mark, CHECK: "1"})
        tempfile.tempdir = str(self.temp)

    def close(self) -> None:
        tempfile.tempdir, environ = self.first
        for name, value in environ.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        shutil.rmtree(self.temp, ignore_errors=True)


_SESSION = pytest.StashKey[_Session]()


def pytest_configure(config: pytest.Config) -> None:
    """Move to a temporary directory of the session's own, and mark all that it will start."""
    config.stash[_SESSION] = _Session()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Undo :func:`pytest_configure`."""
    config.stash[_SESSION].close()


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a child process, an open descriptor or a socket file."""
    session = request.config.stash[_SESSION]
    fds, pids = open_fds(), children()
    yield
    roots = [session.temp, *(path for name, path in request.node.funcargs.items() if name == "tmp_path")]
    starts_some = any(map(request.node.get_closest_marker, ("processes", "cluster")))
    left = _tell(
        child_process=left_children(pids),
        open_descriptor=new_fds(fds),
        socket_file=left_socket_files(*roots),
        process=still_running(marked_processes(session.mark)) if starts_some else [],
    )
    if left:
        pytest.fail(left, pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Count the tests that ran: those whose body was entered or whose set-up failed."""
    report = yield
    if report.failed or (report.when == "call" and (report.passed or hasattr(report, "wasxfail"))):
        item.config.stash[_SESSION].ran += 1
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a session that leaves something, or in which every test was skipped."""
    state = session.config.stash[_SESSION]
    left = _tell(
        child_process=left_children(set()),
        socket_file=left_socket_files(state.temp),
        process=still_running(marked_processes(state.mark)),
    )
    if left:
        print(f"\nthe session has {left}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif exitstatus == pytest.ExitCode.OK and not state.ran and not session.config.option.collectonly:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
