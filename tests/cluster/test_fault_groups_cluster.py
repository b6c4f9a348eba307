"""Slow or broken networks and wrongly configured clusters: the same digest, or one line with the mistake."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
import services
from hosts import Hosts, cut_for, heal, lose, namespace_hosts
from launch import CHECKOUT
from launches import DEFAULT, DIGEST, END_S, FLAGS, launched_on, launching, nothing_left, rounds_script
from services import CLUSTERS, login_environment, tool

pytestmark = pytest.mark.cluster("hosts")

UNDER_WAY = 3
GONE_S = 3.0
"""Longer than ``--heartbeat-timeout``, shorter than anybody's patience."""
FENCED_WITHIN_S = 15


@pytest.fixture
def reached(hosts: Hosts) -> Iterator[dict[str, str]]:
    """The environment in which ssh reaches all hosts."""
    with CLUSTERS["ssh"](hosts) as env:
        yield env


@pytest.mark.cluster("ssh")
class TestLinks:
    @pytest.mark.fault
    @pytest.mark.slow
    def test_one_that_is_down_for_longer_than_the_heartbeats_wait(self, hosts: Hosts, reached: dict[str, str]):
        """Without a budget it ends the run, even if it comes back."""
        script = rounds_script(hosts.folder)
        with launching(hosts, reached, *FLAGS["ssh"], *DEFAULT, script) as launch:
            launch.round(UNDER_WAY)
            start = monotonic()
            cut_for(hosts[2], GONE_S)
            done = launch.end()
            took_s = monotonic() - start
        assert (done.exit_code, done.error["kind"]) == (4, "host_lost"), done.stderr
        assert "host h3 is lost: " in done.error["message"]
        assert took_s < GONE_S + 3
        nothing_left(hosts, FENCED_WITHIN_S)

    @pytest.mark.fault
    @pytest.mark.slow
    @pytest.mark.parametrize(("percent", "heartbeat_s"), [(1, 2), (10, 10)])
    def test_one_that_loses_packets(self, percent: int, heartbeat_s: int, hosts: Hosts, reached: dict[str, str]):
        lose(hosts[2], percent)
        flags = (*DEFAULT, "--bytes", "4K", "--heartbeat-timeout", heartbeat_s)
        with launching(hosts, reached, *FLAGS["ssh"], *flags) as launch:
            done = launch.end()
        heal(hosts[2])
        assert (done.exit_code, done.document["status"]) == (0, "ok"), done.stderr
        assert [rank["restarts"] for rank in done.document["ranks"]] == [0] * 4
        nothing_left(hosts)


@pytest.mark.cluster("ssh")
class TestSsh:
    @pytest.mark.fault
    def test_a_host_key_that_has_changed(self, hosts: Hosts, reached: dict[str, str]):
        known = hosts.folder / "ssh/known_hosts"
        lines = known.read_text().splitlines()
        other = hosts.folder / "ssh/other_key"
        subprocess.run([tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
        public = " ".join(Path(f"{other}.pub").read_text().split()[:2])
        lines = [f"{line.split()[0]} {public}" if line.startswith("h3,") else line for line in lines]
        known.write_text("\n".join(lines) + "\n")
        assert_no_agent(hosts, reached, "Host key verification failed.")

    @pytest.mark.fault
    def test_a_host_that_asks_for_a_password(self, hosts: Hosts, reached: dict[str, str]):
        """The launcher neither prompts nor waits."""
        folder = hosts.folder / "ssh"
        options = ["PasswordAuthentication=yes", "KbdInteractiveAuthentication=no", "PubkeyAuthentication=no"]
        words = [word for option in (*options, "PermitRootLogin=yes") for word in ("-o", option)]
        sshd = hosts[2].serve(
            [tool("sshd"), "-D", "-e", "-p", "2222", "-f", folder / "sshd_config", *words],
            stderr=subprocess.PIPE,
            text=True,
            env=login_environment(),
        )
        assert any("listening" in line for line in sshd.stderr)
        first = "Host h3\n    Port 2222\n    HostKeyAlias h3\n    PreferredAuthentications password\n"
        (folder / "config").write_text(first + (folder / "config").read_text())
        said = on_a_terminal(hosts, reached, *FLAGS["ssh"], *DEFAULT, "--join-timeout", 10)
        assert "ahbm-launch: agent_failed: h3: no agent has started: root@h3: Permission denied (password)." in said
        assert "password:" not in said
        nothing_left(hosts)


ON_A_TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"


def on_a_terminal(hosts: Hosts, env: dict[str, str], *argv: object) -> str:
    """What ``ahbm-launch`` prints on a terminal, where ssh could prompt; it must fail."""
    words = [sys.executable, "-c", ON_A_TERMINAL, sys.executable, "-m", "launcher", "--hosts", hosts.names, *argv]
    process = hosts.head.run(
        words,
        env={**os.environ, **env, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=END_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 4, said
    return said


def assert_no_agent(hosts: Hosts, env: dict[str, str], words: str) -> None:
    """Before anything is simulated, with ssh's message."""
    done = launched_on(hosts, env, *FLAGS["ssh"], *DEFAULT)
    assert (done.exit_code, done.error["kind"]) == (4, "agent_failed"), done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("ahbm-launch: agent_failed: h3: no agent has started: "), done.stderr
    assert words in first


@pytest.mark.fault
@pytest.mark.cluster("ssh")
def test_hosts_with_ipv6_alone():
    if os.path.exists("/proc/sys/net/ipv6/conf/all/disable_ipv6"):
        with namespace_hosts(4, ipv6=True) as hosts, CLUSTERS["ssh"](hosts) as env:
            assert launched_on(hosts, env, *FLAGS["ssh"], *DEFAULT).digest == DIGEST
    else:
        pytest.skip("this kernel has no IPv6")


@pytest.mark.fault
@pytest.mark.cluster("slurm")
def test_more_ranks_than_processors(monkeypatch: pytest.MonkeyPatch):
    """An agent a node is all that Slurm starts, whatever a node has."""
    monkeypatch.setattr(services, "CPUS", 1)
    with namespace_hosts(2) as hosts, CLUSTERS["slurm"](hosts) as env:
        done = launched_on(hosts, env, *FLAGS["slurm"], *DEFAULT)
        assert done.digest == DIGEST
        assert [rank["host"] for rank in done.document["ranks"]] == ["h1", "h1", "h2", "h2"]
