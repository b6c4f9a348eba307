"""A supervisor's records of ranks and hosts. They decide nothing."""

from dataclasses import dataclass, field

from broker.wire import SipSync, Sync
from launcher.processes.this_host.process_state import NS_PER_S
from launcher.supervise.stall.quiet_timer import QuietTimer


@dataclass
class Host:
    """A host. ``joined``: it can start SIPs now. ``awaited``: its agent has ended and another one is being started."""

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
    """A rank and its process. ``kill_reason``: kind and message of the failure for which it is being killed.

    ``quiet``: what the process has spent since its last progress.
    """

    number: int
    host: Host
    incarnation: int = 0
    pid: int | None = None
    ordered: bool = False
    answered: bool = False
    returning: bool = False
    is_dead: bool = False
    since_s: float = 0.0
    kill_reason: tuple[str, str] | None = None
    last: SipSync | None = None
    quiet: QuietTimer = field(default_factory=QuietTimer)

    def started(self, incarnation: int, pid: int) -> None:
        """Its process has started."""
        if incarnation == self.incarnation:
            self.is_dead, self.pid = False, pid

    def is_now(self, incarnation: int, pid: int) -> bool:
        """Whether that process is the current one."""
        return incarnation == self.incarnation and pid == self.pid

    def next_incarnation(self, now_s: float) -> None:
        """It is about to be restarted."""
        self.incarnation += 1
        self.pid, self.kill_reason, self.last, self.quiet = None, None, None, QuietTimer()
        self.ordered, self.answered, self.returning, self.since_s = False, False, True, now_s

    def note(self, sip: SipSync) -> None:
        """Take the rank's state as the broker reports it."""
        if sip.incarnation != self.incarnation:
            return
        self.last = sip
        self.quiet.moved(sip.quiet_ns / NS_PER_S)
        if sip.state != "joining":
            self.returning = False

    def runs_as_known(self, sync: Sync) -> bool:
        """Whether ``sync`` describes the current process, and that runs."""
        return not self.is_dead and self.last is not None and sync.sips[self.number] is self.last

    @property
    def label(self) -> str:
        """The rank with pid and host, as far as they are known."""
        return f"rank {self.number}" + (f" (pid {self.pid}{self.host.on})" if self.pid is not None else "")

    @property
    def absence(self) -> str:
        """Why it has not joined, as a line of text."""
        where = self.host.name or "this host"
        if not self.host.joined:
            return f"  rank {self.number}: the agent of {where} has not reported"
        if self.pid is None:
            return f"  rank {self.number}: its process has not started on {where}"
        return f"  rank {self.number}: its process (pid {self.pid}{self.host.on}) has not joined"


def missing(ranks: list[Rank], sync: Sync | None) -> list[Rank]:
    """Ranks that have not joined, by the broker's last message."""
    return [rank for rank in ranks if sync is None or sync.sips[rank.number].state == "joining"]


def join_status(ranks: list[Rank], waiting: list[Rank]) -> str:
    """Which ranks have joined, and which of them, ``waiting``, have not."""
    joined = ", ".join(str(rank.number) for rank in ranks if rank not in waiting)
    absent = ", ".join(f"{rank.number}{rank.host.on}" for rank in waiting)
    return f"joined {joined or 'none'} of {len(ranks)}; missing: {absent}"
