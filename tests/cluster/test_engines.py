"""The same digest with ssh, Slurm, Open MPI and MPICH, on four hosts."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest
from hosts import Hosts, namespace_hosts
from launch import CHECKOUT, launched
from launches import DEFAULT, DIGEST, END_S, FLAGS, launched_on, why_no_engine
from services import CLUSTERS

SMALL_CUBES = ("--bytes", "4K", "--set", "sip.cube_mesh={w: 2, h: 2}")
LARGE = ("--topology", "torus_2d", "--no-verify-data", *SMALL_CUBES)

FABRIC = '{"seed": 1, "packets": 10, "nbytes": 256, "revision": "2025-11", "reach": 3}'
"""Random packets around a ring."""

KINDS = [pytest.param(kind, marks=pytest.mark.cluster(kind)) for kind in CLUSTERS]


@pytest.fixture(autouse=True)
def _has_engine(request: pytest.FixtureRequest) -> None:
    kind = request.node.callspec.params.get("kind") if hasattr(request.node, "callspec") else None
    if kind is not None and (why := why_no_engine(FLAGS[kind][1])):
        pytest.skip(why)


@pytest.mark.processes
@pytest.mark.parametrize("engine", ["inproc", "local"])
def test_the_digest_on_one_machine(engine: str):
    assert launched(*DEFAULT, "--engine", engine).digest == DIGEST


@pytest.mark.cluster("hosts")
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_digest_on_four_hosts(kind: str, hosts: Hosts):
    """A SIP on each host, as the result reports."""
    with CLUSTERS[kind](hosts) as env:
        done = launched_on(hosts, env, *FLAGS[kind], *DEFAULT)
        assert done.digest == DIGEST
        assert (done.exit_code, done.document["digest"]) == (0, DIGEST)
        assert [rank["host"] for rank in done.document["ranks"]] == ["h1", "h2", "h3", "h4"]


@pytest.mark.cluster("hosts")
@pytest.mark.parametrize("kind", KINDS[:1])
@pytest.mark.parametrize("script", [("tensix_ring.py", 3), ("fabric_random.py", FABRIC)], ids=["ring", "fabric"])
def test_chips_of_tiles_on_four_hosts(kind: str, script: tuple[str, object], hosts: Hosts):
    """A ring of eight, two on each host."""
    name, argument = script
    words = (CHECKOUT / "tests/processes" / name, argument)
    flags = ("--chip", "wormhole", "--sips", 8, "--topology", "tt_ring", *words)
    with CLUSTERS[kind](hosts) as env:
        done = launched_on(hosts, env, *FLAGS[kind], *flags)
        assert done.digest == launched("--engine", "inproc", *flags).digest
        assert [rank["host"] for rank in done.document["ranks"]] == [f"h{rank // 2 + 1}" for rank in range(8)]


@pytest.mark.cluster("hosts")
@pytest.mark.parametrize("sips", [16, pytest.param(64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [KINDS[0], pytest.param("slurm", marks=[*KINDS[1].marks, pytest.mark.slow])])
def test_many_sips_on_four_hosts(kind: str, sips: int, hosts: Hosts, tell: Callable[[str], None]):
    """As many on each host. The time from the command to the first grant is printed, not tested."""
    flags = ("--sips", sips, *LARGE)
    with CLUSTERS[kind](hosts) as env:
        done = launched_on(hosts, env, *FLAGS[kind], *flags)
        assert done.digest == launched(*flags, "--engine", "inproc").digest
        assert [rank["host"] for rank in done.document["ranks"]] == [f"h{4 * rank // sips + 1}" for rank in range(sips)]
    tell(f"{sips} SIPs on 4 hosts, {kind}: started in {done.document['wall_s']['startup']:.2f} s")


@pytest.mark.fault
@pytest.mark.cluster("hosts")
@pytest.mark.parametrize("kind", KINDS[:1])
def test_hosts_that_know_themselves_by_a_loopback_address(kind: str):
    """As Debian installs them; the other hosts must get a reachable address."""
    with namespace_hosts(4, own_name="127.0.1.1") as hosts, CLUSTERS[kind](hosts) as env:
        assert hosts[0].output(["getent", "hosts", "h1"]).split()[0] == "127.0.1.1"
        assert launched_on(hosts, env, *FLAGS[kind], *DEFAULT).digest == DIGEST


@pytest.mark.cluster("hosts")
def test_by_hand_on_four_hosts(hosts: Hosts):
    """As the README shows: the broker on one machine, a ticket for each of the others."""
    tickets = hosts.folder / "tickets"
    env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    by_hand = [
        sys.executable,
        "-c",
        "import sys; from launcher.commands import by_hand; sys.exit(getattr(by_hand, sys.argv.pop(1))())",
    ]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    bind = ("--bind", hosts.head.address)
    broker = hosts.head.run([*by_hand, "broker_main", "--tickets", tickets, *bind, *DEFAULT], env=env, **pipes)
    said = [broker.stderr.readline() for _ in range(5)]
    assert said[0].startswith(f"ahbm-launch: the broker listens at tcp://{hosts.head.address}:"), said
    sips = [
        host.run([*by_hand, "sip_main", tickets / f"sip-{rank}.ticket"], env=env, **pipes)
        for rank, host in enumerate(hosts)
    ]
    table, _ = broker.communicate(timeout=END_S)
    assert f"# digest {DIGEST}" in table
    assert [sip.wait(END_S) for sip in sips] == [0, 0, 0, 0]
    assert list(tickets.iterdir()) == []


@pytest.mark.cluster("hosts")
@pytest.mark.parametrize("kind", [pytest.param("slurm", marks=pytest.mark.cluster("slurm"))])
def test_in_an_allocation(kind: str, hosts: Hosts):
    """As in the README: the nodes are those of the allocation, without --hosts and --engine."""
    with CLUSTERS[kind](hosts) as env:
        command = ["salloc", "-N", 4, sys.executable, "-m", "launcher", "--engine", "auto", *DEFAULT]
        around = {**os.environ, **env, "PYTHONPATH": str(CHECKOUT)}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        launch = hosts.head.run([*map(str, command)], env=around, **pipes)
        table, said = launch.communicate(timeout=END_S)
    assert launch.returncode == 0, said
    assert f"# digest {DIGEST}" in table
