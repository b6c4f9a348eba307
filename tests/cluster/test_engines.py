"""The same digest wherever SIPs run and whoever starts them: ssh, Slurm, Open MPI, MPICH, on four hosts."""

import pytest
from hosts import Hosts, namespace_hosts
from launch import launched
from launches import DEFAULT, DIGEST, FLAGS, launched_on, why_no_engine
from services import CLUSTERS

LARGE = ("--sips", "64", "--topology", "torus_2d", "--no-verify-data")
DIGEST_LARGE = "c107b8ffe117f416a68204936b0593bb23904d45d02a4343b40afa32987c730c"

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
    """A SIP on each host, and the user is told where."""
    with CLUSTERS[kind](hosts) as env:
        done = launched_on(hosts, env, *FLAGS[kind], *DEFAULT)
        assert done.digest == DIGEST
        assert (done.exit_code, done.document["digest"]) == (0, DIGEST)
        assert [rank["host"] for rank in done.document["ranks"]] == ["h1", "h2", "h3", "h4"]


@pytest.mark.cluster("hosts")
@pytest.mark.parametrize("kind", KINDS[:2])
def test_sixty_four_sips_on_four_hosts(kind: str, hosts: Hosts):
    """Sixteen a host."""
    with CLUSTERS[kind](hosts) as env:
        done = launched_on(hosts, env, *FLAGS[kind], *LARGE)
        assert done.digest == DIGEST_LARGE
        assert [rank["host"] for rank in done.document["ranks"]] == [f"h{rank // 16 + 1}" for rank in range(64)]


@pytest.mark.cluster("hosts")
@pytest.mark.parametrize("kind", KINDS[:1])
def test_hosts_that_know_themselves_by_a_loopback_address(kind: str):
    """As Debian installs them: everybody else must get an address that leads there."""
    with namespace_hosts(4, own_name="127.0.1.1") as hosts, CLUSTERS[kind](hosts) as env:
        assert launched_on(hosts, env, *FLAGS[kind], *DEFAULT).digest == DIGEST
