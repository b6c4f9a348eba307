"""Colocation: whether all processes of a host share one processor. No simulated result depends on it.

A wake-up on another processor costs more than a context switch. While SIPs run one at a time, or so briefly that
running in parallel saves less than the wake-ups cost, all processes are faster on one processor.
"""

import contextlib
import os


class CpuAffinity:
    """The processors and the scheduling policy of this process.

    ``shared_cpu_seed``: any number, equal in all processes of a run, that selects the shared processor. SIPs run
    under SCHED_BATCH, so that a woken SIP does not preempt its waker. ``preempts``: keep SCHED_OTHER unless processes
    share a processor (for the broker, whose answers SIPs wait for). A policy that the user has set is not changed.
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
        """Set the processors and the policy of one thread; a thread that has exited is ignored."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, cpus)
            if self._policy is not None:
                os.sched_setscheduler(thread, os.SCHED_BATCH if together else self._policy, os.sched_param(0))


WAKES_NS = 10_000
"""Cost of the wake-ups of one window. Measured on a two-core KVM guest, 2026-11: patterns of ``scripts/bench sync``
that could save 10 us per window by running in parallel took as long with one processor as with two."""
SMOOTHING = 16
FEWEST_REPORTS = 32


class ColocationPolicy:
    """Decides whether to share a processor, from moving averages of the number of running SIPs and their run time."""

    def __init__(self) -> None:
        self.together = False
        self._running = 0.0
        self._run_ns = 0.0
        self._reports = 0

    def note(self, running: int, run_ns: int) -> bool:
        """Add a report after ``run_ns`` of host time, before which ``running`` SIPs ran; return whether to share."""
        self._running += (running - self._running) / SMOOTHING
        self._run_ns += (run_ns - self._run_ns) / SMOOTHING
        self._reports += 1
        if self._reports < FEWEST_REPORTS:
            return self.together
        lost_ns = (self._running - 1) * self._run_ns
        # Hysteresis: separating needs twice the loss at which sharing starts.
        self.together = lost_ns < (2 * WAKES_NS if self.together else WAKES_NS)
        return self.together
