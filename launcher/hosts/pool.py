"""The hosts on which SIPs run, as the run loop sees them, and the pool that is this host alone."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from broker.mail.kinds import MAIL_KINDS
from broker.security import JobKeys
from launcher.processes.fork_server import ForkServer, ServerCommand, process_name
from launcher.processes.this_host import ProcessState
from launcher.supervise.facts import Fact, HostJoined, HostSpec
from launcher.supervise.run import Run


class HostPool:
    """The hosts of one run; unless a subclass says more, one host without an agent, joined. Only ``close`` blocks.

    ``specs``: the hosts, by node rank. ``broker_endpoint``: where the broker is to listen. ``keys``: those of the run;
    None where only processes of this user can come. ``shared_cpu_seed``: the seed by which SIPs and the broker choose a
    processor to share; None where they share no host. ``is_local``: its processes run on this host. ``can_signal``:
    signals reach them. ``trouble``: one line on data from other hosts that could not be stored; "" without.
    """

    specs: Sequence[HostSpec] = (HostSpec(),)
    broker_endpoint: str
    keys: JobKeys | None = None
    shared_cpu_seed: int | None = None
    is_local = False
    can_signal = True
    trouble = ""
    _reported = False

    @property
    def process_states(self) -> Mapping[int | None, ProcessState]:
        """The last reported states of its processes on other hosts, by rank."""
        return {}

    @property
    def silent_s(self) -> Mapping[str, float]:
        """Hosts that send no signs of life at present, and for how long."""
        return {}

    @property
    def pollables(self) -> list[Any]:
        """Sockets or descriptors that become readable when there may be facts; the loop polls its own fork server."""
        return []

    def facts(self) -> list[Fact]:
        """What has happened on the hosts since the last call, joining and leaving included."""
        reported, self._reported = self._reported, True
        return [] if reported else [HostJoined(0)]

    def sip_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """Where a SIP on that host is to listen; empty: it chooses."""
        raise NotImplementedError

    def folder(self, host: int) -> str:
        """A private folder of the run there; empty where there is none."""
        return ""

    def order(self, host: int, command: ServerCommand) -> None:
        """Start a process there, or send it a signal."""
        raise NotImplementedError

    def revive(self, host: int) -> None:
        """Start another agent there."""

    def inject_fault(self, kind: str, host: str) -> bool:
        """Inject a fault, such as ``agent``, which kills that host's agent; returns whether it could."""
        return False

    def on_missing(self, ranks: list[int]) -> None:
        """Take the ranks that have not joined yet."""

    def close(self, well: bool) -> list[Fact]:
        """End everything on all hosts and wait for it, for a limited time. ``well``: let processes exit first.

        Returns the last facts.
        """
        return []


PoolFactory = Callable[[Run, ForkServer], HostPool]
"""Makes the hosts of a run, once this host's fork server exists."""


class LocalHost(HostPool):
    """This host alone, over sockets in the run's private folder. Its fork server starts SIPs and the broker alike."""

    is_local = True

    def __init__(self, run: Run, server: ForkServer) -> None:
        self._local = MAIL_KINDS[run.options.mail].local
        self._scratch_dir = run.scratch_dir
        self.shared_cpu_seed = os.getpid()
        self.broker_endpoint = self._local(f"{self._scratch_dir}/broker")
        self._server = server

    def sip_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """A path that no earlier incarnation used."""
        return self._local(f"{self._scratch_dir}/{process_name(rank)}" + (f".{incarnation}" if incarnation else ""))

    def folder(self, host: int) -> str:
        return self._scratch_dir

    def order(self, host: int, command: ServerCommand) -> None:
        self._server.order(command)
