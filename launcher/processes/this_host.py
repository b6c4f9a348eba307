"""State of this host: limits of open files and processes, out-of-memory kills, and samples of processes."""

import contextlib
import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from broker.security import MARGIN, SPARES, retry_with_spares
from sipsim.chips.api.run_plan import RunPlan
from sipsim.core.errors import ConfigError

FILES_OF_A_PROCESS = 32 + SPARES + MARGIN
"""Open files of a process without peers, including descriptors reserved against unknown clients."""
FILES_OF_A_PEER = 6
THREADS = {"zmq": 3, "unix": 1}
"""Threads per broker or SIP process, by the kind of mail."""
CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
NO_LIMIT = 1 << 60


def check_limits(engine: str, mail: str, plan: RunPlan) -> None:
    """Check the limits of this host before the start; raise the soft limit of open files if needed.

    The needed values are measured, with a margin: the broker has one connection per SIP, a SIP has three to six
    descriptors per peer, and a process with ZeroMQ has two further threads, which count as processes.

    Raises:
        ConfigError: one line with the limit, its value and the needed value.
    """
    if engine == "inproc":
        return
    n_sips, is_local = plan.system.n_sips, engine == "local"
    check_files(plan, sips=is_local, broker=True)
    if is_local:
        needed = processes_needed(n_sips, mail)
        for limit, allowed in process_limits().items():
            _check(needed, allowed, f"{n_sips} SIPs", "processes and threads", limit)


def check_files(plan: RunPlan, sips: bool, broker: bool) -> None:
    """Check the limit of open files. ``sips``, ``broker``: whether SIPs, or the broker, run on this host.

    Raises:
        ConfigError: one line with the limit, its value and the needed value.
    """
    files = files_needed(plan, sips, broker)
    _check(files, _open_files(files), f"{plan.system.n_sips} SIPs", "open files in one process", "ulimit -n")


def files_needed(plan: RunPlan, sips: bool, broker: bool) -> int:
    """Return the open files that the broker or the SIP with the most peers needs: the larger of the two numbers."""
    peers: dict[int, set[int]] = {}
    for channel in plan.channels:
        peers.setdefault(channel.src, set()).add(channel.dst)
    max_peers = max(map(len, peers.values()), default=0)
    return FILES_OF_A_PROCESS + max(plan.system.n_sips * broker, FILES_OF_A_PEER * max_peers * sips)


def processes_needed(n_sips: int, mail: str) -> int:
    """Return the number of threads of the fork server, the broker, the SIPs and the launcher."""
    return 1 + THREADS[mail] * (n_sips + 2)


def process_limits() -> Mapping[str, int]:
    """Return how many processes each limit allows, by name: the user's limit, and the limits of cgroups."""
    found = {"ulimit -u": _finite(resource.getrlimit(resource.RLIMIT_NPROC)[0])} if os.geteuid() else {}
    for folder in cgroups():
        with contextlib.suppress(OSError, ValueError):
            limit = int((folder / "pids.max").read_text())
            found[f"{folder}/pids.max"] = limit - int((folder / "pids.current").read_text()) + 1
    return found


def cgroups() -> list[Path]:
    """Return this process's cgroup and its parents, version 1 or 2. psutil does not read limits of cgroups."""
    with contextlib.suppress(OSError):
        for line in OWN_CGROUP.read_text().splitlines():
            _, names, path = line.split(":", 2)
            if names in ("", "pids"):
                top = CGROUP_ROOT / names
                cgroup = top / path.lstrip("/")
                return [cgroup, *(each for each in cgroup.parents if each.is_relative_to(top))]
    return []


def _open_files(needed: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _finite(soft) < needed <= _finite(hard):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            soft = needed
    return _finite(soft)


def _finite(limit: int) -> int:
    return NO_LIMIT if limit == resource.RLIM_INFINITY else limit


def _check(needed: int, allowed: int, user: str, what: str, limit: str) -> None:
    if needed > allowed:
        raise ConfigError(f"{user} need {needed} {what}; raise {limit} from {allowed}, or use fewer --sips")


_ROOT = Path("/")


def oom_kills(root: Path = _ROOT) -> int | None:
    """Return the number of out-of-memory kills so far: the kernel's count or the control group's, whichever is larger.

    The result is None if neither count exists. psutil reports no such counts. ``root``: root of the file system.
    """
    counts = [count for path in _sources(root) if (count := _count(path)) is not None]
    return max(counts) if counts else None


def kills_since(before: int | None, after: int | None) -> int:
    """Return the number of out-of-memory kills between two results of :func:`oom_kills`; 0 if either is None."""
    return max(after - before, 0) if before is not None and after is not None else 0


def _sources(root: Path) -> list[Path]:
    """Return the files with counters: the kernel's file, and the files of the control group, version 1 or 2."""
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


_DESCRIPTIONS = {
    "running": "computes",
    "sleeping": "sleeps",
    "disk-sleep": "waits for a disk",
    "stopped": "is stopped",
    "tracing-stop": "is held by a debugger",
    "zombie": "has ended",
}
TICK_S = 0.01
"""The resolution of CPU times. A process may be charged one tick just for its answer to the broker."""
NS_PER_S = 10**9


class ProcessState(NamedTuple):
    """Sample of a process: ``status`` in psutil's words, empty if unknown; ``cpu_s``, the CPU time so far in seconds.

    ``waited_s``: seconds so far in which threads were ready but had no processor; 0 if the kernel does not count this.
    ``at_s``: time of the sample in seconds, on the monotonic clock of the process's host.
    """

    status: str
    cpu_s: float
    waited_s: float = 0.0
    at_s: float = 0.0

    def computes_since(self, before: "ProcessState | None") -> bool:
        """Whether the process runs, waits for a processor or a disk, or has used CPU time since an earlier sample."""
        return self.status in ("running", "disk-sleep") or (
            before is not None and self.cpu_s > before.cpu_s + 1.5 * TICK_S
        )

    def spent_since(self, before: "ProcessState") -> float:
        """Return the seconds that the process has computed or been blocked since an earlier sample.

        This is the wall time minus the wait for a processor: the CPU time of a process that computes, on any load of
        the host, and the whole time of a process that sleeps or is stopped.
        """
        passed_s = max(self.at_s - before.at_s, 0.0)
        computed_s = min(max(self.cpu_s - before.cpu_s, 0.0), passed_s)
        if self.status == "running":
            # The kernel counts a wait for a processor only after its end.
            return computed_s
        return max(passed_s - max(self.waited_s - before.waited_s, 0.0), computed_s)

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped the process."""
        return self.status in ("stopped", "tracing-stop")

    @property
    def description(self) -> str:
        """The status as text for the user, such as "sleeps"."""
        return _DESCRIPTIONS.get(self.status, f"is in state {self.status}")


def process_state(pid: int) -> ProcessState | None:
    """Return a sample of process ``pid``; None if the process has exited or cannot be read."""
    return retry_with_spares(lambda: _process_state(pid))


def _process_state(pid: int) -> ProcessState | None:
    # Imported late: the import takes as long as the start of a short run.
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return ProcessState(process.status(), times.user + times.system, _waited_s(pid), time.monotonic())
    except psutil.Error:
        return None


def own_state() -> ProcessState:
    """Return a sample of this process, with an empty status: the process runs now, but may have been blocked before."""
    return ProcessState("", time.process_time(), _waited_s(os.getpid()), time.monotonic())


def _waited_s(pid: int) -> float:
    """Return ``ProcessState.waited_s``: the sum of the second numbers in the threads' schedstat files."""
    waited_ns = 0
    # Without these counts, or if a thread has just ended, more time counts as spent.
    with contextlib.suppress(OSError, LookupError, ValueError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat", "rb") as schedstat:
                waited_ns += int(schedstat.read().split()[1])
    return waited_ns / NS_PER_S
