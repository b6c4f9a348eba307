"""The environment of ranks and agents, the choice of the engine, and addresses that other hosts can reach."""

import socket

import pytest

from broker.security import JobKeys
from launcher.engines.remote import which
from launcher.hosts import bootstrap
from launcher.hosts.bootstrap import Bootstrap, address_towards, host_of, launcher_address, sip_address, tcp
from launcher.processes.entry import NODE_RANKS, node_rank, rank_environment
from sipsim.core.errors import ConfigError
from sipsim.node.sip_node import SipProcessSpec


def test_a_rank_finds_its_position_by_our_names_and_by_those_of_torchrun():
    spec = SipProcessSpec(rank=5, broker="", endpoint="", incarnation=2)
    assert rank_environment(spec, 8, 1, "run-x", [4, 5, 6, 7]) == {
        "AHBM_RANK": "5",
        "AHBM_WORLD_SIZE": "8",
        "AHBM_LOCAL_RANK": "1",
        "AHBM_NODE_RANK": "1",
        "AHBM_RUN_ID": "run-x",
        "AHBM_INCARNATION": "2",
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "TORCHELASTIC_RESTART_COUNT": "2",
    }


@pytest.mark.parametrize("name", NODE_RANKS)
def test_every_starter_has_its_name_for_a_node_rank(name: str):
    assert node_rank({name: "2", "OTHER": "1"}, 4) == 2


def test_sources_may_agree():
    assert node_rank({"SLURM_NODEID": "1", "PMI_RANK": "1"}, 2) == 1
    assert node_rank({"AHBM_NODE_RANK": "1"}, 2, given=1) == 1


def test_the_bootstrap_overrides_variables_of_other_launchers():
    """ssh from inside an allocation, mpiexec inside one."""
    assert node_rank({"SLURM_NODEID": "3"}, 2, given=1) == 1
    assert node_rank({"SLURM_NODEID": "3", "PMI_RANK": "1"}, 2, names=("PMI_RANK",)) == 1


@pytest.mark.fault
@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "no node rank: none of AHBM_NODE_RANK, SLURM_NODEID, "),
        ({"SLURM_NODEID": ""}, "no node rank: "),
        ({"SLURM_NODEID": "0", "PMI_RANK": "1"}, "SLURM_NODEID=0, PMI_RANK=1: these disagree on the node rank"),
        ({"AHBM_NODE_RANK": "abc"}, "AHBM_NODE_RANK=abc: must be a node rank from 0 to 3"),
        ({"SLURM_NODEID": "-1"}, "SLURM_NODEID=-1: must be"),
        ({"SLURM_NODEID": "4"}, "SLURM_NODEID=4: must be"),
        ({"SLURM_NODEID": " 1"}, "SLURM_NODEID= 1: must be"),
        ({"SLURM_NODEID": "²"}, "SLURM_NODEID=²: must be"),
        ({"SLURM_NODEID": "9" * 5000}, "SLURM_NODEID=999"),
    ],
)
def test_what_is_no_node_rank_is_one_line(environ: dict[str, str], said: str):
    with pytest.raises(ConfigError) as error:
        node_rank(environ, 4)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


# --- engines --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "has_hosts", "name"),
    [
        ({}, False, "local"),
        ({}, True, "ssh"),
        ({"SLURM_JOB_ID": "1"}, False, "slurm"),
        ({"SLURM_JOB_ID": "1", "PMI_SIZE": "4"}, True, "slurm"),
        ({"PMI_SIZE": "1"}, True, "mpi"),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, False, "local"),
    ],
)
def test_the_engine_that_suits(environ: dict[str, str], has_hosts: bool, name: str):
    assert which(environ, has_hosts) == name


def test_as_many_launchers_as_processes_are_a_mistake():
    with pytest.raises(ConfigError, match="mpiexec has started 4 launchers; start one launcher, outside mpiexec"):
        which({"OMPI_COMM_WORLD_SIZE": "4"}, True)


# --- addresses ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("address", "endpoint"), [("10.0.0.1", "tcp://10.0.0.1:7"), ("fe80::1", "tcp://[fe80::1]:7")])
def test_endpoints(address: str, endpoint: str):
    assert (tcp(address, "7"), host_of(endpoint)) == (endpoint, address)


def test_a_sip_beside_its_launcher_may_listen_on_loopback():
    assert sip_address("tcp://127.0.0.1:5") == "127.0.0.1"


def test_a_sip_elsewhere_may_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bootstrap, "address_towards", lambda _host: "127.0.1.1")
    with pytest.raises(ConfigError, match=r"127\.0\.1\.1 is a loopback address; give --bind"):
        sip_address("tcp://10.0.0.1:5")
    assert sip_address("tcp://10.0.0.1:5", bind="10.0.0.2") == "10.0.0.2"


def towards(monkeypatch: pytest.MonkeyPatch, interfaces: list[str], **known: str) -> None:
    def ask(host: str) -> str:
        if host not in known:
            raise socket.gaierror(f"no {host}")
        return known[host]

    monkeypatch.setattr(bootstrap, "address_towards", ask)
    monkeypatch.setattr(bootstrap, "interface_addresses", lambda: interfaces)
    monkeypatch.setattr(socket, "gethostname", lambda: "me")


def test_the_launcher_listens_where_its_hosts_come_from(monkeypatch: pytest.MonkeyPatch):
    towards(monkeypatch, ["9.9.9.9", "10.0.0.1"], me="127.0.1.1", b="10.0.0.1")
    assert launcher_address(["a", "b"]) == "10.0.0.1"
    assert launcher_address(["a", "b"], "10.0.0.3") == "10.0.0.3"


def test_with_names_that_only_ssh_knows_a_single_address_will_do(monkeypatch: pytest.MonkeyPatch):
    towards(monkeypatch, ["10.0.0.1"], me="127.0.1.1")
    assert launcher_address(["a"]) == "10.0.0.1"


def test_all_on_this_host_is_loopback(monkeypatch: pytest.MonkeyPatch):
    towards(monkeypatch, ["10.0.0.1"], localhost="127.0.0.1")
    assert launcher_address(["localhost"]) == "127.0.0.1"


def test_addresses_that_lead_nowhere(monkeypatch: pytest.MonkeyPatch):
    towards(monkeypatch, [], me="127.0.1.1")
    with pytest.raises(ConfigError, match="me resolves to a loopback address; give --bind an address that all hosts"):
        launcher_address(["a"])
    towards(monkeypatch, ["1.1.1.1", "2.2.2.2"])
    with pytest.raises(ConfigError, match=r"several addresses; give --bind one of 1\.1\.1\.1, 2\.2\.2\.2"):
        launcher_address(["a"])


# --- the bootstrap --------------------------------------------------------------------------------------------


def test_a_bootstrap_comes_back():
    told = Bootstrap(launcher="tcp://10.0.0.1:5", n_hosts=2, node_rank=1)
    assert Bootstrap.from_text(told.text(), "it") == told
    assert "\n" not in told.text()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 5}', "\0" * 9])
def test_what_is_no_bootstrap_is_one_line(text: str):
    with pytest.raises(ConfigError, match=r"^the file contains no bootstrap of ahbm-launch: "):
        Bootstrap.from_text(text, "the file")


@pytest.mark.fault
def test_another_version_is_refused():
    with pytest.raises(ConfigError, match=r"^it is of version 0\.0, this host has .*; install one version$"):
        Bootstrap.from_text('{"version": "0.0", "unknown": 1}', "it")


@pytest.mark.parametrize("name", ["a..b", "a" * 64, "a" * 64 + ".example"])
def test_a_name_that_no_resolver_takes_is_a_host_without_an_address(name: str):
    """The resolver's codec refuses it with an error of its own."""
    with pytest.raises(OSError, match="is not a host name"):
        address_towards(name)
    with pytest.raises(ConfigError, match="no route to the launcher"):
        sip_address(f"tcp://{name}:1")


def test_as_many_keys_as_hosts_or_the_one_of_this_host():
    keys = JobKeys.fresh(1, 3)
    agents = tuple(keys.for_agent(host) for host in range(3))
    for sound in ({"keys": agents}, {"keys": agents[1:2], "node_rank": 1}, {}):
        boot = Bootstrap(launcher="tcp://10.0.0.1:5", n_hosts=3, **sound)
        assert Bootstrap.from_text(boot.text(), "it") == boot
        text = boot.text().replace('"n_hosts":3', '"n_hosts":4')
        if "node_rank" not in sound and sound:
            with pytest.raises(ConfigError, match="3 keys for 4 hosts"):
                Bootstrap.from_text(text, "it")
