"""What a supervisor knows of the rules, of each rank and each host. Plain books; decide nothing."""

from dataclasses import dataclass
from typing import NamedTuple

from broker.wire import SipSync, Sync


class Rules(NamedTuple):
    """What the user chose. ``deadlines``: whether anybody's silence means anything."""

    n_sips: int
    max_restarts: int = 0
    join_timeout_s: float = 30.0
    progress_timeout_s: float = 60.0
    deadlines: bool = True


@dataclass
class Host:
    """A host. ``joined``: it can start SIPs now. ``awaited``: its agent died and another one is on its way."""

    index: int
    name: str
    slots: int | None
    joined: bool = False
    awaited: bool = False
    gone: bool = False
    since_s: float = 0.0

    @property
    def on(self) -> str:
        """`` on NAME`` for the middle of a sentence; empty where all run on one host."""
        return f" on {self.name}" if self.name else ""


@dataclass
class Rank:
    """A rank and its process. ``kill_reason``: the failure's kind and words, when we have decided that it must die."""

    number: int
    site: Host
    incarnation: int = 0
    pid: int | None = None
    ordered: bool = False
    answered: bool = False
    returning: bool = False
    is_dead: bool = False
    since_s: float = 0.0
    kill_reason: tuple[str, str] | None = None
    last: SipSync | None = None

    def started(self, incarnation: int, pid: int) -> None:
        """Its process runs."""
        if incarnation == self.incarnation:
            self.is_dead, self.pid = False, pid

    def is_now(self, incarnation: int, pid: int) -> bool:
        """Whether that process is the one that counts."""
        return incarnation == self.incarnation and pid == self.pid

    def next_incarnation(self, now_s: float) -> None:
        """It will be started again."""
        self.incarnation += 1
        self.pid, self.kill_reason, self.last = None, None, None
        self.ordered, self.answered, self.returning, self.since_s = False, False, True, now_s

    def note(self, sip: SipSync) -> None:
        """How the broker sees it."""
        if sip.incarnation != self.incarnation:
            return
        self.last = sip
        if sip.state != "joining":
            self.returning = False

    def runs_as_known(self, sync: Sync) -> bool:
        """Whether the broker speaks of the process that runs now."""
        return not self.is_dead and self.last is not None and sync.sips[self.number] is self.last

    @property
    def who(self) -> str:
        """The rank and its process, as far as it is known here."""
        return f"rank {self.number}" + (f" (pid {self.pid}{self.site.on})" if self.pid is not None else "")

    @property
    def absence(self) -> str:
        """Why it may be missing, as a line for people."""
        where = self.site.name or "this host"
        if not self.site.joined:
            return f"  rank {self.number}: the agent of {where} has not come"
        if self.pid is None:
            return f"  rank {self.number}: its process has not started on {where}"
        return f"  rank {self.number}: its process (pid {self.pid}{self.site.on}) has not joined"


def missing(ranks: list[Rank], sync: Sync | None) -> list[Rank]:
    """Who has not joined, as far as the broker has told."""
    return [rank for rank in ranks if sync is None or sync.sips[rank.number].state == "joining"]
