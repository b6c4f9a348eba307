"""Colocation: whether all processes of a host share one processor. Nothing that is simulated depends on it.

Waking a process on another processor costs more than handing over the own one. While SIPs run one at a time, or so
briefly that running in parallel would save less than the wakes cost, all are faster on one processor.
"""

import contextlib
import os


class CpuAffinity:
    """The processors and the scheduling policy of this process.

    ``shared_cpu_seed``: any number, equal in all processes of a run, that selects the shared processor. A SIP is run
    as a batch job, which does not preempt the process that wakes it. The broker (``preempts``) does, since other
    processes wait for its answer, unless all share a processor. A scheduling policy set by the user is kept.
    """

    def __init__(self, shared_cpu_seed: int, preempts: bool = False) -> None:
        self._together = False
        self._all_cpus: set[int] = set()
        self._policy: int | None = None
        with contextlib.suppress(AttributeError, OSError):
            self._all_cpus = os.sched_getaffinity(0)
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                self._policy = os.SCHED_OTHER if preempts else os.SCHED_BATCH
                os.sched_setscheduler(0, self._policy, os.sched_param(0))
        cpus = sorted(self._all_cpus)
        self._shared_cpu = {cpus[shared_cpu_seed % len(cpus)]} if len(cpus) > 1 else set()

    def colocate(self, together: bool) -> None:
        """Move all threads to the shared processor, or allow all processors again. No-op with a single processor."""
        if not self._shared_cpu or together == self._together:
            return
        self._together = together
        cpus = self._shared_cpu if together else self._all_cpus
        with contextlib.suppress(OSError):
            for thread in map(int, os.listdir("/proc/self/task")):
                self._move(thread, cpus, together)

    def _move(self, thread: int, cpus: set[int], together: bool) -> None:
        """Threads that exit meanwhile are ignored."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cpus)
            if self._policy is not None:
                os.sched_setscheduler(thread, os.SCHED_BATCH if together else self._policy, os.sched_param(0))


WAKES_NS = 10_000
"""What the wakes of a window cost. On a two-core KVM guest, 2026-11, patterns of ``scripts/bench sync`` in which
SIPs could have saved 10 us a window by running in parallel took as long in both placements."""
SMOOTHING = 16
FEWEST_REPORTS = 32


class ColocationPolicy:
    """Decides by how many SIPs run at a time and for how long, over the last reports. Pure."""

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
