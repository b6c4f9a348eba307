"""Detection of stalls: no progress, and no process that computes. Long computation, also of host code, is no stall."""

import sys
import time
from collections.abc import Mapping

from broker.wire import SipSync, Sync
from launcher.processes.fork_server import process_name
from launcher.processes.this_host import ProcessState, process_state
from launcher.report.sync_state import explanation, reason

STEP_S = 2.0
"""Samples are due each second."""


class QuietTimer:
    """How long a process has spent without progress, by samples of it that come again and again.

    Counts what ``ProcessState.spent_since`` returns: a loaded host does not shorten a deadline for those who compute.

    ``step_s``: the most that counts between two samples: after a longer gap whoever takes them was suspended.
    ``waited_s``: how long it had no processor meanwhile.
    """

    def __init__(self, step_s: float = STEP_S) -> None:
        self._step_s = step_s
        self._last: ProcessState | None = None
        self.quiet_s = self.waited_s = 0.0

    def note(self, state: ProcessState) -> None:
        """Take a sample of the process."""
        if self._last is not None:
            spent_s = state.spent_since(self._last)
            self.quiet_s += min(spent_s, self._step_s)
            self.waited_s += max(state.at_s - self._last.at_s - spent_s, 0.0)
        self._last = state

    def moved(self, ago_s: float = 0.0) -> None:
        """The process has made its last progress ``ago_s`` ago."""
        self.quiet_s = min(self.quiet_s, ago_s)
        self.waited_s = min(self.waited_s, ago_s - self.quiet_s)


def note_samples(
    timers: Mapping[int | None, QuietTimer], states: Mapping[int | None, ProcessState], clock_s: float
) -> None:
    """Take the samples of several processes, by rank (None: the broker).

    Of one that no host tells anything of, such as one that was started by hand, the clock is known.
    """
    unknown = ProcessState("", 0.0, 0.0, clock_s)
    for rank, timer in timers.items():
        timer.note(states.get(rank, unknown))


STALL_AFTER_S = 3.0
BLIND_AFTER_S = 2.5
"""Checks are due each second; after a longer gap the launcher itself was suspended."""
EVERY_S = 1.0
CHECKS = 4
"""At least so many within the shortest deadline, so that it is not exceeded by much."""


class Watchdog:
    """Watches one run: reports a stall once, and its end; prints the state of synchronisation when asked to.

    :meth:`note_sync` and :meth:`warning` are pure: callers pass messages, samples of processes and times. The others
    read the clock and process states, and print to standard error.

    ``now_s``: when it begins. ``at_the_end``: print the last state too. ``deadline_s``: the shortest deadline.
    """

    def __init__(self, now_s: float, at_the_end: bool = False, deadline_s: float = EVERY_S * CHECKS) -> None:
        self._every_s = min(EVERY_S, deadline_s / CHECKS)
        self._at_the_end = at_the_end
        self._pids: dict[int | None, int] = {}
        self._remote: set[int | None] = set()
        self.states: Mapping[int | None, ProcessState] = {}
        self._sync: Sync | None = None
        self._moved_s = self._answered_s = self._checked_s = now_s
        self._progress: object = None
        self._reported = False
        self._next_s = now_s + self._every_s
        self._requested = False
        self._last = ""

    def started(self, rank: int | None, pid: int, is_local: bool) -> None:
        """A process of the run has started, on this host or on another."""
        self._pids[rank] = pid
        (self._remote.discard if is_local else self._remote.add)(rank)

    def ended(self, rank: int | None, pid: int) -> None:
        """A process of the run has exited."""
        if self._pids.get(rank) == pid:
            del self._pids[rank]

    def rank_states(self) -> dict[int, str]:
        """The last known states of the ranks' processes, as text."""
        return {rank: state.description for rank, state in self.states.items() if rank is not None}

    def request(self) -> None:
        """Print the state as soon as the broker has sent it."""
        self._requested = True
        self._next_s = 0.0

    def check(self, remote: Mapping[int | None, ProcessState], silent_s: Mapping[str, float]) -> bool:
        """Check the processes if it is time; whether the broker is to be asked.

        ``remote``: processes on other hosts. ``silent_s``: see :meth:`warning`.
        """
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._every_s
        found = {rank: process_state(pid) for rank, pid in self._pids.items() if rank not in self._remote}
        found |= {rank: remote.get(rank) for rank in self._remote if rank in self._pids}
        known = {rank: state for rank, state in found.items() if state is not None}
        log_if(self.warning(known, now_s, silent_s))
        return True

    def note(self, sync: Sync) -> None:
        """Take the broker's answer, or its last state of a run that ends."""
        log_if(self.note_sync(sync, time.monotonic()))
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

    def note_sync(self, sync: Sync, now_s: float) -> str | None:
        """Take the broker's answer; a line when a stall is over."""
        self._sync, self._answered_s = sync, now_s
        progress = (sync.reports, sync.grants, tuple(sip.state for sip in sync.sips))
        if progress == self._progress:
            return None
        self._progress = progress
        return self._moves(now_s)

    def warning(
        self, states: Mapping[int | None, ProcessState], now_s: float, silent_s: Mapping[str, float] = {}
    ) -> str | None:
        """A warning, if one is due. ``states``: those of the processes, on any host.

        ``silent_s``: the hosts that are silent, and for how long; what their processes do is not known.
        """
        before, self.states = self.states, states
        asleep, self._checked_s = now_s - self._checked_s > BLIND_AFTER_S, now_s
        if asleep:
            # The launcher was suspended, not the run.
            self._answered_s = now_s
            return self._moves(now_s)
        # A broker that answers has used CPU time for its answers: only one that does not may be computing.
        sync = self._sync if now_s - self._answered_s < STALL_AFTER_S else None
        computing = (rank for rank, state in states.items() if state.computes_since(before.get(rank)))
        if any(sync is None or rank is not None for rank in computing):
            return self._moves(now_s)
        still_s = now_s - self._moved_s
        # A SIP without a known process may compute, or await a person's start: deadlines are for it.
        is_hidden = any(sip.rank not in self._pids for sip in _to_move(sync))
        if self._reported or still_s < STALL_AFTER_S or is_hidden:
            return None
        self._reported = True
        where = "on the hosts that answer" if silent_s else "of the run"
        head = f"stalled: nothing has moved for {still_s:.1f} s, and no process {where} computes"
        silent = [f"host {name}: its agent has been silent for {each:.1f} s" for name, each in silent_s.items()]
        return "\n".join([head, *(f"  {line}" for line in [*silent, *self._suspects(sync, now_s)])])

    def _moves(self, now_s: float) -> str | None:
        still_s, self._moved_s = now_s - self._moved_s, now_s
        was_reported, self._reported = self._reported, False
        return f"moves again after {still_s:.1f} s" if was_reported else None

    def _suspects(self, sync: Sync | None, now_s: float) -> list[str]:
        """``sync``: the broker's answer; None if it does not answer."""
        stopped = [
            (rank, pid) for rank, pid in self._pids.items() if rank in self.states and self.states[rank].is_stopped
        ]
        lines = [f"{process_name(rank)} (pid {pid}): its process is stopped" for rank, pid in stopped]
        if sync is None:
            return [*lines, f"the broker has not answered for {now_s - self._answered_s:.1f} s"]
        for sip in _to_move(sync):
            pid, state = self._pids.get(sip.rank), self.states.get(sip.rank)
            how = f"its process (pid {pid}) {state.description}" if state else "its process is not known here"
            since = f"SIP {sip.rank} has been {sip.state} for {sip.since_ns / 1e9:.1f} s"
            lines.append(f"{since}: {reason(sip)}; {how}")
        return [*lines, *explanation(sync).splitlines()]


def _to_move(sync: Sync | None) -> list[SipSync]:
    """The SIPs whose turn it is."""
    return [sip for sip in sync.sips if sip.state in ("joining", "starting", "running")] if sync else []


def log(what: str) -> None:
    """Print a message of the launcher itself."""
    print(f"ahbm-launch: {what}", file=sys.stderr)


def log_if(what: str | None) -> None:
    """The same, unless there is no message."""
    if what is not None:
        log(what)
