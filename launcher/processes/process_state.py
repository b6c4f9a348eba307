"""The state of a process on this host: computing, sleeping or stopped."""

from typing import NamedTuple

_DESCRIPTIONS = {
    "R": "computes",
    "S": "sleeps",
    "D": "waits for a disk",
    "T": "is stopped",
    "t": "is held by a debugger",
    "Z": "has ended",
}


class ProcessState(NamedTuple):
    """A sample of a process: its state letter of proc(5), and its CPU time so far in clock ticks."""

    state: str
    ticks: int

    def computes_since(self, before: "ProcessState | None") -> bool:
        """Whether it runs, waits for a processor or a disk, or has used CPU time since an earlier sample."""
        return self.state in "RD" or (before is not None and self.ticks > before.ticks + 1)

    @property
    def description(self) -> str:
        """The state as text."""
        return _DESCRIPTIONS.get(self.state, f"is in state {self.state}")


def process_state(pid: int) -> ProcessState | None:
    """How process ``pid`` is now; None when it is gone, or where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return ProcessState(fields[0].decode(), int(fields[11]) + int(fields[12]))
