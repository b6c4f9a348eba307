"""Lost connections between ranks, or to the broker, and whether the end of a process explains them. Pure."""

from collections.abc import Sequence

from broker.wire import PeerLost
from launcher.processes.this_host.process_state import ProcessState
from launcher.report.outcome.error_facts import FoundFacts
from launcher.supervise.ranks.ranks import Rank

EXPLAIN_S = 3.0
"""For a lost connection to be explained by an exited process or a lost host."""


class LostConnections:
    """The lost connections of one run that nothing has explained yet."""

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
