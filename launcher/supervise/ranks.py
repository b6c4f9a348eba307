"""State of hosts, ranks and lost connections for the supervisor, and the placement of ranks on hosts. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from broker.wire import PeerLost, SipSync, Sync
from launcher.processes.this_host import NS_PER_S, ProcessState
from launcher.report.outcome import FoundFacts
from launcher.supervise.stall import IdleTimer

Slots = int | None
"""Maximum number of ranks on a host; None if there is no limit."""


def place_blockwise(n_ranks: int, slots: Sequence[Slots]) -> list[int]:
    """Return the host index of each rank at the start of a run, in blocks of consecutive ranks.

    Hosts without a limit share the ranks that exceed the slots of the hosts with a limit.

    Raises:
        ValueError: if there are more ranks than slots.
    """
    n_slots = sum(slot for slot in slots if slot is not None)
    shares = sum(slot is None for slot in slots)
    if n_slots < n_ranks and not shares:
        raise ValueError(f"{n_ranks} SIPs need {n_ranks} slots, but the hosts have {n_slots}")
    remaining, rest = n_ranks, max(n_ranks - n_slots, 0)
    places: list[int] = []
    for host, slot in enumerate(slots):
        if slot is None:
            take = -(-rest // shares)
            rest, shares = rest - take, shares - 1
        else:
            take = min(slot, remaining - rest)
        places += [host] * take
        remaining -= take
    return places


def next_host(living: Collection[int], slots: Mapping[int, Slots], ranks_on: Counter[int]) -> int | None:
    """Return the new host of a rank whose host is lost: the host with the most free slots, then with the fewest ranks,
    then with the lowest index; None if ``living`` is empty.
    """

    def emptiness(host: int) -> tuple[float, int, int]:
        slot = slots[host]
        free = float("inf") if slot is None else slot - ranks_on[host]
        return -free, ranks_on[host], host

    return min(living, key=emptiness, default=None)


@dataclass
class Host:
    """State of a host. ``joined``: SIPs can start there now. ``agent_restarting``: a new agent is being started."""

    index: int
    name: str
    slots: int | None
    joined: bool = False
    agent_restarting: bool = False
    lost: bool = False
    since_s: float = 0.0

    @property
    def on(self) -> str:
        """The text `` on NAME`` for messages; empty if all processes run on one host."""
        return f" on {self.name}" if self.name else ""


@dataclass
class Rank:
    """State of a rank and of its process. ``kill_reason``: kind and message of the failure, if the process is killed.

    ``rejoining``: the rank was restarted and has not joined yet. ``idle``: timer of the process since its last
    progress.
    """

    number: int
    host: Host
    incarnation: int = 0
    pid: int | None = None
    start_sent: bool = False
    result_received: bool = False
    rejoining: bool = False
    is_dead: bool = False
    since_s: float = 0.0
    kill_reason: tuple[str, str] | None = None
    last: SipSync | None = None
    idle: IdleTimer = field(default_factory=IdleTimer)

    def started(self, incarnation: int, pid: int) -> None:
        """Record that the rank's process has started."""
        if incarnation == self.incarnation:
            self.is_dead, self.pid = False, pid

    def is_now(self, incarnation: int, pid: int) -> bool:
        """Whether the process with this incarnation and pid is the rank's current process."""
        return incarnation == self.incarnation and pid == self.pid

    def next_incarnation(self, now_s: float) -> None:
        """Reset the state for a restart of the rank."""
        self.incarnation += 1
        self.pid, self.kill_reason, self.last, self.idle = None, None, None, IdleTimer()
        self.start_sent, self.result_received, self.rejoining, self.since_s = False, False, True, now_s

    def note(self, sip: SipSync) -> None:
        """Update the rank's state from ``sip``, the SIP's entry in a ``Sync`` of the broker."""
        if sip.incarnation != self.incarnation:
            return
        self.last = sip
        self.idle.moved(sip.quiet_ns / NS_PER_S)
        if sip.state != "joining":
            self.rejoining = False

    def runs_as_known(self, sync: Sync) -> bool:
        """Whether ``sync`` describes the rank's current process, and that process runs."""
        return not self.is_dead and self.last is not None and sync.sips[self.number] is self.last

    @property
    def label(self) -> str:
        """The rank with pid and host, as far as these are known."""
        return f"rank {self.number}" + (f" (pid {self.pid}{self.host.on})" if self.pid is not None else "")

    @property
    def absence(self) -> str:
        """Why the rank has not joined, as a line of text."""
        where = self.host.name or "this host"
        if not self.host.joined:
            return f"  rank {self.number}: the agent of {where} has not reported"
        if self.pid is None:
            return f"  rank {self.number}: its process has not started on {where}"
        return f"  rank {self.number}: its process (pid {self.pid}{self.host.on}) has not joined"


def missing(ranks: list[Rank], sync: Sync | None) -> list[Rank]:
    """Return the ranks that have not joined according to ``sync``, the broker's last answer; all ranks if None."""
    return [rank for rank in ranks if sync is None or sync.sips[rank.number].state == "joining"]


def join_status(ranks: list[Rank], waiting: list[Rank]) -> str:
    """Return a text that lists the ranks that have joined and the ranks that have not, which are ``waiting``."""
    joined = ", ".join(str(rank.number) for rank in ranks if rank not in waiting)
    absent = ", ".join(f"{rank.number}{rank.host.on}" for rank in waiting)
    return f"joined {joined or 'none'} of {len(ranks)}; missing: {absent}"


EXPLAIN_S = 3.0
"""Time for the exit of a process or the loss of a host to explain a lost connection."""


class LostConnections:
    """Lost connections of one run, between ranks or to the broker, which no known exit of a process explains."""

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        self._until_s: dict[PeerLost, float] = {}

    def note(self, lost: PeerLost, clock_s: float) -> None:
        """Add a lost connection that the broker has reported."""
        if not self._is_explained(lost):
            self._until_s.setdefault(lost, clock_s + EXPLAIN_S)

    def overdue(self, clock_s: float) -> PeerLost | None:
        """Remove explained connections; remove and return the first connection that stayed unexplained too long."""
        found = None
        for lost, until_s in list(self._until_s.items()):
            explained = self._is_explained(lost)
            if explained or (clock_s >= until_s and not self._may_be_explained(lost)):
                del self._until_s[lost]
                found = found or (None if explained else lost)
        return found

    def _is_explained(self, lost: PeerLost) -> bool:
        """Whether one of the two processes of the connection is known to have exited, or is being killed."""
        ends = ((self._ranks[lost.rank], lost.incarnation), (self._ranks[lost.peer], lost.peer_incarnation))
        return any(end.incarnation != incarnation or end.is_dead or end.kill_reason for end, incarnation in ends)

    def _may_be_explained(self, lost: PeerLost) -> bool:
        """Whether one of the two ranks has also lost the broker, since the rank's exit may then soon be known."""
        others = (each for each in self._until_s if each != lost and each.rank == each.peer)
        return any(each.rank in (lost.rank, lost.peer) for each in others)

    def describe(self, lost: PeerLost, state: ProcessState | None) -> tuple[str, FoundFacts]:
        """Return message and facts of a lost connection. ``state``: sample of the rank's process; None if unknown."""
        end, other = self._ranks[lost.rank], self._ranks[lost.peer]
        facts: FoundFacts = {"host": end.host.name}
        if end is not other:
            message = (
                f"rank {end.number}{end.host.on} has lost its connection to rank {other.number}{other.host.on}, "
                f"and neither process nor host is known to have ended: {lost.why}"
            )
            return message, {**facts, "peer": other.number}
        activity = f"; its process {state.description}" if state else ""
        reason = f"{lost.why}, and neither its process nor its host is known to have ended{activity}"
        return f"{end.label} is lost: {reason}", facts
