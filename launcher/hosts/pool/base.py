"""The run loop's interface to the hosts on which SIPs run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from broker.security.keys import JobKeys
from launcher.processes.fork_server.fork_server import ForkServer
from launcher.processes.this_host.process_state import ProcessState
from launcher.supervise.facts import Fact, HostSpec
from launcher.supervise.request import Request


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


PoolFactory = Callable[[Request, ForkServer], HostPool]
"""Makes the hosts of a run, once this host's fork server exists."""
