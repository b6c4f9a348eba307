"""When all processes of a host should share one processor. Pure; nothing that is simulated depends on it.

Waking a process on another processor costs more than handing over the own one. While SIPs run one at a time, or so
briefly that running in parallel would save less than the wakes cost, all are faster on one processor.
"""

WAKES_NS = 10_000
"""What the wakes of a window cost. On a two-core KVM guest, 2026-11, patterns of ``scripts/bench sync`` in which
SIPs could have saved 10 us a window by running in parallel took as long in both placements."""
SMOOTHING = 16
FEWEST_REPORTS = 32


class ColocationPolicy:
    """How many SIPs run at a time and for how long, over the last reports."""

    def __init__(self) -> None:
        self.together = False
        self._running = 0.0
        self._run_ns = 0.0
        self._reports = 0

    def note(self, running: int, run_ns: int) -> bool:
        """Note a report that arrived while ``running`` SIPs ran, its own included; whether to share a processor."""
        self._running += (running - self._running) / SMOOTHING
        self._run_ns += (run_ns - self._run_ns) / SMOOTHING
        self._reports += 1
        if self._reports < FEWEST_REPORTS:
            return self.together
        lost_ns = (self._running - 1) * self._run_ns
        # Hysteresis: twice as much to separate as to share.
        self.together = lost_ns < (2 * WAKES_NS if self.together else WAKES_NS)
        return self.together
