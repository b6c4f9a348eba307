"""Which transfers came later than they would have alone, on which edges, and who was there.

Read after a run from the transfers of a fabric with a ``history``. A transfer's delay is divided among the edges of its
route: what is added on an edge and is still there at the end belongs to that edge; what a slower edge later on would
have cost anyway belongs to none.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sipsim.noc.fabric import Started
from sipsim.noc.graph import Edge, Node, Route
from sipsim.noc.transfer import Transfer

Ps = int
MOST_LOOKED_AT = 64
"""Of those that were on an edge before a delayed transfer, so many are looked at for the one that it met longest."""


class Sharing(NamedTuple):
    """``delay_ps`` on the edge from ``src`` to ``dst``; ``others``: the way of most of those that were there then."""

    src: Node
    dst: Node
    others: str
    delay_ps: Ps


class Delayed(NamedTuple):
    """A transfer from ``src`` to ``dst`` of ``nbytes``, started at ``now_ps``, whose tail arrived at ``end_ps``."""

    src: str
    dst: str
    nbytes: int
    now_ps: Ps
    end_ps: Ps
    shares: tuple[Sharing, ...]


class _Stay(NamedTuple):
    """A transfer on an edge, from its head's to its tail's leaving."""

    start_ps: Ps
    end_ps: Ps
    seq: int
    way: str


def delayed(history: Iterable[Started]) -> Iterator[Delayed]:
    """The transfers that met others, in the order of their starts."""
    ended = [each for each in history if each.transfer.legs and each.transfer.end_ps() is not None]
    late = [(each, parts) for each in ended if any(parts := _parts(each.transfer))]
    edges = {
        each.transfer.legs[hop].lane.edge for each, parts in late for hop, delay_ps in enumerate(parts) if delay_ps
    }
    stays = _stays(ended, edges)
    for each, parts in late:
        transfer, route = each.transfer, each.route
        shares = tuple(
            Sharing(*leg.lane.edge[:2], _longest_met(stays[leg.lane.edge], transfer, hop, _way(route)), delay_ps)
            for hop, (leg, delay_ps) in enumerate(zip(transfer.legs, parts, strict=True))
            if delay_ps
        )
        end_ps = transfer.end_ps()
        assert end_ps is not None
        yield Delayed(str(route.start), str(route.edges[-1].dst), each.nbytes, each.now_ps, end_ps, shares)


def _parts(transfer: Transfer) -> list[Ps]:
    """What is added to a transfer's end on each edge."""
    late, alone_head, alone_tail = [], transfer.source_head_ps, transfer.source_tail_ps
    for leg, tail in zip(transfer.legs, transfer.tails, strict=True):
        alone_tail = max(alone_tail, alone_head + leg.drain_ps)
        late.append(tail - alone_tail)
        alone_head, alone_tail = alone_head + leg.onward_ps, alone_tail + leg.onward_ps
    least = late[-1]
    for hop in range(len(late) - 1, -1, -1):
        late[hop] = least = max(min(least, late[hop]), 0)
    return [after - before for before, after in zip([0, *late], late, strict=False)]


def _stays(ended: list[Started], edges: set[Edge]) -> dict[Edge, list[_Stay]]:
    found: dict[Edge, list[_Stay]] = {edge: [] for edge in edges}
    for each in ended:
        transfer, way = each.transfer, ""
        for hop, leg in enumerate(transfer.legs):
            if leg.lane.edge in found:
                way = way or _way(each.route)
                stay = _Stay(transfer.start_at(hop), transfer.tails[hop], transfer.seq, way)
                found[leg.lane.edge].append(stay)
    for stays in found.values():
        stays.sort()
    return found


def _way(route: Route) -> str:
    end = route.edges[-1].dst
    return f"{route.start} to {f'link {end.place}' if end.kind == 'far' else end}"


def _longest_met(stays: list[_Stay], transfer: Transfer, hop: int, own: str) -> str:
    """The way of the transfers that were longest on an edge while this one waited or shared there."""
    tail = transfer.tails[hop]
    came = transfer.source_head_ps if hop == 0 else transfer.start_at(hop - 1) + transfer.legs[hop - 1].onward_ps
    last = bisect_right(stays, (tail,))
    met: dict[str, Ps] = {}
    for stay in stays[max(last - MOST_LOOKED_AT, 0) : last]:
        together_ps = min(stay.end_ps, tail) - max(stay.start_ps, came)
        if stay.seq != transfer.seq and together_ps > 0:
            met[stay.way] = met.get(stay.way, 0) + together_ps
    longest = max(met, key=lambda way: (met[way], way), default="")
    return f"others of its way, {own}" if longest == own else longest
