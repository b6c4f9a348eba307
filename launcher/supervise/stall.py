"""Stalls: nothing moves and no process computes. Computing for long, host code included, is never one. Pure.

``StallDetector`` takes the broker's messages and process states, with the time of each, and returns warnings.
"""

from typing import NamedTuple

from broker.wire import Sync
from launcher.processes.names import sip_name
from launcher.processes.process_state import ProcessState
from launcher.report.explain import explanation, reason

STALL_AFTER_S = 3.0
BLIND_AFTER_S = 2.5
"""Whoever has not looked for so long, and should each second, was suspended."""


class Suspect(NamedTuple):
    """Somebody whose turn it is: a name for people, and its process if it is known."""

    who: str
    pid: int | None


class StallDetector:
    """One run's watch. Tells a stall once, and when it is over."""

    def __init__(self, now_s: float) -> None:
        self._moved_s = now_s
        self._mark: object = None
        self._told = False
        self._answered_s = now_s
        self._judged_s = now_s
        self._looks: dict[str, ProcessState] = {}

    def answered(self, sync: Sync, now_s: float) -> str | None:
        """The broker has answered; what to tell when things move again after a stall."""
        self._answered_s = now_s
        mark = (sync.reports, sync.grants, tuple(sip.state for sip in sync.sips))
        if mark == self._mark:
            return None
        self._mark = mark
        return self._moves(now_s)

    def judge(
        self, sync: Sync | None, pids: dict[str, int], looks: dict[str, ProcessState], now_s: float
    ) -> str | None:
        """What to tell now, if anything. ``looks``: how the processes of ``pids`` look, on whatever host."""
        before, self._looks = self._looks, looks
        asleep, self._judged_s = now_s - self._judged_s > BLIND_AFTER_S, now_s
        if asleep:
            # It was us who did not move.
            self._answered_s = now_s
            return self._moves(now_s)
        if any(look.computes_since(before.get(name)) for name, look in looks.items()):
            return self._moves(now_s)
        still_s = now_s - self._moved_s
        if self._told or still_s < STALL_AFTER_S:
            return None
        self._told = True
        head = f"stalled: nothing has moved for {still_s:.1f} s, and no process of the run computes"
        return "\n".join([head, *(f"  {line}" for line in self._suspects(sync, pids, looks, now_s))])

    def _moves(self, now_s: float) -> str | None:
        still_s, self._moved_s = now_s - self._moved_s, now_s
        was_told, self._told = self._told, False
        return f"goes on after {still_s:.1f} s" if was_told else None

    def _suspects(
        self, sync: Sync | None, pids: dict[str, int], looks: dict[str, ProcessState], now_s: float
    ) -> list[str]:
        lines = [f"{name} (pid {pid}): its process is stopped" for name, pid in pids.items() if _stopped(looks, name)]
        if sync is None or now_s - self._answered_s >= STALL_AFTER_S:
            return [*lines, f"the broker has not answered for {now_s - self._answered_s:.1f} s"]
        for sip in sync.sips:
            if sip.state in ("joining", "starting", "running"):
                name = sip_name(sip.rank)
                pid, look = pids.get(name), looks.get(name)
                how = f"its process (pid {pid}) {look.words}" if look else "its process is not known here"
                since = f"SIP {sip.rank} has been {sip.state} for {sip.since_ns / 1e9:.1f} s"
                lines.append(f"{since}: {reason(sip)}; {how}")
        return [*lines, *explanation(sync).splitlines()]


def _stopped(looks: dict[str, ProcessState], name: str) -> bool:
    return name in looks and looks[name].state in "Tt"
