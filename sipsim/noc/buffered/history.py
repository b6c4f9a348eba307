"""Which transfers came later than alone over finite buffers, and on which edges.

A transfer waits at an edge for other packets on it, or for room in the buffer at its end. Both are one part, *others or
full buffers*, on the edge for which the last packet waited.
"""

from collections.abc import Iterable, Iterator

from sipsim.noc.buffered.fabric import Sent
from sipsim.noc.buffered.packets import Flow
from sipsim.noc.delays import Delayed, Sharing

Ps = int
OTHERS = "others, or waiting for room in its buffer"


def delayed_packets(history: Iterable[Sent]) -> Iterator[Delayed]:
    """The transfers that came later than alone, in the order of their starts."""
    for flow, now_ps in history:
        if flow.end_ps is None or not flow.way.legs:
            continue
        parts = _parts(flow)
        if any(parts):
            shares = tuple(
                Sharing(*leg.output.edge[:2], OTHERS, delay_ps)
                for leg, delay_ps in zip(flow.way.legs, parts, strict=True)
                if delay_ps
            )
            route = flow.way.route
            yield Delayed(str(route.start), str(route.edges[-1].dst), flow.way.nbytes, now_ps, flow.end_ps, shares)


def _parts(flow: Flow) -> list[Ps]:
    """What is added to a transfer's end on each edge and is still there at the end."""
    assert flow.tails is not None
    late, (alone_head, alone_tail) = [], flow.source_ps
    for leg, tail in zip(flow.way.legs, flow.tails, strict=True):
        alone_tail = max(alone_tail, alone_head + leg.drain_ps)
        late.append(tail - alone_tail)
        alone_head, alone_tail = alone_head + leg.onward_ps, alone_tail + leg.onward_ps
    least = late[-1]
    for hop in range(len(late) - 1, -1, -1):
        late[hop] = least = max(min(least, late[hop]), 0)
    return [after - before for before, after in zip([0, *late], late, strict=False)]
