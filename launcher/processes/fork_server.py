"""Fork server: a preloaded process that starts processes on command, with one log each, and reports their exits.

The owner, which is the launcher or the agent of another host, forks the server after all imports and before any thread
or socket exists. So the server's children start in milliseconds and share its memory. When the owner exits, for any
reason, the server kills its children and removes their folder; when the server exits, the kernel kills its children.
A process is identified by its rank, or None for the broker, and its incarnation, and runs a :class:`ProcessEntry`.
Commands and events are :class:`Message`; between hosts, agents relay the same messages.
"""

import contextlib
import ctypes
import errno
import faulthandler
import gc
import io
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from broker.ids import Rank, Text
from launcher.processes.descendants import adopt_orphans, children_of, end_all, end_session, running, with_descendants
from sipsim.core.errors import OutputError
from sipsim.core.files import APPEND, Folder, open_file

Program = Callable[[], int]
PR_SET_PDEATHSIG = 1
EXIT_UNCAUGHT = 70
SignalNumber = Annotated[int, Meta(ge=0, le=64)]


SendText = Callable[[str], None]
LONGEST_REASON = 2**16
"""Maximum length, in characters, of the error text of a set-up; user code may raise this error."""
LONGEST_MESSAGE = 2**20
"""Size of the receive buffer in bytes: larger than any datagram, so that no message is truncated."""
CLOSE_S = 5.0
"""Seconds after which a process that has not exited, because a signal has stopped it, is killed."""


class ProcessEntry(Protocol):
    """Code of a server's processes."""

    def set_up(self, ticket: str) -> None:
        """Prepare, in the server and before the first start, the data that all processes share; may raise any error."""

    def run(self, rank: int | None, order: Any, send: SendText) -> int:
        """Run a process, in a child of the server; return its exit code. ``send`` sends a short text to the owner."""


class Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A message between a fork server and its owner, or between an agent and the launcher."""


class SetUp(Message, tag="set_up", frozen=True):
    """Command: set up the ``ProcessEntry``; the server answers :class:`Ready` or :class:`SetupFailed`."""

    ticket: Text


class StartProcess(Message, tag="start", frozen=True):
    """Command: start a process; ``order`` is plain data, passed to ``ProcessEntry.run``."""

    rank: Rank | None
    incarnation: int
    order: Any


class SignalProcess(Message, tag="signal", frozen=True):
    """Command: send signal ``signum`` to the process of ``rank`` if this process still runs."""

    rank: Rank | None
    signum: SignalNumber = signal.SIGKILL.value


class KillAll(Message, tag="kill_all", frozen=True):
    """Command: kill every process that still runs; the server reports each exit as usual."""


class Leave(Message, tag="leave", frozen=True):
    """Command: kill every process, report each exit, and end the server."""


class Ready(Message, tag="ready", frozen=True):
    """Event: the set-up is done; processes can be started."""


class SetupFailed(Message, tag="setup_failed", frozen=True):
    """Event: the set-up has failed. ``line``: the text of the error."""

    line: Text


class ProcessStarted(Message, tag="started", frozen=True):
    """Event: a process has started."""

    rank: Rank | None
    incarnation: int
    pid: int


class NotStarted(Message, tag="not_started", frozen=True):
    """Event: a process could not be started. ``why``: the operating system's error, with a hint."""

    rank: Rank | None
    incarnation: int
    why: Text


class ProcessMessage(Message, tag="message", frozen=True):
    """Event: a process has sent ``text`` to the owner."""

    rank: Rank | None
    incarnation: int
    text: Text


class ProcessesLeft(Message, tag="left", frozen=True):
    """Event: process ``pid`` (0 if unknown) has exited; the server ended ``left``, its running descendants."""

    rank: Rank | None
    pid: int
    left: list[int]


class ProcessExited(Message, tag="ended", frozen=True):
    """Event: a process has exited; ``status`` is the exit code, or minus the number of the signal that killed it."""

    rank: Rank | None
    incarnation: int
    pid: int
    status: int


ServerCommand = SetUp | StartProcess | SignalProcess | KillAll | Leave
ServerEvent = Ready | SetupFailed | ProcessStarted | NotStarted | ProcessMessage | ProcessesLeft | ProcessExited
LENGTH_BYTES = 4
_ENCODER = msgspec.msgpack.Encoder()
_COMMAND: "msgspec.msgpack.Decoder[ServerCommand]" = msgspec.msgpack.Decoder(ServerCommand)
_EVENT: "msgspec.msgpack.Decoder[ServerEvent]" = msgspec.msgpack.Decoder(ServerEvent)


def _framed(body: bytes) -> bytes:
    """Return ``body`` with its length in front, as a frame of a byte stream."""
    return len(body).to_bytes(LENGTH_BYTES) + body


def _take_frames(stream: bytearray) -> Iterator[bytes]:
    """Remove and yield the messages that have arrived completely in ``stream``."""
    while len(stream) >= (end := LENGTH_BYTES + int.from_bytes(stream[:LENGTH_BYTES])):
        yield bytes(stream[LENGTH_BYTES:end])
        del stream[:end]


def process_name(rank: int | None) -> str:
    """Return the name of a process for users: the name of its log file, and its name in ``ps``."""
    return "broker" if rank is None else f"sip-{rank}"


class ForkServer:
    """The owner's side of a fork server. Each process writes to ``log_dir/NAME.log``. Commands never block.

    The server creates ``log_dir``, and removes the folder if the owner is killed.

    Raises:
        OSError: if ``log_dir`` cannot be created.
    """

    def __init__(self, entry: ProcessEntry, log_dir: str) -> None:
        control, far_end = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        owner_pid = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            control.close()
            as_child(lambda: _serve(far_end, entry, log_dir, owner_pid))
        far_end.close()
        _await_folder(control, self.pid)
        control.setblocking(False)
        self._socket = control
        self._arrived = bytearray()
        self._unsent = b""
        self._gone = False
        self._status: int | None = None

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the server has sent events."""
        return self._socket.fileno()

    def events(self) -> list[ServerEvent]:
        """Return the events since the last call, and set ``gone`` if the server itself has exited."""
        self.flush()
        while not self._gone:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # The server exited while a command was in flight.
                data = b""
            if not data:
                self._gone = True
                break
            self._arrived += data
        return [_EVENT.decode(frame) for frame in _take_frames(self._arrived)]

    @property
    def gone(self) -> bool:
        """Whether the server has exited, and with it all its processes."""
        return self._gone

    @property
    def status(self) -> int:
        """The server's exit code, or minus the number of the signal that killed the server; waits until the exit."""
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    @property
    def unsent(self) -> bool:
        """Whether commands are queued; :meth:`flush` and :meth:`events` send them."""
        return bool(self._unsent) and not self._gone

    def order(self, command: ServerCommand) -> None:
        """Queue a command for the server, and send as much as the socket accepts."""
        self._unsent += _framed(_ENCODER.encode(command))
        self.flush()

    def flush(self) -> None:
        """Send as many queued commands as the socket accepts."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = b""

    def close(self) -> list[ServerEvent]:
        """Kill all processes, end the server, wait for the exit, and return the last events. ``log_dir`` stays."""
        self.order(Leave())
        found = []
        while not self.gone:
            if not select.select([self._socket], [], [], CLOSE_S)[0]:
                os.kill(self.pid, signal.SIGKILL)
            found += self.events()
        self._socket.close()
        if self.status < 0:
            # The kernel has killed the server's processes, but not the descendants of these.
            end_session(self.pid)
        return found

    def abandon(self) -> None:
        """Close the connection, as if the owner were killed, and wait until the server has exited."""
        self._socket.close()
        _ = self.status


def free_folder(prefix: str) -> str:
    """Return the path of a new temporary folder, which does not exist and which a server can create.

    Raises:
        OSError: if no folder can be created.
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
    # Frozen in the server only: the owner's objects stay collectable in the owner.
    gc.freeze()
    # SIGCONT rather than SIGKILL: the server must clean up, even if it is stopped.
    set_parent_death_signal(owner_pid, signal.SIGCONT)
    set_process_name("server")
    # Children inherit this: a new child may get the signal before the child has set a handler.
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
    """The server's side of a fork server; ``turn`` is one turn of the server's loop."""

    def __init__(self, control: socket.socket, entry: ProcessEntry, log_dir: str) -> None:
        self._control = control
        self._entry = entry
        self._arrived = bytearray()
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
            self._handle_commands()
        if self._woken in ready:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        self._forward_messages()
        for event in self._children.reap(wait=self._closing):
            self._send(event)
        self.done = self._closing
        if self.done and self._is_orphan:
            self._children.remove_folder()

    def _handle_commands(self) -> None:
        try:
            data = self._control.recv(65536)
        except ConnectionResetError:
            # The owner exited before it had read all events.
            data = b""
        if not data:
            self._children.kill_all()
            self._closing = self._is_orphan = True
            return
        self._arrived += data
        for frame in _take_frames(self._arrived):
            self._do(_COMMAND.decode(frame))

    def _do(self, command: ServerCommand) -> None:
        match command:
            case SetUp(ticket):
                self._set_up(ticket)
            case StartProcess():
                self._start(command)
            case SignalProcess(rank, signum):
                self._children.send_signal(rank, signum)
            case KillAll():
                self._children.kill_all()
            case Leave():
                self._children.kill_all()
                self._closing = True

    def _set_up(self, ticket: str) -> None:
        try:
            self._entry.set_up(ticket)
        except Exception as error:
            line = f"{error}" or type(error).__name__
            self._send(SetupFailed(line[:LONGEST_REASON].encode(errors="backslashreplace").decode()))
            return
        gc.collect()
        gc.freeze()
        self._send(Ready())

    def _start(self, start: StartProcess) -> None:
        rank, incarnation = start.rank, start.incarnation

        def send(text: str) -> None:
            self._message_out.send(_ENCODER.encode(ProcessMessage(rank, incarnation, text)))

        try:
            pid = self._children.start(rank, incarnation, lambda: self._entry.run(rank, start.order, send))
        except OSError as error:
            self._send(NotStarted(rank, incarnation, _reason(error)))
            return
        self._send(ProcessStarted(rank, incarnation, pid))

    def _forward_messages(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._forward(self._messages.recv(LONGEST_MESSAGE))

    def _send(self, event: ServerEvent) -> None:
        self._forward(_ENCODER.encode(event))

    def _forward(self, body: bytes) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(_framed(body))


def _reason(error: OSError) -> str:
    hints = {
        "EAGAIN": "the limit of processes is reached; raise ulimit -u, or pids.max of the cgroup",
        "EMFILE": "raise ulimit -n",
    }
    hint = hints.get(errno.errorcode.get(error.errno or 0, ""), "")
    what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return f"{what}; {hint}" if hint else what


class Children:
    """Child processes of this process: each child has a log, is killed with this process, and is reaped.

    When a child exits, the processes that the child has left running are ended before the exit is reported.
    ``private``: sockets of this process, which children must close.
    """

    def __init__(self, log_dir: str, private: tuple[socket.socket, ...]) -> None:
        self._log_dir = log_dir
        self._private = private
        self._started: dict[int, int | None] = {}
        self.living: dict[int, tuple[int | None, int]] = {}
        adopt_orphans()

    def start(self, rank: int | None, incarnation: int, program: Program) -> int:
        """Fork a child that runs ``program``; return its pid.

        Raises:
            OSError: if the child's log cannot be opened, or no process can be created.
        """
        name = process_name(rank)
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
                # The process group identifies the child's descendants, also after its exit.
                os.setpgid(0, 0)
                set_parent_death_signal(parent, signal.SIGKILL)
                set_process_name(name)
                _redirect(log, path)
                as_child(program)
        finally:
            os.close(log)
        self._started[pid], self.living[pid] = rank, (rank, incarnation)
        return pid

    def send_signal(self, rank: int | None, signum: int) -> None:
        """Send a signal to the living incarnation of ``rank``."""
        for pid, (child_rank, _) in self.living.items():
            if child_rank == rank:
                os.kill(pid, signum)

    def kill_all(self) -> None:
        """Kill all living children."""
        for pid in self.living:
            os.kill(pid, signal.SIGKILL)

    def reap(self, wait: bool = False) -> list[ProcessesLeft | ProcessExited]:
        """Return events since the last call: processes that exited children left running, then the exits.

        ``wait``: if true, wait until all children have exited; the caller must have killed all of them.
        """
        ended = {}
        for pid in list(self.living):
            reaped, status = os.waitpid(pid, 0 if wait else os.WNOHANG)
            if reaped:
                ended[pid] = ProcessExited(*self.living.pop(pid), pid, os.waitstatus_to_exitcode(status))
        owners: dict[int, int | None] = {}
        orphans = end_all(lambda: self._left_by(ended.keys(), owners)) if ended else []
        left: dict[int | None, list[int]] = {}
        for pid in orphans:
            left.setdefault(owners[pid], []).append(pid)
        reports = [ProcessesLeft(self._started[pid] if pid else None, pid or 0, pids) for pid, pids in left.items()]
        return [*reports, *ended.values()]

    def _left_by(self, ended: Collection[int], owners: dict[int, int | None]) -> list[int]:
        """Return running orphans of ended children, or all if no child lives; add orphan -> child to ``owners``."""
        found: list[int] = []
        for orphan in running(pid for pid in children_of(os.getpid()) if pid not in self.living):
            owner = self._owner_of(orphan)
            if owner in ended or (owner not in self.living and not self.living):
                for pid in running(with_descendants([orphan])):
                    owners.setdefault(pid, owner)
                    found.append(pid)
        return found

    def _owner_of(self, pid: int) -> int | None:
        """Return the child that has started a process; None if the process has left the child's process group."""
        with contextlib.suppress(OSError):
            group = os.getpgid(pid)
            return group if group in self._started else None
        return None

    def remove_folder(self) -> None:
        """Remove the folder of the logs."""
        shutil.rmtree(self._log_dir, ignore_errors=True)


def set_process_name(name: str) -> None:
    """Set the name of this process in ``ps`` and ``top``; Linux truncates the name to 15 bytes."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(f"ahbm-{name}")


def as_child(program: Program) -> None:
    """Run ``program`` in a forked child and exit with the status that ``program`` returns; never returns."""
    status = EXIT_UNCAUGHT
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # A user may send the request for the launcher's state to its whole process group.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        # A process that handles this signal sets a handler later.
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
    """Let the kernel send ``signum`` to this process when its parent dies; exit at once if the parent is dead."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signum))
    if os.getppid() != parent_pid:
        os._exit(EXIT_UNCAUGHT)


class _Log(io.FileIO):
    """Output stream of a process. A failed write raises ``OutputError``, so that the printing code is not blamed.

    Raises:
        OutputError: if the output cannot be written, such as on a full disk.
    """

    def __init__(self, number: int, path: Path) -> None:
        super().__init__(number, "w", closefd=False)
        self._path = path

    def write(self, data: Any) -> int:
        try:
            return super().write(data) or 0
        except OSError as error:
            hint = "make room there, or set TMPDIR to another folder"
            what = f"output cannot be written: {error.strerror}"
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
    # A crash in C code, which a script or kernel may call, prints its position.
    faulthandler.enable(file=2, all_threads=False)
