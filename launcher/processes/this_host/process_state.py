"""The state of a process on this host: computing, sleeping or stopped, and what it has spent."""

import contextlib
import os
import time
from typing import NamedTuple

from broker.security.door import with_room

_DESCRIPTIONS = {
    "running": "computes",
    "sleeping": "sleeps",
    "disk-sleep": "waits for a disk",
    "stopped": "is stopped",
    "tracing-stop": "is held by a debugger",
    "zombie": "has ended",
}
TICK_S = 0.01
"""The resolution of CPU times. A process may be charged one tick without computing, for answering the broker."""
NS_PER_S = 10**9


class ProcessState(NamedTuple):
    """A sample of a process: its status as psutil names it, empty if unknown, and its CPU time so far.

    ``waited_s``: how long its threads were ready to run and had no processor, so far; 0 where the kernel does not count
    it. ``at_s``: when the sample was taken, on the monotonic clock of its host.
    """

    status: str
    cpu_s: float
    waited_s: float = 0.0
    at_s: float = 0.0

    def computes_since(self, before: "ProcessState | None") -> bool:
        """Whether it runs, waits for a processor or a disk, or has used CPU time since an earlier sample."""
        return self.status in ("running", "disk-sleep") or (
            before is not None and self.cpu_s > before.cpu_s + 1.5 * TICK_S
        )

    def spent_since(self, before: "ProcessState") -> float:
        """Seconds that it has computed or been blocked since an earlier sample.

        That is the time that has passed, without what it waited for a processor: of a process that computes its CPU
        time, whatever else the host does, and of one that sleeps or is stopped all of it.
        """
        passed_s = max(self.at_s - before.at_s, 0.0)
        computed_s = min(max(self.cpu_s - before.cpu_s, 0.0), passed_s)
        if self.status == "running":
            # The wait that it may be in now is counted by the kernel when it ends.
            return computed_s
        return max(passed_s - max(self.waited_s - before.waited_s, 0.0), computed_s)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it."""
        return self.status in ("stopped", "tracing-stop")

    @property
    def description(self) -> str:
        """The state as text."""
        return _DESCRIPTIONS.get(self.status, f"is in state {self.status}")


def process_state(pid: int) -> ProcessState | None:
    """How process ``pid`` is now; None when it has exited or cannot be read."""
    return with_room(lambda: _process_state(pid))


def _process_state(pid: int) -> ProcessState | None:
    # Imported at the first check of a run that lasts: its import takes as long as many a run's start.
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return ProcessState(process.status(), times.user + times.system, _waited_s(pid), time.monotonic())
    except psutil.Error:
        return None


def own_state() -> ProcessState:
    """This process now. Its status is unknown: whoever asks runs, and may have been blocked until now."""
    return ProcessState("", time.process_time(), _waited_s(os.getpid()), time.monotonic())


def _waited_s(pid: int) -> float:
    """``ProcessState.waited_s``, which psutil does not read: the second number of each thread's schedstat."""
    waited_ns = 0
    # A kernel without these counts, or a thread that has just ended: less is known, and more counts as spent.
    with contextlib.suppress(OSError, LookupError, ValueError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as schedstat:
                waited_ns += int(schedstat.read().split()[1])
    return waited_ns / NS_PER_S
