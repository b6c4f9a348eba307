"""Processes that the kernel has killed on this host for want of memory: counts, read before and after a run.

What a count says of a death is decided in ``report``.
"""

from pathlib import Path

_ROOT = Path("/")


def oom_kills(root: Path = _ROOT) -> int | None:
    """How many so far, of all that are counted here: by the kernel, and by this process's own control group.

    None where nothing is counted. ``root``: another one than the machine's, for tests.
    """
    counts = [count for path in _sources(root) if (count := _count(path)) is not None]
    return max(counts) if counts else None


def kills_since(before: int | None, after: int | None) -> int:
    """How many there were in between; none where nobody counts."""
    return max(after - before, 0) if before is not None and after is not None else 0


def _sources(root: Path) -> list[Path]:
    """The kernel's own counter, and those of the control group, of either version."""
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
        words = [line.split() for line in path.read_text().splitlines()]
    except (OSError, ValueError):
        return None
    found = (pair[1] for pair in words if pair[:1] == ["oom_kill"] and len(pair) == 2)
    return next((int(count) for count in found if count.isdigit()), None)
