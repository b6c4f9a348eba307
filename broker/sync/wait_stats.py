"""Who waited for whom, and for how long in host time: the books behind ``--explain-sync``. Pure; decides nothing.

A SIP *waits* while it has something to do that another SIP's bound forbids; that SIP is its blocker, one of them
where several forbid it. A SIP with nothing to do, and one that runs, waits for nobody.
"""

from collections import defaultdict

from broker.sync.delays import DelayMatrix

Ns = int


class WaitStats:
    """Since when each SIP is as it is (``since_ns``) and has not got on (``moved_ns``), and what waiting has cost."""

    def __init__(self, size: int) -> None:
        self.since_ns: list[Ns] = [0] * size
        self.moved_ns: list[Ns] = [0] * size
        self.run_ns: list[Ns] = [0] * size
        self.send_ns: list[Ns] = [0] * size
        self.cost_ns: defaultdict[tuple[int, int], Ns] = defaultdict(int)
        self._by = [-1] * size
        self._blocked_ns: list[Ns] = [0] * size

    def reported(self, rank: int, run_ns: Ns, send_ns: Ns, now_ns: Ns) -> None:
        """It has reached its horizon."""
        self.run_ns[rank] += run_ns
        self.send_ns[rank] += send_ns
        self.since_ns[rank] = self.moved_ns[rank] = now_ns

    def restarted(self, rank: int, now_ns: Ns) -> None:
        """Its process was replaced; what it had cost stays in the books."""
        self._charge(rank, now_ns)
        self._by[rank], self.since_ns[rank], self.moved_ns[rank] = -1, now_ns, now_ns

    def blocked(self, rank: int, by: int, now_ns: Ns) -> None:
        """From now on it is ``by`` that keeps it."""
        self._charge(rank, now_ns)
        self._by[rank], self._blocked_ns[rank] = by, now_ns

    def granted(self, rank: int, now_ns: Ns) -> None:
        """Nobody keeps it any more: it runs."""
        self._charge(rank, now_ns)
        self._by[rank], self.since_ns[rank], self.moved_ns[rank] = -1, now_ns, now_ns

    def costliest_channels(self, delays: DelayMatrix, most: int, now_ns: Ns) -> list[tuple[str, Ns]]:
        """The channels that cost most, by name: a wait is charged to each channel of the chain that bound it."""
        for rank in range(len(self._by)):
            self._charge(rank, now_ns)
        by_channel: defaultdict[str, Ns] = defaultdict(int)
        for (by, rank), cost_ns in self.cost_ns.items():
            for name in delays.chain(by, rank):
                by_channel[name] += cost_ns
        return sorted(by_channel.items(), key=lambda entry: (-entry[1], entry[0]))[:most]

    def _charge(self, rank: int, now_ns: Ns) -> None:
        by = self._by[rank]
        if by >= 0:
            self.cost_ns[by, rank] += now_ns - self._blocked_ns[rank]
            self._blocked_ns[rank] = now_ns
