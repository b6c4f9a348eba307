"""Chooses the engine by the environment of the launcher."""

import os
from collections.abc import Mapping

from launcher.engines.base import ENGINES
from launcher.report.outcome.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals.signals import StopSignals
from sipsim.core.errors import ConfigError

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@ENGINES.register("auto")
def run_automatic(request: Request, signals: StopSignals) -> Outcome:
    """slurm in an allocation, mpi below an mpiexec, ssh with --hosts, else local."""
    return ENGINES.get(which(os.environ, bool(request.settings.hosts)))(request, signals)


def which(environ: Mapping[str, str], has_hosts: bool) -> str:
    """The name of the engine.

    Raises:
        ConfigError: when mpiexec has started several launchers.
    """
    if "SLURM_JOB_ID" in environ:
        return "slurm"
    size = next((environ[name] for name in SIZES if name in environ), None)
    if size is not None and size != "1":
        what = f"--engine auto: mpiexec has started {size} launchers"
        raise ConfigError(f"{what}; start one, outside mpiexec, with --engine mpi and --hosts")
    if size is not None and has_hosts:
        return "mpi"
    return "ssh" if has_hosts else "local"
