"""How synchronisation stands, told when somebody wants to know: asked for, at the end, or because nothing moves.

The shell around ``StallDetector``: it reads the clock and /proc, and prints to standard error.
"""

import sys
import time
from collections.abc import Mapping

from broker.wire import Sync
from launcher.processes.names import rank_of
from launcher.processes.process_state import ProcessState, process_state
from launcher.report.explain import explanation
from launcher.supervise.stall import StallDetector

EVERY_S = 1.0
LOOKS = 4
"""Within the shortest deadline, so that one is not kept by far more than it is long."""


class Watchdog:
    """One run's. ``at_the_end``: tell the last state too, however the run ends. ``deadline_s``: the shortest one."""

    def __init__(self, at_the_end: bool, deadline_s: float = EVERY_S * LOOKS) -> None:
        self._every_s = min(EVERY_S, deadline_s / LOOKS)
        self._at_the_end = at_the_end
        self._pids: dict[str, int] = {}
        self._far: set[str] = set()
        self._looks: dict[str, ProcessState] = {}
        self._stall = StallDetector(time.monotonic())
        self._sync: Sync | None = None
        self._next_s = time.monotonic() + self._every_s
        self._wanted = False
        self._last = ""

    def started(self, name: str, pid: int, is_here: bool) -> None:
        """A process of the run has started, on this host or on another."""
        self._pids[name] = pid
        (self._far.discard if is_here else self._far.add)(name)

    def ended(self, name: str, pid: int) -> None:
        """It has ended."""
        if self._pids.get(name) == pid:
            del self._pids[name]

    def words(self) -> dict[int, str]:
        """What the processes of ranks did when they were last looked at."""
        ranks = ((rank_of(name), look) for name, look in self._looks.items())
        return {rank: look.words for rank, look in ranks if rank is not None}

    def asked(self) -> None:
        """Somebody wants to know now."""
        self._wanted = True
        self._next_s = 0.0

    def look(self, far: Mapping[str, ProcessState]) -> bool:
        """Look at the processes when it is time; whether the broker is to be asked. ``far``: who is on other hosts."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        here = {name: process_state(pid) for name, pid in self._pids.items() if name not in self._far}
        there = {name: far.get(name) for name in self._far if name in self._pids}
        self._looks = {name: look for name, look in {**here, **there}.items() if look is not None}
        say_if(self._stall.judge(self._sync, self._pids, self._looks, now_s))
        return True

    def note(self, sync: Sync) -> None:
        """The broker's answer, or its last word on a run that ends."""
        self._sync = sync
        say_if(self._stall.answered(sync, time.monotonic()))
        if sync.last:
            self._last = explanation(sync)
        elif self._wanted:
            self._wanted = False
            print(explanation(sync), file=sys.stderr, flush=True)

    def close(self) -> None:
        """The run is over."""
        known = self._last or (f"as it was when last told of:\n{explanation(self._sync)}" if self._sync else "")
        if known and (self._at_the_end or self._wanted):
            print(known, file=sys.stderr, flush=True)


def log(what: str) -> None:
    """A line, or more, of the launcher itself."""
    print(f"ahbm-launch: {what}", file=sys.stderr)


def say_if(what: str | None) -> None:
    """The same, if there is something to say."""
    if what is not None:
        log(what)
