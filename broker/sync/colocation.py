"""Which processors the processes of a host run on: together on one while only one of them has work, else anywhere.

To wake a process on another processor costs more than to hand over one's own. While SIPs run one at a time, or so
briefly that two at a time would gain less than the wakes cost, all gain by sharing one processor. ``ColocationPolicy``
decides that from the reports, ``CpuAffinity`` applies it. Host times in, advice out: nothing that is simulated depends
on it.
"""

import contextlib
import os

WAKES_NS = 10_000
"""What the wakes of a window cost. On a two-core KVM guest, 2026-11, patterns of ``scripts/bench_sync.py`` in which
SIPs could have saved 10 us a window by running side by side took as long in both places."""
SMOOTHING = 16
FEWEST_REPORTS = 32


class ColocationPolicy:
    """How many SIPs run at a time and for how long, over the last reports. Pure."""

    def __init__(self) -> None:
        self.together = False
        self._running = 0.0
        self._run_ns = 0.0
        self._reports = 0

    def note(self, running: int, run_ns: int) -> bool:
        """A report has come while ``running`` SIPs ran, its own included; whether all should share a processor."""
        self._running += (running - self._running) / SMOOTHING
        self._run_ns += (run_ns - self._run_ns) / SMOOTHING
        self._reports += 1
        if self._reports < FEWEST_REPORTS:
            return self.together
        lost_ns = (self._running - 1) * self._run_ns
        # Twice as much to leave as to stay, so that it does not go back and forth.
        self.together = lost_ns < (2 * WAKES_NS if self.together else WAKES_NS)
        return self.together


class CpuAffinity:
    """The processors of this process and how it is scheduled there.

    ``shared_cpu_seed``: any number, the same for all of a run. A SIP is a batch job, which does not preempt the process
    that wakes it. The broker (``at_once``) does, for others wait for its answer, unless all share a processor. A
    scheduling policy that the user chose stays.
    """

    def __init__(self, shared_cpu_seed: int, at_once: bool = False) -> None:
        self._together = False
        self._everywhere: set[int] = set()
        self._apart: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self._everywhere = os.sched_getaffinity(0)
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                self._apart = os.SCHED_OTHER if at_once else os.SCHED_BATCH
                os.sched_setscheduler(0, self._apart, os.sched_param(0))
        places = sorted(self._everywhere)
        self._shared_cpu = {places[shared_cpu_seed % len(places)]} if len(places) > 1 else set()

    def colocate(self, together: bool) -> None:
        """Share the meeting processor, or run anywhere again. Does nothing where there is no choice."""
        if not self._shared_cpu or together == self._together:
            return
        self._together = together
        places = self._shared_cpu if together else self._everywhere
        with contextlib.suppress(OSError):
            for thread in map(int, os.listdir("/proc/self/task")):
                self._move(thread, places, together)

    def _move(self, thread: int, places: set[int], together: bool) -> None:
        """A thread that has just ended moves nobody else's mind."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, places)
            if self._apart is not None:
                os.sched_setscheduler(thread, os.SCHED_BATCH if together else self._apart, os.sched_param(0))
