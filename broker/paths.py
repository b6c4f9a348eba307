"""The least delay of any chain of channels between two SIPs: ``D`` of DESIGN section 4, and the chain itself."""

import heapq

from broker.wire import Channel

Ps = int


class ZeroDelay(ValueError):
    """A channel without lookahead: no SIP could ever run ahead of another."""


class LeastDelays:
    """All-pairs least delays over chains of at least one channel; ``get(j, j)`` is the shortest cycle through j."""

    def __init__(self, size: int, channels: list[Channel]) -> None:
        for channel in channels:
            if channel.delay_ps <= 0:
                raise ZeroDelay(f"channel {channel.name} has no delay; give its link a positive latency")
        self._out: list[dict[int, Channel]] = [{} for _ in range(size)]
        for channel in sorted(channels, key=lambda c: (c.delay_ps, c.name), reverse=True):
            self._out[channel.src][channel.dst] = channel
        solved = [self._from(source) for source in range(size)]
        self.rows: list[list[Ps | None]] = [row for row, _ in solved]
        self._last = [last for _, last in solved]

    def get(self, src: int, dst: int) -> Ps | None:
        """Least delay in picoseconds, or None when no chain leads from ``src`` to ``dst``."""
        return self.rows[src][dst]

    def chain(self, src: int, dst: int) -> list[str]:
        """Names of the channels of a least chain from ``src`` to ``dst``; empty when there is none."""
        names: list[str] = []
        here = dst
        while (channel := self._last[src][here]) is not None:
            names.append(channel.name)
            here = channel.src
            if here == src:
                break
        return names[::-1]

    def _from(self, source: int) -> tuple[list[Ps | None], list[Channel | None]]:
        size = len(self._out)
        least: list[Ps | None] = [None] * size
        last: list[Channel | None] = [None] * size
        heap = [(c.delay_ps, c.dst, c) for c in self._out[source].values()]
        heapq.heapify(heap)
        while heap:
            delay, node, channel = heapq.heappop(heap)
            if least[node] is not None:
                continue
            least[node], last[node] = delay, channel
            if node == source:
                continue
            for onward in self._out[node].values():
                if least[onward.dst] is None:
                    heapq.heappush(heap, (delay + onward.delay_ps, onward.dst, onward))
        return least, last
