"""The state of a process on this host: computing, sleeping or stopped."""

from typing import NamedTuple

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


class ProcessState(NamedTuple):
    """A sample of a process: its status as psutil names it, and its CPU time so far."""

    status: str
    cpu_s: float

    def computes_since(self, before: "ProcessState | None") -> bool:
        """Whether it runs, waits for a processor or a disk, or has used CPU time since an earlier sample."""
        return self.status in ("running", "disk-sleep") or (
            before is not None and self.cpu_s > before.cpu_s + 1.5 * TICK_S
        )

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
    # Imported at the first check of a run that lasts: its import takes as long as many a run's start.
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return ProcessState(process.status(), times.user + times.system)
    except psutil.Error:
        return None
