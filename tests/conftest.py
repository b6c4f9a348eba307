"""House-keeping for every test: what a test starts or opens, it has ended and closed when it is over.

After each test: no new child process, no new open file descriptor, no socket file in the temporary directory. After a
test that is marked ``processes`` or ``cluster``, and after the session: no process that a test started, at any depth
and with any parent. A session in which no test ran fails. Each worker of pytest-xdist is a session of its own here; the
first session also fails for what a worker has left.

The temporary directory (``tempfile`` and ``TMPDIR``) belongs to the session, so that other programs on the machine are
not mistaken for a test's; ``tmp_path`` stays where pytest puts it. Without ``/proc`` only the socket files are checked.

Tests run with the default config, those marked ``ideal`` with its variant ``adr``.

Tests marked ``slow`` run with ``--all``, with ``-m`` or when they are named by ``FILE::TEST``. A module that imports a
package of the extra ``test`` is skipped where the package is missing.
"""

import contextlib
import gc
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import HealthCheck, settings

HAS_FDS = os.path.isdir("/proc/self/fd")
HAS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
MARK = "AHBM_TEST_SESSION"
CHECK = "AHBM_CHECK_INVARIANTS"
"""Checks invariants in every run of a test, also in processes that it starts."""
VARIANT = "AHBM_VARIANT"
"""The variant ``adr``, whose times are sums that can be written down, is for tests that are marked ``ideal``."""
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
"""Not handed on: each of the hundreds of processes that tests start would compile the whole project."""
END_GRACE_MS = 60_000
"""How long a process may still take that was asked to end."""
TEST_EXTRA = ("hypothesis", "importlinter", "kubernetes_validate", "msgpack")
"""The packages of the extra ``test`` that modules of tests import."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 64 KiB."""
    if os.geteuid():
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


# --- what can be left -----------------------------------------------------------------------------------------


def open_fds() -> set[int]:
    """This process's open descriptors. psutil lists files only."""
    if not HAS_FDS:
        return set()
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    # The descriptor that read the list is among them. It had the lowest free number, which is free again.
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
    """Pids or descriptors of its two helper processes, which live as long as this process."""
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
    # Unreachable objects may hold descriptors; pyzmq keeps a thread for messages sent without a copy.
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
    """Those of ``pids`` that do not end within :data:`END_GRACE_MS`, as ``pid: command``; each is killed."""
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


def _list(**left: list[str]) -> str:
    lines = [f"  {what.replace('_', ' ')}: {item}" for what, items in left.items() for item in items]
    return "\n".join(["left behind:", *lines]) if lines else ""


# --- missing packages -----------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports a package of the extra ``test`` which is not installed."""
    report = yield
    call: pytest.CallInfo[Any] = report.call  # type: ignore[attr-defined]
    cause = call.excinfo and call.excinfo.value.__cause__
    if isinstance(cause, ModuleNotFoundError) and cause.name in TEST_EXTRA:
        reason = f'Skipped: {cause.name} is not installed: pip install ".[test]"'
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, reason)
    return report


# --- slow tests -----------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flags ``--all``, ``--refresh`` and ``--programs``."""
    parser.addoption("--all", action="store_true", help="also run the tests that are marked slow")
    parser.addoption("--refresh", action="store_true", help="write transcripts anew in place of comparing them")
    parser.addoption("--programs", type=int, default=32, help="random programs of each system (32)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the slow tests of an ordinary run."""
    if config.getoption("all") or config.option.markexpr or any("::" in arg for arg in config.args):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Keep modules and tests out of cyclic collections: each run of the simulator collects, and would go through all of
    them."""
    _keep_out_of_collections()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """And what the modules of tests before have left."""
    if item.path != _frozen_for.get("path"):
        _frozen_for["path"] = item.path
        _keep_out_of_collections()


_frozen_for: dict[str, Path] = {}


def _keep_out_of_collections() -> None:
    gc.collect()
    gc.freeze()


# --- sessions -------------------------------------------------------------------------------------------------


class _Session:
    def __init__(self, worker: str) -> None:
        self.is_worker = bool(worker)
        # Short: a socket's path has 108 bytes at most. A worker's is inside that of the session that started it.
        if worker:
            self.temp = Path(os.environ["TMPDIR"], worker)
            self.temp.mkdir()
        else:
            self.temp = Path(tempfile.mkdtemp(prefix="ahbm-"))
        self.mark = str(self.temp)
        self.ran = 0
        self.left = ""
        """What this session and its workers have left."""
        names = ("TMPDIR", "PYTEST_DEBUG_TEMPROOT", MARK, CHECK, VARIANT, NO_BYTECODE)
        self.first = (tempfile.tempdir, {name: os.environ.get(name) for name in names})
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(self.temp.parent))
        os.environ.update({"TMPDIR": str(self.temp), MARK: self.mark, CHECK: "1"})
        os.environ.pop(VARIANT, None)
        os.environ.pop(NO_BYTECODE, None)
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
    """Move to a temporary directory that belongs to the session, and mark all that it will start.

    Hypothesis draws the same examples in every ordinary run, and new ones with ``--all``; no test has a deadline.
    """
    if "hypothesis" in sys.modules:
        settings.register_profile(
            "ahbm",
            deadline=None,
            derandomize=not config.getoption("all", default=False),
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
        )
        settings.load_profile("ahbm")
    config.stash[_SESSION] = _Session(getattr(config, "workerinput", {}).get("workerid", ""))


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
    left = _list(
        child_process=left_children(pids),
        open_descriptor=new_fds(fds),
        socket_file=left_socket_files(*roots),
        process=still_running(marked_processes(session.mark)) if starts_some else [],
    )
    if left:
        pytest.fail(left, pytrace=False)


@pytest.fixture(autouse=True)
def costs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variant ``adr`` for a test that is marked ``ideal``."""
    if request.node.get_closest_marker("ideal"):
        monkeypatch.setenv(VARIANT, "adr")


@pytest.fixture(autouse=True)
def import_paths_stay() -> Iterator[None]:
    """A config's folder is searched for modules. Files of the same name in a later test are others."""
    before = list(sys.path)
    yield
    sys.path[:] = before


class _Reports:
    """Follows the reports of a session, which with pytest-xdist come from its workers."""

    def __init__(self, session: _Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the tests that ran: those whose body was entered or whose set-up failed."""
        if report.failed or (report.when == "call" and (report.passed or hasattr(report, "wasxfail"))):
            self._session.ran += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Keep what a worker has left; one that crashed reports none."""
        self._session.left += getattr(node, "workeroutput", {}).get("left", "")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Follow the reports."""
    session.config.pluginmanager.register(_Reports(session.config.stash[_SESSION]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a session that leaves something, or in which every test was skipped."""
    state = session.config.stash[_SESSION]
    state.left += _list(
        child_process=left_children(set()),
        socket_file=left_socket_files(state.temp),
        process=still_running(marked_processes(state.mark)),
    )
    if state.is_worker:
        session.config.workeroutput["left"] = state.left  # type: ignore[attr-defined]
    elif state.left:
        print(f"\nthe session has {state.left}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif exitstatus == pytest.ExitCode.OK and not state.ran and not session.config.option.collectonly:
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED
