"""Agents that another program starts, such as a Kubernetes Job: they wait for the bootstrap file written here."""

import contextlib
import os
from pathlib import Path

from launcher.engines.base import ENGINES
from launcher.hosts.agent_hosts import run_on_agents
from launcher.hosts.starters import Boot, StarterEnded, specs_of
from launcher.processes.ticket import write_private
from launcher.report.outcome.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals.signals import StopSignals
from launcher.supervise.stall.watchdog import log
from sipsim.core.errors import ConfigError

K8S_FLAG = "--engine k8s"
BOOTSTRAP = "AHBM_BOOTSTRAP"


@ENGINES.register("k8s")
def run_for_kubernetes(request: Request, signals: StopSignals) -> Outcome:
    """SIPs by agents that wait for the file AHBM_BOOTSTRAP (configs/k8s)."""
    return run_on_agents(request, signals, FileStarter(request))


class FileStarter:
    """Writes the bootstrap file and starts nothing; see ``launcher.hosts.starters.Starter``."""

    can_revive = False
    rank_names = ("JOB_COMPLETION_INDEX",)

    def __init__(self, request: Request) -> None:
        self.specs = specs_of(request.settings.hosts, K8S_FLAG)
        path = os.environ.get(BOOTSTRAP)
        if not path:
            raise ConfigError(
                f"{K8S_FLAG} needs {BOOTSTRAP}: the file to write for agents; see configs/k8s/ahbm-job.yaml"
            )
        self._path = Path(path)

    def begin(self, boot: Boot) -> None:
        """Write the file, for its owner alone.

        Raises:
            ConfigError: when it cannot be written.
        """
        try:
            write_private(self._path, boot(None))
        except OSError as error:
            raise ConfigError(f"{BOOTSTRAP}={self._path}: cannot be written: {error.strerror}") from None
        log(f"agents may start: their bootstrap is {self._path}")

    def revive(self, host: int) -> None:
        """No-op."""

    def ended(self) -> list[StarterEnded]:
        """Empty: nothing was started."""
        return []

    def close(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):
            self._path.unlink()
