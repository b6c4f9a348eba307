"""What the run loop sees of the hosts on which SIPs run: a crew. Where they are and how to reach them is its matter."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from broker.security.keys import JobKeys
from launcher.engines.base import Request
from launcher.processes.fork_server import ForkServer
from launcher.processes.process_state import ProcessState
from launcher.supervise.facts import Fact, HostSpec


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
        """By which number SIPs and the broker find a processor to share; None where they have none in common."""

    @property
    def is_here(self) -> bool:
        """Whether its processes are this host's."""

    @property
    def process_states(self) -> Mapping[str, ProcessState]:
        """How its processes on other hosts looked when they were last told of."""

    @property
    def pollables(self) -> list[Any]:
        """Sockets or descriptors that are readable when there may be facts."""

    @property
    def unsent(self) -> bool:
        """Whether something could not be sent yet and should be tried again soon."""

    @property
    def trouble(self) -> str:
        """What could not be kept of what came from other hosts, in one line; "" for nothing."""

    def facts(self) -> list[Fact]:
        """What has happened on the hosts since the last call, joining and leaving included."""

    def seat_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """Where a SIP on that host is to listen."""

    def folder(self, host: int) -> str:
        """A private folder of the run there."""

    def start(self, host: int, name: str, incarnation: int, order: dict[str, Any]) -> None:
        """Start a process there."""

    def kill(self, host: int, name: str) -> None:
        """Kill a process there."""

    def revive(self, host: int) -> None:
        """Start another agent there."""

    def inject_fault(self, kind: str, host: str) -> bool:
        """A fault that the user asked for, such as ``agent``, which kills that host's agent; whether it could."""

    def on_missing(self, ranks: list[int]) -> None:
        """Those have not joined yet, for whoever could do something about it."""

    def close(self, well: bool) -> None:
        """End everything on all hosts and wait until it has ended, but not for ever. ``well``: let processes finish."""


PoolFactory = Callable[[Request, ForkServer], HostPool]
"""What an engine is to the loop: makes the crew, once this host's server is forked."""
