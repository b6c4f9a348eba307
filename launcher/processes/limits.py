"""What this host lets a run have: open files and processes, asked before anything starts. Not a quota of our own.

The numbers are measured, and a little more: the broker holds a connection to each SIP, a SIP three to six descriptors
for each peer; a process over ZeroMQ has two threads besides its own, which count as processes.
"""

import contextlib
import os
import resource
from collections.abc import Mapping
from pathlib import Path

from launcher.run.options import Options
from sipsim.errors import ConfigError
from sipsim.plan.plan import Plan

FILES_OF_A_PROCESS = 32
FILES_OF_A_PEER = 6
THREADS = {"zmq": 3, "unix": 1}
"""Of a process that takes part, by the kind of mail."""
CGROUPS = Path("/sys/fs/cgroup")
OURS = Path("/proc/self/cgroup")
NO_LIMIT = 1 << 60


def check_limits(options: Options, plan: Plan) -> None:
    """Whether the limits suffice; the soft one of open files is raised to what is needed.

    Raises:
        ConfigError: naming the limit, what it is and what it must be.
    """
    if options.engine == "inproc":
        return
    n_sips, here = plan.system.n_sips, options.engine == "local"
    check_files(plan, sips=here, broker=True)
    if here:
        needed = processes_needed(n_sips, options.mail)
        for limit, known in process_limits().items():
            _suffices(needed, known, f"{n_sips} SIPs", "processes and threads", limit)


def check_files(plan: Plan, sips: bool, broker: bool) -> None:
    """:func:`check_limits` for open files alone; whether SIPs and the broker are on this host.

    Raises:
        ConfigError: as there.
    """
    files = files_needed(plan, sips, broker)
    _suffices(files, _open_files(files), f"{plan.system.n_sips} SIPs", "open files in one process", "ulimit -n")


def files_needed(plan: Plan, sips: bool, broker: bool) -> int:
    """By the broker, or the SIP with the most peers."""
    peers: dict[int, set[int]] = {}
    for channel in plan.channels:
        peers.setdefault(channel.src, set()).add(channel.dst)
    most = max(map(len, peers.values()), default=0)
    return FILES_OF_A_PROCESS + max(plan.system.n_sips * broker, FILES_OF_A_PEER * most * sips)


def processes_needed(n_sips: int, mail: str) -> int:
    """The server, the broker and the SIPs, with their threads, and the launcher's own."""
    return 1 + THREADS[mail] * (n_sips + 2)


def process_limits() -> Mapping[str, int]:
    """How many more processes there may be by the limits of the user and of the cgroup, by their names."""
    found = {"ulimit -u": _finite(resource.getrlimit(resource.RLIMIT_NPROC)[0])} if os.geteuid() else {}
    for folder in cgroups():
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / "pids.max").read_text())
            found[f"{folder}/pids.max"] = most - int((folder / "pids.current").read_text()) + 1
    return found


def cgroups() -> list[Path]:
    """Ours and those around it that may limit processes, of either version of cgroups."""
    with contextlib.suppress(OSError):
        for line in OURS.read_text().splitlines():
            _, names, path = line.split(":", 2)
            if names in ("", "pids"):
                top = CGROUPS / names
                here = top / path.lstrip("/")
                return [here, *(each for each in here.parents if each.is_relative_to(top))]
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


def _suffices(needed: int, known: int, who: str, what: str, limit: str) -> None:
    if needed > known:
        raise ConfigError(f"{who} need {needed} {what}, and {limit} allows {known}; raise it, or use fewer --sips")
