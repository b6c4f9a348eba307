"""What an engine is: a function that runs a prepared plan and returns its outcome."""

from collections.abc import Callable

from launcher.report.outcome.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals.signals import StopSignals
from sipsim.core.registry.registry import Registry

Engine = Callable[[Request, StopSignals], Outcome]
ENGINES: Registry[Engine] = Registry(
    "engine",
    {
        "launcher.engines.remote.auto": ("auto",),
        "launcher.engines.inproc": ("inproc",),
        "launcher.engines.remote.k8s": ("k8s",),
        "launcher.engines.remote.local": ("local",),
        "launcher.engines.manual": ("manual",),
        "launcher.engines.remote.mpi": ("mpi",),
        "launcher.engines.remote.slurm": ("slurm",),
        "launcher.engines.remote.ssh": ("ssh",),
    },
)
