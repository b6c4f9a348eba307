"""Finds and ends processes that user code has left running, by the kernel's lists of children.

When a parent exits, its children become children of the nearest ancestor that is a subreaper (``prctl(2)``). psutil is
not used, because it would scan all processes of the host.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
BY_ITSELF_S = 0.1
"""Seconds for a process to end by itself after its parent's exit, such as the reader of a pipe."""
AFTER_TERM_S = 0.5
MAX_LISTED = 8
AFTER_KILL_S = 2.0
"""Time for killed processes to exit; the kernel needs less, unless a process waits for a broken disk."""


def adopt_orphans(wanted: bool = True) -> bool:
    """Set whether processes that lose their parent become children of this process; return the previous setting."""
    before, libc = ctypes.c_int(), ctypes.CDLL(None)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)
    return bool(before.value)


def children_of(pid: int, thread: int | None = None) -> list[int]:
    """Return the children of a process, or of the process's thread ``thread``, including children not yet reaped."""
    found: list[int] = []
    for task in [Path(f"/proc/{pid}/task/{thread}")] if thread is not None else _tasks(pid):
        with contextlib.suppress(OSError, ValueError):
            found += map(int, (task / "children").read_text().split())
    return found


def with_descendants(pids: Iterable[int]) -> list[int]:
    """Return ``pids`` and the pids of all their descendants."""
    found = list(pids)
    for pid in found:
        found += [child for child in children_of(pid) if child not in found]
    return found


def running(pids: Iterable[int]) -> list[int]:
    """Return the processes that have not exited; exited children of this process are reaped."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            # ChildProcessError: an orphan that is not yet adopted, or a deeper descendant.
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX":
                found.append(pid)
    return found


def end_all(find: Callable[[], list[int]]) -> list[int]:
    """End the processes that ``find`` returns, by SIGTERM and then SIGKILL, until ``find`` returns none.

    Returns the pids of the processes that did not end by themselves.
    """
    if not find():
        return []
    _await_ends(find(), BY_ITSELF_S)
    signalled = find()
    _signal(signalled, signal.SIGTERM)
    _await_ends(signalled, AFTER_TERM_S if signalled else 0.0)
    until_s = time.monotonic() + AFTER_KILL_S
    while (remaining := find()) and time.monotonic() < until_s:
        signalled += [pid for pid in remaining if pid not in signalled]
        _signal(remaining, signal.SIGKILL)
        _await_ends(remaining, AFTER_KILL_S)
    return signalled


def end_session(session: int) -> None:
    """End all processes of the session with id ``session``, such as the processes of a killed fork server."""
    end_all(lambda: running(pid for pid in _all_pids() if _session_of(pid) == session))


@contextlib.contextmanager
def own_children_ended(report: Callable[[list[int]], None]) -> Iterator[None]:
    """End, after the body, all processes that this thread started in the body, with descendants; ``report`` the pids.

    The helpers of ``multiprocessing``, which live as long as this process, are left running.
    """
    this_pid, older_children = os.getpid(), set(own_children())
    before = adopt_orphans()
    try:
        yield
    finally:
        if os.getpid() == this_pid:
            left = end_all(lambda: running(with_descendants({*own_children()} - older_children - _helpers())))
            adopt_orphans(before)
            if left:
                report(left)


def left_line(by: str, pids: list[int]) -> str:
    """Return a message for the user: code of ``by`` left processes ``pids`` running, and these were ended."""
    listed = ", ".join(map(str, pids[:MAX_LISTED])) + (", ..." if len(pids) > MAX_LISTED else "")
    what = f"a process (pid {listed})" if len(pids) == 1 else f"{len(pids)} processes (pids {listed})"
    return f"{by} left {what} running, ended by the launcher; code must wait for processes that it starts"


def own_children() -> list[int]:
    """Return the pids of children of this thread, including the children of ended threads."""
    return children_of(os.getpid(), threading.get_native_id())


def _helpers() -> set[int]:
    parts = ("resource_tracker", "_resource_tracker", "_pid"), ("forkserver", "_forkserver", "_forkserver_pid")
    loaded = ((sys.modules.get(f"multiprocessing.{module}"), helper, pid) for module, helper, pid in parts)
    return {number for module, helper, pid in loaded if (number := getattr(getattr(module, helper, None), pid, None))}


def _await_ends(pids: list[int], limit_s: float) -> None:
    """Wait until all processes have exited, but at most ``limit_s`` seconds."""
    handles, until_s = [], time.monotonic() + limit_s
    for pid in pids:
        with contextlib.suppress(OSError):
            handles.append(os.pidfd_open(pid))
    try:
        for handle in handles:
            poll = select.poll()
            poll.register(handle, select.POLLIN)
            poll.poll(max(until_s - time.monotonic(), 0.0) * 1000)
    finally:
        for handle in handles:
            os.close(handle)


def _signal(pids: Iterable[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _session_of(pid: int) -> int:
    with contextlib.suppress(OSError):
        return os.getsid(pid)
    return -1
