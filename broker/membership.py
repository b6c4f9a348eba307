"""Membership of a run: accepts or refuses the ``Join`` of each SIP. Pure.

Every SIP derives the whole plan from the same config, and sends a digest of the plan in ``Join``. SIPs that would
simulate different systems are refused before the run starts.
"""

from broker.ids import PROTOCOL, address_of
from broker.wire import Join


class Membership:
    """The SIPs that have joined a run of ``size`` SIPs. The first SIP sets the digest that the others must match.

    ``addresses``: by rank, the mail address of the present incarnation.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.joined: dict[int, Join] = {}
        self.addresses = list(range(size))
        self._incarnations = [0] * size

    def forget(self, rank: int, incarnation: int) -> None:
        """Remove a rank whose process has exited. ``incarnation``: the number of the new process."""
        self.joined.pop(rank, None)
        self.addresses[rank], self._incarnations[rank] = address_of(rank, incarnation), incarnation

    def incarnation(self, rank: int) -> int:
        """The present incarnation of a rank; 0 for invalid ranks."""
        return self._incarnations[rank] if 0 <= rank < self._size else 0

    def join(self, join: Join) -> str | None:
        """Accept a SIP and return None, or return the reason for the refusal in one line."""
        reason = self._objection(join)
        if reason is None:
            self.joined[join.rank] = join
        return reason

    @property
    def complete(self) -> bool:
        """Whether every rank has joined."""
        return len(self.joined) == self._size

    def missing(self) -> list[int]:
        """Ranks that have not joined yet."""
        return [rank for rank in range(self._size) if rank not in self.joined]

    def endpoints(self) -> tuple[str, ...]:
        """The endpoint at which each SIP listens, by rank; "" for a SIP that has not joined."""
        joined = self.joined
        return tuple([joined[rank].endpoint if rank in joined else "" for rank in range(self._size)])

    def _objection(self, join: Join) -> str | None:
        if join.protocol != PROTOCOL:
            return f"SIP {join.rank} uses protocol {join.protocol}, the broker uses {PROTOCOL}; install one version"
        if join.world_size != self._size or join.rank >= self._size:
            return f"SIP {join.rank} of {join.world_size} cannot join a run of {self._size} SIPs; use one config"
        if join.rank in self.joined:
            other = self.joined[join.rank]
            pids = f"pid {other.pid} on {other.host} and pid {join.pid} on {join.host}"
            return f"two processes joined as rank {join.rank}: {pids}; start one process per rank"
        for first in self.joined.values():
            if join.version != first.version:
                versions = f"SIP {join.rank} runs version {join.version}, SIP {first.rank} runs {first.version}"
                return f"{versions}; install one version"
            if join.plan_digest != first.plan_digest:
                return (
                    f"SIP {join.rank} ({join.host}) and SIP {first.rank} ({first.host}) have different plans "
                    f"({join.plan_digest[:12]}, {first.plan_digest[:12]}); "
                    "give all SIPs the same config, algorithm and script"
                )
        return None
