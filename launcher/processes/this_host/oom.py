"""Counts of out-of-memory kills on this host, read before and after a run.

What they mean for a failure is decided in ``report``. psutil does not report them.
"""

from pathlib import Path

_ROOT = Path("/")


def oom_kills(root: Path = _ROOT) -> int | None:
    """Kills so far, as counted by the kernel and by this process's control group; the larger number.

    None where nothing is counted. ``root``: of the file system, for tests.
    """
    counts = [count for path in _sources(root) if (count := _count(path)) is not None]
    return max(counts) if counts else None


def kills_since(before: int | None, after: int | None) -> int:
    """Kills in between; 0 where they are not counted."""
    return max(after - before, 0) if before is not None and after is not None else 0


def _sources(root: Path) -> list[Path]:
    """The kernel's counter, and those of the control group, version 1 or 2."""
    sources = [root / "proc/vmstat"]
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return sources
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            sources.append(root / "sys/fs/cgroup" / group.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            sources.append(root / "sys/fs/cgroup/memory" / group.lstrip("/") / "memory.oom_control")
    return sources


def _count(path: Path) -> int | None:
    try:
        pairs = [line.split() for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return None
    found = (pair[1] for pair in pairs if pair[:1] == ["oom_kill"] and len(pair) == 2)
    return next((int(count) for count in found if count.isdigit()), None)
