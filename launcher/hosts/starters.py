"""How agents get onto hosts: what an engine of many hosts is. The processes that do it are this module's business."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from launcher.facts import HostSpec

Boot = Callable[[int | None], str]
"""The bootstrap of the agent of one host, or with None one for all of them."""
LEAVE_S = 1.0
END_S = 3.0


class Starter(Protocol):
    """Gets agents onto hosts. Nothing blocks but ``close``."""

    @property
    def specs(self) -> Sequence[HostSpec]:
        """The hosts, by node rank, as far as they are known before agents come."""

    @property
    def names(self) -> list[str]:
        """Names of hosts to which a way can be asked for."""

    def begin(self, boot: Boot) -> None:
        """Start an agent on every host."""

    def ended(self) -> list[tuple[int | None, str]]:
        """Whose starting process has ended since the last call: the host, or None for all of them, and its last words."""

    def revive(self, host: int) -> bool:
        """Start another agent on a host; whether that can be done."""

    def close(self) -> None:
        """End what still runs; agents leave by themselves."""


class Running:
    """One process of ours that starts agents: in a group of its own, with what it says in a file."""

    def __init__(
        self, argv: Sequence[str], words: Path, stdin: str | None = None, env: dict[str, str] | None = None
    ) -> None:
        self._words = words
        with words.open("ab") as out:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=out,
                stderr=out,
                process_group=0,
                env=None if env is None else {**os.environ, **env},
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

    def last_words(self) -> str:
        """The last line that it said, or how it ended."""
        lines = [line for line in self._words.read_text(errors="replace").splitlines() if line.strip()]
        status = self.process.poll()
        return lines[-1].strip() if lines else f"ended with exit code {status}"

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


def end_all(running: Sequence[Running]) -> None:
    """Let them end by themselves, then ask them once, then kill them; all of them at a time."""
    for each in running:
        each.let_go()
    for grace_s, signum in ((LEAVE_S, signal.SIGTERM), (END_S, signal.SIGKILL)):
        until_s = time.monotonic() + grace_s
        for each in [each for each in running if not each.wait(until_s)]:
            each.signal(signum)
    for each in running:
        each.process.wait()
