"""Hosts that are cut off or switched off, lost packets, killed agents: the same digest, or a named cause in time.

The oracle: any schedule of faults ends in the same digest, or in an exit code other than zero with the cause by
name within its time limit. Rank 2 runs on h3, on which the faults are injected.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest
from hosts import Host, Hosts, cut, cut_for, drop_inbound, dropped, heal, lose
from launches import (
    DEFAULT,
    DIGEST,
    FLAGS,
    Launch,
    digest_of_rounds,
    launching,
    nothing_left,
    rounds_script,
    why_no_engine,
)
from services import CLUSTERS
from sweeps import some

pytestmark = [pytest.mark.cluster("hosts"), pytest.mark.cluster("ssh")]

NAMED_WITHIN_S = 5
FENCED_WITHIN_S = 15
"""By then nothing of a run is left on a host that cannot be told."""
UNDER_WAY = 5
"""The round after which things happen."""
LATE_S = 6
"""By then a host has been given up."""
SURVIVED_S = 0.5
"""A cut that is shorter than the heartbeats' time limit is none."""


class Site(NamedTuple):
    """Four hosts with ssh, and a script of some seconds."""

    hosts: Hosts
    env: dict[str, str]
    script: Path

    @property
    def victim(self) -> Host:
        return self.hosts[2]

    def launching(self, *flags: object) -> AbstractContextManager[Launch]:
        return launching(self.hosts, self.env, *FLAGS["ssh"], *DEFAULT, *flags, self.script)


@pytest.fixture
def site(hosts: Hosts) -> Iterator[Site]:
    if why := why_no_engine("ssh"):
        pytest.skip(why)
    with CLUSTERS["ssh"](hosts) as env:
        yield Site(hosts, env, rounds_script(hosts.folder))


@pytest.fixture
def digest() -> str:
    return digest_of_rounds()


def switch_off(host: Host) -> None:
    """Without closing connections."""
    cut(host)
    host.switch_off()


def kill_agent(host: Host) -> None:
    """Only the agent; its processes must end with it."""
    agents = [pid for pid, words in host.processes().items() if "agent" in words and "sshd" not in words]
    assert agents, f"no agent among {host.processes()}"
    for pid in agents:
        with suppress(ProcessLookupError):  # it may be the shell of one that was killed before
            os.kill(pid, signal.SIGKILL)


HAPPENS: dict[str, tuple[Callable[[Host], None], str]] = {
    "cut": (cut, "host_lost"),
    "deaf": (drop_inbound, "host_lost"),
    "off": (switch_off, "host_lost"),
    "agent": (kill_agent, "agent_failed"),
}
"""What, and as what it is told."""


@pytest.mark.fault
@pytest.mark.parametrize("what", some(HAPPENS, "cut", "agent"))
def test_a_host_that_is_lost_is_named_in_time(what: str, site: Site):
    happen, kind = HAPPENS[what]
    with site.launching() as launch:
        launch.round(UNDER_WAY)
        happen(site.victim)
        start = monotonic()
        done = launch.end()
        took_s = monotonic() - start
    assert (done.exit_code, done.error["kind"]) == (4, kind), done.stderr
    assert "h3" in done.error["message"]
    assert took_s < NAMED_WITHIN_S
    left(site, what)


@pytest.mark.fault
@pytest.mark.parametrize("what", some(HAPPENS, "agent"))
def test_with_restarts_the_digest_is_the_same(what: str, site: Site, digest: str):
    """Hosts that are cut off have tests below."""
    happen, _ = HAPPENS[what]
    with site.launching("--max-restarts", 3) as launch:
        launch.round(UNDER_WAY)
        happen(site.victim)
        done = launch.end()
    assert done.digest == digest
    ranks = done.document["ranks"]
    assert [rank["restarts"] for rank in ranks] == [0, 0, 1, 0]
    # Who cannot be reached is not asked again.
    assert (ranks[2]["host"] == "h3") == (what == "agent")
    left(site, what)


def left(site: Site, what: str) -> None:
    """A host that cannot be reached ends its processes by itself."""
    if what == "off":
        site.hosts.remove(site.victim)
    nothing_left(site.hosts, FENCED_WITHIN_S)


@pytest.mark.fault
def test_a_host_that_comes_back_is_too_late(site: Site, digest: str):
    """Its processes are the old incarnation: their messages are dropped, and they exit soon."""
    with site.launching("--max-restarts", 3) as launch:
        launch.round(UNDER_WAY)
        cut_for(site.victim, LATE_S)
        done = launch.end()
    assert done.digest == digest
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0, 0, 1, 0]
    nothing_left(site.hosts, FENCED_WITHIN_S)


@pytest.mark.slow
def test_two_hosts_one_after_the_other(site: Site, digest: str):
    with site.launching("--max-restarts", 3) as launch:
        launch.round(UNDER_WAY)
        cut(site.victim)
        launch.round(2 * UNDER_WAY)
        cut(site.hosts[0])
        done = launch.end()
    assert done.digest == digest
    assert {rank["host"] for rank in done.document["ranks"]} == {"h2", "h4"}


@pytest.mark.fault
def test_a_short_cut_is_survived(site: Site, digest: str):
    with site.launching() as launch:
        launch.round(UNDER_WAY)
        cut_for(site.victim, SURVIVED_S)
        done = launch.end()
    assert done.digest == digest
    assert [rank["restarts"] for rank in done.document["ranks"]] == [0] * 4


@pytest.mark.fault
def test_lost_packets_are_survived(site: Site):
    """Each loss that TCP does not see at once costs it 0.2 s, so a short run: the default one.

    A packet that is lost three times in a row arrives after more than a second, hence the longer heartbeat timeout.
    """
    everywhere = [site.hosts.head, *site.hosts]
    for host in everywhere:
        lose(host, 5)
    with launching(site.hosts, site.env, *FLAGS["ssh"], *DEFAULT, "--heartbeat-timeout", 5) as launch:
        done = launch.end()
    assert done.digest == DIGEST
    assert sum(map(dropped, everywhere)) > 0
    for host in everywhere:
        heal(host)
    nothing_left(site.hosts)
