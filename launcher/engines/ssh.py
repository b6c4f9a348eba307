"""Agents by ssh: one connection a host of ``--hosts``, the bootstrap on its standard input, which stays open."""

import random
import time
from pathlib import Path

from launcher.engines.base import ENGINES, Request
from launcher.hosts.host_pool import run_on_agents
from launcher.hosts.starters import Boot, Running, StarterEnded, agent_command, end_all, program, specs_of
from launcher.report.outcome import Outcome
from launcher.supervise.signals import StopSignals

WHY = "--engine ssh"
OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
"""Ask nobody anything. Whose keys to believe is the user's to settle in the settings of ssh."""
BUSY = ("kex_exchange_identification", "Connection reset by", "Connection closed by", "ssh_exchange_identification")
"""What an sshd has said that was asked by too many at a time."""
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
        self.specs = specs_of(request.hosts, WHY)
        self._ssh = program("ssh", WHY, "AHBM_SSH")
        self._folder = Path(request.scratch_dir)
        self._running: dict[int, Running] = {}
        self._all: list[Running] = []
        self._again_s: dict[int, float] = {}
        self._retried: set[int] = set()

    def begin(self, boot: Boot) -> None:
        """All at once."""
        self._boot = boot
        for host in range(len(self.specs)):
            self.revive(host)

    def revive(self, host: int) -> None:
        """A new connection; the old one is no more."""
        argv = [self._ssh, *OPTIONS, self.specs[host].name, agent_command("--stdin")]
        words = self._folder / f"ssh-{host}-{len(self._all)}.words"
        self._running[host] = Running(argv, words, self._boot(host))
        self._all.append(self._running[host])

    def ended(self) -> list[StarterEnded]:
        """By host. Who was turned away because many came at once tries a second time, a little later."""
        now_s = time.monotonic()
        for host, again_s in list(self._again_s.items()):
            if now_s >= again_s:
                del self._again_s[host]
                self.revive(host)
        found: list[StarterEnded] = []
        for host, running in list(self._running.items()):
            if not running.has_ended:
                continue
            del self._running[host]
            ending = running.ending(host)
            if host not in self._retried and ending.why.startswith(BUSY):
                self._retried.add(host)
                self._again_s[host] = now_s + random.uniform(*JITTER_S)
            else:
                found.append(ending)
        return found

    def close(self) -> None:
        """All at once."""
        end_all(self._all)
