"""The children of a fork server: each with a log of its own, killed with the server, reaped.

A child has ended when the processes that it has started and left have, too: these are ended then.
"""

import contextlib
import ctypes
import faulthandler
import io
import os
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from launcher.processes.descendants import adopt_orphans, children_of, end_all, running, with_descendants
from sipsim.core.errors import OutputError
from sipsim.core.files.files import APPEND, open_file

Program = Callable[[], int]
PR_SET_PDEATHSIG = 1
EXIT_UNCAUGHT = 70


class Children:
    """The children of this process. ``private``: sockets that children must close."""

    def __init__(self, log_dir: str, private: tuple[socket.socket, ...]) -> None:
        self._log_dir = log_dir
        self._private = private
        self._started: dict[int, tuple[str, int]] = {}
        self.living: dict[int, tuple[str, int]] = {}
        adopt_orphans()

    def start(self, name: str, incarnation: int, program: Program) -> int:
        """Fork a child that runs ``program``; returns its pid.

        Raises:
            OSError: when its log cannot be opened, or no process can be made.
        """
        path = Path(self._log_dir) / f"{name}.log"
        log = open_file(path, APPEND)
        try:
            if incarnation:
                os.write(log, b"--- incarnation %d ---\n" % incarnation)
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                for end in self._private:
                    end.close()
                # What it starts is known by that, also when it has ended.
                os.setpgid(0, 0)
                set_parent_death_signal(parent, signal.SIGKILL)
                set_process_name(name)
                _redirect(log, path)
                as_child(program)
        finally:
            os.close(log)
        self._started[pid] = self.living[pid] = (name, incarnation)
        return pid

    def kill(self, name: str, signum: int) -> None:
        """Send a signal to the living incarnation of ``name``."""
        for pid, (known, _) in self.living.items():
            if known == name:
                os.kill(pid, signum)

    def kill_all(self) -> None:
        """Kill all living children."""
        for pid in self.living:
            os.kill(pid, signal.SIGKILL)

    def reap(self, wait: bool = False) -> list[list[object]]:
        """News of children that have exited since the last call: what each has left, ended, and its own end.

        ``wait``: for all of them, which must have been killed.
        """
        ended = {}
        for pid in list(self.living):
            reaped, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
            if reaped:
                ended[pid] = [*self.living.pop(pid), pid, os.waitstatus_to_exitcode(status)]
        owners: dict[int, int | None] = {}
        told = end_all(lambda: self._left_by(ended.keys(), owners)) if ended else []
        left: dict[int | None, list[int]] = {}
        for pid in told:
            left.setdefault(owners[pid], []).append(pid)
        names = {by: self._started[by] if by is not None else ("", 0) for by in left}
        news: list[list[object]] = [["left", *names[by], by or 0, pids] for by, pids in left.items()]
        return news + [["ended", *each] for each in ended.values()]

    def _left_by(self, ended: Collection[int], owners: dict[int, int | None]) -> list[int]:
        """Running processes that have lost their parent: of children that have ended, and nobody's at the end."""
        found: list[int] = []
        for orphan in running(pid for pid in children_of(os.getpid()) if pid not in self.living):
            owner = self._owner_of(orphan)
            if owner in ended or (owner not in self.living and not self.living):
                for pid in running(with_descendants([orphan])):
                    owners.setdefault(pid, owner)
                    found.append(pid)
        return found

    def _owner_of(self, pid: int) -> int | None:
        """The child that has started a process; None for one that has left its process group."""
        with contextlib.suppress(OSError):
            group = os.getpgid(pid)
            return group if group in self._started else None
        return None

    def remove_folder(self) -> None:
        """Remove the folder of their logs."""
        shutil.rmtree(self._log_dir, ignore_errors=True)


def set_process_name(name: str) -> None:
    """The name that ``ps`` and ``top`` show; Linux keeps 15 bytes of it. psutil cannot set it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"ahbm-{name}")


def as_child(program: Program) -> None:
    """Run ``program`` in a forked child and exit with its status; never returns."""
    status = EXIT_UNCAUGHT
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # The request for the launcher's state may be sent to its whole process group.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # A process that handles it says so later.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        status = program()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def set_parent_death_signal(parent_pid: int, signum: int) -> None:
    """Ask the kernel for a signal when the parent dies. Not retroactive, so the parent is compared afterwards."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signum))
    if os.getppid() != parent_pid:
        os._exit(EXIT_UNCAUGHT)


class _Log(io.FileIO):
    """A process's output. What cannot be written is no error of the code that prints.

    Raises:
        OutputError: when the disk is full.
    """

    def __init__(self, number: int, path: Path) -> None:
        super().__init__(number, "w", closefd=False)
        self._path = path

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            hint = "make room there, or set TMPDIR to another folder"
            what = f"what is printed cannot be kept: {error.strerror}"
            raise OutputError(f"{self._path}: {what}; {hint}") from None


def _redirect(out: int, path: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Log(1, path)), line_buffering=True)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(_Log(2, path)), line_buffering=True)
    # A crash in C code, which a script or kernel may call, says where.
    faulthandler.enable(file=2, all_threads=False)
