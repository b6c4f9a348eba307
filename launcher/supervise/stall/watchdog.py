"""Prints the state of synchronisation: on request, at the end, or when a run has stalled.

The shell around ``StallDetector``: it reads the clock and process states, and prints to standard error.
"""

import sys
import time
from collections.abc import Mapping

from broker.wire import Sync
from launcher.processes.entry.names import rank_of
from launcher.processes.this_host.process_state import ProcessState, process_state
from launcher.report.sync_state import explanation
from launcher.supervise.stall.stall import StallDetector

EVERY_S = 1.0
CHECKS = 4
"""At least so many within the shortest deadline, so that it is not exceeded by much."""


class Watchdog:
    """Watches one run. ``at_the_end``: print the last state too. ``deadline_s``: the shortest deadline."""

    def __init__(self, at_the_end: bool, deadline_s: float = EVERY_S * CHECKS) -> None:
        self._every_s = min(EVERY_S, deadline_s / CHECKS)
        self._at_the_end = at_the_end
        self._pids: dict[str, int] = {}
        self._remote: set[str] = set()
        self._states: dict[str, ProcessState] = {}
        self._stall = StallDetector(time.monotonic())
        self._sync: Sync | None = None
        self._next_s = time.monotonic() + self._every_s
        self._requested = False
        self._last = ""

    def started(self, name: str, pid: int, is_local: bool) -> None:
        """A process of the run has started, on this host or on another."""
        self._pids[name] = pid
        (self._remote.discard if is_local else self._remote.add)(name)

    def ended(self, name: str, pid: int) -> None:
        """A process of the run has exited."""
        if self._pids.get(name) == pid:
            del self._pids[name]

    @property
    def states(self) -> Mapping[str, ProcessState]:
        """The last known states of the processes, by name."""
        return self._states

    def rank_states(self) -> dict[int, str]:
        """The last known states of the ranks' processes, as text."""
        ranks = ((rank_of(name), state) for name, state in self._states.items())
        return {rank: state.description for rank, state in ranks if rank is not None}

    def request(self) -> None:
        """Print the state as soon as the broker has sent it."""
        self._requested = True
        self._next_s = 0.0

    def check(self, remote: Mapping[str, ProcessState], silent_s: Mapping[str, float]) -> bool:
        """Check the processes if it is time; whether the broker is to be asked.

        ``remote``: processes on other hosts. ``silent_s``: see ``launcher.hosts.pool.base.HostPool``.
        """
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        found = {name: process_state(pid) for name, pid in self._pids.items() if name not in self._remote}
        found |= {name: remote.get(name) for name in self._remote if name in self._pids}
        self._states = {name: state for name, state in found.items() if state is not None}
        log_if(self._stall.check(self._sync, self._pids, self._states, now_s, silent_s))
        return True

    def note(self, sync: Sync) -> None:
        """Take the broker's answer, or its last state of a run that ends."""
        self._sync = sync
        log_if(self._stall.note_sync(sync, time.monotonic()))
        if sync.last:
            self._last = explanation(sync)
        elif self._requested:
            self._requested = False
            print(explanation(sync), file=sys.stderr, flush=True)

    def close(self) -> None:
        """The run is over."""
        known = self._last or (f"last known state:\n{explanation(self._sync)}" if self._sync else "")
        if known and (self._at_the_end or self._requested):
            print(known, file=sys.stderr, flush=True)


def log(what: str) -> None:
    """Print a message of the launcher itself."""
    print(f"ahbm-launch: {what}", file=sys.stderr)


def log_if(what: str | None) -> None:
    """The same, unless there is no message."""
    if what is not None:
        log(what)
