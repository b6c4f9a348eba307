"""Division of bandwidth among flows on shared edges: max-min fairness by water-filling.

A rate is a flow's payload, in units of ``2 ** -RATE_BITS`` bytes per second. On an edge the flow takes its rate times
the edge's wire bytes per byte of payload, and shares of an edge are shares of wire bytes.

The flow with the least offer, of an edge or of its own limit, gets this rate; the others divide the remainder. A flow
is filled again if all its edges have bandwidth left at the end. Rates depend only on the set of flows: edges with alike
offers are taken in the order of their keys, and flows with the same offer of an edge get it together.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import chain
from math import prod
from operator import attrgetter
from typing import Any

from sipsim.core.errors import InvariantViolation
from sipsim.fabric.graph import Edge, Node

RATE_BITS = 16
_ALIKE_BITS = 10
_ALIKE = 1 << _ALIKE_BITS
"""Rounding error: offers that differ by less are alike, and an edge with less left is used up."""
_OPEN = -1
"""The rate of a flow that is not fixed yet."""


class EdgeLoad:
    """Edge, the flows on it, and during a division the bandwidth that is left of it.

    ``flows``: each :class:`Shared`, with its wire bytes here. ``load``: their rates at their own limits; only if it
    is more than ``capacity`` can the edge delay one of them (``is_tight``). ``mask``: their bits; ``counts``: their
    number by channel; ``shares``: by channel, the weight of each of its flows; ``ranks``: the channels with flows, by
    share. ``framed``: the number of flows whose wire bytes are not their payload. ``open_counts``, ``open_share``: of
    the flows that are not fixed yet.
    """

    __slots__ = (
        "capacity", "counts", "edge", "flows", "framed", "is_tight", "key", "left", "load", "mask", "open_counts",
        "open_share", "rank", "ranks", "shares",
    )  # fmt: skip

    def __init__(self, edge: Edge, channels: int) -> None:
        self.edge = edge
        self.capacity = edge.bandwidth_bps << RATE_BITS
        self.key = (bool(edge.memory), edge.is_link, *_place(edge.src), *_place(edge.dst), edge.memory)
        self.rank = (self.capacity, self.key)
        self.flows: dict[Any, int] = {}
        self.counts = [0] * channels
        self.framed = self.mask = self.load = self.left = self.open_share = 0
        self.is_tight = False
        self.open_counts: list[int] = []
        self.ranks: Sequence[tuple[int, int]] = ()
        self.shares: Sequence[int] = ()

    @property
    def is_used_up(self) -> bool:
        """Whether a division has left nothing of it except the rounding error."""
        return self.left < _ALIKE * len(self.flows)

    def begin(self, weights: tuple[int, ...]) -> None:
        """Begin a division with all flows open."""
        self.left, self.open_counts = self.capacity, self.counts[:]
        self.shares, self.ranks, self.open_share = _shares(weights, tuple(self.counts))

    def offer(self) -> int:
        """Return the least payload rate that the edge offers to its open flows."""
        if not self.framed:
            for share, vc in self.ranks:
                if self.open_counts[vc]:
                    return self.left * share // self.open_share if self.left > 0 else 0
        return min([self.offer_to(flow, wire) for flow, wire in self.flows.items() if flow.rate == _OPEN])

    def held_at(self, offer: int) -> list["Shared"]:
        """Return the open flows to which the edge offers no more than ``offer``."""
        open_flows = [load for load in self.flows.items() if load[0].rate == _OPEN]
        return [flow for flow, wire in open_flows if self.offer_to(flow, wire) <= offer]

    def offer_to(self, flow: "Shared", wire_bytes: int) -> int:
        """Return the payload rate that the edge offers to one of its open flows."""
        if self.left <= 0:
            return 0
        return self.left * self.shares[flow.vc] * flow.nbytes // (self.open_share * wire_bytes)


def put_on(flow: Any) -> list[EdgeLoad]:
    """Put a flow on its edges, each with its bytes there. Return the edges that it shares and that are too full."""
    bit, vc, nbytes, limit, full = flow.bit, flow.vc, flow.nbytes, flow.limit, []
    for line, wire_bytes in flow.loads:
        line.flows[flow] = wire_bytes
        line.mask |= bit
        line.counts[vc] += 1
        if wire_bytes == nbytes:
            line.load += limit
        else:
            line.framed += 1
            line.load += -(-limit * wire_bytes // nbytes)
        line.is_tight = line.load > line.capacity
        if line.is_tight and len(line.flows) > 1:
            full.append(line)
    return full


def take_off(flow: Any) -> list[EdgeLoad]:
    """Remove a flow from its edges. Return the edges that now have more to offer to others."""
    bit, vc, nbytes, limit, eased = flow.bit, flow.vc, flow.nbytes, flow.limit, []
    for line, wire_bytes in flow.loads:
        if line.is_tight and len(line.flows) > 1:
            eased.append(line)
        del line.flows[flow]
        line.mask ^= bit
        line.counts[vc] -= 1
        if wire_bytes == nbytes:
            line.load -= limit
        else:
            line.framed -= 1
            line.load -= -(-limit * wire_bytes // nbytes)
        line.is_tight = line.load > line.capacity
    return eased


@lru_cache(maxsize=4096)
def _shares(weights: tuple[int, ...], counts: tuple[int, ...]) -> tuple[list[int], list[tuple[int, int]], int]:
    """Return by channel the weight of each flow: the channel's weight divided by ``counts``, the number of its flows.

    Also return these shares sorted, of the channels that have flows; and the sum over all flows.
    """
    every = prod([count or 1 for count in counts])
    shares = [(weight or 1) * every // (count or 1) for weight, count in zip(weights, counts, strict=True)]
    ranks = sorted([(share, vc) for vc, share in enumerate(shares) if counts[vc]])
    return shares, ranks, sum([share * counts[vc] for share, vc in ranks])


def _place(node: Node) -> tuple[int, str, int, str]:
    place = node.place
    return (node.cube, node.kind, place, "") if isinstance(place, int) else (node.cube, node.kind, -1, place)


class Shared:
    """Flow that takes part in a division of bandwidth: channel, payload, own limit, edges, and the resulting rate.

    ``bit``: an integer with one bit that no other flow on edges has. ``loads``: its edges, with its wire bytes on each.
    ``tight``: the edges that may limit its rate. ``neck``: the edge that limits it, if any. ``is_sure``: its channel
    has a weight, and the first filling fixed its rate, by its own limit or by an edge that ends up full.
    """

    __slots__ = ("bit", "is_sure", "limit", "loads", "nbytes", "neck", "rate", "tight", "vc")

    bit: int
    vc: int
    nbytes: int
    limit: int
    rate: int
    loads: Sequence[tuple[EdgeLoad, int]]
    tight: list[tuple[EdgeLoad, int]]
    neck: EdgeLoad | None
    is_sure: bool


def level_of(changed: Mapping[EdgeLoad, bool], level: int, weights: tuple[int, ...]) -> int:
    """Return the rate below which no rate changes: a new division would fix the flows below it first, at the same
    rates.

    ``changed``: for each edge on which flows have begun or ended, whether one has begun; such an edge fixes no flow
    below its first offer. ``level``: the least of the limits of new flows and of the rates of ended flows.
    """
    for line, has_come in changed.items():
        if not all(weights[flow.vc] and (flow.is_sure or not flow.tight) for flow in line.flows):
            return 0
        level = min([level, *[flow.rate for flow in line.flows if flow.neck is line]])
        if has_come:
            line.begin(weights)
            level = min([level, *[line.offer_to(*load) for load in line.flows.items()]])
    return max((_rounded(level) - 1 << _ALIKE_BITS) - _ALIKE // 2, 0)


def joined(changed: Collection[EdgeLoad], level: int = 0) -> tuple[list[Any], list[EdgeLoad]]:
    """Return the flows that tight edges join with those on ``changed`` edges, and the tight edges that can bind: of
    edges that the same flows take for their payload, only the narrowest.

    A flow that ``is_sure`` with a rate below ``level`` is excluded and keeps its rate. No flow is excluded if a joined
    flow is not sure, or if an edge that can bind is the neck of a flow below ``level``.
    """
    flows: list[Any] = []
    known = 0
    for line in changed:
        flows += [flow for flow in line.flows if not flow.bit & known and (flow.rate >= level or not flow.is_sure)]
        known |= line.mask
    seen = set()
    plain: dict[int, EdgeLoad] = {}
    lines: list[EdgeLoad] = []
    for flow in flows:
        for line, _ in flow.loads:
            if line.is_tight and line not in seen:
                seen.add(line)
                mask = line.mask
                if line.framed:
                    lines.append(line)
                elif mask not in plain or line.rank < plain[mask].rank:
                    plain[mask] = line
                if mask & ~known:
                    flows += [o for o in line.flows if not o.bit & known and (o.rate >= level or not o.is_sure)]
                    known |= mask
    lines += plain.values()
    bound = [flow for line in lines for flow in line.flows if flow.neck is line and flow.rate < level]
    if level and (bound or any(flow.tight and not flow.is_sure for flow in flows)):
        return joined(changed)
    return flows, lines


def divide(flows: Collection[Shared], lines: Collection[EdgeLoad], weights: tuple[int, ...]) -> None:
    """Set the rates of ``flows``. ``lines``: the edges that can bind them; other flows on these keep their rates."""
    for flow in flows:
        flow.rate, flow.neck, flow.tight, flow.is_sure = _OPEN if lines else flow.limit, None, [], False
    if not lines:
        return
    for line in lines:
        line.begin(weights)
        for flow, wire_bytes in line.flows.items():
            if flow.rate == _OPEN:
                flow.tight.append((line, wire_bytes))
                flow.is_sure = weights[flow.vc] > 0
            else:
                line.open_counts[flow.vc] -= 1
                line.open_share -= line.shares[flow.vc]
                line.left -= -(-flow.rate * wire_bytes // flow.nbytes)
    strict = [[flow for flow in flows if flow.vc == vc] for vc, weight in enumerate(weights) if not weight]
    levels = [level for level in (*strict, [flow for flow in flows if weights[flow.vc]]) if level]
    for flow in chain.from_iterable(levels[1:]):
        _fix(flow, 0)
    for at, unfilled in enumerate(levels):
        if at:
            _open(unfilled)
        while unfilled:
            _fill(unfilled, lines)
            loose = [flow for flow in unfilled if flow.neck and not flow.neck.is_used_up]
            for flow in loose:
                flow.is_sure = False
            again = [flow for flow in loose if not _is_used_up(flow)]
            if len(again) == len(unfilled):
                break  # another filling would give the same rates
            _open(again)
            unfilled = again


def _is_used_up(flow: Shared) -> bool:
    """Whether an edge of a flow is used up."""
    return any(line.is_used_up for line, _ in flow.tight)


def _open(flows: Iterable[Shared]) -> None:
    """Open flows that were fixed."""
    for flow in flows:
        _fix(flow, -flow.rate, -1)
        flow.rate, flow.neck = _OPEN, None


def _fill(flows: list[Shared], lines: Collection[EdgeLoad]) -> None:
    """Fill what is left of ``lines`` once with the rates of ``flows``."""
    modest = sorted(flows, key=attrgetter("limit"), reverse=True)
    offers = [(_rounded(line.offer()), line.key, at, line) for at, line in enumerate(lines) if line.open_share]
    heapify(offers)
    while modest:
        if modest[-1].rate != _OPEN:
            modest.pop()
            continue
        while offers and not offers[0][-1].open_share:
            heappop(offers)
        if not offers:
            _fix(modest[-1], modest[-1].limit)
            continue
        least, key, at, neck = offers[0]
        offer = neck.offer()
        rounded = _rounded(offer)
        if rounded > least:
            heapreplace(offers, (rounded, key, at, neck))
        elif modest[-1].limit <= offer:
            _fix(modest[-1], modest[-1].limit)
        else:
            for flow in neck.held_at(offer):
                flow.neck = neck
                _fix(flow, offer)


def _fix(flow: Shared, rate: int, fixed: int = 1) -> None:
    """Fix a flow at a rate, and subtract it from its edges. With its rate and ``fixed`` both negative, add it back."""
    flow.rate = rate
    vc, nbytes = flow.vc, flow.nbytes
    for line, wire_bytes in flow.tight:
        line.open_counts[vc] -= fixed
        line.open_share -= line.shares[vc] * fixed
        line.left -= rate if wire_bytes == nbytes else -(-rate * wire_bytes // nbytes)


def _rounded(offer: int) -> int:
    return (offer + _ALIKE // 2) >> _ALIKE_BITS


def check_division(flows: Iterable[Shared]) -> None:
    """Check the result of a division.

    Raises:
        InvariantViolation: for an edge above its capacity, or a flow that could be faster without delaying others.
    """
    for line in {line: None for flow in flows for line, _ in flow.loads if line.is_tight}:
        taken = sum(-(-flow.rate * wire // flow.nbytes) for flow, wire in line.flows.items())
        if taken > line.capacity + _ALIKE:
            raise InvariantViolation(f"edge {line.edge.name}: flows take {taken} of {line.capacity} units of rate")
    for flow in flows:
        if flow.rate != flow.limit and not _is_used_up(flow):
            rates = f"{flow.rate} of {flow.limit} units of rate"
            raise InvariantViolation(f"a flow of {flow.nbytes} B gets {rates}, but none of its edges is used up")
