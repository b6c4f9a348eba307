"""The host pool that is this host alone: its fork server starts SIPs as it starts the broker."""

import os
from typing import Any

from broker.mail.kinds import MAIL_KINDS
from launcher.processes.entry.names import sip_name
from launcher.processes.fork_server.fork_server import ForkServer
from launcher.processes.this_host.process_state import ProcessState
from launcher.supervise.facts import Fact, HostJoined, HostSpec
from launcher.supervise.request import Request


class LocalHost:
    """One host, over sockets in the run's private folder."""

    def __init__(self, request: Request, server: ForkServer) -> None:
        self.specs = [HostSpec()]
        self._local = MAIL_KINDS[request.settings.mail].local
        self._scratch_dir = request.scratch_dir
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
