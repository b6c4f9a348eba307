"""The crew that is no more than this host: its server starts SIPs as it starts the broker."""

import os
from typing import Any

from broker.mail.kinds import MAIL_KINDS
from launcher.engines.base import Request
from launcher.processes.fork_server import ForkServer
from launcher.processes.names import sip_name
from launcher.processes.process_state import ProcessState
from launcher.supervise.facts import Fact, HostJoined, HostSpec


class LocalHost:
    """One host, over sockets in the run's private folder."""

    def __init__(self, request: Request, here: ForkServer) -> None:
        self.specs = [HostSpec()]
        self._local = MAIL_KINDS[request.mail].local
        self._run_dir = request.scratch_dir
        self.is_here = True
        self.trouble = ""
        self.process_states: dict[str, ProcessState] = {}
        self.keys = None
        self.shared_cpu_seed = os.getpid()
        self.broker_endpoint = self._local(f"{self._run_dir}/broker")
        self._server = here
        self._told = False

    @property
    def pollables(self) -> list[Any]:
        """None: the loop looks at this host's server anyway."""
        return []

    @property
    def unsent(self) -> bool:
        """The loop asks the server itself."""
        return False

    def facts(self) -> list[Fact]:
        """It is here from the start."""
        told, self._told = self._told, True
        return [] if told else [HostJoined(0)]

    def seat_endpoint(self, host: int, rank: int, incarnation: int) -> str:
        """A path that no earlier incarnation had."""
        return self._local(f"{self._run_dir}/{sip_name(rank)}" + (f".{incarnation}" if incarnation else ""))

    def folder(self, host: int) -> str:
        """The run's own."""
        return self._run_dir

    def start(self, host: int, name: str, incarnation: int, order: dict[str, Any]) -> None:
        """By the server."""
        self._server.start(name, incarnation, order)

    def kill(self, host: int, name: str) -> None:
        """By the server."""
        self._server.kill(name)

    def revive(self, host: int) -> None:
        """There is no agent here."""

    def inject_fault(self, kind: str, host: str) -> bool:
        """There is no agent here."""
        return False

    def on_missing(self, ranks: list[int]) -> None:
        """They will come."""

    def close(self, well: bool) -> None:
        """The loop closes the server."""
