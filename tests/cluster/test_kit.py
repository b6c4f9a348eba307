"""The kit itself: hosts are apart, faults are faults, each launcher reaches each host, nothing is left."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import WAIT_S, Host, Hosts, cut, drop_inbound, heal, lose, namespace_hosts
from services import CLUSTERS

pytestmark = pytest.mark.cluster("hosts")

EACH_SENDS = 1000
UNHEARD_S = 0.3
"""Silence for as long is taken for a loss of everything. Only a wrong answer, of a broken kit, would be quicker."""

LISTENER = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE: nothing is lost here
s.bind(("", 7000))
print("ready", flush=True)
sys.stdin.readline()
s.settimeout({UNHEARD_S})
got = 0
try:
    while True:
        s.recv(100)
        got += 1
except TimeoutError:
    print(got)
"""
SENDER = f"""
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)  # SO_SNDBUFFORCE: nor is anybody waited for
for _ in range({EACH_SENDS}):
    try:
        s.sendto(b"x" * 50, (sys.argv[1], 7000))
    except OSError:
        break
"""


def arrives(source: Host, target: Host) -> int:
    """How many of a thousand datagrams arrive."""
    listener = target.run([sys.executable, "-c", LISTENER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert listener.stdout.readline() == "ready\n"
    source.output([sys.executable, "-c", SENDER, target.address])
    said, _ = listener.communicate("sent\n", timeout=WAIT_S)
    return int(said)


def test_each_host_has_its_name_its_address_and_finds_the_others(hosts: Hosts):
    for host in [hosts.head, *hosts]:
        assert host.output(["hostname"]).strip() == host.name
        assert host.output(["hostname", "-i"]).strip() == host.address
        assert host.output(["getent", "hosts", "h3"]).split() == [hosts[2].address, "h3"]
    assert os.uname().nodename != "h1"
    assert "10.77." not in subprocess.run(["ip", "addr"], capture_output=True, text=True, check=True).stdout


def test_a_host_may_find_its_own_name_at_a_loopback_address():
    with namespace_hosts(2, own_name="127.0.1.1") as hosts:
        assert hosts[0].output(["getent", "hosts", "h1"]).split()[0] == "127.0.1.1"
        assert hosts[1].output(["getent", "hosts", "h1"]).split()[0] == hosts[0].address


def test_all_reach_all_until_a_cable_is_cut_and_again_when_it_is_healed(hosts: Hosts):
    head, first, second = hosts.head, hosts[0], hosts[1]
    assert arrives(head, first) == arrives(first, second) == EACH_SENDS
    cut(second)
    assert arrives(first, second) == arrives(second, first) == 0
    assert arrives(head, first) == EACH_SENDS
    heal(second)
    assert arrives(first, second) == arrives(second, first) == EACH_SENDS


def test_a_program_can_cut_too(hosts: Hosts):
    """For ``--fault cut:HOST``, whose launcher runs on ``head``."""
    hosts.head.output([hosts.cutter(), "h2"])
    assert arrives(hosts[0], hosts[1]) == 0
    assert arrives(hosts[0], hosts[2]) == EACH_SENDS


def test_one_direction_can_be_dropped(hosts: Hosts):
    first, second = hosts[0], hosts[1]
    assert arrives(second, first) == EACH_SENDS
    drop_inbound(second)
    assert arrives(first, second) == 0
    # The address of the first is known from before; nobody could answer a question for it now.
    assert arrives(second, first) == EACH_SENDS
    heal(second)
    assert arrives(first, second) == EACH_SENDS


def test_some_can_be_lost(hosts: Hosts):
    """With 20 % of 1000, seven standard deviations are 9 %."""
    lose(hosts[1], 20)
    assert 0.71 < arrives(hosts[0], hosts[1]) / EACH_SENDS < 0.89
    heal(hosts[1])
    assert arrives(hosts[0], hosts[1]) == EACH_SENDS


def test_processes_of_a_host_are_known_and_end_with_it(hosts: Hosts):
    ready = 'trap "" TERM HUP; echo $$; read -r _ || :; sleep 1000'
    started = hosts[0].run(["sh", "-c", ready], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    inside = started.stdout.readline().strip()
    (pid,) = hosts[0].processes()
    assert f"NSpid:\t{pid}\t{inside}\n" in Path(f"/proc/{pid}/status").read_text()
    handle = os.pidfd_open(pid)
    try:
        assert hosts[1].processes() == {}
        hosts[0].switch_off()
        assert select.select([handle], [], [], WAIT_S)[0]
    finally:
        os.close(handle)


def test_a_signal_reaches_the_program(hosts: Hosts):
    trap = "trap 'exit 7' TERM; echo on; while :; do sleep 1000 & wait; done"
    program = hosts[0].run(["bash", "-c", trap], stdout=subprocess.PIPE, text=True)
    program.stdout.readline()
    program.send_signal(signal.SIGTERM)
    assert program.wait(WAIT_S) == 7


SESSION = """
import sys
from hosts import namespace_hosts
with namespace_hosts(2) as hosts:
    hosts[0].run(["sleep", "1000"])
    hosts.head.run(["sleep", "1000"])
    hosts[0].output(["true"])
    print(*(host.pid for host in [hosts.head, *hosts]), *hosts[0].processes(), flush=True)
    sys.stdin.read()
"""


def test_nothing_is_left_of_a_session_that_is_killed():
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with session:
        handles = [os.pidfd_open(int(pid)) for pid in session.stdout.readline().split()]
        try:
            assert len(handles) == 4
            session.kill()
            for handle in handles:
                assert select.select([handle], [], [], WAIT_S)[0]
        finally:
            for handle in handles:
                os.close(handle)


RUN_ON_EACH = {
    "ssh": "for host in h1 h2 h3 h4; do ssh -o BatchMode=yes $host hostname || exit; done",
    "slurm": "srun -K1 --wait=0 -O -N4 --ntasks-per-node=1 hostname",
    "openmpi": "mpiexec --allow-run-as-root --oversubscribe --map-by ppr:1:node --host h1,h2,h3,h4 hostname",
    "mpich": "mpiexec -ppn 1 -hosts h1,h2,h3,h4 -n 4 hostname",
}
KINDS = [pytest.param(kind, marks=pytest.mark.cluster(kind)) for kind in CLUSTERS]


@pytest.mark.parametrize("kind", KINDS)
def test_each_launcher_reaches_each_host(kind: str, hosts: Hosts):
    with CLUSTERS[kind](hosts) as env:
        said = hosts.head.output(["sh", "-c", RUN_ON_EACH[kind]], env={**os.environ, **env})
        assert sorted(said.split()) == ["h1", "h2", "h3", "h4"]
        assert [host.left() for host in [hosts.head, *hosts]] == [{}] * 5


@pytest.mark.cluster("ssh")
def test_ssh_knows_hosts_and_asks_nothing(hosts: Hosts):
    """A changed key is refused, an unknown name is an error, and neither prompts."""
    with CLUSTERS["ssh"](hosts, WHO="ssh") as env:
        ssh = {**os.environ, **env}
        assert hosts.head.output([env["AHBM_SSH"], "h2", "echo $WHO"], env=ssh) == "ssh\n"
        known = hosts.folder / "ssh/known_hosts"
        known.write_text(known.read_text().replace("h2,", "h9,").replace("AAAA", "AAAB"))
        for host, complaint in (("h1", "Host key verification failed"), ("h7", "Could not resolve")):
            tried = hosts.head.run([env["AHBM_SSH"], host, "true"], env=ssh, stderr=subprocess.PIPE, text=True)
            assert complaint in tried.communicate(timeout=WAIT_S)[1]
            assert tried.returncode == 255
