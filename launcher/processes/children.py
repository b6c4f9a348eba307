"""The children of a fork server: each with a log of its own, killed with the server, reaped."""

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

Program = Callable[[], int]
PR_SET_PDEATHSIG = 1
EXIT_UNCAUGHT = 70


class Children:
    """The children of this process. ``private``: sockets that children must close."""

    def __init__(self, log_dir: str, private: tuple[socket.socket, ...]) -> None:
        self._log_dir = log_dir
        self._private = private
        self.living: dict[int, tuple[str, int]] = {}

    def start(self, name: str, incarnation: int, program: Program) -> int:
        """Fork a child that runs ``program``; returns its pid.

        Raises:
            OSError: when its log cannot be opened, or no process can be made.
        """
        log = os.open(Path(self._log_dir) / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            if incarnation:
                os.write(log, b"--- incarnation %d ---\n" % incarnation)
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                for end in self._private:
                    end.close()
                set_parent_death_signal(parent, signal.SIGKILL)
                set_process_name(name)
                _redirect(log)
                as_child(program)
        finally:
            os.close(log)
        self.living[pid] = (name, incarnation)
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

    def reap(self) -> list[tuple[str, int, int, int]]:
        """(name, incarnation, pid, status) of children that have exited since the last call."""
        ended = []
        for pid in list(self.living):
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                ended.append((*self.living.pop(pid), pid, os.waitstatus_to_exitcode(status)))
        return ended

    def remove_folder_at_end(self) -> None:
        """Wait for all children, then remove the folder of their logs."""
        for pid in list(self.living):
            os.waitpid(pid, 0)
            del self.living[pid]
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


def _redirect(out: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
