"""What an engine is: a function that runs a prepared plan and says what came of it."""

from collections.abc import Callable
from typing import NamedTuple

from launcher.attention import Attention
from launcher.outcome import Outcome
from launcher.progress import Progress
from sipsim.job import Job
from sipsim.plan import Plan
from sipsim.registry import Registry


class Request(NamedTuple):
    """``run_dir``: a private folder for sockets, logs, evidence. ``started_s``: when the command started, monotonic.

    ``explain``: say at the end how synchronisation stood.
    ``mail``: one of ``broker.mails.MAIL_KINDS``, for engines with more than one process.
    ``hosts``: (name, slots or None for any number) of each host that SIPs run on; empty for the engine to know.
    ``bind``: the address of this host at which the others reach it; empty to find it out.
    ``deadlines``: whether silence is ever taken for death; without, no timeout but the user's own is kept.
    ``tee``: whose output is passed on to the terminal; None for every rank's.
    ``faults``: what is to go wrong, in the words of ``--fault``.
    ``keep_dir``: a folder for the packets of all SIPs, from which they can be brought back; empty for none.
    ``resume``: begin from what lies there.
    """

    plan: Plan
    job: Job
    run_dir: str
    started_s: float
    progress: Progress
    mail: str = "zmq"
    explain: bool = False
    hosts: tuple[tuple[str, int | None], ...] = ()
    max_restarts: int = 0
    join_timeout_s: float = 30.0
    progress_timeout_s: float = 60.0
    deadlines: bool = True
    bind: str = ""
    log_dir: str = ""
    tee: tuple[int, ...] | None = None
    faults: tuple[str, ...] = ()
    keep_dir: str = ""
    resume: bool = False


Engine = Callable[[Request, Attention], Outcome]
ENGINES: Registry[Engine] = Registry("engine", "launcher.engines")
