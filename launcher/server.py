"""The preloaded server: a fork of the launcher that starts the processes of a run and tells how each one ends.

It is forked when everything is imported and before any thread or socket exists, so its children start in
milliseconds and share its memory. If the launcher dies, however it dies, the server kills its children and removes
their folder; if the server dies, the kernel kills them.
"""

import contextlib
import ctypes
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

Program = Callable[[], int]
PR_SET_PDEATHSIG = 1
EXIT_UNCAUGHT = 70
KILL = b"K"


class Started(NamedTuple):
    """A process runs."""

    name: str
    pid: int


class Ended(NamedTuple):
    """A process is gone; ``status`` is its exit code, or minus the signal that killed it."""

    name: str
    pid: int
    status: int


class Server:
    """The launcher's end. ``programs`` run in the order given, each with its output in ``log_dir/NAME.log``."""

    def __init__(self, programs: dict[str, Program], log_dir: str) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _as_child(lambda: _serve(theirs, programs, log_dir))
        gc.unfreeze()
        theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._buffer = b""
        self._gone = False

    def fileno(self) -> int:
        """Readable when there is news."""
        return self._socket.fileno()

    def news(self) -> list[Started | Ended]:
        """What has happened since the last call; ``gone`` becomes true when the server itself has ended."""
        while True:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # It ended on its own when a ``KILL`` was on its way to it.
                data = b""
            if not data:
                self._gone = True
                break
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [_news_from(json.loads(line)) for line in lines]

    @property
    def gone(self) -> bool:
        """Whether the server has ended, and with it every process it started."""
        return self._gone

    def kill_all(self) -> None:
        """Kill every process that still runs; their ends are told as usual."""
        with contextlib.suppress(OSError):
            self._socket.send(KILL)

    def close(self) -> None:
        """Release the server and wait until it is gone."""
        self._socket.close()
        os.waitpid(self._pid, 0)


def _news_from(fields: list[object]) -> Started | Ended:
    kind, *values = fields
    return Started(*values) if kind == "started" else Ended(*values)  # type: ignore[arg-type]


def _as_child(program: Program) -> None:
    """Become a process of its own; never returns."""
    status = EXIT_UNCAUGHT
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # A question for the launcher that was sent to its whole group must not end anybody.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        status = program()
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _die_with(parent_pid: int) -> None:
    """Ask the kernel for a SIGKILL when the parent dies. Not retroactive, so the parent is compared afterwards."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(EXIT_UNCAUGHT)


def _serve(control: socket.socket, programs: dict[str, Program], log_dir: str) -> int:
    os.setsid()
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    living: dict[int, str] = {}
    launcher_is_gone = False
    for name, program in programs.items():
        pid = _start(program, Path(log_dir) / f"{name}.log", (control, woken, wake))
        living[pid] = name
        _tell(control, ["started", name, pid])
    while living:
        ready, _, _ = select.select([control, woken], [], [])
        if control in ready:
            launcher_is_gone = not control.recv(16)
            for pid in living:
                os.kill(pid, signal.SIGKILL)
        if woken in ready:
            woken.recv(4096)
        for pid, status in _reap(living):
            _tell(control, ["ended", living.pop(pid), pid, status])
    if launcher_is_gone:
        shutil.rmtree(log_dir, ignore_errors=True)
    return 0


def _start(program: Program, log: Path, not_theirs: tuple[socket.socket, ...]) -> int:
    server_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        for end in not_theirs:
            end.close()
        _die_with(server_pid)
        _redirect(log)
        _as_child(program)
    return pid


def _redirect(log: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def _reap(living: dict[int, str]) -> list[tuple[int, int]]:
    ended = []
    for pid in list(living):
        reaped, status = os.waitpid(pid, os.WNOHANG)
        if reaped:
            ended.append((pid, os.waitstatus_to_exitcode(status)))
    return ended


def _tell(control: socket.socket, fields: list[object]) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(fields).encode() + b"\n")
