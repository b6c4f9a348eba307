"""The engines that start processes: ``local`` on this host, and by agents ``ssh``, ``slurm``, ``mpi`` and ``k8s``."""

import contextlib
import os
import random
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from broker.ids import MAX_RANK
from launcher.hosts.agent_hosts import run_on_agents
from launcher.hosts.pool import LocalHost
from launcher.hosts.run_loop import run_processes
from launcher.hosts.starters import (
    Boot,
    SingleProcessStarter,
    StarterEnded,
    StarterProcess,
    agent_command,
    end_all,
    program,
    specs_of,
)
from launcher.options import ENGINES
from launcher.processes.entry import MOST_DIGITS
from launcher.processes.ticket import write_private
from launcher.report.outcome import Outcome
from launcher.supervise.facts import HostSpec
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from launcher.supervise.stall import log
from sipsim.core.errors import ConfigError
from sipsim.core.files import HINT, Folder, Unsafe

SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


@ENGINES.register("auto")
def run_automatic(run: Run, signals: StopSignals) -> Outcome:
    """slurm in an allocation, mpi below an mpiexec, ssh with --hosts, else local."""
    outcome: Outcome = ENGINES.get(which(os.environ, bool(run.options.hosts)))(run, signals)
    return outcome


def which(environ: Mapping[str, str], has_hosts: bool) -> str:
    """The name of the engine that suits the environment of the launcher.

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


K8S_FLAG = "--engine k8s"
BOOTSTRAP = "AHBM_BOOTSTRAP"


@ENGINES.register("k8s")
def run_for_kubernetes(run: Run, signals: StopSignals) -> Outcome:
    """SIPs by agents that wait for the file AHBM_BOOTSTRAP (configs/k8s)."""
    return run_on_agents(run, signals, FileStarter(run))


class FileStarter:
    """Writes the bootstrap file and starts nothing; see ``launcher.hosts.starters.Starter``.

    Another program, such as a Kubernetes Job, starts the agents. They wait for the file.
    """

    can_revive = False
    rank_names = ("JOB_COMPLETION_INDEX",)

    def __init__(self, run: Run) -> None:
        self.specs = specs_of(run.options.hosts, K8S_FLAG)
        path = os.environ.get(BOOTSTRAP)
        if not path:
            raise ConfigError(
                f"{K8S_FLAG} needs {BOOTSTRAP}: the file to write for agents; see configs/k8s/ahbm-job.yaml"
            )
        self._path = Path(path)

    def begin(self, boot: Boot) -> None:
        """Write the file, for its owner alone.

        Raises:
            ConfigError: when it cannot be written.
        """
        try:
            write_private(self._path, boot(None))
        except OSError as error:
            raise ConfigError(f"{BOOTSTRAP}={self._path}: cannot be written: {error.strerror}") from None
        log(f"agents may start: their bootstrap is {self._path}")

    def revive(self, host: int) -> None:
        """No-op."""

    def ended(self) -> list[StarterEnded]:
        """Empty: nothing was started."""
        return []

    def close(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._path.unlink()


@ENGINES.register("local")
def run_local(run: Run, signals: StopSignals) -> Outcome:
    """One process a SIP, one for the broker, on this machine."""
    return run_processes(run, signals, LocalHost)


MPI_FLAG = "--engine mpi"
SHARED = "AHBM_SHARED_DIR"
MPIEXEC_S = 20.0


@ENGINES.register("mpi")
def run_by_mpi(run: Run, signals: StopSignals) -> Outcome:
    """SIPs on the hosts of --hosts, reached by mpiexec."""
    return run_on_agents(run, signals, MpiStarter(run))


class MpiStarter(SingleProcessStarter):
    """One mpiexec for all; see ``launcher.hosts.starters.Starter``.

    It is Open MPI's or MPICH's and starts one process a host; MPI is used for nothing else. It forwards standard input
    to one process at most, so the bootstrap is a private file, in the run's folder or in AHBM_SHARED_DIR, which all
    hosts must see. An MPI job that has lost a process ends.
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.specs = specs_of(run.options.hosts, MPI_FLAG)
        self._mpiexec = program("mpiexec", MPI_FLAG, "AHBM_MPIEXEC")
        self._is_open_mpi = _is_open_mpi(self._mpiexec)
        self.rank_names = ("OMPI_COMM_WORLD_RANK",) if self._is_open_mpi else ("PMI_RANK",)
        self._scratch_dir = Path(run.scratch_dir)
        shared = os.environ.get(SHARED)
        self._bootstrap = Path(shared or run.scratch_dir).resolve() / f"bootstrap-{self._scratch_dir.name}.json"
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


SLURM_FLAG = "--engine slurm"
JOB = "SLURM_JOB_ID"
NODES = ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
NODE_RANK = "SLURM_NODEID"
SRUN_S = 5.0


@ENGINES.register("slurm")
def run_by_slurm(run: Run, signals: StopSignals) -> Outcome:
    """SIPs on the nodes of a Slurm allocation, or on those of --hosts."""
    return run_on_agents(run, signals, SlurmStarter(run))


class SlurmStarter(SingleProcessStarter):
    """One srun for all, one task a node; see ``launcher.hosts.starters.Starter``.

    It runs in the current allocation or in a new one. Slurm forwards standard input to all tasks, so the bootstrap
    needs no file. A failed node does not return.
    """

    rank_names = (NODE_RANK,)

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._srun = program("srun", SLURM_FLAG)
        self._inside = JOB in os.environ
        hosts = run.options.hosts
        self.specs = specs_of(hosts, SLURM_FLAG) if hosts else of_the_allocation(os.environ)
        # With a budget for restarts the loss of one host must not end the others.
        self._kill_all = run.options.max_restarts == 0
        self._folder = Path(run.scratch_dir)
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


SSH_FLAG = "--engine ssh"
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""No prompts. Host keys are configured in the user's ssh settings."""
BUSY = ("kex_exchange_identification", "Connection reset by", "Connection closed by", "ssh_exchange_identification")
"""Output of ssh when an sshd had too many connections at a time."""
JITTER_S = (0.2, 1.2)


@ENGINES.register("ssh")
def run_by_ssh(run: Run, signals: StopSignals) -> Outcome:
    """SIPs on the hosts of --hosts, reached by ssh."""
    return run_on_agents(run, signals, SshStarter(run))


class SshStarter:
    """One ssh a host of ``--hosts``; see ``launcher.hosts.starters.Starter``.

    The bootstrap comes on its standard input, which stays open.
    """

    rank_names = ()
    can_revive = True

    def __init__(self, run: Run) -> None:
        self.specs = specs_of(run.options.hosts, SSH_FLAG)
        self._ssh = program("ssh", SSH_FLAG, "AHBM_SSH")
        self._folder = Path(run.scratch_dir)
        self._running: dict[int, StarterProcess] = {}
        self._all: list[StarterProcess] = []
        self._retry_s: dict[int, float] = {}
        self._retried: set[int] = set()

    def begin(self, boot: Boot) -> None:
        """Connect to all hosts at once."""
        self._boot = boot
        for host in range(len(self.specs)):
            self.revive(host)

    def revive(self, host: int) -> None:
        """Connect again."""
        argv = [self._ssh, *OPTIONS, self.specs[host].name, agent_command("--stdin")]
        output = self._folder / f"ssh-{host}-{len(self._all)}.out"
        self._running[host] = StarterProcess(argv, output, self._boot(host))
        self._all.append(self._running[host])

    def ended(self) -> list[StarterEnded]:
        """Exits by host. A connection refused by a busy sshd is retried once, a little later."""
        now_s = time.monotonic()
        for host, retry_s in list(self._retry_s.items()):
            if now_s >= retry_s:
                del self._retry_s[host]
                self.revive(host)
        found: list[StarterEnded] = []
        for host, running in list(self._running.items()):
            if not running.has_ended:
                continue
            del self._running[host]
            ending = running.ending(host)
            if host not in self._retried and ending.why.startswith(BUSY):
                self._retried.add(host)
                self._retry_s[host] = now_s + random.uniform(*JITTER_S)
            else:
                found.append(ending)
        return found

    def close(self) -> None:
        """End all at once."""
        end_all(self._all)
