"""Engines: where SIPs run. An engine is a function with a registered name that runs a plan and returns its outcome."""

from collections.abc import Callable

from launcher.report.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals import StopSignals
from sipsim.core.registry import Registry

Engine = Callable[[Request, StopSignals], Outcome]
ENGINES: Registry[Engine] = Registry(
    "engine",
    {
        "launcher.engines.remote": (
            "auto",
            "k8s",
            "local",
            "mpi",
            "slurm",
            "ssh",
        ),
        "launcher.engines.inproc": ("inproc",),
        "launcher.engines.manual": ("manual",),
    },
)
