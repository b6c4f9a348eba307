"""The preloaded server: a fork that starts processes on order, one log each, and tells how each one ends.

It is forked when everything is imported and before any thread or socket exists, so its children start in
milliseconds and share its memory. Whom it serves is the launcher, or the agent of another host. If that one dies,
however it dies, the server kills its children and removes their folder; if the server dies, the kernel kills them.
It knows processes by a name and an incarnation number; what they do is a ``ProcessEntry``.
"""

import contextlib
import errno
import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from launcher.processes.children import EXIT_UNCAUGHT, Children, as_child, set_parent_death_signal, set_process_name

Tell = Callable[[str], None]
CLOSE_S = 5.0
"""Whoever has not gone by then was stopped by somebody else, and is killed."""
__all__ = [
    "EXIT_UNCAUGHT",
    "Ended",
    "ForkServer",
    "News",
    "NotStarted",
    "ProcessEntry",
    "ProcessMessage",
    "ProcessStarted",
    "Ready",
    "SetupFailed",
    "Tell",
]


class ProcessEntry(Protocol):
    """What a server's processes do."""

    def set_up(self, ticket: str) -> None:
        """In the server, before the first start: prepare what its processes share. What it raises is told."""

    def run(self, name: str, order: Any, tell: Tell) -> int:
        """In a child: be the process ``name``; its exit code. ``tell`` passes a short text to who ordered it."""


class ProcessStarted(NamedTuple):
    """A process runs."""

    name: str
    incarnation: int
    pid: int


class Ended(NamedTuple):
    """A process is gone; ``status`` is its exit code, or minus the signal that killed it."""

    name: str
    incarnation: int
    pid: int
    status: int


class NotStarted(NamedTuple):
    """A process could not be started, and why."""

    name: str
    incarnation: int
    why: str


class ProcessMessage(NamedTuple):
    """What a process had to tell."""

    name: str
    incarnation: int
    text: str


class Ready(NamedTuple):
    """The set-up is done: processes may be started."""


class SetupFailed(NamedTuple):
    """The set-up cannot be done, and why."""

    line: str


News = ProcessStarted | Ended | NotStarted | ProcessMessage | Ready | SetupFailed
_KINDS: dict[str, type[News]] = {
    "started": ProcessStarted,
    "ended": Ended,
    "not_started": NotStarted,
    "told": ProcessMessage,
    "fit": Ready,
    "unfit": SetupFailed,
}


def news_from(fields: list[Any]) -> News:
    """News from its fields on the wire.

    Raises:
        ValueError, LookupError, TypeError: when they are anything else.
    """
    kind, *values = fields
    return msgspec.convert(values, _KINDS[kind])


class ForkServer:
    """The end of whom it serves. Processes write to ``log_dir/NAME.log``. Orders never block.

    ``log_dir`` need not be there. Who is killed leaves nothing: the server makes the folder that it will remove.

    Raises:
        OSError: when it cannot be made.
    """

    def __init__(self, entry: ProcessEntry, log_dir: str) -> None:
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()
        served = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            ours.close()
            # Not SIGKILL: it has children to kill and a folder to remove. But a stopped one must wake to that.
            as_child(lambda: _serve(theirs, entry, log_dir, served))
        gc.unfreeze()
        theirs.close()
        _await_folder(ours, self.pid)
        ours.setblocking(False)
        self._socket = ours
        self._buffer = b""
        self._orders = b""
        self._gone = False
        self._status: int | None = None

    def fileno(self) -> int:
        """Readable when there is news."""
        return self._socket.fileno()

    def lines(self) -> list[list[Any]]:
        """News since the last call as it is on the wire, for who passes it on; see :meth:`news`."""
        self.flush()
        while True:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # It ended on its own when an order was on its way to it.
                data = b""
            if not data:
                self._gone = True
                break
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def news(self) -> list[News]:
        """What has happened since the last call; ``gone`` becomes true when the server itself has ended."""
        return [news_from(fields) for fields in self.lines()]

    @property
    def gone(self) -> bool:
        """Whether the server has ended, and with it every process it started."""
        return self._gone

    @property
    def status(self) -> int:
        """How a server that is gone has ended: its exit code, or minus a signal."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    @property
    def unsent(self) -> bool:
        """Whether orders wait to be tried again soon, by :meth:`flush` or when news is read."""
        return bool(self._orders) and not self._gone

    def set_up(self, ticket: str) -> None:
        """Have the trade set up; ``Ready`` or ``SetupFailed`` is the answer."""
        self.order(["setup", ticket])

    def start(self, name: str, incarnation: int, order: Any) -> None:
        """Start a process; ``order`` is what the trade makes of it, as JSON can carry it."""
        self.order(["start", name, incarnation, order])

    def kill(self, name: str, signum: int = signal.SIGKILL) -> None:
        """Send a signal to a process if it still runs."""
        self.order(["kill", name, int(signum)])

    def kill_all(self) -> None:
        """Kill every process that still runs; their ends are told as usual."""
        self.order(["killall"])

    def order(self, fields: list[Any]) -> None:
        """Any order as it is on the wire."""
        self._orders += json.dumps(fields).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what is left of the orders, as far as there is room for them."""
        try:
            while self._orders:
                self._orders = self._orders[self._socket.send(self._orders) :]
        except BlockingIOError:
            pass
        except OSError:
            self._orders = b""

    def close(self) -> None:
        """Kill what runs, release the server and wait until it is gone; its folder stays."""
        self.order(["leave"])
        while not self.gone:
            if not select.select([self._socket], [], [], CLOSE_S)[0]:
                os.kill(self.pid, signal.SIGKILL)
            self.lines()
        self._socket.close()
        _ = self.status

    def abandon(self) -> None:
        """What becomes of who is killed: only the connection ends. Waits until the server has cleaned up."""
        self._socket.close()
        _ = self.status


def free_folder(prefix: str) -> str:
    """The name of a temporary folder that a server can make for its own.

    Raises:
        OSError: when none can be made.
    """
    folder = tempfile.mkdtemp(prefix=prefix)
    os.rmdir(folder)
    return folder


def _await_folder(server: socket.socket, pid: int) -> None:
    said = server.recv(1)
    number = said[0] if said else errno.ECHILD
    if number:
        server.close()
        os.waitpid(pid, 0)
        raise OSError(number, os.strerror(number))


def _serve(control: socket.socket, entry: ProcessEntry, log_dir: str, served: int) -> int:
    set_parent_death_signal(served, signal.SIGCONT)
    set_process_name("server")
    os.setsid()
    try:
        if not os.path.isdir(log_dir) or os.stat(log_dir).st_uid != os.geteuid():
            os.mkdir(log_dir, 0o700)
    except OSError as error:
        control.send(bytes([min(error.errno or errno.EIO, 255)]))
        return 1
    control.send(b"\0")
    server = _Serving(control, entry, log_dir)
    while not server.done:
        server.turn()
    return 0


class _Serving:
    """The server's own side: one turn of its loop at a time."""

    def __init__(self, control: socket.socket, entry: ProcessEntry, log_dir: str) -> None:
        self._control = control
        self._entry = entry
        self._buffer = b""
        self._woken, wake = socket.socketpair()
        self._words, words = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (self._woken, wake, self._words):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._children = Children(log_dir, not_theirs=(control, self._woken, wake, self._words))
        self._word_out = words
        self._leaving = False
        self.done = False

    def turn(self) -> None:
        """Wait for something, and deal with it."""
        ready, _, _ = select.select([self._control, self._woken, self._words], [], [])
        if self._control in ready:
            self._obey()
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        self._pass_on_words()
        for name, incarnation, pid, status in self._children.reap():
            self._tell(["ended", name, incarnation, pid, status])
        if self._leaving and not self._children.living:
            self.done = True

    def _obey(self) -> None:
        try:
            data = self._control.recv(65536)
        except ConnectionResetError:
            # It was gone before it had read all news.
            data = b""
        if not data:
            self._children.kill_all()
            self._children.remove_folder_at_end()
            self._leaving = self.done = True
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._do(*json.loads(line))

    def _do(self, kind: str, *values: Any) -> None:
        match kind:
            case "start":
                self._start(*values)
            case "kill":
                self._children.kill(*values)
            case "killall":
                self._children.kill_all()
            case "setup":
                self._set_up(*values)
            case "leave":
                self._children.kill_all()
                self._leaving = True

    def _set_up(self, ticket: str) -> None:
        try:
            self._entry.set_up(ticket)
        except Exception as error:
            self._tell(["unfit", f"{error}" or type(error).__name__])
            return
        gc.collect()
        gc.freeze()
        self._tell(["fit"])

    def _start(self, name: str, incarnation: int, order: Any) -> None:
        def tell(text: str) -> None:
            self._word_out.send(json.dumps([name, incarnation, text]).encode())

        try:
            pid = self._children.start(name, incarnation, lambda: self._entry.run(name, order, tell))
        except OSError as error:
            self._tell(["not_started", name, incarnation, _why(error)])
            return
        self._tell(["started", name, incarnation, pid])

    def _pass_on_words(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._tell(["told", *json.loads(self._words.recv(65536))])

    def _tell(self, fields: list[object]) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(fields).encode() + b"\n")


def _why(error: OSError) -> str:
    hints = {
        "EAGAIN": "the limit of processes is reached; raise ulimit -u, or pids.max of the cgroup",
        "EMFILE": "raise ulimit -n",
    }
    hint = hints.get(errno.errorcode.get(error.errno or 0, ""), "")
    what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return f"{what}; {hint}" if hint else what
