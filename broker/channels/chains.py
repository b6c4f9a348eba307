"""The least delay of a chain of channels from one SIP to each other one, and the last channel of that chain.

An intermediate SIP of a chain adds its *reaction*: the least time from an arrival to a sending that it causes.
"""

import heapq
from collections.abc import Sequence

from broker.ids import Channel

Ps = int
OutChannels = list[dict[int, Channel]]
"""By source and destination, the channel with the least delay."""


def out_channels(size: int, channels: Sequence[Channel]) -> OutChannels:
    """The channels of ``size`` SIPs; of those of a pair with one delay, the first by name."""
    out: OutChannels = [{} for _ in range(size)]
    for channel in sorted(channels, key=lambda c: (c.delay_ps, c.name), reverse=True):
        out[channel.src][channel.dst] = channel
    return out


def least_chains(
    source: int, out: OutChannels, reactions_ps: Sequence[Ps]
) -> tuple[list[Ps | None], list[Channel | None]]:
    """By destination, the least delay in ps over at least one channel, and the chain's last channel; None for none.

    That of ``source`` itself is the shortest cycle.
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
