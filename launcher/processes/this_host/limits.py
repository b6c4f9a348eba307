"""This host's limits of open files and processes, checked before anything starts.

The needs are measured, with a margin: the broker holds a connection to each SIP, a SIP three to six descriptors for
each peer; a process over ZeroMQ has two threads besides its own, which count as processes. psutil knows no limits of
control groups.
"""

import contextlib
import os
import resource
from collections.abc import Mapping
from pathlib import Path

from broker.security.door import MARGIN, SPARES
from sipsim.chips.api.run_plan.base import RunPlan
from sipsim.core.errors import ConfigError

FILES_OF_A_PROCESS = 32 + SPARES + MARGIN
"""With the files that are kept from strangers."""
FILES_OF_A_PEER = 6
THREADS = {"zmq": 3, "unix": 1}
"""Of each broker and SIP process, by the kind of mail."""
CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")
NO_LIMIT = 1 << 60


def check_limits(engine: str, mail: str, plan: RunPlan) -> None:
    """Whether the limits suffice; the soft limit of open files is raised if needed.

    Raises:
        ConfigError: naming the limit, what it is and what it must be.
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
    """:func:`check_limits` for open files alone. ``sips``, ``broker``: whether they run on this host.

    Raises:
        ConfigError: as there.
    """
    files = files_needed(plan, sips, broker)
    _check(files, _open_files(files), f"{plan.system.n_sips} SIPs", "open files in one process", "ulimit -n")


def files_needed(plan: RunPlan, sips: bool, broker: bool) -> int:
    """Open files of the broker, or of the SIP with the most peers, if larger."""
    peers: dict[int, set[int]] = {}
    for channel in plan.channels:
        peers.setdefault(channel.src, set()).add(channel.dst)
    most = max(map(len, peers.values()), default=0)
    return FILES_OF_A_PROCESS + max(plan.system.n_sips * broker, FILES_OF_A_PEER * most * sips)


def processes_needed(n_sips: int, mail: str) -> int:
    """Threads of the fork server, the broker, the SIPs and the launcher."""
    return 1 + THREADS[mail] * (n_sips + 2)


def process_limits() -> Mapping[str, int]:
    """How many more processes the limits of the user and of the cgroups allow, by name of the limit."""
    found = {"ulimit -u": _finite(resource.getrlimit(resource.RLIMIT_NPROC)[0])} if os.geteuid() else {}
    for folder in cgroups():
        with contextlib.suppress(OSError, ValueError):
            most = int((folder / "pids.max").read_text())
            found[f"{folder}/pids.max"] = most - int((folder / "pids.current").read_text()) + 1
    return found


def cgroups() -> list[Path]:
    """The own cgroup and its parents that may limit processes, version 1 or 2."""
    with contextlib.suppress(OSError):
        for line in OWN_CGROUP.read_text().splitlines():
            _, names, path = line.split(":", 2)
            if names in ("", "pids"):
                top = CGROUP_ROOT / names
                own = top / path.lstrip("/")
                return [own, *(each for each in own.parents if each.is_relative_to(top))]
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
        raise ConfigError(f"{user} need {needed} {what}, and {limit} allows {allowed}; raise it, or use fewer --sips")
