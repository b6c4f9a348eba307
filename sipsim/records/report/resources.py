"""CPU time and proportional memory of the process. For reports only; nothing simulated depends on it."""

import time
from pathlib import Path

_SMAPS = Path("/proc/self/smaps_rollup")


def cpu_seconds() -> float:
    """User and system time of this process."""
    return time.process_time()


class PeakMemory:
    """The largest proportional share over all samples."""

    def __init__(self) -> None:
        self.mib = 0.0

    def sample(self) -> None:
        """Take a sample; costs about a millisecond."""
        self.mib = max(self.mib, pss_mib())


def pss_mib() -> float:
    """Proportional share of memory in MiB; 0 where the system does not report it.

    Read directly: the import of psutil would take longer than this in each SIP process, some 15 ms.
    """
    try:
        text = _SMAPS.read_text()
    except OSError:
        return 0.0
    kib = next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
    return kib / 1024
