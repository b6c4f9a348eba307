"""What an engine is asked to run, and the settings of its processes. Plain data."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from broker.mail.base import JOIN_TIMEOUT_S, SILENCE_S
from launcher.report.progress import Progress
from sipsim.chips.api.run_plan import RunPlan
from sipsim.records.job import Job

Hosts = tuple[tuple[str, int | None], ...]
"""Names of hosts, each with how many SIPs it takes; None: as many as its share is."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """How the processes of a run are placed, supervised and logged. The command line's options are one.

    ``hosts``: names, and how many SIPs each takes (None: its share). ``bind``: this machine's address for them.
    ``mail``: a name that ``broker.mail.kinds.check_mail`` accepts; with one process, only seeded mail has a meaning.
    ``deadlines``: whether silence is a failure at all. ``heartbeat_timeout_s``: that of another host.
    ``max_restarts``: how many lost processes of a run are replaced. ``run_dir``, ``resume``: the folder of packet logs
    of a new run, and of one that is resumed. ``faults``: specs of ``sipsim.node.faults``.
    ``max_sim_ps``: the simulated time at which the run stops, None for its end.
    ``tee``: ranks whose output is shown, None for all. ``explain_sync``: print the state of synchronisation at the end.
    """

    hosts: Hosts = ()
    bind: str | None = None
    mail: str = "zmq"
    join_timeout_s: float = JOIN_TIMEOUT_S
    progress_timeout_s: float = 60.0
    heartbeat_timeout_s: float = SILENCE_S
    deadlines: bool = True
    max_restarts: int = 0
    run_dir: Path | None = None
    resume: Path | None = None
    faults: tuple[str, ...] = ()
    max_sim_ps: int | None = None
    log_dir: Path | None = None
    tee: tuple[int, ...] | None = None
    explain_sync: bool = False

    @property
    def silence_s(self) -> float | None:
        """After how long a silent connection is lost; None for never."""
        return self.heartbeat_timeout_s if self.deadlines else None

    @property
    def packet_log_dir(self) -> Path | None:
        """Where packet logs outlast the run; absolute."""
        folder = self.resume or self.run_dir
        return folder.absolute() if folder else None


class Request(NamedTuple):
    """``scratch_dir``: a private folder for sockets, logs and recorded data.

    ``started_s``: when the command started, monotonic.
    """

    plan: RunPlan
    job: Job
    scratch_dir: str
    started_s: float
    progress: Progress
    settings: RunSettings = RunSettings()
