"""The hosts on which SIPs run: the interface for the run loop, and the pool that is this host alone."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from broker.mail.kinds import MAIL_KINDS
from broker.security import JobKeys
from launcher.processes.entry import sip_name
from launcher.processes.fork_server import ForkServer
from launcher.processes.this_host import ProcessState
from launcher.supervise.facts import Fact, HostJoined, HostSpec
from launcher.supervise.run import Run


class HostPool(Protocol):
    """The hosts of one run. Nothing here blocks but ``close``."""

    @property
    def specs(self) -> Sequence[HostSpec]:
        """The hosts, by node rank."""

    @property
    def broker_endpoint(self) -> str:
        """Where the broker is to listen."""

    @property
    def keys(self) -> JobKeys | None:
        """The keys of the run; None where only processes of this user can come."""

    @property
    def shared_cpu_seed(self) -> int | None:
        """The seed by which SIPs and the broker choose a processor to share; None where they share no host."""

    @property
    def is_local(self) -> bool:
        """Whether its processes run on this host."""

    @property
    def process_states(self) -> Mapping[str, ProcessState]:
        """The last reported states of its processes on other hosts."""

    @property
    def silent_s(self) -> Mapping[str, float]:
        """Hosts that send no signs of life at present, and for how long."""

    @property
    def pollables(self) -> list[Any]:
        """Sockets or descriptors that become readable when there may be facts."""

    @property
    def unsent(self) -> bool:
        """Whether something could not be sent yet and is to be retried soon."""

    @property
    def trouble(self) -> str:
        """One line on data from other hosts that could not be stored; "" if there is none."""

    def facts(self) -> list[Fact]:
        """What has happened on the hosts since the last call, joining and leaving included."""

    def sip_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """Where a SIP on that host is to listen."""

    def folder(self, host: int) -> str:
        """A private folder of the run there."""

    def start(self, host: int, name: str, incarnation: int, order: dict[str, Any]) -> None:
        """Start a process there."""

    @property
    def can_signal(self) -> bool:
        """Whether :meth:`kill` reaches its processes."""

    def kill(self, host: int, name: str, signum: int) -> None:
        """Send a signal to a process there."""

    def revive(self, host: int) -> None:
        """Start another agent there."""

    def inject_fault(self, kind: str, host: str) -> bool:
        """Inject a fault, such as ``agent``, which kills that host's agent; returns whether it could."""

    def on_missing(self, ranks: list[int]) -> None:
        """Take the ranks that have not joined yet."""

    def close(self, well: bool) -> list[Fact]:
        """End everything on all hosts and wait for it, for a limited time. ``well``: let processes exit first.

        Returns the last facts.
        """


PoolFactory = Callable[[Run, ForkServer], HostPool]
"""Makes the hosts of a run, once this host's fork server exists."""


class LocalHost:
    """This host alone, over sockets in the run's private folder. Its fork server starts SIPs and the broker alike."""

    def __init__(self, run: Run, server: ForkServer) -> None:
        self.specs = [HostSpec()]
        self._local = MAIL_KINDS[run.options.mail].local
        self._scratch_dir = run.scratch_dir
        self.is_local = True
        self.can_signal = True
        self.trouble = ""
        self.process_states: dict[str, ProcessState] = {}
        self.silent_s: dict[str, float] = {}
        self.keys = None
        self.shared_cpu_seed = os.getpid()
        self.broker_endpoint = self._local(f"{self._scratch_dir}/broker")
        self._server = server
        self._reported = False

    @property
    def pollables(self) -> list[Any]:
        """None: the loop polls this host's server itself."""
        return []

    @property
    def unsent(self) -> bool:
        """The loop asks the server itself."""
        return False

    def facts(self) -> list[Fact]:
        """The host has joined from the start."""
        reported, self._reported = self._reported, True
        return [] if reported else [HostJoined(0)]

    def sip_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """A path that no earlier incarnation used."""
        return self._local(f"{self._scratch_dir}/{sip_name(rank)}" + (f".{incarnation}" if incarnation else ""))

    def folder(self, host: int) -> str:
        """The run's private folder."""
        return self._scratch_dir

    def start(self, host: int, name: str, incarnation: int, order: dict[str, Any]) -> None:
        """By the server."""
        self._server.start(name, incarnation, order)

    def kill(self, host: int, name: str, signum: int) -> None:
        """By the server."""
        self._server.kill(name, signum)

    def revive(self, host: int) -> None:
        """No-op: there is no agent."""

    def inject_fault(self, kind: str, host: str) -> bool:
        """No-op: there is no agent."""
        return False

    def on_missing(self, ranks: list[int]) -> None:
        """No-op."""

    def close(self, well: bool) -> list[Fact]:
        """No-op: the loop closes the server."""
        return []
