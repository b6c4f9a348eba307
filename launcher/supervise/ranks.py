"""A supervisor's records of hosts, ranks and lost connections, and the placement of ranks on hosts. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from broker.wire import PeerLost, SipSync, Sync
from launcher.processes.this_host import NS_PER_S, ProcessState
from launcher.report.outcome import FoundFacts
from launcher.supervise.stall import QuietTimer

Slots = int | None
"""How many ranks a host takes; None for any number."""


def place_blockwise(n_ranks: int, slots: Sequence[Slots]) -> list[int]:
    """The host index of each rank when a run starts, in blocks.

    Hosts without a limit share the ranks that exceed the others' slots.

    Raises:
        ValueError: when there are more ranks than slots.
    """
    room = sum(slot for slot in slots if slot is not None)
    shares = sum(slot is None for slot in slots)
    if room < n_ranks and not shares:
        raise ValueError(f"{n_ranks} SIPs need as many slots, and the hosts have {room}")
    left, rest = n_ranks, max(n_ranks - room, 0)
    places: list[int] = []
    for host, slot in enumerate(slots):
        if slot is None:
            take = -(-rest // shares)
            rest, shares = rest - take, shares - 1
        else:
            take = min(slot, left - rest)
        places += [host] * take
        left -= take
    return places


def next_host(living: Collection[int], slots: Mapping[int, Slots], ranks_on: Counter[int]) -> int | None:
    """The new host of a rank whose host is lost: most free slots, then fewest ranks, then the first; None without
    hosts.
    """

    def emptiness(host: int) -> tuple[float, int, int]:
        slot = slots[host]
        free = float("inf") if slot is None else slot - ranks_on[host]
        return -free, ranks_on[host], host

    return min(living, key=emptiness, default=None)


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


EXPLAIN_S = 3.0
"""For a lost connection to be explained by an exited process or a lost host."""


class LostConnections:
    """The lost connections of one run, between ranks or to the broker, that no end of a process has explained yet."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        self._until_s: dict[PeerLost, float] = {}

    def note(self, lost: PeerLost, clock_s: float) -> None:
        """Take the broker's message about one."""
        if not self._is_explained(lost):
            self._until_s.setdefault(lost, clock_s + EXPLAIN_S)

    def overdue(self, clock_s: float) -> PeerLost | None:
        """The first one whose time for an explanation has passed; forgets it, and all that are explained now."""
        found = None
        for lost, until_s in list(self._until_s.items()):
            explained = self._is_explained(lost)
            if explained or (clock_s >= until_s and not self._may_be_explained(lost)):
                del self._until_s[lost]
                found = found or (None if explained else lost)
        return found

    def _is_explained(self, lost: PeerLost) -> bool:
        """Whether one of the two processes of the connection is known to have exited, or is being ended."""
        ends = ((self._ranks[lost.rank], lost.incarnation), (self._ranks[lost.peer], lost.peer_incarnation))
        return any(end.incarnation != incarnation or end.is_dead or end.kill_reason for end, incarnation in ends)

    def _may_be_explained(self, lost: PeerLost) -> bool:
        """Whether one of two ranks has lost the broker too: what comes of that explains their connection."""
        others = (each for each in self._until_s if each != lost and each.rank == each.peer)
        return any(each.rank in (lost.rank, lost.peer) for each in others)

    def describe(self, lost: PeerLost, state: ProcessState | None) -> tuple[str, FoundFacts]:
        """The message and the facts of one, to a peer or to the broker. ``state``: of the rank's process, if known."""
        end, other = self._ranks[lost.rank], self._ranks[lost.peer]
        facts: FoundFacts = {"host": end.host.name}
        if end is not other:
            message = (
                f"rank {end.number}{end.host.on} has lost its connection to rank {other.number}{other.host.on}, "
                f"and neither process nor host is known to have ended: {lost.why}"
            )
            return message, {**facts, "peer": other.number}
        known = f"; its process {state.description}" if state else ""
        why = f"{lost.why}, and neither its process nor its host is known to have ended{known}"
        return f"{end.label} is lost: {why}", facts
