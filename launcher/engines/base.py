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
    """

    plan: Plan
    job: Job
    run_dir: str
    started_s: float
    progress: Progress
    mail: str = "zmq"
    explain: bool = False


Engine = Callable[[Request, Attention], Outcome]
ENGINES: Registry[Engine] = Registry("engine", "launcher.engines")
