"""Starters: local processes that start agents on other hosts, such as ssh, srun or mpiexec."""

import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from launcher.flag_types import Hosts
from launcher.processes.ticket import write_private
from launcher.supervise.facts import HostSpec, describe_exit
from launcher.supervise.stall import log
from sipsim.core.errors import ConfigError
from sipsim.core.files import APPEND, open_file, reader

Boot = Callable[[int | None], str]
"""Function that returns the bootstrap text for the agent of a node rank, or for all agents if the argument is None."""
BOOTSTRAP = "AHBM_BOOTSTRAP"
"""Environment variable with the file of the bootstrap, for agents that another program starts."""
LEAVE_S = 1.0
END_S = 3.0
BUSY = ("kex_exchange_identification", "Connection reset by", "Connection closed by", "ssh_exchange_identification")
"""Starts of ssh's output if an sshd had too many connections at once."""
JITTER_S = (0.2, 1.2)


class StarterEnded(NamedTuple):
    """Exit of the process that starts the agent of ``host``, or all agents if None. ``why``: last output or status.

    ``silent``: the process exited without output, so it was killed, and the host may be reachable.
    """

    host: int | None
    why: str
    silent: bool = False


class StartPlan(NamedTuple):
    """Plan of an engine for the start of agents.

    ``specs``: the hosts by node rank, as known before agents connect. ``rank_names``: environment variables with the
    agents' node rank; empty if the bootstrap contains the rank. ``command``: function from a node rank to the command
    that starts the agent there. ``for_all``: command that starts all agents. Without both, the user starts all agents.
    ``bootstrap``: file of the bootstrap; None if commands read standard input. ``cancel``: called before SIGKILL.
    """

    specs: Sequence[HostSpec]
    rank_names: tuple[str, ...] = ()
    command: Callable[[int], Sequence[str]] | None = None
    for_all: Sequence[str] = ()
    bootstrap: Path | None = None
    cancel: Callable[[], None] = lambda: None


def agent_command(*flags: str) -> str:
    """Return the shell command that starts an agent: by this interpreter if the host has it, else ``ahbm-agent``."""
    command = os.environ.get("AHBM_AGENT")
    arguments = " ".join(map(shlex.quote, flags))
    if command:
        return f"exec {command} {arguments}"
    python, root = shlex.quote(sys.executable), shlex.quote(str(Path(__file__).resolve().parents[2]))
    local = f"cd {root} && exec {python} -m launcher.hosts.agent {arguments}"
    return f"if [ -x {python} ] && [ -d {root}/launcher ]; then {local}; else exec ahbm-agent {arguments}; fi"


def program(name: str, flag: str, setting: str = "") -> str:
    """Return the path of program ``name``, which ``flag`` needs; environment variable ``setting`` may replace the name.

    Raises:
        ConfigError: if the program is missing.
    """
    wanted = (os.environ.get(setting) if setting else None) or name
    found = shutil.which(wanted)
    if found is None:
        hint = f", or set {setting}" if setting else ""
        what = f"{flag} needs {wanted}, which is not on PATH"
        raise ConfigError(f"{what}; install it{hint}, or choose another --engine")
    return found


def specs_of(hosts: Hosts, flag: str) -> list[HostSpec]:
    """Return the hosts of ``--hosts``, which ``flag`` needs.

    Raises:
        ConfigError: if ``--hosts`` was not given.
    """
    if not hosts:
        raise ConfigError(f"{flag} needs --hosts, such as --hosts a:2,b:2")
    return [HostSpec(name, slots) for name, slots in hosts]


class StarterProcess:
    """Local process that starts agents, in a separate process group, with its output in a file."""

    def __init__(self, argv: Sequence[str], output: Path, stdin: str | None = None) -> None:
        self._output = output
        with os.fdopen(open_file(output, APPEND), "ab") as out:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=out,
                stderr=out,
                process_group=0,
            )
        if stdin is not None and self.process.stdin is not None:
            # Standard input stays open: agents exit at its end.
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(stdin.encode() + b"\n")
                self.process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        """Whether the process has exited."""
        return self.process.poll() is not None

    def ending(self, host: int | None) -> StarterEnded:
        """Return the exit as an event, with the last line of the output, or the exit status if there is no output."""
        with reader(self._output) as output:
            lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
        lines = [line for line in lines if any(map(str.isalnum, line))] or lines
        if lines:
            return StarterEnded(host, lines[-1].strip())
        status = self.process.poll()
        return StarterEnded(host, f"the process that starts the agent {describe_exit(status or 0)}", silent=True)

    def signal(self, signum: int) -> None:
        """Send a signal to the process group if the process still runs."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signum)

    def close_stdin(self) -> None:
        """Close the standard input of the process, so that its agents exit."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def wait(self, until_s: float) -> bool:
        """Wait for the exit until the monotonic time ``until_s``; return whether the process has exited."""
        try:
            self.process.wait(max(until_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True


class Starter:
    """Starts agents on hosts by a plan; ``folder`` gets the output of the commands. Only ``close`` blocks.

    The standard input of each command stays open, since agents exit at its end. If one command starts all agents, a
    single agent cannot be restarted.
    """

    def __init__(self, plan: StartPlan, folder: Path) -> None:
        self.plan = plan
        self._folder = folder
        self._running: dict[int | None, StarterProcess] = {}
        self._all: list[StarterProcess] = []
        self._retry_s: dict[int, float] = {}
        self._retried: set[int] = set()

    @property
    def can_revive(self) -> bool:
        """Whether another agent can be started on one host."""
        return self.plan.command is not None

    def begin(self, boot: Boot) -> None:
        """Start an agent on every host.

        Raises:
            ConfigError: if the bootstrap cannot be written.
        """
        self._boot = boot
        path = self.plan.bootstrap
        if path is not None:
            try:
                write_private(path, boot(None))
            except OSError as error:
                named = path if self.plan.for_all else f"{BOOTSTRAP}={path}"
                raise ConfigError(f"{named}: cannot be written: {error.strerror}; name a writable file") from None
        if self.plan.for_all:
            self._start(None, self.plan.for_all)
        elif self.can_revive:
            for host in range(len(self.plan.specs)):
                self.revive(host)
        else:
            log(f"the launcher has written the bootstrap of the agents to {path}; agents can start now")

    def revive(self, host: int) -> None:
        """Start another agent on a host."""
        if self.plan.command is not None:
            self._start(host, self.plan.command(host))

    def _start(self, host: int | None, argv: Sequence[str]) -> None:
        stdin = self._boot(host) if self.plan.bootstrap is None else None
        self._running[host] = StarterProcess(argv, self._folder / f"start-{len(self._all)}.out", stdin)
        self._all.append(self._running[host])

    def ended(self) -> list[StarterEnded]:
        """Return the exits since the last call. A start that a busy sshd refused is retried once, after a delay."""
        now_s = time.monotonic()
        for host in [host for host, retry_s in self._retry_s.items() if now_s >= retry_s]:
            del self._retry_s[host]
            self.revive(host)
        found: list[StarterEnded] = []
        for started in [host for host, running in self._running.items() if running.has_ended]:
            ending = self._running.pop(started).ending(started)
            if started is not None and started not in self._retried and ending.why.startswith(BUSY):
                self._retried.add(started)
                self._retry_s[started] = now_s + random.uniform(*JITTER_S)
            else:
                found.append(ending)
        return found

    def close(self) -> None:
        """End the processes that still run, and remove the bootstrap; agents exit by themselves."""
        if self.plan.bootstrap is not None:
            with contextlib.suppress(OSError):
                self.plan.bootstrap.unlink()
        end_all(self._all, self.plan.cancel)


def end_all(running: Sequence[StarterProcess], before_kill: Callable[[], None] = lambda: None) -> None:
    """End all processes together: close standard inputs, send SIGTERM, call ``before_kill``, and send SIGKILL."""
    for each in running:
        each.close_stdin()
    for grace_s, signum in ((LEAVE_S, signal.SIGTERM), (END_S, signal.SIGKILL)):
        until_s = time.monotonic() + grace_s
        remaining = [each for each in running if not each.wait(until_s)]
        if remaining and signum == signal.SIGKILL:
            before_kill()
        for each in remaining:
            each.signal(signum)
    for each in running:
        each.process.wait()
