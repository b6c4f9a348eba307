"""Agents by Slurm: one srun task a node, in the current allocation or in a new one."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from broker.ids import MAX_RANK
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
from launcher.processes.entry.environment import MOST_DIGITS
from launcher.report.outcome.outcome import Outcome
from launcher.supervise.facts import HostSpec
from launcher.supervise.request import Request
from launcher.supervise.signals.signals import StopSignals
from sipsim.core.errors import ConfigError

SLURM_FLAG = "--engine slurm"
JOB = "SLURM_JOB_ID"
NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
NODE_RANK = "SLURM_NODEID"
SRUN_S = 5.0


@ENGINES.register("slurm")
def run_by_slurm(request: Request, signals: StopSignals) -> Outcome:
    """SIPs on the nodes of a Slurm allocation, or on those of --hosts."""
    return run_on_agents(request, signals, SlurmStarter(request))


class SlurmStarter(SingleProcessStarter):
    """One srun for all; see ``launcher.hosts.starters.Starter``.

    Slurm forwards standard input to all tasks, so the bootstrap needs no file. A failed node does not return.
    """

    rank_names = (NODE_RANK,)

    def __init__(self, request: Request) -> None:
        super().__init__()
        self._srun = program("srun", SLURM_FLAG)
        self._inside = JOB in os.environ
        hosts = request.settings.hosts
        self.specs = specs_of(hosts, SLURM_FLAG) if hosts else of_the_allocation(os.environ)
        # With a budget for restarts the loss of one host must not end the others.
        self._kill_all = request.settings.max_restarts == 0
        self._folder = Path(request.scratch_dir)
        self._name = f"ahbm-{self._folder.name}"

    def begin(self, boot: Boot) -> None:
        """Start all by one srun, which must neither wait for cores nor end a run because one task is done."""
        n_hosts = len(self.specs)
        argv = [self._srun, f"-K{int(self._kill_all)}", "--wait=0", "-O", "-N", str(n_hosts), "-n", str(n_hosts)]
        argv += ["--ntasks-per-node=1", "--export=ALL", "--mpi=none", "-J", self._name]
        argv += ["--overlap"] if self._inside else []
        names = [spec.name for spec in self.specs if spec.is_named]
        argv += ["-w", ",".join(names)] if names else []
        argv += ["sh", "-c", agent_command("--stdin")]
        self._running.append(StarterProcess(argv, self._folder / "srun.out", boot(None)))

    def close(self) -> None:
        """End srun; a step that survives SIGTERM is cancelled."""
        end_all(self._running, before_kill=self._cancel)

    def _cancel(self) -> None:
        if not self._inside:
            self._run("scancel", f"--name={self._name}")
            return
        for line in self._run("squeue", "--steps", "--noheader", f"--jobs={os.environ[JOB]}", "--format=%i %j"):
            step, _, name = line.partition(" ")
            if name.strip() == self._name:
                self._run("scancel", step)

    def _run(self, *argv: str) -> list[str]:
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=SRUN_S)
        except (OSError, subprocess.TimeoutExpired):
            return []
        return done.stdout.splitlines()


def of_the_allocation(environ: Mapping[str, str]) -> list[HostSpec]:
    """A host for each node of the allocation; agents report their names.

    Raises:
        ConfigError: when there is none, or its number of nodes is unknown.
    """
    if JOB not in environ:
        raise ConfigError(
            f"{SLURM_FLAG} needs an allocation ({JOB} is not set; see salloc, sbatch), or --hosts a:2,b:2"
        )
    count = next((environ[name] for name in NODES if name in environ), "")
    if not (count.isascii() and count.isdigit()) or len(count) > MOST_DIGITS or not 1 <= int(count) <= MAX_RANK + 1:
        raise ConfigError(f"{SLURM_FLAG}: neither of {' and '.join(NODES)} holds the number of nodes; give --hosts")
    return [HostSpec(f"node {number}", is_named=False) for number in range(int(count))]
