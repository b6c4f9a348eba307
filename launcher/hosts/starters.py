"""How agents get onto hosts: what an engine of many hosts is. The processes that do it are this module's business."""

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

from launcher.supervise.facts import HostSpec, describe_exit
from sipsim.errors import ConfigError

Boot = Callable[[int | None], str]
"""The bootstrap of the agent of one host, or with None one for all of them."""
Hosts = tuple[tuple[str, int | None], ...]
LEAVE_S = 1.0
END_S = 3.0


class StarterEnded(NamedTuple):
    """Whoever was to start the agent of ``host`` (None: of all) has ended. ``speechless``: it was killed, rather than
    failed to reach the host, of which it would have told.
    """

    host: int | None
    why: str
    speechless: bool = False


class Starter(Protocol):
    """Gets agents onto hosts. Nothing blocks but ``close``."""

    @property
    def specs(self) -> Sequence[HostSpec]:
        """The hosts, by node rank, as far as they are known before agents come."""

    @property
    def rank_names(self) -> tuple[str, ...]:
        """The environment variables by which its agents know their node rank; empty when the bootstrap says it."""

    @property
    def can_revive(self) -> bool:
        """Whether another agent can be started on one host."""

    def begin(self, boot: Boot) -> None:
        """Start an agent on every host."""

    def ended(self) -> list[StarterEnded]:
        """Whose starting process has ended since the last call."""

    def revive(self, host: int) -> None:
        """Start another agent on a host."""

    def close(self) -> None:
        """End what still runs; agents leave by themselves."""


def agent_command(*flags: str) -> str:
    """What a shell on a host is to run: our own interpreter and files if they are there too, else what is installed."""
    told = os.environ.get("AHBM_AGENT")
    words = " ".join(map(shlex.quote, flags))
    if told:
        return f"exec {told} {words}"
    python, root = shlex.quote(sys.executable), shlex.quote(str(Path(__file__).resolve().parents[2]))
    ours = f"cd {root} && exec {python} -m launcher.hosts.agent {words}"
    return f"if [ -x {python} ] && [ -d {root}/launcher ]; then {ours}; else exec ahbm-agent {words}; fi"


def program(name: str, why: str, setting: str = "") -> str:
    """Where a program is that an engine needs.

    Raises:
        ConfigError: one line that says what is missing.
    """
    told = os.environ.get(setting, "") if setting else ""
    found = shutil.which(told or name)
    if found is None:
        hint = f", or set {setting}" if setting else ""
        what = f"{why} needs {told or name}, which is not on PATH"
        raise ConfigError(f"{what}; install it{hint}, or choose another --engine")
    return found


def specs_of(hosts: Hosts, why: str) -> list[HostSpec]:
    """What ``--hosts`` says.

    Raises:
        ConfigError: when it was not given.
    """
    if not hosts:
        raise ConfigError(f"{why} needs --hosts, such as --hosts a:2,b:2")
    return [HostSpec(name, slots) for name, slots in hosts]


class Running:
    """One process of ours that starts agents: in a group of its own, with what it says in a file."""

    def __init__(self, argv: Sequence[str], words: Path, stdin: str | None = None) -> None:
        self._words = words
        with words.open("ab") as out:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=out,
                stderr=out,
                process_group=0,
            )
        if stdin is not None and self.process.stdin is not None:
            # It stays open: its end would be the agent's.
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.write(stdin.encode() + b"\n")
                self.process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self.process.poll() is not None

    def ending(self, host: int | None) -> StarterEnded:
        """The last line that it said, or how it ended."""
        lines = [line for line in self._words.read_text(errors="replace").splitlines() if line.strip()]
        lines = [line for line in lines if any(map(str.isalnum, line))] or lines
        if lines:
            return StarterEnded(host, lines[-1].strip())
        status = self.process.poll()
        return StarterEnded(host, f"what started it {describe_exit(status or 0)}", speechless=True)

    def signal(self, signum: int) -> None:
        """To all of its group, if it is still there."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signum)

    def let_go(self) -> None:
        """Close its standard input, for which agents leave."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()

    def wait(self, until_s: float) -> bool:
        """Whether it ends by then."""
        try:
            self.process.wait(max(until_s - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True


class OneForAll:
    """What starters share that get all agents onto their hosts by one process: nobody of them is started again."""

    can_revive = False

    def __init__(self) -> None:
        self._running: list[Running] = []
        self._told = False

    def revive(self, host: int) -> None:
        """Its end is that of them all."""

    def ended(self) -> list[StarterEnded]:
        """All at once, told once."""
        if self._told or not all(running.has_ended for running in self._running):
            return []
        self._told = True
        return [running.ending(None) for running in self._running]


def end_all(running: Sequence[Running], before_the_end: Callable[[], None] = lambda: None) -> None:
    """Let them end by themselves, then ask them once, then kill them; all of them at a time.

    ``before_the_end``: what else there is to try when they do not mind being asked.
    """
    for each in running:
        each.let_go()
    for grace_s, signum in ((LEAVE_S, signal.SIGTERM), (END_S, signal.SIGKILL)):
        until_s = time.monotonic() + grace_s
        left = [each for each in running if not each.wait(until_s)]
        if left and signum == signal.SIGKILL:
            before_the_end()
        for each in left:
            each.signal(signum)
    for each in running:
        each.process.wait()
