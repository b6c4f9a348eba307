"""Runs on two hosts that are both this one: agents over loopback TCP, started by a substitute for ssh."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq
from launch import ALL_REDUCE, CHECKOUT, END_S, STAND, Launch, environment, launched, launching, script
from sweeps import some

from broker.ids import LAUNCHER
from broker.mail.sockets import SocketFactory
from broker.security import AgentKeys, JobKeys
from launcher.hosts.bootstrap import Bootstrap
from launcher.hosts.wire import Hello, Log, encode
from sipsim import VERSION

pytestmark = pytest.mark.processes

SSH = """#!/bin/sh
# As ssh is called: options, a host, one command for its shell.
while case $1 in -o) shift;; -*) true;; *) false;; esac; do shift; done
host=$1; shift
{first}
exec sh -c "$*"
"""
SMALL = ("--sips", "4", "--set", "sip.cube_mesh.w=2", "--set", "sip.cube_mesh.h=2")
HOSTS = ("--engine", "ssh", "--hosts", "a,b", "--bind", "127.0.0.1")


@pytest.fixture
def ssh(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """The environment with an ssh that does ``first`` before it runs what it is told, on this host."""

    def make(first: str = "") -> dict[str, str]:
        path = tmp_path / "ssh"
        path.write_text(SSH.format(first=first))
        path.chmod(0o700)
        return {"AHBM_SSH": str(path)}

    return make


class Standing:
    """A run whose ranks all block in their scripts: its processes by kind, those of agents by host."""

    def __init__(self, launch: Launch) -> None:
        said = launch.words("stands", 4)
        self.sips = {rank: int(pid) for rank, pid in said.items()}
        self.tree = launch.watch()
        parent = {child: pid for pid, children in self.tree.items() for child in children}
        self.servers = [parent[self.sips[rank]] for rank in (0, 2)]
        self.agents = [parent[server] for server in self.servers]
        assert [parent[self.sips[rank]] for rank in (1, 3)] == self.servers


def digest_here(*argv: object) -> str:
    return launched(*SMALL, *argv).digest


def test_the_same_digest_with_ranks_in_blocks(tmp_path, ssh):
    path = script(tmp_path, f"{ALL_REDUCE}\nprint('words of', rank)")
    done = launched(*SMALL, *HOSTS, "--json", tmp_path / "out.json", path, **ssh())
    assert (done.exit_code, done.digest) == (0, digest_here(path))
    assert sorted(done.stderr.splitlines()) == [
        f"[rank {rank} {host}] words of {rank}" for rank, host in enumerate("aabb")
    ]
    # What a script's ranks left on their hosts has come here, and was checked.
    assert done.document["runs"][0]["checked"] is True


def test_a_rank_finds_its_position_in_its_environment(tmp_path, ssh):
    names = ("AHBM_RANK", "AHBM_NODE_RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "AHBM_INCARNATION")
    path = script(tmp_path, f"print(*[os.environ[name] for name in {names!r}])")
    done = launched(*SMALL, *HOSTS, path, **ssh())
    assert sorted(done.stderr.splitlines()) == [
        f"[rank {rank} {host}] {rank} {node} {local} 2 4 0"
        for rank, host, node, local in ((0, "a", 0, 0), (1, "a", 0, 1), (2, "b", 1, 0), (3, "b", 1, 1))
    ]


def test_the_trace_of_all_hosts_is_one_file(tmp_path, ssh):
    for name, flags in (("far", HOSTS), ("near", ())):
        launched(*SMALL, *flags, "--trace-ccl", tmp_path / name, **ssh())
    assert (tmp_path / "far").read_text() == (tmp_path / "near").read_text()


UNHEARD = ("unheard of", ".hidden/deep er/unheard", "empty")
"""Names of files that no code knows."""
LEAVE_FILES = f"""
import glob, pathlib, tempfile
mine, = glob.glob(f"{{tempfile.gettempdir()}}/ahbm-agent-*/rank-{{rank}}")
for name in {UNHEARD!r}:
    path = pathlib.Path(mine, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("" if name == "empty" else f"by {{rank}}")
"""
READ_THEM = f"""
import pathlib, tempfile
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import *
from sipsim.chips.ahbm.collectives.algorithms.intercube_allreduce import reference as usual

def reference(inputs, system):
    rank_0, = pathlib.Path(tempfile.gettempdir()).glob("ahbm-*/rank-0")
    for rank in range(system.n_sips):
        print(*[repr(rank_0.with_name(f"rank-{{rank}}").joinpath(name).read_text()) for name in {UNHEARD!r}])
    return usual(inputs, system)
"""


def test_files_that_the_launcher_has_never_heard_of_arrive(tmp_path, ssh):
    """Its ranks leave them in their artifact folders; an algorithm's ``reference`` runs where they have arrived."""
    path = script(tmp_path, f"{ALL_REDUCE}\n{LEAVE_FILES}")
    (tmp_path / "looks.py").write_text(READ_THEM)
    (tmp_path / "ccl.yaml").write_text("algorithms: {looks: {module: looks.py, topology: none, root_cube: null}}\n")
    flags = ("--ccl", tmp_path / "ccl.yaml", "--algorithm", "looks")
    done = launched(*SMALL, *HOSTS, *flags, path, **ssh())
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[:4] == [f"'by {rank}' 'by {rank}' ''" for rank in range(4)]


def test_a_killed_sip_is_named_with_its_host_and_its_last_lines(tmp_path, ssh):
    body = f"{ALL_REDUCE}\nif rank == 3:\n    print('last words', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    path = script(tmp_path, f"{body}\n{ALL_REDUCE}")
    done = launched(*SMALL, *HOSTS, "--json", tmp_path / "out.json", path, **ssh())
    assert (done.exit_code, done.document["error"]["kind"], done.document["error"]["host"]) == (4, "process_died", "b")
    first = done.own_lines[0]
    assert first.startswith("ahbm-launch: process_died: rank 3 (pid ")
    assert first.endswith(" on b) was killed by SIGKILL")
    assert "  | last words" in done.own_lines


def test_a_sip_that_is_killed_is_started_again_on_its_host(tmp_path, ssh):
    again = "if rank == 3 and os.environ['AHBM_INCARNATION'] == '0': os.kill(os.getpid(), signal.SIGKILL)"
    path = script(tmp_path, f"{ALL_REDUCE}\n{again}\n{ALL_REDUCE}")
    done = launched(*SMALL, *HOSTS, "--max-restarts", "1", "--json", tmp_path / "out.json", path, **ssh())
    path = script(tmp_path, f"{ALL_REDUCE}\n{ALL_REDUCE}")
    assert (done.exit_code, done.digest) == (0, digest_here(path))
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, 0, 1]


@pytest.mark.fault
@pytest.mark.parametrize("who", some(["agent", "server", "launcher"], "server", "launcher"))
def test_nothing_is_left_after_a_kill(who, tmp_path, ssh):
    """Every process is waited for, and the temporary folders are checked."""
    path = script(tmp_path, f"{STAND}\n{ALL_REDUCE}")
    with launching(*SMALL, *HOSTS, "--json", tmp_path / "out.json", path, **ssh()) as launch:
        run = Standing(launch)
        os.kill({"agent": run.agents[1], "server": run.servers[1], "launcher": launch.pid}[who], signal.SIGKILL)
        done = launch.end()
    if who == "launcher":
        assert done.exit_code == -signal.SIGKILL
        return
    assert (done.exit_code, done.document["error"]["kind"], done.left_files) == (4, "agent_failed", [])
    first = done.own_lines[0]
    assert first.startswith(f"ahbm-launch: agent_failed: the agent on b (pid {run.agents[1]}) has ")
    assert first.endswith("; ranks that ran there: 2, 3")
    if who == "server":
        assert f"the server that starts the processes (pid {run.servers[1]}) was killed by SIGKILL" in first


@pytest.mark.fault
def test_an_agent_that_is_stopped_is_a_host_that_is_lost(tmp_path, ssh):
    path = script(tmp_path, f"{STAND}\n{ALL_REDUCE}")
    with launching(*SMALL, *HOSTS, "--json", tmp_path / "out.json", path, **ssh()) as launch:
        run = Standing(launch)
        os.kill(run.agents[1], signal.SIGSTOP)
        done = launch.end()
    assert (done.exit_code, done.document["error"]["kind"]) == (4, "host_lost")
    assert done.own_lines[0].startswith("ahbm-launch: host_lost: host b is lost: ")


KILL_MY_AGENT = "os.kill(int(open(f'/proc/{os.getppid()}/stat').read().split()[3]), signal.SIGKILL)"
KILL_IT_ONCE = f"if rank == 3 and os.environ['AHBM_INCARNATION'] == '0': {KILL_MY_AGENT} or signal.pause()"
"""A run that could end before that is noticed would not need the agent."""


def test_a_killed_agent_is_restarted_with_its_ranks(tmp_path, ssh):
    """It is killed by its own rank, in the first incarnation only."""
    path = script(tmp_path, f"{ALL_REDUCE}\n{KILL_IT_ONCE}\n{ALL_REDUCE}")
    done = launched(*SMALL, *HOSTS, "--max-restarts", "1", "--json", tmp_path / "out.json", path, **ssh())
    path = script(tmp_path, f"{ALL_REDUCE}\n{ALL_REDUCE}")
    assert (done.exit_code, done.digest) == (0, digest_here(path)), done.stderr
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, 1, 1]


def test_an_agent_that_cannot_come_again_leaves_its_ranks_to_the_other(tmp_path, ssh):
    once = f"case $host in b) [ -e {tmp_path}/b ] && {{ echo 'no way to b' >&2; exit 255; }}; touch {tmp_path}/b;; esac"
    path = script(tmp_path, f"{ALL_REDUCE}\n{KILL_IT_ONCE}\n{ALL_REDUCE}\nprint('at the end')")
    done = launched(*SMALL, *HOSTS, "--max-restarts", "1", path, **ssh(once))
    path = script(tmp_path, f"{ALL_REDUCE}\n{ALL_REDUCE}")
    assert (done.exit_code, done.digest) == (0, digest_here(path)), done.stderr
    assert "[rank 3 a] at the end" in done.stderr.splitlines()


def test_ctrl_c(tmp_path, ssh):
    path = script(tmp_path, f"{STAND}\n{ALL_REDUCE}")
    with launching(*SMALL, *HOSTS, "--json", tmp_path / "out.json", path, **ssh()) as launch:
        Standing(launch)
        launch.process.send_signal(signal.SIGINT)
        done = launch.end()
    assert (done.exit_code, done.document["error"]["kind"], done.left_files) == (130, "interrupted", [])


def test_agents_started_by_another_program_read_the_bootstrap_file(tmp_path):
    """As in a Kubernetes Job, whose Secret the file becomes."""
    bootstrap = tmp_path / "bootstrap.json"
    flags = (*SMALL, "--engine", "k8s", "--hosts", "a,b", "--bind", "127.0.0.1")
    with launching(*flags, AHBM_BOOTSTRAP=str(bootstrap)) as launch:
        launch.line(lambda line: str(bootstrap) in line)
        command = [sys.executable, "-m", "launcher.hosts.agent", "--bootstrap", str(bootstrap)]
        envs = [environment(launch.temp, JOB_COMPLETION_INDEX=str(index)) for index in range(2)]
        agents = [subprocess.Popen(command, env=env, cwd=CHECKOUT) for env in envs]
        done = launch.end()
        assert [each.wait(END_S) for each in agents] == [0, 0]
    assert (done.exit_code, done.digest) == (0, digest_here())
    assert not bootstrap.exists()


# --- members that send what is no message ---------------------------------------------------------------------

SENDS = """
import gc
from broker.ids import BROKER
from broker.wire import PacketBatch, Progress, encode
from sipsim.node.sip_node import SipNode

def sends(to, frame):
    next(each for each in gc.get_objects() if isinstance(each, SipNode))._mail.send(to, frame)
"""


@pytest.mark.parametrize(
    "sends",
    [
        "sends(BROKER, b'')",
        "sends(BROKER, encode(Progress(5, 1))[:-1])",
        "sends(0, encode(PacketBatch(3, 0, ()))[:-1])",
    ],
    ids=["empty", "cut short", "to a peer"],
)
def test_a_malformed_message_names_the_rank_whose_key_sent_it(sends, tmp_path, ssh):
    path = script(tmp_path, f"{ALL_REDUCE}\nif rank == 3: {sends}\n{ALL_REDUCE}")
    path.write_text(SENDS + path.read_text())
    done = launched(*SMALL, *HOSTS, "--json", tmp_path / "out.json", path, **ssh())
    error = done.document["error"]
    assert (done.exit_code, error["kind"], error["rank"], error["host"]) == (4, "bad_message", 3, "b")
    assert done.own_lines[0].startswith("ahbm-launch: bad_message: rank 3 ")
    assert "truncated" in done.own_lines[0]


def test_an_agent_that_sends_what_is_no_message_is_ended(tmp_path):
    bootstrap = tmp_path / "bootstrap.json"
    flags = (*SMALL, "--engine", "k8s", "--hosts", "a,b", "--bind", "127.0.0.1", "--json", tmp_path / "out.json")
    with launching(*flags, AHBM_BOOTSTRAP=str(bootstrap)) as launch:
        launch.line(lambda line: str(bootstrap) in line)
        boot = Bootstrap.from_text(bootstrap.read_text(), "the test")
        sockets = SocketFactory(boot.keys_of(1), {}, 2.0)
        agent = sockets.connect(zmq.DEALER, LAUNCHER, boot.launcher, boot.keys_of(1).launcher, b"agent-1/1-1")
        agent.send(encode(Hello(1, "b", 1, VERSION, "127.0.0.1", str(tmp_path))))
        agent.send(encode(Log(1, b"words"))[:-1])
        done = launch.end()
        sockets.close(0)
    error = done.document["error"]
    assert (done.exit_code, error["kind"], error["host"]) == (4, "agent_failed", "b")
    assert "the agent has sent a malformed message: " in error["message"]


# --- ways that lead nowhere -----------------------------------------------------------------------------------


def test_a_host_that_ssh_cannot_reach_is_reported_with_its_message(tmp_path, ssh):
    env = ssh("[ $host = b ] && { echo 'a banner'; echo 'ssh: connect to host b port 22: No route' >&2; exit 255; }")
    done = launched(*SMALL, *HOSTS, "--json", tmp_path / "out.json", **env)
    assert (done.exit_code, done.document["error"]["kind"]) == (4, "agent_failed")
    said = "ahbm-launch: agent_failed: b: no agent has started: ssh: connect to host b port 22: No route"
    assert done.own_lines[0].startswith(said)


def test_a_connection_refused_by_a_busy_sshd_is_retried(tmp_path, ssh):
    said = "kex_exchange_identification: read: Connection reset by peer"
    busy = f"[ -e {tmp_path}/$host ] || {{ touch {tmp_path}/$host; echo '{said}'; exit 255; }}"
    assert launched(*SMALL, *HOSTS, **ssh(busy)).exit_code == 0


def test_an_agent_that_does_not_come_is_missed(tmp_path, ssh):
    flags = ("--join-timeout", "1", "--json", tmp_path / "out.json")
    done = launched(*SMALL, *HOSTS, *flags, **ssh("[ $host = b ] && exec sleep 60"))
    assert (done.exit_code, done.document["error"]["kind"]) == (4, "not_joined")
    missing = r"missing: .*2 on b, 3 on b \(after 1 s"  # on a slow machine, also others
    assert re.search(rf"ahbm-launch: not_joined: .*{missing}", done.own_lines[0])
    assert "  rank 2: the agent of b has not reported" in done.own_lines


def test_no_ssh_at_all():
    done = launched(*SMALL, *HOSTS, AHBM_SSH="/no/ssh")
    assert done.exit_code == 2
    assert done.own_lines[0].startswith("ahbm-launch: --engine ssh needs /no/ssh, which is not on PATH; ")


# --- the agent by itself --------------------------------------------------------------------------------------


def agent(*argv: object, stdin: str = "", temp: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "launcher.hosts.agent", *map(str, argv)]
    known = {name: value for name, value in environment(temp).items() if not name.startswith(("SLURM", "PMI", "OMPI"))}
    return subprocess.run(
        command, input=stdin, env={**known, **env}, cwd=CHECKOUT, capture_output=True, text=True, timeout=END_S
    )


BOOT = Bootstrap(launcher="tcp://127.0.0.1:1", n_hosts=2)


def test_a_bootstrap_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "b.json"
    path.write_text(BOOT.text())
    path.chmod(0o644)
    done = agent("--bootstrap", path, temp=tmp_path)
    said = f"ahbm-agent: {path} has mode 0644 and can be read by others; run: chmod 600 {path}\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.fault
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "no node rank: "),
        ({"SLURM_NODEID": "abc"}, "SLURM_NODEID=abc: must be a node rank from 0 to 1"),
        ({"SLURM_NODEID": "2"}, "SLURM_NODEID=2: must be"),
        ({"SLURM_NODEID": "1", "PMI_RANK": "0"}, "SLURM_NODEID=1, PMI_RANK=0: these disagree"),
    ],
)
def test_an_agent_without_a_node_rank(tmp_path, env, said):
    done = agent("--stdin", stdin=BOOT.text() + "\n", temp=tmp_path, **env)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"ahbm-agent: {said}")


def test_a_bootstrap_that_is_none(tmp_path):
    done = agent("--stdin", stdin="hello\n", temp=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("ahbm-agent: the standard input contains no bootstrap of ahbm-launch: ")


def test_a_bootstrap_that_does_not_end(tmp_path):
    done = agent("--stdin", stdin="x" * (2**20 + 1), temp=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "contains no bootstrap of ahbm-launch: its first line is longer than" in done.stderr


def test_the_end_of_the_standard_input_is_the_agents_end(tmp_path):
    """Nothing listens at the launcher's address, and it would retry for long."""
    done = agent("--stdin", stdin=BOOT.text() + "\n", temp=tmp_path, AHBM_NODE_RANK="0")
    assert done.returncode == 4
    assert done.stderr.startswith("ahbm-agent: the standard input, which the launcher keeps open, has")
    assert json.loads(BOOT.text())["launcher"] == "tcp://127.0.0.1:1"


def test_an_agent_with_an_unknown_key_exits(tmp_path):
    """As with the bootstrap of an earlier run."""
    keys, theirs = JobKeys.fresh(1, 1), JobKeys.fresh(1, 1)
    guard = SocketFactory(theirs.for_launcher(), {pair.public: "0" for pair in theirs.agents})
    door = guard.listen(zmq.ROUTER, "tcp://127.0.0.1:*")
    stale = AgentKeys(own=keys.agents[0], launcher=theirs.for_agent(0).launcher)
    boot = Bootstrap(launcher=door.endpoint, n_hosts=1, node_rank=0, keys=(stale,))
    (tmp_path / "boot").write_text(boot.text())
    (tmp_path / "boot").chmod(0o600)
    (tmp_path / "t").mkdir()
    command = [sys.executable, "-m", "launcher.hosts.agent", "--bootstrap", tmp_path / "boot"]
    done = subprocess.run(
        command, cwd=CHECKOUT, env=environment(tmp_path / "t"), capture_output=True, text=True, timeout=END_S
    )
    guard.close(0)
    assert (done.returncode, os.listdir(tmp_path / "t")) == (4, [])
    assert "refused this process's key" in done.stderr
    assert len(done.stderr.splitlines()) == 1
