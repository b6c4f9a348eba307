"""Cluster programs on namespace hosts: sshd, Slurm, Open MPI, MPICH.

Each yields the environment for programs on ``head`` that use it. Keys, settings and logs are in the hosts' folder,
ports are the usual ones: every host has a network of its own. No example for real clusters: Slurm and the agent of
MPI accept every client.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

from hosts import PATH, WAIT_S, Hosts, tool

NEEDED = {
    "ssh": ("sshd", "ssh", "ssh-keygen"),
    "slurm": ("slurmctld", "slurmd", "srun", "sinfo"),
    "openmpi": ("mpiexec.openmpi",),
    "mpich": ("mpiexec.mpich",),
}
"""The programs of each kind of cluster."""
PACKAGES = {
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "srun": "slurm-client",
    "sinfo": "slurm-client",
    "mpiexec.openmpi": "openmpi-bin",
    "mpiexec.mpich": "mpich",
}
"""Debian's, as ``.ci/run`` installs them."""


def why_no(kind: str) -> str:
    """Why this kind of cluster cannot be had here, hosts aside; empty when it can."""
    lacking = [name for name in NEEDED.get(kind, ()) if not tool(name)]
    packages = sorted({PACKAGES[name] for name in lacking})
    return f"{', '.join(lacking)} not installed (Debian: {' '.join(packages)})" if lacking else ""


def login_environment() -> dict[str, str]:
    """The environment of a login: of the caller's only what belongs to the test session."""
    kept = ("AHBM_TEST_SESSION", "AHBM_CHECK_INVARIANTS", "TMPDIR", "PYTHONPATH")
    passed = {name: os.environ[name] for name in kept if name in os.environ}
    return {"PATH": PATH, "HOME": os.environ.get("HOME", "/root"), **passed}


def script(path: Path, text: str) -> Path:
    """Write a program."""
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o700)
    return path


# --- ssh ------------------------------------------------------------------------------------------------------

SSHD_CONFIG = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
MaxStartups 100
SetEnv {environment}
"""
SSH_CONFIG = """\
Host *
    User {user}
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
"""


@contextlib.contextmanager
def sshd_on(hosts: Hosts, **remote_environment: str) -> Iterator[dict[str, str]]:
    """An sshd on each host; a login gets ``remote_environment`` as well.

    The environment has AHBM_SSH, an ``ssh`` that knows the hosts and has the key, also first on PATH.
    """
    folder = hosts.folder / "ssh"
    folder.mkdir(mode=0o700)
    for key in ("host_key", "user_key"):
        subprocess.run([tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    public = " ".join((folder / "host_key.pub").read_text().split()[:2])
    known = [f"{host.name},{host.address} {public}" for host in hosts]
    (folder / "known_hosts").write_text("\n".join(known) + "\n")
    remote = login_environment() | remote_environment
    set_env = " ".join(f'"{name}={value}"' for name, value in remote.items() if name not in ("PATH", "HOME"))
    (folder / "sshd_config").write_text(SSHD_CONFIG.format(folder=folder, environment=set_env or "AHBM_TEST=1"))
    (folder / "config").write_text(SSH_CONFIG.format(folder=folder, user="root"))
    (folder / "bin").mkdir()
    ssh = script(folder / "bin/ssh", f'exec {tool("ssh")} -F {folder / "config"} "$@"\n')
    # A service manager makes it, and sshd wants it.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for host in hosts:
        sshd = [tool("sshd"), "-D", "-e", "-f", folder / "sshd_config"]
        daemon = host.serve(sshd, stderr=subprocess.PIPE, text=True, env=login_environment())
        said = []
        for line in daemon.stderr:
            said.append(line)
            if "listening" in line:
                break
        else:
            raise AssertionError(f"sshd on {host.name}: {''.join(said)}")
    yield {"AHBM_SSH": str(ssh), "PATH": f"{folder / 'bin'}:{PATH}"}


# --- Slurm ----------------------------------------------------------------------------------------------------

SLURM_CONF = """\
ClusterName=ahbm
SlurmctldHost=head({head})
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SelectType=select/linear
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""
CPUS = 16
"""What a node is said to have, so that its tasks start; ``config_overrides`` makes Slurm believe it."""


@contextlib.contextmanager
def slurm_on(hosts: Hosts) -> Iterator[dict[str, str]]:
    """slurmctld on ``head``, a slurmd on each host, all nodes idle. The environment has SLURM_CONF."""
    folder = hosts.folder / "slurm"
    for name in ("state", *(f"spool-{host.name}" for host in hosts)):
        (folder / name).mkdir(parents=True)
    nodes = "\n".join(f"NodeName={host.name} NodeAddr={host.address} CPUs={CPUS} State=UNKNOWN" for host in hosts)
    conf = folder / "slurm.conf"
    conf.write_text(SLURM_CONF.format(head=hosts.head.address, folder=folder, nodes=nodes))
    env = {"SLURM_CONF": str(conf), "PATH": PATH}
    daemons = login_environment() | env
    with contextlib.ExitStack() as stack:
        for host, name in [(hosts.head, "slurmctld"), *((host, "slurmd") for host in hosts)]:
            options = ["-c"] if name == "slurmctld" else ["-N", host.name]
            log = stack.enter_context((folder / f"{name}-{host.name}.err").open("w"))
            host.serve([tool(name), "-D", *options], stdout=log, stderr=log, env=daemons)
        end, states = monotonic() + WAIT_S, [""]
        while states != ["idle"] * len(hosts):
            states = hosts.head.output(["sinfo", "-h", "-N", "-o", "%T"], env=daemons).split()
            assert monotonic() < end, f"nodes are {states}: {_ends(folder)}"
        try:
            yield env
        finally:
            # Its steps end in order; what does not is ended with the hosts.
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                hosts.head.output(["scancel", "--user=root"], env=daemons)


def _ends(folder: Path) -> str:
    logs = [*folder.glob("*.log"), *folder.glob("*.err")]
    return "\n".join(f"{log.name}: {line}" for log in logs for line in log.read_text().splitlines()[-5:])


# --- MPI ------------------------------------------------------------------------------------------------------

AGENT = """\
# Called as ssh is: options, a host, the words of a command for its shell.
while case $1 in -*) true;; *) false;; esac; do shift; done
host=$1
shift
case $host in
{cases}
*) echo "agent: no host $host" >&2; exit 255;;
esac
"""


def _agent(hosts: Hosts, folder: Path) -> Path:
    """In place of ssh on ``head``: a shell on the host, in the environment of a login."""
    login = " ".join(f"{name}='{value}'" for name, value in login_environment().items())
    entry = {host: " ".join(f"'{word}'" for word in host.argv("env", "-i")) for host in hosts}
    cases = [f'{host.name}|{host.address}) exec {words} {login} sh -c "$*";;' for host, words in entry.items()]
    return script(folder / "agent.sh", AGENT.format(cases="\n".join(cases)))


@contextlib.contextmanager
def _mpi_on(hosts: Hosts, kind: str, **settings: str) -> Iterator[dict[str, str]]:
    folder = hosts.folder / kind
    folder.mkdir(mode=0o700)
    agent = _agent(hosts, folder)
    (folder / "bin").mkdir()
    # Not a link: MPICH looks for its helpers beside the name by which it was called.
    script(folder / "bin/mpiexec", f'exec {tool(f"mpiexec.{kind}")} "$@"\n')
    yield {"PATH": f"{folder / 'bin'}:{PATH}", **{name: value.format(agent=agent) for name, value in settings.items()}}


@contextlib.contextmanager
def openmpi_on(hosts: Hosts) -> Iterator[dict[str, str]]:
    """``mpiexec`` is Open MPI's and reaches the hosts. Root and more ranks than cores are refused, as by default."""
    network = f"{hosts.network}.0/24"
    with _mpi_on(hosts, "openmpi", OMPI_MCA_plm_rsh_agent="{agent}", OMPI_MCA_oob_tcp_if_include=network) as env:
        yield env


@contextlib.contextmanager
def mpich_on(hosts: Hosts) -> Iterator[dict[str, str]]:
    """``mpiexec`` is MPICH's and reaches the hosts."""
    with _mpi_on(hosts, "mpich", HYDRA_LAUNCHER="ssh", HYDRA_LAUNCHER_EXEC="{agent}") as env:
        yield env


CLUSTERS = {"ssh": sshd_on, "slurm": slurm_on, "openmpi": openmpi_on, "mpich": mpich_on}
"""By name, as the tests' marker has it."""
