"""Detects stalls: no progress and no process that computes. Long computation, also of host code, is no stall. Pure.

``StallDetector`` takes the broker's messages and process states, with the time of each, and returns warnings.
"""

from collections.abc import Mapping

from broker.wire import SipSync, Sync
from launcher.processes.entry.names import BROKER_NAME, sip_name
from launcher.processes.this_host.process_state import ProcessState
from launcher.report.sync_state import explanation, reason

STALL_AFTER_S = 3.0
BLIND_AFTER_S = 2.5
"""Checks are due each second; after a longer gap the launcher itself was suspended."""


class StallDetector:
    """Watches one run. Reports a stall once, and its end."""

    def __init__(self, now_s: float) -> None:
        self._moved_s = now_s
        self._progress: object = None
        self._reported = False
        self._answered_s = now_s
        self._checked_s = now_s
        self._states: dict[str, ProcessState] = {}

    def note_sync(self, sync: Sync, now_s: float) -> str | None:
        """Take the broker's answer; a line when a stall is over."""
        self._answered_s = now_s
        progress = (sync.reports, sync.grants, tuple(sip.state for sip in sync.sips))
        if progress == self._progress:
            return None
        self._progress = progress
        return self._moves(now_s)

    def check(
        self,
        sync: Sync | None,
        pids: dict[str, int],
        states: dict[str, ProcessState],
        now_s: float,
        silent_s: Mapping[str, float] = {},
    ) -> str | None:
        """A warning, if one is due. ``states``: those of the processes of ``pids``, on any host.

        ``silent_s``: the hosts that are silent, and for how long; what their processes do is not known.
        """
        before, self._states = self._states, states
        asleep, self._checked_s = now_s - self._checked_s > BLIND_AFTER_S, now_s
        if asleep:
            # The launcher was suspended, not the run.
            self._answered_s = now_s
            return self._moves(now_s)
        # A broker that answers has used CPU time for its answers: only one that does not may be computing.
        answers = sync is not None and now_s - self._answered_s < STALL_AFTER_S
        computing = (name for name, state in states.items() if state.computes_since(before.get(name)))
        if any(not (answers and name == BROKER_NAME) for name in computing):
            return self._moves(now_s)
        still_s = now_s - self._moved_s
        # One that a person starts, on whatever host, may compute, or be typed: deadlines are for those.
        is_hidden = answers and any(sip_name(sip.rank) not in pids for sip in _to_move(sync))
        if self._reported or still_s < STALL_AFTER_S or is_hidden:
            return None
        self._reported = True
        where = "on the hosts that answer" if silent_s else "of the run"
        head = f"stalled: nothing has moved for {still_s:.1f} s, and no process {where} computes"
        silent = [f"host {name}: its agent has been silent for {each:.1f} s" for name, each in silent_s.items()]
        return "\n".join([head, *(f"  {line}" for line in [*silent, *self._suspects(sync, pids, states, now_s)])])

    def _moves(self, now_s: float) -> str | None:
        still_s, self._moved_s = now_s - self._moved_s, now_s
        was_reported, self._reported = self._reported, False
        return f"moves again after {still_s:.1f} s" if was_reported else None

    def _suspects(
        self, sync: Sync | None, pids: dict[str, int], states: dict[str, ProcessState], now_s: float
    ) -> list[str]:
        lines = [f"{name} (pid {pid}): its process is stopped" for name, pid in pids.items() if _stopped(states, name)]
        if sync is None or now_s - self._answered_s >= STALL_AFTER_S:
            return [*lines, f"the broker has not answered for {now_s - self._answered_s:.1f} s"]
        for sip in _to_move(sync):
            name = sip_name(sip.rank)
            pid, state = pids.get(name), states.get(name)
            how = f"its process (pid {pid}) {state.description}" if state else "its process is not known here"
            since = f"SIP {sip.rank} has been {sip.state} for {sip.since_ns / 1e9:.1f} s"
            lines.append(f"{since}: {reason(sip)}; {how}")
        return [*lines, *explanation(sync).splitlines()]


def _to_move(sync: Sync | None) -> list[SipSync]:
    """The SIPs whose turn it is."""
    return [sip for sip in sync.sips if sip.state in ("joining", "starting", "running")] if sync else []


def _stopped(states: dict[str, ProcessState], name: str) -> bool:
    return name in states and states[name].is_stopped
