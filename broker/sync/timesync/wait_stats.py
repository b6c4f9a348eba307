"""Which SIP waited for which, and for how long in host time, for ``--explain-sync``. Pure; decides nothing.

A SIP *waits* while another SIP's bound forbids its next event; that SIP is its blocker, one of them where several do.
A SIP without events, and one that runs, does not wait.
"""

from collections import defaultdict

from broker.channels.delays import DelayMatrix

Ns = int


class WaitStats:
    """By rank: when its state changed last (``since_ns``), when it progressed last (``moved_ns``), and its costs."""

    def __init__(self, size: int) -> None:
        self.since_ns: list[Ns] = [0] * size
        self.moved_ns: list[Ns] = [0] * size
        self.run_ns: list[Ns] = [0] * size
        self.send_ns: list[Ns] = [0] * size
        self.cost_ns: defaultdict[tuple[int, int], Ns] = defaultdict(int)
        self._by = [-1] * size
        self._blocked_ns: list[Ns] = [0] * size

    def reported(self, rank: int, run_ns: Ns, send_ns: Ns, now_ns: Ns) -> None:
        """``rank`` has reached its horizon."""
        self.run_ns[rank] += run_ns
        self.send_ns[rank] += send_ns
        self.since_ns[rank] = self.moved_ns[rank] = now_ns

    def restarted(self, rank: int, now_ns: Ns) -> None:
        """The process of ``rank`` was replaced; its costs are kept."""
        self._charge(rank, now_ns)
        self._by[rank], self.since_ns[rank], self.moved_ns[rank] = -1, now_ns, now_ns

    def blocked(self, rank: int, by: int, now_ns: Ns) -> None:
        """From now on ``by`` blocks ``rank``."""
        self._charge(rank, now_ns)
        self._by[rank], self._blocked_ns[rank] = by, now_ns

    def granted(self, rank: int, now_ns: Ns) -> None:
        """``rank`` runs."""
        self._charge(rank, now_ns)
        self._by[rank], self.since_ns[rank], self.moved_ns[rank] = -1, now_ns, now_ns

    def costliest_channels(self, delays: DelayMatrix, most: int, now_ns: Ns) -> list[tuple[str, Ns]]:
        """The channels that cost most, by name: a wait is charged to each channel of the chain that bounds it."""
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
