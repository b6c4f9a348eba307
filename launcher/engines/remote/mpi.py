"""Agents by mpiexec, Open MPI's or MPICH's: one process a host. MPI is used for nothing else."""

import os
import subprocess
from pathlib import Path

from launcher.engines.base import ENGINES
from launcher.hosts.agent_hosts import run_on_agents
from launcher.hosts.starters import (
    Boot,
    SingleProcessStarter,
    StarterProcess,
    agent_command,
    end_all,
    program,
    specs_of,
)
from launcher.processes.ticket import write_private
from launcher.report.outcome.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals.signals import StopSignals
from sipsim.core.errors import ConfigError
from sipsim.core.files.files import HINT, Folder, Unsafe

MPI_FLAG = "--engine mpi"
SHARED = "AHBM_SHARED_DIR"
MPIEXEC_S = 20.0


@ENGINES.register("mpi")
def run_by_mpi(request: Request, signals: StopSignals) -> Outcome:
    """SIPs on the hosts of --hosts, reached by mpiexec."""
    return run_on_agents(request, signals, MpiStarter(request))


class MpiStarter(SingleProcessStarter):
    """One mpiexec for all; see ``launcher.hosts.starters.Starter``.

    It forwards standard input to one process at most, so the bootstrap is a private file, in the run's folder or in
    AHBM_SHARED_DIR, which all hosts must see. An MPI job that has lost a process ends.
    """

    def __init__(self, request: Request) -> None:
        super().__init__()
        self.specs = specs_of(request.settings.hosts, MPI_FLAG)
        self._mpiexec = program("mpiexec", MPI_FLAG, "AHBM_MPIEXEC")
        self._is_open_mpi = _is_open_mpi(self._mpiexec)
        self.rank_names = ("OMPI_COMM_WORLD_RANK",) if self._is_open_mpi else ("PMI_RANK",)
        self._scratch_dir = Path(request.scratch_dir)
        shared = os.environ.get(SHARED)
        self._bootstrap = Path(shared or request.scratch_dir).resolve() / f"bootstrap-{self._scratch_dir.name}.json"
        if shared:
            _check_shared(shared, self._bootstrap.parent)

    def begin(self, boot: Boot) -> None:
        """Start all by one mpiexec."""
        write_private(self._bootstrap, boot(None))
        names = [spec.name for spec in self.specs]
        argv = [self._mpiexec, "-n", str(len(names))]
        if self._is_open_mpi:
            argv += ["--map-by", "ppr:1:node", "--host", ",".join(names), "--oversubscribe"]
            argv += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        else:
            argv += ["-ppn", "1", "-hosts", ",".join(names)]
        argv += ["sh", "-c", agent_command("--bootstrap", str(self._bootstrap))]
        self._running.append(StarterProcess(argv, self._scratch_dir / "mpiexec.out"))

    def close(self) -> None:
        """End mpiexec and remove the bootstrap."""
        self._bootstrap.unlink(missing_ok=True)
        end_all(self._running)


def _check_shared(shared: str, folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{SHARED}={shared}: no such folder; name one that all hosts see")
    try:
        Folder(folder).close()
    except Unsafe as error:
        raise ConfigError(f"{SHARED}={shared}: {error.strerror}; {HINT}") from None


def _is_open_mpi(mpiexec: str) -> bool:
    """Whether an mpiexec is Open MPI's.

    Raises:
        ConfigError: when it is neither that nor MPICH's.
    """
    try:
        done = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=MPIEXEC_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{MPI_FLAG}: {mpiexec} --version cannot be run: {error}") from None
    output = done.stdout + done.stderr
    if "Open MPI" in output or "OpenRTE" in output:
        return True
    if "HYDRA" in output or "MPICH" in output:
        return False
    first = next(iter(output.splitlines()), "nothing")
    raise ConfigError(
        f"{MPI_FLAG}: {mpiexec} is neither Open MPI's nor MPICH's, but prints {first!r}; set AHBM_MPIEXEC"
    )
