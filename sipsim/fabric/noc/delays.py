"""Which transfers came later than they would have alone, on which edges, and who was there.

Read after a run from the transfers of a fabric with a ``history``. A transfer's delay is divided among the edges of its
route: what is added on an edge and is still there at the end belongs to that edge; what a slower edge later on would
have cost anyway belongs to none.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from sipsim.fabric.graph import Node, Route
from sipsim.fabric.noc.fabric import Started
from sipsim.fabric.noc.transfer import Transfer

Ps = int
MOST_LOOKED_AT = 16
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


class _Leg(Protocol):
    """One edge of a route, in either fabric."""

    @property
    def drain_ps(self) -> Ps:
        """What the transfer takes on it."""

    @property
    def onward_ps(self) -> Ps:
        """To the next edge."""


def delay_by_edge(legs: Iterable[_Leg], source_ps: tuple[Ps, Ps], tails: Iterable[Ps]) -> list[Ps]:
    """What is added to a transfer's end on each edge and is still there at the end.

    ``source_ps``: its head and tail at the first node. ``tails``: when its tail left each edge.
    """
    late, (alone_head, alone_tail) = [], source_ps
    for leg, tail in zip(legs, tails, strict=True):
        alone_tail = max(alone_tail, alone_head + leg.drain_ps)
        late.append(tail - alone_tail)
        alone_head, alone_tail = alone_head + leg.onward_ps, alone_tail + leg.onward_ps
    least = late[-1]
    for hop in range(len(late) - 1, -1, -1):
        late[hop] = least = max(min(least, late[hop]), 0)
    return [after - before for before, after in zip([0, *late], late, strict=False)]


def delayed(history: Iterable[Started]) -> Iterator[Delayed]:
    """The transfers that met others, in the order of their starts."""
    ways = _Ways()
    ended = [each for each in history if each.transfer.legs and each.transfer.end_ps() is not None]
    late = [(each, parts) for each in ended if ways.is_late(each.transfer) and any(parts := _parts(each.transfer))]
    lanes = {id(each.transfer.legs[hop].lane) for each, parts in late for hop, delay_ps in enumerate(parts) if delay_ps}
    stays = _stays(ended, ways, lanes)
    for each, parts in late:
        transfer, route = each.transfer, each.route
        shares = tuple(
            Sharing(*leg.lane.edge[:2], _longest_met(stays[id(leg.lane)], transfer, hop, _way(route)), delay_ps)
            for hop, (leg, delay_ps) in enumerate(zip(transfer.legs, parts, strict=True))
            if delay_ps
        )
        end_ps = transfer.end_ps()
        assert end_ps is not None
        yield Delayed(str(route.start), str(route.edges[-1].dst), each.nbytes, each.now_ps, end_ps, shares)


class _Ways:
    """What transfers of one way share: they have one list of legs, so it is found by the list's id."""

    def __init__(self) -> None:
        self._alone_ps: dict[int, Ps] = {}
        self._hops: dict[int, list[int]] = {}

    def is_late(self, transfer: Transfer) -> bool:
        """Whether it came later than alone; true where that takes a closer look."""
        legs, end_ps = transfer.legs, transfer.end_ps()
        if transfer.source_head_ps != transfer.source_tail_ps:
            return True
        if id(legs) not in self._alone_ps:
            head = tail = 0
            for leg in legs:
                tail = max(tail, head + leg.drain_ps) + leg.onward_ps
                head += leg.onward_ps
            self._alone_ps[id(legs)] = tail
        return end_ps != transfer.source_tail_ps + self._alone_ps[id(legs)]

    def hops_on(self, transfer: Transfer, lanes: set[int]) -> list[int]:
        """The hops of a transfer that are on one of these edges."""
        legs = transfer.legs
        known = self._hops.get(id(legs))
        if known is None:
            known = self._hops[id(legs)] = [hop for hop, leg in enumerate(legs) if id(leg.lane) in lanes]
        return known


def _parts(transfer: Transfer) -> list[Ps]:
    return delay_by_edge(transfer.legs, (transfer.source_head_ps, transfer.source_tail_ps), transfer.tails)


def _stays(ended: list[Started], ways: _Ways, lanes: set[int]) -> dict[int, list[_Stay]]:
    """Who was on each of these edges, by the id of its lane."""
    found: dict[int, list[_Stay]] = {lane: [] for lane in lanes}
    names: dict[int, str] = {}
    for each in ended:
        transfer = each.transfer
        hops = ways.hops_on(transfer, lanes)
        if hops:
            way = names.get(id(each.route)) or names.setdefault(id(each.route), _way(each.route))
            for hop in hops:
                stay = _Stay(transfer.start_at(hop), transfer.tails[hop], transfer.seq, way)
                found[id(transfer.legs[hop].lane)].append(stay)
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
    for start_ps, end_ps, seq, way in stays[max(last - MOST_LOOKED_AT, 0) : last]:
        together_ps = (end_ps if end_ps < tail else tail) - (start_ps if start_ps > came else came)
        if together_ps > 0 and seq != transfer.seq:
            met[way] = met.get(way, 0) + together_ps
    longest = max(met, key=lambda way: (met[way], way), default="")
    return f"others of its way, {own}" if longest == own else longest
