"""Detection of stalls: no progress although no process computes. Long computation, also of host code, is no stall."""

import sys
import time
from collections.abc import Mapping

from broker.wire import SipSync, Sync
from launcher.processes.fork_server import process_name
from launcher.processes.this_host import ProcessState, process_state
from launcher.report.sync_state import explanation, reason

STEP_S = 2.0
"""Maximum time that counts between two samples; samples are taken every second."""


class IdleTimer:
    """Timer of the seconds that a process has spent without progress, from periodic samples of the process.

    The timer adds ``ProcessState.spent_since``, so that a loaded host does not shorten the deadline of a process that
    computes. ``step_s``: maximum of seconds that count between two samples: after a longer gap, the launcher itself was
    suspended. ``waited_s``: seconds that the process has waited for a processor since its last progress.
    """

    def __init__(self, step_s: float = STEP_S) -> None:
        self._step_s = step_s
        self._last: ProcessState | None = None
        self.idle_s = self.waited_s = 0.0

    def note(self, state: ProcessState) -> None:
        """Add a sample of the process."""
        if self._last is not None:
            spent_s = state.spent_since(self._last)
            self.idle_s += min(spent_s, self._step_s)
            self.waited_s += max(state.at_s - self._last.at_s - spent_s, 0.0)
        self._last = state

    def moved(self, ago_s: float = 0.0) -> None:
        """Record that the process made its last progress ``ago_s`` seconds ago."""
        self.idle_s = min(self.idle_s, ago_s)
        self.waited_s = min(self.waited_s, ago_s - self.idle_s)


def note_samples(
    timers: Mapping[int | None, IdleTimer], states: Mapping[int | None, ProcessState], clock_s: float
) -> None:
    """Add samples to the timers of several processes, by rank; None is the broker. ``clock_s``: the present time.

    A process without a sample, such as a manually started process, counts all time as spent.
    """
    unknown = ProcessState("", 0.0, 0.0, clock_s)
    for rank, timer in timers.items():
        timer.note(states.get(rank, unknown))


STALL_AFTER_S = 3.0
BLIND_AFTER_S = 2.5
"""Checks are made every second; after a longer gap, the launcher itself was suspended."""
EVERY_S = 1.0
CHECKS = 4
"""Minimum number of checks within the shortest deadline, so that no deadline is exceeded by much."""


class Watchdog:
    """Watchdog of one run: reports each stall and its end; prints the state of synchronisation on request.

    :meth:`note_sync` and :meth:`warning` are pure: they use only what the caller passes. The other methods read the
    clock and process states, and print to standard error.

    ``now_s``: monotonic start time. ``at_the_end``: whether to print the last state. ``deadline_s``: shortest timeout.
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
        """Record the start of a process of the run, on this host or on another."""
        self._pids[rank] = pid
        (self._remote.discard if is_local else self._remote.add)(rank)

    def ended(self, rank: int | None, pid: int) -> None:
        """Record the exit of a process of the run."""
        if self._pids.get(rank) == pid:
            del self._pids[rank]

    def rank_states(self) -> dict[int, str]:
        """Return the last known state of each rank's process, as text for the user."""
        return {rank: state.description for rank, state in self.states.items() if rank is not None}

    def request(self) -> None:
        """Request that the state of synchronisation is printed, as soon as the broker has sent the state."""
        self._requested = True
        self._next_s = 0.0

    def check(self, remote: Mapping[int | None, ProcessState], silent_s: Mapping[str, float]) -> bool:
        """Check the processes if a check is due; return whether the caller must send ``SyncRequest`` to the broker.

        ``remote``: samples of processes on other hosts, by rank. ``silent_s``: see :meth:`warning`.
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
        """Handle a ``Sync``: the broker's answer to a request, or the last state when the run ends."""
        log_if(self.note_sync(sync, time.monotonic()))
        if sync.last:
            self._last = explanation(sync)
        elif self._requested:
            self._requested = False
            print(explanation(sync), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Print the last known state if requested."""
        known = self._last or (f"last known state:\n{explanation(self._sync)}" if self._sync else "")
        if known and (self._at_the_end or self._requested):
            print(known, file=sys.stderr, flush=True)

    def note_sync(self, sync: Sync, now_s: float) -> str | None:
        """Handle the broker's answer; return a line if a stall is over."""
        self._sync, self._answered_s = sync, now_s
        progress = (sync.reports, sync.grants, tuple(sip.state for sip in sync.sips))
        if progress == self._progress:
            return None
        self._progress = progress
        return self._moves(now_s)

    def warning(
        self, states: Mapping[int | None, ProcessState], now_s: float, silent_s: Mapping[str, float] = {}
    ) -> str | None:
        """Return a warning if a stall is found or is over, else None. ``states``: samples of processes on all hosts.

        ``silent_s``: seconds of silence by host name, for hosts whose processes cannot be sampled.
        """
        before, self.states = self.states, states
        was_suspended, self._checked_s = now_s - self._checked_s > BLIND_AFTER_S, now_s
        if was_suspended:
            # The launcher was suspended, not the run.
            self._answered_s = now_s
            return self._moves(now_s)
        # A broker that answers uses CPU time for its answers; only a broker that does not answer may be computing.
        sync = self._sync if now_s - self._answered_s < STALL_AFTER_S else None
        computing = (rank for rank, state in states.items() if state.computes_since(before.get(rank)))
        if any(sync is None or rank is not None for rank in computing):
            return self._moves(now_s)
        still_s = now_s - self._moved_s
        # A SIP without a known process may compute, or wait for a manual start: deadlines cover this case.
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
        """Return lines about processes that may cause the stall. ``sync``: None if the broker does not answer."""
        stopped = [
            (rank, pid) for rank, pid in self._pids.items() if rank in self.states and self.states[rank].is_stopped
        ]
        lines = [f"{process_name(rank)} (pid {pid}): its process is stopped" for rank, pid in stopped]
        if sync is None:
            return [*lines, f"the broker has not answered for {now_s - self._answered_s:.1f} s"]
        for sip in _to_move(sync):
            pid, state = self._pids.get(sip.rank), self.states.get(sip.rank)
            how = f"its process (pid {pid}) {state.description}" if state else "the launcher does not know its process"
            since = f"SIP {sip.rank} has been {sip.state} for {sip.since_ns / 1e9:.1f} s"
            lines.append(f"{since}: {reason(sip)}; {how}")
        return [*lines, *explanation(sync).splitlines()]


def _to_move(sync: Sync | None) -> list[SipSync]:
    """Return the SIPs that should make progress now."""
    return [sip for sip in sync.sips if sip.state in ("joining", "starting", "running")] if sync else []


def log(what: str) -> None:
    """Print a message of the launcher on standard error."""
    print(f"ahbm-launch: {what}", file=sys.stderr)


def log_if(what: str | None) -> None:
    """Print a message of the launcher on standard error, unless ``what`` is None."""
    if what is not None:
        log(what)
