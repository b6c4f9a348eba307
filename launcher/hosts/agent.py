"""Command ``ahbm-agent``: starts SIPs on another host for the launcher; one process per host.

The agent forks a fork server, connects to the launcher, and then only relays: commands to the server; events,
logs and heartbeats to the launcher. When the launcher exits, the connection is closed, or the standard input that
carried the bootstrap ends, the agent ends all its processes and exits.
"""

import argparse
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import zmq

from broker.ids import LAUNCHER
from broker.mail.sockets import ClientSocket, SocketFactory
from launcher.hosts.bootstrap import Bootstrap, sip_address
from launcher.hosts.wire import (
    PIECE_BYTES,
    BadMessage,
    File,
    Finish,
    FromAgent,
    Heartbeat,
    Hello,
    KillSelf,
    Leaving,
    Log,
    ProcessStates,
    decode_to_agent,
    encode,
)
from launcher.processes.entry import SimProcessEntry, node_rank
from launcher.processes.fork_server import (
    CLOSE_S,
    ForkServer,
    KillAll,
    ProcessExited,
    ProcessStarted,
    free_folder,
    set_process_name,
)
from launcher.processes.this_host import process_state
from launcher.processes.ticket import read_private
from launcher.supervise.facts import describe_exit
from sipsim import VERSION
from sipsim.core.errors import ConfigError
from sipsim.core.files import Unsafe, reader
from sipsim.records.artifacts import is_artifact


class AgentArtifacts:
    """Files in ``folder`` for the launcher: logs, read while processes run, and artifact folders, read at the end."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._read: dict[int, int] = {}

    def logs(self) -> Iterator[Log]:
        """Yield the output that SIP processes have written to their logs since the last call."""
        for path in sorted(self._folder.glob("sip-*.log")):
            rank = int(path.stem.removeprefix("sip-"))
            with reader(path) as log:
                log.seek(self._read.get(rank, 0))
                while piece := log.read(PIECE_BYTES):
                    self._read[rank] = log.tell()
                    yield Log(rank, piece)

    def files(self) -> Iterator[File]:
        """Yield every file in the ranks' artifact folders, piece by piece; an empty file is one piece.

        Links are not followed. A line on standard error names each file that cannot be sent.
        """
        for path in sorted(self._folder.glob("rank-*")):
            for folder, _, names in os.walk(path):
                for name in sorted(names):
                    yield from self._pieces(Path(folder, name))

    def _pieces(self, path: Path) -> Iterator[File]:
        name = path.relative_to(self._folder).as_posix()
        try:
            file = reader(path)
        except Unsafe as error:
            print(f"ahbm-agent: file {name!r} is not sent to the launcher: the file {error.strerror}", file=sys.stderr)
            return
        with file:
            if not is_artifact(name):
                reason = "the name is too long, contains too many folders, or is not text"
                print(f"ahbm-agent: file {name!r} is not sent to the launcher: {reason}", file=sys.stderr)
                return
            piece = file.read(PIECE_BYTES)
            yield File(name, piece)
            while piece := file.read(PIECE_BYTES):
                yield File(name, piece)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)


HEARTBEAT_S = 0.2
STATES_EVERY = 4
"""Process states are sent with every fourth heartbeat."""
LINGER_MS = 2000
EXIT_LOST = 4
MAX_BOOTSTRAP_BYTES = 2**20
"""The longest bootstrap: the keys of each host take some 300 B."""


def main(argv: list[str] | None = None) -> int:
    """Serve one run; return exit code 0 after ``Finish``, 2 for a bad bootstrap, 4 if the launcher is lost."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The server ends all processes when the agent exits, for any reason.
        signal.signal(signum, signal.SIG_DFL)
    arguments = _parser().parse_args(argv)
    set_process_name("agent")
    try:
        bootstrap = _bootstrap(arguments)
        rank = node_rank(os.environ, bootstrap.n_hosts, bootstrap.node_rank, bootstrap.rank_names)
        address = sip_address(bootstrap.launcher, arguments.bind)
    except ConfigError as error:
        print(f"ahbm-agent: {error}", file=sys.stderr)
        return error.exit_code
    agent = _Agent(bootstrap, rank, address, watch_stdin=arguments.stdin)
    reason = agent.serve()
    if reason:
        print(f"ahbm-agent: {reason}", file=sys.stderr)
    return EXIT_LOST if reason else 0


class _Agent:
    """Agent of one run. The constructor forks the server before any thread exists."""

    def __init__(self, bootstrap: Bootstrap, rank: int, address: str, watch_stdin: bool) -> None:
        self._rank = rank
        self._watch_stdin = watch_stdin
        self._folder = free_folder("ahbm-agent-")
        self._server = ForkServer(SimProcessEntry(), self._folder)
        self._artifacts = AgentArtifacts(self._folder)
        self._pids: dict[int, int] = {}
        keys = bootstrap.keys_of(rank)
        self._sockets = SocketFactory(keys, {}, bootstrap.silence_s)
        name = b"agent-%d/%d-%d" % (rank, os.getpid(), time.monotonic_ns())
        key = keys.launcher if keys else None
        self._socket: ClientSocket = self._sockets.connect(zmq.DEALER, LAUNCHER, bootstrap.launcher, key, name)
        # Without the domain, so that the host name is a valid ``Name``.
        self._name = socket.gethostname().partition(".")[0] or "host"
        self._send(Hello(rank, self._name, os.getpid(), VERSION, address, self._folder))
        self._finish_by_s: float | None = None
        self._heartbeats = 0
        self._next_heartbeat_s = 0.0

    def serve(self) -> str:
        """Serve until the run ends; return why the agent ended, or "" after ``Finish``."""
        reason = ""
        poller = zmq.Poller()
        for source in (self._socket.socket, self._socket.monitor, self._server.fileno()):
            poller.register(source, zmq.POLLIN)
        if self._watch_stdin:
            poller.register(0, zmq.POLLIN)
        while not reason and not self._is_over():
            ready = dict(poller.poll(int(HEARTBEAT_S * 1000)))
            reason = self._turn(0 in ready)
        self._end(reason)
        return reason

    def _is_over(self) -> bool:
        """Whether ``Finish`` has arrived, and all processes have exited or the grace time has passed."""
        return self._finish_by_s is not None and (not self._pids or time.monotonic() >= self._finish_by_s)

    def _turn(self, stdin_is_ready: bool) -> str:
        gone = self._socket.poll_events()
        if gone is not None:
            return gone.text
        if stdin_is_ready and not os.read(0, 4096):
            return "the standard input, which the launcher keeps open, has ended"
        try:
            while (frame := self._receive()) is not None:
                self._handle(frame)
        except BadMessage as error:
            return f"the launcher sent an invalid command: {error}"
        self._forward_news()
        if self._server.gone:
            return f"the server that starts the processes (pid {self._server.pid}) {describe_exit(self._server.status)}"
        self._send_heartbeat()
        return ""

    def _receive(self) -> bytes | None:
        try:
            return self._socket.socket.recv(zmq.NOBLOCK)
        except zmq.Again:
            return None

    def _handle(self, frame: bytes) -> None:
        match decode_to_agent(frame):
            case Finish() as finish:
                self._finish_by_s = time.monotonic() + finish.grace_s
            case KillSelf():
                os.kill(os.getpid(), signal.SIGKILL)
            case Heartbeat():
                pass
            case command:
                self._server.order(command)

    def _forward_news(self) -> None:
        """Forward events of the server; all output of a process is sent before its exit."""
        found = self._server.events()
        for message in self._artifacts.logs():
            self._send(message)
        for event in found:
            match event:
                case ProcessStarted(int(rank), _, pid):
                    self._pids[rank] = pid
                case ProcessExited(int(rank), _, pid) if self._pids.get(rank) == pid:
                    del self._pids[rank]
            self._send(event)

    def _send_heartbeat(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_heartbeat_s:
            return
        self._next_heartbeat_s = now_s + HEARTBEAT_S
        self._send(Heartbeat())
        if self._heartbeats % STATES_EVERY == 0:
            found = {rank: process_state(pid) for rank, pid in self._pids.items()}
            self._send(ProcessStates({rank: state for rank, state in found.items() if state is not None}))
        self._heartbeats += 1

    def _end(self, reason: str) -> None:
        # The server exits last and removes the folder, even if this process is killed now.
        is_well = self._end_processes()
        if self._finish_by_s is not None:
            for log in self._artifacts.logs():
                self._send(log)
            for file in self._artifacts.files():
                self._send(file)
        self._send(Leaving(reason))
        if is_well:
            self._server.abandon()
        else:
            self._server.close()
            self._artifacts.remove()
        self._sockets.close(0 if self._socket.poll_events() is not None else LINGER_MS)

    def _end_processes(self) -> bool:
        """Kill all processes; return whether the server has reported all exits within ``CLOSE_S``."""
        self._server.order(KillAll())
        until_s = time.monotonic() + CLOSE_S
        while self._pids and not self._server.gone and time.monotonic() < until_s:
            select.select([self._server], [], [], HEARTBEAT_S)
            self._forward_news()
        return not self._pids and not self._server.gone

    def _send(self, message: FromAgent) -> None:
        # The send fails if the connection is lost; the next turn detects the loss.
        self._socket.send(encode(message))


def _bootstrap(arguments: argparse.Namespace) -> Bootstrap:
    if arguments.stdin:
        return Bootstrap.from_text(_line_of_stdin(), "the standard input")
    path = Path(arguments.bootstrap)
    return Bootstrap.from_text(read_private(path), str(path))


def _line_of_stdin() -> str:
    """Return the first line of standard input, without reading further: a later end of file means a lost launcher.

    Raises:
        ConfigError: if the line is longer than ``MAX_BOOTSTRAP_BYTES``.
    """
    line = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
        if len(line) > MAX_BOOTSTRAP_BYTES:
            what = f"its first line is longer than {MAX_BOOTSTRAP_BYTES} B"
            raise ConfigError(f"the standard input contains no bootstrap of ahbm-launch: {what}")
    return line.decode(errors="replace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ahbm-agent",
        description="Starts the SIPs of one host for ahbm-launch, which starts this agent. "
        "Documentation: docs/clusters.md of the source; its README.md lists all pages.",
        allow_abbrev=False,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--stdin", action="store_true", help="read the bootstrap, one line; exit when the input ends")
    source.add_argument("--bootstrap", metavar="FILE", help="read the bootstrap from a private file")
    parser.add_argument(
        "--bind", default="", metavar="ADDR", help="address at which other hosts reach this host (default: detected)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
