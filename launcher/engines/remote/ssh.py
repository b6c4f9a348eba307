"""Agents by ssh: one connection a host of ``--hosts``, the bootstrap on its standard input, which stays open."""

import random
import time
from pathlib import Path

from launcher.engines.base import ENGINES
from launcher.hosts.agent_hosts import run_on_agents
from launcher.hosts.starters import Boot, StarterEnded, StarterProcess, agent_command, end_all, program, specs_of
from launcher.report.outcome.outcome import Outcome
from launcher.supervise.request import Request
from launcher.supervise.signals.signals import StopSignals

SSH_FLAG = "--engine ssh"
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""No prompts. Host keys are configured in the user's ssh settings."""
BUSY = ("kex_exchange_identification", "Connection reset by", "Connection closed by", "ssh_exchange_identification")
"""Output of ssh when an sshd had too many connections at a time."""
JITTER_S = (0.2, 1.2)


@ENGINES.register("ssh")
def run_by_ssh(request: Request, signals: StopSignals) -> Outcome:
    """SIPs on the hosts of --hosts, reached by ssh."""
    return run_on_agents(request, signals, SshStarter(request))


class SshStarter:
    """One ssh a host; see ``launcher.hosts.starters.Starter``."""

    rank_names = ()
    can_revive = True

    def __init__(self, request: Request) -> None:
        self.specs = specs_of(request.settings.hosts, SSH_FLAG)
        self._ssh = program("ssh", SSH_FLAG, "AHBM_SSH")
        self._folder = Path(request.scratch_dir)
        self._running: dict[int, StarterProcess] = {}
        self._all: list[StarterProcess] = []
        self._retry_s: dict[int, float] = {}
        self._retried: set[int] = set()

    def begin(self, boot: Boot) -> None:
        """Connect to all hosts at once."""
        self._boot = boot
        for host in range(len(self.specs)):
            self.revive(host)

    def revive(self, host: int) -> None:
        """Connect again."""
        argv = [self._ssh, *OPTIONS, self.specs[host].name, agent_command("--stdin")]
        output = self._folder / f"ssh-{host}-{len(self._all)}.out"
        self._running[host] = StarterProcess(argv, output, self._boot(host))
        self._all.append(self._running[host])

    def ended(self) -> list[StarterEnded]:
        """Exits by host. A connection refused by a busy sshd is retried once, a little later."""
        now_s = time.monotonic()
        for host, retry_s in list(self._retry_s.items()):
            if now_s >= retry_s:
                del self._retry_s[host]
                self.revive(host)
        found: list[StarterEnded] = []
        for host, running in list(self._running.items()):
            if not running.has_ended:
                continue
            del self._running[host]
            ending = running.ending(host)
            if host not in self._retried and ending.why.startswith(BUSY):
                self._retried.add(host)
                self._retry_s[host] = now_s + random.uniform(*JITTER_S)
            else:
                found.append(ending)
        return found

    def close(self) -> None:
        """End all at once."""
        end_all(self._all)
