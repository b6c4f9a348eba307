"""The fork server: a preloaded process that starts processes on order, one log each, and reports their exits.

It is forked when everything is imported and before any thread or socket exists, so its children start in
milliseconds and share its memory. Its owner is the launcher, or the agent of another host. When the owner exits, for
whatever reason, the server kills its children and removes their folder; when the server exits, the kernel kills them.
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
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from launcher.processes.descendants import end_session
from launcher.processes.fork_server.children import (
    EXIT_UNCAUGHT,
    Children,
    as_child,
    set_parent_death_signal,
    set_process_name,
)
from sipsim.core.files.files import Folder

SendText = Callable[[str], None]
CLOSE_S = 5.0
"""A process that has not exited by then is stopped, and is killed."""
__all__ = [
    "EXIT_UNCAUGHT",
    "Ended",
    "ForkServer",
    "News",
    "NotStarted",
    "ProcessEntry",
    "ProcessMessage",
    "ProcessStarted",
    "ProcessesLeft",
    "Ready",
    "SendText",
    "SetupFailed",
]


class ProcessEntry(Protocol):
    """What a server's processes do."""

    def set_up(self, ticket: str) -> None:
        """In the server, before the first start: prepare what its processes share. What it raises is reported."""

    def run(self, name: str, order: Any, send: SendText) -> int:
        """In a child: run the process ``name``; returns its exit code. ``send`` sends a short text to the owner."""


class ProcessStarted(NamedTuple):
    """A process has started."""

    name: str
    incarnation: int
    pid: int


class Ended(NamedTuple):
    """A process has exited; ``status`` is its exit code, or minus the signal that killed it."""

    name: str
    incarnation: int
    pid: int
    status: int


class NotStarted(NamedTuple):
    """A process could not be started, and why."""

    name: str
    incarnation: int
    why: str


class ProcessesLeft(NamedTuple):
    """A process has exited, by the name "" if that is not known, and has left others running, which were ended."""

    name: str
    incarnation: int
    pid: int
    left: list[int]


class ProcessMessage(NamedTuple):
    """A text that a process has sent."""

    name: str
    incarnation: int
    text: str


class Ready(NamedTuple):
    """The set-up is done: processes can be started."""


class SetupFailed(NamedTuple):
    """The set-up has failed, and why."""

    line: str


News = ProcessStarted | Ended | ProcessesLeft | NotStarted | ProcessMessage | Ready | SetupFailed
_KINDS: dict[str, type[News]] = {
    "started": ProcessStarted,
    "ended": Ended,
    "left": ProcessesLeft,
    "not_started": NotStarted,
    "message": ProcessMessage,
    "ready": Ready,
    "setup_failed": SetupFailed,
}


def news_from(fields: list[Any]) -> News:
    """News from its fields on the wire.

    Raises:
        ValueError, LookupError, TypeError: when they are anything else.
    """
    kind, *values = fields
    return msgspec.convert(values, _KINDS[kind])


class ForkServer:
    """The owner's side. Processes write to ``log_dir/NAME.log``. Orders never block.

    The server makes ``log_dir`` and removes it when the owner is killed.

    Raises:
        OSError: when ``log_dir`` cannot be made.
    """

    def __init__(self, entry: ProcessEntry, log_dir: str) -> None:
        control, far_end = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        gc.freeze()
        owner_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            control.close()
            as_child(lambda: _serve(far_end, entry, log_dir, owner_pid))
        gc.unfreeze()
        far_end.close()
        _await_folder(control, self.pid)
        control.setblocking(False)
        self._socket = control
        self._buffer = b""
        self._orders = b""
        self._gone = False
        self._status: int | None = None

    def fileno(self) -> int:
        """Readable when there is news."""
        return self._socket.fileno()

    def lines(self) -> list[list[Any]]:
        """News since the last call in wire format, for relays; see :meth:`news`."""
        self.flush()
        while not self._gone:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # It exited while an order was in flight.
                data = b""
            if not data:
                self._gone = True
                break
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def news(self) -> list[News]:
        """Events since the last call; ``gone`` becomes true when the server itself has exited."""
        return [news_from(fields) for fields in self.lines()]

    @property
    def gone(self) -> bool:
        """Whether the server has exited, and with it every process that it started."""
        return self._gone

    @property
    def status(self) -> int:
        """The exit code of a server that is gone, or minus a signal."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    @property
    def unsent(self) -> bool:
        """Whether orders are queued, to be retried soon by :meth:`flush` or when news is read."""
        return bool(self._orders) and not self._gone

    def set_up(self, ticket: str) -> None:
        """Set up the ``ProcessEntry``; the answer is ``Ready`` or ``SetupFailed``."""
        self.order(["setup", ticket])

    def start(self, name: str, incarnation: int, order: Any) -> None:
        """Start a process; ``order`` is JSON data for ``ProcessEntry.run``."""
        self.order(["start", name, incarnation, order])

    def kill(self, name: str, signum: int = signal.SIGKILL) -> None:
        """Send a signal to a process if it still runs."""
        self.order(["kill", name, int(signum)])

    def kill_all(self) -> None:
        """Kill every process that still runs; their exits are reported as usual."""
        self.order(["killall"])

    def order(self, fields: list[Any]) -> None:
        """Send any order in wire format."""
        self._orders += json.dumps(fields).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send queued orders, as far as the socket takes them."""
        try:
            while self._orders:
                self._orders = self._orders[self._socket.send(self._orders) :]
        except BlockingIOError:
            pass
        except OSError:
            self._orders = b""

    def close(self) -> list[News]:
        """Kill all processes, end the server and wait for it; its last news. Its folder stays."""
        self.order(["leave"])
        found = []
        while not self.gone:
            if not select.select([self._socket], [], [], CLOSE_S)[0]:
                os.kill(self.pid, signal.SIGKILL)
            found += self.news()
        self._socket.close()
        if self.status < 0:
            # The kernel has killed its processes, but not those that they have started.
            end_session(self.pid)
        return found

    def abandon(self) -> None:
        """Close the connection as if the owner were killed, and wait until the server has cleaned up."""
        self._socket.close()
        _ = self.status


def free_folder(prefix: str) -> str:
    """The name of a temporary folder that a server can make.

    Raises:
        OSError: when none can be made.
    """
    folder = tempfile.mkdtemp(prefix=prefix)
    os.rmdir(folder)
    return folder


def _await_folder(server: socket.socket, pid: int) -> None:
    reply = server.recv(1)
    number = reply[0] if reply else errno.ECHILD
    if number:
        server.close()
        os.waitpid(pid, 0)
        raise OSError(number, os.strerror(number))


def _serve(control: socket.socket, entry: ProcessEntry, log_dir: str, owner_pid: int) -> int:
    # Not SIGKILL: the server has to clean up. A stopped one must continue for that.
    set_parent_death_signal(owner_pid, signal.SIGCONT)
    set_process_name("server")
    # Children inherit it: one that has just been forked may get it before it has chosen what to do with it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    os.setsid()
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(log_dir, 0o700)
        Folder(Path(log_dir)).close()
    except OSError as error:
        control.send(bytes([min(error.errno or errno.EIO, 255)]))
        return 1
    control.send(b"\0")
    server = _Serving(control, entry, log_dir)
    while not server.done:
        server.turn()
    return 0


class _Serving:
    """The server's side: one turn of its loop at a time."""

    def __init__(self, control: socket.socket, entry: ProcessEntry, log_dir: str) -> None:
        self._control = control
        self._entry = entry
        self._buffer = b""
        self._woken, wake = socket.socketpair()
        self._messages, message_out = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (self._woken, wake, self._messages):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._children = Children(log_dir, private=(control, self._woken, wake, self._messages))
        self._message_out = message_out
        self._closing = False
        self._is_orphan = False
        self.done = False

    def turn(self) -> None:
        """Wait for an event and handle it."""
        ready, _, _ = select.select([self._control, self._woken, self._messages], [], [])
        if self._control in ready:
            self._handle_orders()
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        self._forward_messages()
        for fields in self._children.reap(wait=self._closing):
            self._send(fields)
        self.done = self._closing
        if self.done and self._is_orphan:
            self._children.remove_folder()

    def _handle_orders(self) -> None:
        try:
            data = self._control.recv(65536)
        except ConnectionResetError:
            # The owner exited before it had read all news.
            data = b""
        if not data:
            self._children.kill_all()
            self._closing = self._is_orphan = True
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
                self._closing = True

    def _set_up(self, ticket: str) -> None:
        try:
            self._entry.set_up(ticket)
        except Exception as error:
            self._send(["setup_failed", f"{error}" or type(error).__name__])
            return
        gc.collect()
        gc.freeze()
        self._send(["ready"])

    def _start(self, name: str, incarnation: int, order: Any) -> None:
        def send(text: str) -> None:
            self._message_out.send(json.dumps([name, incarnation, text]).encode())

        try:
            pid = self._children.start(name, incarnation, lambda: self._entry.run(name, order, send))
        except OSError as error:
            self._send(["not_started", name, incarnation, _why(error)])
            return
        self._send(["started", name, incarnation, pid])

    def _forward_messages(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._send(["message", *json.loads(self._messages.recv(65536))])

    def _send(self, fields: list[object]) -> None:
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
