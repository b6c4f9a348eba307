"""Starters: how an engine of many hosts gets agents onto them, and the local processes that do it."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from launcher.flag_types import Hosts
from launcher.supervise.facts import HostSpec, describe_exit
from sipsim.core.errors import ConfigError
from sipsim.core.files import APPEND, open_file, reader

Boot = Callable[[int | None], str]
"""Makes the bootstrap of one host's agent, or with None one for all agents."""
LEAVE_S = 1.0
END_S = 3.0


class StarterEnded(NamedTuple):
    """The process that starts the agent of ``host`` (None: of all) has exited.

    ``silent``: without output, so it was killed and did not fail to reach the host.
    """

    host: int | None
    why: str
    silent: bool = False


class Starter(Protocol):
    """Gets agents onto hosts. Only ``close`` blocks."""

    @property
    def specs(self) -> Sequence[HostSpec]:
        """The hosts by node rank, as known before agents connect."""

    @property
    def rank_names(self) -> tuple[str, ...]:
        """The environment variables that hold its agents' node rank; empty when the bootstrap does."""

    @property
    def can_revive(self) -> bool:
        """Whether another agent can be started on one host."""

    def begin(self, boot: Boot) -> None:
        """Start an agent on every host."""

    def ended(self) -> list[StarterEnded]:
        """Starting processes that have exited since the last call."""

    def revive(self, host: int) -> None:
        """Start another agent on a host."""

    def close(self) -> None:
        """End what still runs; agents exit by themselves."""


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


class SingleProcessStarter:
    """Base of starters that start all agents by one process; none of them is restarted."""

    can_revive = False

    def __init__(self) -> None:
        self._running: list[StarterProcess] = []
        self._reported = False

    def revive(self, host: int) -> None:
        """No-op."""

    def ended(self) -> list[StarterEnded]:
        """The exit of all agents, once."""
        if self._reported or not all(running.has_ended for running in self._running):
            return []
        self._reported = True
        return [running.ending(None) for running in self._running]


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
