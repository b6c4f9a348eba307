"""Least delays in ps of chains of channels between SIPs: the matrix ``D`` of :mod:`broker.sync.timesync`. Pure.

A SIP between the ends of a chain adds its *reaction*: the least time from an arrival to a sending that it causes.
"""

import heapq
from collections.abc import Sequence

from broker.ids import Channel

Ps = int
OutChannels = list[dict[int, Channel]]
"""The channel with the least delay from a source to a destination: ``out[source][destination]``."""


def out_channels(size: int, channels: Sequence[Channel]) -> OutChannels:
    """Return, per ordered pair of SIPs, the channel with the least delay; if delays are equal, the first by name."""
    out: OutChannels = [{} for _ in range(size)]
    for channel in sorted(channels, key=lambda c: (c.delay_ps, c.name), reverse=True):
        out[channel.src][channel.dst] = channel
    return out


def least_chains(
    source: int, out: OutChannels, reactions_ps: Sequence[Ps]
) -> tuple[list[Ps | None], list[Channel | None]]:
    """Return, by destination, the delay in ps and the last channel of the fastest chain; None if there is no chain.

    The entry of ``source`` itself is the delay of the shortest cycle through ``source``.
    """
    size = len(out)
    least: list[Ps | None] = [None] * size
    last: list[Channel | None] = [None] * size
    heap = [(c.delay_ps, c.dst, c) for c in out[source].values()]
    heapq.heapify(heap)
    while heap:
        delay, node, channel = heapq.heappop(heap)
        if least[node] is not None:
            continue
        least[node], last[node] = delay, channel
        if node == source:
            continue
        leaves_ps = delay + reactions_ps[node]
        for following in out[node].values():
            if least[following.dst] is None:
                heapq.heappush(heap, (leaves_ps + following.delay_ps, following.dst, following))
    return least, last


NEVER_PS: Ps = 2**64
"""The time that means never: later than any representable time plus any number of delays."""


class ZeroDelay(ValueError):
    """Error: a channel has no lookahead, so no SIP could run ahead of another."""


class DelayMatrix:
    """All-pairs least delays over chains of at least one channel; ``get(j, j)`` is the shortest cycle through j.

    ``into[j]`` lists (k, delay) for every SIP k from which a chain leads to j, the least delay first.
    """

    def __init__(self, size: int, channels: list[Channel], reactions_ps: list[Ps] | None = None) -> None:
        for channel in channels:
            if channel.delay_ps <= 0:
                raise ZeroDelay(f"channel {channel.name} has no delay; give the link of this channel a latency above 0")
        out, reactions = out_channels(size, channels), reactions_ps or [0] * size
        solved = [least_chains(source, out, reactions) for source in range(size)]
        self.rows: list[list[Ps | None]] = [row for row, _ in solved]
        self._last = [last for _, last in solved]
        self.into: list[list[tuple[int, Ps]]] = [self._sources_of(dst) for dst in range(size)]

    def get(self, src: int, dst: int) -> Ps | None:
        """Least delay in picoseconds, or None when no chain leads from ``src`` to ``dst``."""
        return self.rows[src][dst]

    def chain(self, src: int, dst: int) -> list[str]:
        """Names of the channels of a least chain from ``src`` to ``dst``; empty when there is none."""
        names: list[str] = []
        node = dst
        while (channel := self._last[src][node]) is not None:
            names.append(channel.name)
            node = channel.src
            if node == src:
                break
        return names[::-1]

    def _sources_of(self, dst: int) -> list[tuple[int, Ps]]:
        sources = [(src, delay) for src, row in enumerate(self.rows) if (delay := row[dst]) is not None]
        return sorted(sources, key=lambda entry: (entry[1], entry[0]))
