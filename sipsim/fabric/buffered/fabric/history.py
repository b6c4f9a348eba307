"""Which transfers came later than alone over finite buffers, and on which edges.

A transfer waits at an edge for other packets on it, or for room in the buffer at its end. Both are one part, *others or
full buffers*, on the edge for which the last packet waited.
"""

from collections.abc import Iterable, Iterator

from sipsim.fabric.buffered.fabric.fabric import Sent
from sipsim.fabric.noc.delays import Delayed, Sharing, delay_by_edge

Ps = int
OTHERS = "others, or waiting for room in its buffer"


def delayed_packets(history: Iterable[Sent]) -> Iterator[Delayed]:
    """The transfers that came later than alone, in the order of their starts."""
    for flow, now_ps in history:
        if flow.end_ps is None or not flow.way.legs:
            continue
        assert flow.tails is not None
        parts = delay_by_edge(flow.way.legs, flow.source_ps, flow.tails)
        if any(parts):
            shares = tuple(
                Sharing(*leg.output.edge[:2], OTHERS, delay_ps)
                for leg, delay_ps in zip(flow.way.legs, parts, strict=True)
                if delay_ps
            )
            route = flow.way.route
            yield Delayed(str(route.start), str(route.edges[-1].dst), flow.way.nbytes, now_ps, flow.end_ps, shares)
