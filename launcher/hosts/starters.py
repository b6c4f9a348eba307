"""Starters: how an engine of many hosts gets agents onto them, and the local processes that do it."""

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
"""Makes the bootstrap of one host's agent, or with None one for all agents."""
BOOTSTRAP = "AHBM_BOOTSTRAP"
"""Names the file of the bootstrap for agents that another program starts."""
LEAVE_S = 1.0
END_S = 3.0
BUSY = ("kex_exchange_identification", "Connection reset by", "Connection closed by", "ssh_exchange_identification")
"""Output of ssh when an sshd had too many connections at a time."""
JITTER_S = (0.2, 1.2)


class StarterEnded(NamedTuple):
    """The process that starts the agent of ``host`` (None: of all) has exited.

    ``silent``: without output, so it was killed and did not fail to reach the host.
    """

    host: int | None
    why: str
    silent: bool = False


class StartPlan(NamedTuple):
    """How an engine gets agents onto its hosts.

    ``specs``: the hosts by node rank, as known before agents connect. ``rank_names``: the environment variables that
    hold the agents' node rank; empty when the bootstrap does. ``command``: starts the agent on a host, given its node
    rank; ``for_all``: starts all agents at once; with neither, another program starts them. ``bootstrap``: the file
    with their bootstrap; None: it goes to the command's standard input. ``cancel``: ends what survives SIGTERM.
    """

    specs: Sequence[HostSpec]
    rank_names: tuple[str, ...] = ()
    command: Callable[[int], Sequence[str]] | None = None
    for_all: Sequence[str] = ()
    bootstrap: Path | None = None
    cancel: Callable[[], None] = lambda: None


def agent_command(*flags: str) -> str:
    """The shell command for a host: this interpreter and checkout if they exist there, else the installed agent."""
    command = os.environ.get("AHBM_AGENT")
    arguments = " ".join(map(shlex.quote, flags))
    if command:
        return f"exec {command} {arguments}"
    python, root = shlex.quote(sys.executable), shlex.quote(str(Path(__file__).resolve().parents[2]))
    local = f"cd {root} && exec {python} -m launcher.hosts.agent {arguments}"
    return f"if [ -x {python} ] && [ -d {root}/launcher ]; then {local}; else exec ahbm-agent {arguments}; fi"


def program(name: str, why: str, setting: str = "") -> str:
    """The path of a program that an engine needs.

    Raises:
        ConfigError: when it is missing.
    """
    wanted = (os.environ.get(setting) if setting else None) or name
    found = shutil.which(wanted)
    if found is None:
        hint = f", or set {setting}" if setting else ""
        what = f"{why} needs {wanted}, which is not on PATH"
        raise ConfigError(f"{what}; install it{hint}, or choose another --engine")
    return found


def specs_of(hosts: Hosts, why: str) -> list[HostSpec]:
    """The hosts of ``--hosts``.

    Raises:
        ConfigError: when it was not given.
    """
    if not hosts:
        raise ConfigError(f"{why} needs --hosts, such as --hosts a:2,b:2")
    return [HostSpec(name, slots) for name, slots in hosts]


class StarterProcess:
    """A local process that starts agents, in a process group of its own, with its output in a file."""

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
            # It stays open: agents exit when it ends.
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(stdin.encode() + b"\n")
                self.process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        """Whether it has exited."""
        return self.process.poll() is not None

    def ending(self, host: int | None) -> StarterEnded:
        """The last line of its output, or how it exited."""
        with reader(self._output) as output:
            lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
        lines = [line for line in lines if any(map(str.isalnum, line))] or lines
        if lines:
            return StarterEnded(host, lines[-1].strip())
        status = self.process.poll()
        return StarterEnded(host, f"what started it {describe_exit(status or 0)}", silent=True)

    def signal(self, signum: int) -> None:
        """Signal its process group, if it still runs."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signum)

    def close_stdin(self) -> None:
        """Close its standard input, on which agents exit."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def wait(self, until_s: float) -> bool:
        """Whether it exits by then."""
        try:
            self.process.wait(max(until_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True


class Starter:
    """Gets agents onto hosts by a plan, from ``folder``. Only ``close`` blocks.

    Commands have a standard input that stays open: agents exit when it ends. Where one command starts all agents, none
    is started again.
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
            ConfigError: when the bootstrap cannot be written.
        """
        self._boot = boot
        path = self.plan.bootstrap
        if path is not None:
            try:
                write_private(path, boot(None))
            except OSError as error:
                named = path if self.plan.for_all else f"{BOOTSTRAP}={path}"
                raise ConfigError(f"{named}: cannot be written: {error.strerror}") from None
        if self.plan.for_all:
            self._start(None, self.plan.for_all)
        elif self.can_revive:
            for host in range(len(self.plan.specs)):
                self.revive(host)
        else:
            log(f"agents may start: their bootstrap is {path}")

    def revive(self, host: int) -> None:
        """Start another agent on a host."""
        if self.plan.command is not None:
            self._start(host, self.plan.command(host))

    def _start(self, host: int | None, argv: Sequence[str]) -> None:
        stdin = self._boot(host) if self.plan.bootstrap is None else None
        self._running[host] = StarterProcess(argv, self._folder / f"start-{len(self._all)}.out", stdin)
        self._all.append(self._running[host])

    def ended(self) -> list[StarterEnded]:
        """Exits since the last call. A connection refused by a busy sshd is retried once, a little later."""
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
        """End what still runs, and remove the bootstrap; agents exit by themselves."""
        if self.plan.bootstrap is not None:
            with contextlib.suppress(OSError):
                self.plan.bootstrap.unlink()
        end_all(self._all, self.plan.cancel)


def end_all(running: Sequence[StarterProcess], before_kill: Callable[[], None] = lambda: None) -> None:
    """Close their standard input, then send SIGTERM, then ``before_kill`` and SIGKILL; all at the same time."""
    for each in running:
        each.close_stdin()
    for grace_s, signum in ((LEAVE_S, signal.SIGTERM), (END_S, signal.SIGKILL)):
        until_s = time.monotonic() + grace_s
        left = [each for each in running if not each.wait(until_s)]
        if left and signum == signal.SIGKILL:
            before_kill()
        for each in left:
            each.signal(signum)
    for each in running:
        each.process.wait()
