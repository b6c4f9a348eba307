"""What an engine is: a function that runs a prepared plan and returns its outcome."""

from collections.abc import Callable

from launcher.report.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals import StopSignals
from sipsim.registry import Registry

Engine = Callable[[Request, StopSignals], Outcome]
ENGINES: Registry[Engine] = Registry(
    "engine",
    {
        "launcher.engines.auto": ("auto",),
        "launcher.engines.inproc": ("inproc",),
        "launcher.engines.k8s": ("k8s",),
        "launcher.engines.local": ("local",),
        "launcher.engines.manual": ("manual",),
        "launcher.engines.mpi": ("mpi",),
        "launcher.engines.slurm": ("slurm",),
        "launcher.engines.ssh": ("ssh",),
    },
)
