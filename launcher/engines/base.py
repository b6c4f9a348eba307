"""What an engine is: a function that runs a prepared plan and says what came of it."""

from collections.abc import Callable
from typing import NamedTuple

from broker.mail.base import SILENCE_S
from launcher.report.outcome import Outcome
from launcher.report.progress import Progress
from launcher.supervise.signals import StopSignals
from sipsim.plan.job import Job
from sipsim.plan.plan import Plan
from sipsim.registry import Registry


class Request(NamedTuple):
    """``scratch_dir``: a private folder for sockets, logs and recorded data. ``started_s``: when the command
    started, monotonic.

    ``explain``: say at the end how synchronisation stood.
    ``mail``: one of ``broker.mail.kinds.MAIL_KINDS``, for engines with more than one process.
    ``hosts``: names, and how many SIPs each takes (None: its share). ``bind``: this machine's address for them.
    ``max_restarts``: deaths of a run that are made good. ``deadlines``: whether silence is a failure at all.
    ``silence_s``: after how long that of another host is one, None for never.
    ``log_dir``: a folder for the ranks' logs, "" for none. ``tee``: ranks whose output is shown, None for all.
    ``faults``: specs of ``sipsim.faults.plan``, none of them random. ``keep_dir``: for packet logs, "" for none;
    with ``resume`` those are read first.
    """

    plan: Plan
    job: Job
    scratch_dir: str
    started_s: float
    progress: Progress
    mail: str = "zmq"
    explain: bool = False
    hosts: tuple[tuple[str, int | None], ...] = ()
    bind: str = ""
    max_restarts: int = 0
    join_timeout_s: float = 30.0
    progress_timeout_s: float = 60.0
    deadlines: bool = True
    silence_s: float | None = SILENCE_S
    log_dir: str = ""
    tee: tuple[int, ...] | None = None
    faults: tuple[str, ...] = ()
    keep_dir: str = ""
    resume: bool = False


Engine = Callable[[Request, StopSignals], Outcome]
ENGINES: Registry[Engine] = Registry("engine", "launcher.engines")
