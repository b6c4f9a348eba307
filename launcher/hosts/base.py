"""What the run loop sees of the hosts on which SIPs run: a crew. Where they are and how to reach them is its matter."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from launcher.engines.base import Request
from launcher.facts import Fact, HostSpec
from launcher.server import Server


class Crew(Protocol):
    """The hosts of one run. Nothing here blocks but ``close``."""

    @property
    def specs(self) -> Sequence[HostSpec]:
        """The hosts, by node rank."""

    @property
    def broker_endpoint(self) -> str:
        """Where the broker is to listen."""

    @property
    def pollables(self) -> list[Any]:
        """Sockets or descriptors that are readable when there may be facts."""

    @property
    def unsent(self) -> bool:
        """Whether something could not be sent yet and should be tried again soon."""

    def facts(self) -> list[Fact]:
        """What has happened on the hosts since the last call, joining and leaving included."""

    def broker_at(self, endpoint: str) -> None:
        """Where SIPs find the broker."""

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

    def close(self) -> None:
        """End everything on all hosts and wait until it has ended, but not for ever."""


Muster = Callable[[Request, Server], Crew]
"""What an engine is to the loop: makes the crew, once this host's server is forked."""
