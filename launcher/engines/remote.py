"""Engines that start processes: ``local`` on this host; ``ssh``, ``slurm``, ``mpi`` and ``k8s`` through agents."""

import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from broker.ids import MAX_RANK
from launcher.hosts.agent_hosts import run_on_agents
from launcher.hosts.pool import LocalHost
from launcher.hosts.run_loop import run_processes
from launcher.hosts.starters import BOOTSTRAP, StartPlan, agent_command, program, specs_of
from launcher.options import ENGINES
from launcher.processes.entry import MAX_DIGITS
from launcher.report.outcome import Outcome
from launcher.supervise.facts import HostSpec
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from sipsim.core.errors import ConfigError
from sipsim.core.files import HINT, Folder, Unsafe

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@ENGINES.register("auto")
def run_automatic(run: Run, signals: StopSignals) -> Outcome:
    """Slurm in an allocation, mpi below an mpiexec, ssh with --hosts, else local."""
    outcome: Outcome = ENGINES.get(which(os.environ, bool(run.options.hosts)))(run, signals)
    return outcome


def which(environ: Mapping[str, str], has_hosts: bool) -> str:
    """Return the name of the engine for the environment of the launcher.

    Raises:
        ConfigError: if mpiexec has started several launchers.
    """
    if "SLURM_JOB_ID" in environ:
        return "slurm"
    size = next((environ[name] for name in SIZES if name in environ), None)
    if size is not None and size != "1":
        what = f"--engine auto: mpiexec has started {size} launchers"
        raise ConfigError(f"{what}; start one launcher, outside mpiexec, with --engine mpi and --hosts")
    if size is not None and has_hosts:
        return "mpi"
    return "ssh" if has_hosts else "local"


K8S_FLAG = "--engine k8s"


@ENGINES.register("k8s")
def run_for_kubernetes(run: Run, signals: StopSignals) -> Outcome:
    """SIPs in Kubernetes, by agents that wait for the file AHBM_BOOTSTRAP (configs/k8s)."""
    specs = specs_of(run.options.hosts, K8S_FLAG)
    path = os.environ.get(BOOTSTRAP)
    if not path:
        raise ConfigError(f"{K8S_FLAG} needs {BOOTSTRAP}: the file to write for agents; see configs/k8s/ahbm-job.yaml")
    return run_on_agents(run, signals, StartPlan(specs, ("JOB_COMPLETION_INDEX",), bootstrap=Path(path)))


@ENGINES.register("local")
def run_local(run: Run, signals: StopSignals) -> Outcome:
    """One process per SIP and one for the broker, on this machine."""
    return run_processes(run, signals, LocalHost)


MPI_FLAG = "--engine mpi"
SHARED = "AHBM_SHARED_DIR"
MPIEXEC_S = 20.0


@ENGINES.register("mpi")
def run_by_mpi(run: Run, signals: StopSignals) -> Outcome:
    """SIPs on the hosts of --hosts, reached by mpiexec."""
    return run_on_agents(run, signals, _mpi_plan(run))


def _mpi_plan(run: Run) -> StartPlan:
    """Return the plan that starts all agents by one mpiexec.

    mpiexec, of Open MPI or MPICH, starts one process per host; MPI is used for nothing else. mpiexec forwards standard
    input to one process at most, so the bootstrap is a private file in the run's folder or in AHBM_SHARED_DIR; all
    hosts must share this folder. If one process of an MPI job is lost, the job ends.
    """
    specs = specs_of(run.options.hosts, MPI_FLAG)
    mpiexec = program("mpiexec", MPI_FLAG, "AHBM_MPIEXEC")
    is_open_mpi = _is_open_mpi(mpiexec)
    shared = os.environ.get(SHARED)
    bootstrap = Path(shared or run.scratch_dir).resolve() / f"bootstrap-{Path(run.scratch_dir).name}.json"
    if shared:
        _check_shared(shared, bootstrap.parent)
    names = ",".join(spec.name for spec in specs)
    argv = [mpiexec, "-n", str(len(specs))]
    if is_open_mpi:
        argv += ["--map-by", "ppr:1:node", "--host", names, "--oversubscribe"]
        argv += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    else:
        argv += ["-ppn", "1", "-hosts", names]
    argv += ["sh", "-c", agent_command("--bootstrap", str(bootstrap))]
    rank_name = "OMPI_COMM_WORLD_RANK" if is_open_mpi else "PMI_RANK"
    return StartPlan(specs, (rank_name,), for_all=argv, bootstrap=bootstrap)


def _check_shared(shared: str, folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"{SHARED}={shared}: no such folder; name a folder that all hosts share")
    try:
        Folder(folder).close()
    except Unsafe as error:
        raise ConfigError(f"{SHARED}={shared}: {error.strerror}; {HINT}") from None


def _is_open_mpi(mpiexec: str) -> bool:
    """Whether ``mpiexec`` belongs to Open MPI rather than MPICH.

    Raises:
        ConfigError: if ``mpiexec`` belongs to neither Open MPI nor MPICH.
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
        f"{MPI_FLAG}: {mpiexec} belongs to neither Open MPI nor MPICH: output {first!r}; set AHBM_MPIEXEC"
    )


SLURM_FLAG = "--engine slurm"
JOB = "SLURM_JOB_ID"
NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
NODE_RANK = "SLURM_NODEID"
SRUN_S = 5.0


@ENGINES.register("slurm")
def run_by_slurm(run: Run, signals: StopSignals) -> Outcome:
    """SIPs on the nodes of a Slurm allocation, or on those of --hosts."""
    return run_on_agents(run, signals, _slurm_plan(run))


def _slurm_plan(run: Run) -> StartPlan:
    """Return the plan that starts all agents by one srun, one task per node, in the current or a new allocation.

    Slurm forwards standard input to all tasks, so the bootstrap needs no file. A failed node is not restarted. srun
    must neither wait for cores nor end the run because one task has ended.
    """
    srun, hosts = program("srun", SLURM_FLAG), run.options.hosts
    specs = specs_of(hosts, SLURM_FLAG) if hosts else of_the_allocation(os.environ)
    # If restarts are allowed, the loss of one host must not end the other hosts.
    kill_all = run.options.max_restarts == 0
    name = f"ahbm-{Path(run.scratch_dir).name}"
    argv = [srun, f"-K{int(kill_all)}", "--wait=0", "-O", "-N", str(len(specs)), "-n", str(len(specs))]
    argv += ["--ntasks-per-node=1", "--export=ALL", "--mpi=none", "-J", name]
    argv += ["--overlap"] if JOB in os.environ else []
    argv += ["-w", ",".join(spec.name for spec in specs)] if hosts else []
    argv += ["sh", "-c", agent_command("--stdin")]
    return StartPlan(specs, (NODE_RANK,), for_all=argv, cancel=partial(_cancel, name))


def _cancel(name: str) -> None:
    """Cancel the Slurm job ``name``; within an allocation, cancel the job step ``name``."""
    if JOB not in os.environ:
        _output_of("scancel", f"--name={name}")
        return
    for line in _output_of("squeue", "--steps", "--noheader", f"--jobs={os.environ[JOB]}", "--format=%i %j"):
        step, _, step_name = line.partition(" ")
        if step_name.strip() == name:
            _output_of("scancel", step)


def _output_of(*argv: str) -> list[str]:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=SRUN_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


def of_the_allocation(environ: Mapping[str, str]) -> list[HostSpec]:
    """Return a host for each node of the Slurm allocation; agents report the host names later.

    Raises:
        ConfigError: if there is no allocation, or the number of nodes is unknown.
    """
    if JOB not in environ:
        raise ConfigError(
            f"{SLURM_FLAG} needs an allocation ({JOB} is not set; see salloc, sbatch), or --hosts a:2,b:2"
        )
    count = next((environ[name] for name in NODES if name in environ), "")
    if not (count.isascii() and count.isdigit()) or len(count) > MAX_DIGITS or not 1 <= int(count) <= MAX_RANK + 1:
        raise ConfigError(f"{SLURM_FLAG}: neither {' nor '.join(NODES)} is a valid number of nodes; give --hosts")
    return [HostSpec(f"node {number}", is_named=False) for number in range(int(count))]


SSH_FLAG = "--engine ssh"
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""No prompts: host keys are configured in the user's ssh settings."""


@ENGINES.register("ssh")
def run_by_ssh(run: Run, signals: StopSignals) -> Outcome:
    """SIPs on the hosts of --hosts, reached by ssh."""
    specs, ssh = specs_of(run.options.hosts, SSH_FLAG), program("ssh", SSH_FLAG, "AHBM_SSH")

    def command(host: int) -> list[str]:
        return [ssh, *OPTIONS, specs[host].name, agent_command("--stdin")]

    return run_on_agents(run, signals, StartPlan(specs, command=command))
