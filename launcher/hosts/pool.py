"""Host pool: the run loop's interface to the hosts of a run; and the pool that consists of this host."""

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
    """Hosts of one run; this base class is one joined host without an agent. Only ``close`` blocks.

    ``specs``: the hosts, by node rank. ``broker_endpoint``: address where the broker listens. ``keys``: the run's keys;
    None if only processes of this user can connect. ``shared_cpu_seed``: seed by which SIPs and the broker choose a
    common processor; None if SIPs run on other hosts. ``is_local``: whether SIPs run on this host. ``can_signal``:
    whether signals reach SIPs. ``trouble``: message about data from other hosts that could not be stored; else empty.
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
        """The last reported state of each process on another host, by rank; the key None is the broker."""
        return {}

    @property
    def silent_s(self) -> Mapping[str, float]:
        """Seconds since the last heartbeat, by name of the host, for hosts that send no heartbeats at present."""
        return {}

    @property
    def pollables(self) -> list[Any]:
        """Sockets or descriptors that become readable when :meth:`facts` may return facts, for a poller."""
        return []

    def facts(self) -> list[Fact]:
        """Return the facts from the hosts since the last call, including joined and lost hosts."""
        reported, self._reported = self._reported, True
        return [] if reported else [HostJoined(0)]

    def sip_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """Return the endpoint on which a SIP of that host must listen; empty if the SIP chooses."""
        raise NotImplementedError

    def folder(self, host: int) -> str:
        """Return the path of a private folder of the run on that host; empty if there is no such folder."""
        return ""

    def order(self, host: int, command: ServerCommand) -> None:
        """Send a command to that host, such as to start a process or to send a signal to a process."""
        raise NotImplementedError

    def revive(self, host: int) -> None:
        """Start another agent on that host."""

    def inject_fault(self, kind: str, host: str) -> bool:
        """Inject a fault, such as ``agent``, which kills that host's agent; return whether the fault was injected."""
        return False

    def on_missing(self, ranks: list[int]) -> None:
        """Print for the user, during the start of the run, which ranks have not joined yet."""

    def close(self, well: bool) -> list[Fact]:
        """End all processes on all hosts, wait for a limited time, and return the last facts.

        ``well``: whether the run was successful; if so, processes first get time to exit by themselves.
        """
        return []


PoolFactory = Callable[[Run, ForkServer], HostPool]
"""Creates the hosts of a run, after this host's fork server exists."""


class LocalHost(HostPool):
    """This host only: the fork server starts SIPs and the broker, which use sockets in the run's private folder."""

    is_local = True

    def __init__(self, run: Run, server: ForkServer) -> None:
        self._local = MAIL_KINDS[run.options.mail].local
        self._scratch_dir = run.scratch_dir
        self.shared_cpu_seed = os.getpid()
        self.broker_endpoint = self._local(f"{self._scratch_dir}/broker")
        self._server = server

    def sip_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """Return a path that no earlier incarnation used."""
        return self._local(f"{self._scratch_dir}/{process_name(rank)}" + (f".{incarnation}" if incarnation else ""))

    def folder(self, host: int) -> str:
        return self._scratch_dir

    def order(self, host: int, command: ServerCommand) -> None:
        self._server.order(command)
