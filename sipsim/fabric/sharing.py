"""Division of bandwidth among flows on shared edges: max-min fairness by water-filling.

The rate of a flow counts payload, in units of ``2 ** -RATE_BITS`` bytes per second. On an edge the flow takes its rate
times the edge's wire bytes per byte of payload. Shares of an edge are shares of wire bytes.

Each edge offers its flows a rate, and each flow has a limit. The least of all offers and limits is fixed as the rate of
its flows; the other flows divide the remainder in the same manner. A flow is filled again if all its edges have
bandwidth left at the end. Rates depend only on the set of flows: edges with equal offers, up to rounding, are taken in
the order of their keys, and flows to which an edge offers the same are fixed together.
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
"""Rounding error: offers that differ by less are equal, and an edge with less bandwidth left per flow is used up."""
_OPEN = -1
"""Rate of a flow whose rate is not fixed yet."""


class EdgeLoad:
    """Load of an edge (a ``line`` in the code below): the flows on it and, during a division, its remaining bandwidth.

    ``flows``: each flow (:class:`Shared`) with its wire bytes on the edge. ``load``: the sum of the rates that the
    flows have at their own limits; the edge can delay a flow only if this is more than ``capacity`` (``is_tight``).
    ``mask``: the bits of the flows; ``counts``: the flows by channel; ``framed``: how many have wire bytes other than
    their payload. During a division, ``shares``: by channel, the weight of each flow; ``ranks``: the channels with
    flows, by share; ``remaining``: the rate that fixed flows leave; ``open_counts``, ``open_share``: number by channel
    and summed weight of the flows that are not fixed yet.
    """

    __slots__ = (
        "capacity", "counts", "edge", "flows", "framed", "is_tight", "key", "load", "mask", "open_counts", "open_share",
        "rank", "ranks", "remaining", "shares",
    )  # fmt: skip

    def __init__(self, edge: Edge, channels: int) -> None:
        self.edge = edge
        self.capacity = edge.bandwidth_bps << RATE_BITS
        self.key = (bool(edge.memory), edge.is_link, *_node_key(edge.src), *_node_key(edge.dst), edge.memory)
        self.rank = (self.capacity, self.key)
        self.flows: dict[Any, int] = {}
        self.counts = [0] * channels
        self.framed = self.mask = self.load = self.remaining = self.open_share = 0
        self.is_tight = False
        self.open_counts: list[int] = []
        self.ranks: Sequence[tuple[int, int]] = ()
        self.shares: Sequence[int] = ()

    @property
    def is_used_up(self) -> bool:
        """Whether a division has used all bandwidth except for the rounding error."""
        return self.remaining < _ALIKE * len(self.flows)

    def begin(self, weights: tuple[int, ...]) -> None:
        """Begin a division with all flows open."""
        self.remaining, self.open_counts = self.capacity, self.counts[:]
        self.shares, self.ranks, self.open_share = _shares(weights, tuple(self.counts))

    def offer(self) -> int:
        """Return the least payload rate that the edge offers to its open flows."""
        if not self.framed:
            for share, vc in self.ranks:
                if self.open_counts[vc]:
                    return self.remaining * share // self.open_share if self.remaining > 0 else 0
        return min([self.offer_to(flow, wire) for flow, wire in self.flows.items() if flow.rate == _OPEN])

    def held_at(self, offer: int) -> list["Shared"]:
        """Return the open flows to which the edge offers no more than ``offer``."""
        open_flows = [load for load in self.flows.items() if load[0].rate == _OPEN]
        return [flow for flow, wire in open_flows if self.offer_to(flow, wire) <= offer]

    def offer_to(self, flow: "Shared", wire_bytes: int) -> int:
        """Return the payload rate that the edge offers to one of its open flows."""
        if self.remaining <= 0:
            return 0
        return self.remaining * self.shares[flow.vc] * flow.nbytes // (self.open_share * wire_bytes)


def put_on(flow: Any) -> list[EdgeLoad]:
    """Put a flow on its edges. Return the edges that are tight now and that the flow shares with others."""
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
    """Remove a flow from its edges. Return the edges that can now offer more to the other flows."""
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
    """Return the shares of flows by channel, sorted (share, channel) pairs of channels with flows, and the shares' sum.

    The share of a flow is its channel's weight divided by the channel's number of flows (``counts``), as an integer.
    """
    scale = prod([count or 1 for count in counts])
    shares = [(weight or 1) * scale // (count or 1) for weight, count in zip(weights, counts, strict=True)]
    ranks = sorted([(share, vc) for vc, share in enumerate(shares) if counts[vc]])
    return shares, ranks, sum([share * counts[vc] for share, vc in ranks])


def _node_key(node: Node) -> tuple[int, str, int, str]:
    """Return a sort key of a node."""
    place = node.place
    return (node.cube, node.kind, place, "") if isinstance(place, int) else (node.cube, node.kind, -1, place)


class Shared:
    """Flow as a division of bandwidth sees it: channel, payload, own limit, edges, and the resulting rate.

    ``bit``: an integer with one bit that no other flow on edges has. ``loads``: the flow's edges, with its wire bytes
    on each. ``tight``: the edges that may limit its rate; ``neck``: the edge that does, if any. ``is_sure``: its
    channel has a weight, and the first filling fixed its rate, by its own limit or by an edge that is used up.
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
    """Return a rate below which no flow's rate changes: a division would fix slower flows first, at the same rates.

    ``changed``: for each edge on which flows have begun or ended, whether one has begun; such an edge fixes no flow
    below its first offer. ``level``: the least of the limits of new flows and of the rates of ended flows.
    """
    for line, has_begun in changed.items():
        if not all(weights[flow.vc] and (flow.is_sure or not flow.tight) for flow in line.flows):
            return 0
        level = min([level, *[flow.rate for flow in line.flows if flow.neck is line]])
        if has_begun:
            line.begin(weights)
            level = min([level, *[line.offer_to(*load) for load in line.flows.items()]])
    return max((_rounded(level) - 1 << _ALIKE_BITS) - _ALIKE // 2, 0)


def joined(changed: Collection[EdgeLoad], level: int = 0) -> tuple[list[Any], list[EdgeLoad]]:
    """Return the flows that tight edges connect to those on ``changed`` edges, and the tight edges that can be a neck:
    of several edges with the same flows and no framing, only the narrowest.

    A flow that ``is_sure`` and slower than ``level`` is left out, and keeps its rate. But if one of the flows found has
    tight edges and is not sure, or one of the edges is the neck of a flow slower than ``level``, none is left out.
    """
    flows: list[Any] = []
    found_bits = 0
    for line in changed:
        flows += [f for f in line.flows if not f.bit & found_bits and (f.rate >= level or not f.is_sure)]
        found_bits |= line.mask
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
                if mask & ~found_bits:
                    flows += [f for f in line.flows if not f.bit & found_bits and (f.rate >= level or not f.is_sure)]
                    found_bits |= mask
    lines += plain.values()
    bound = [flow for line in lines for flow in line.flows if flow.neck is line and flow.rate < level]
    if level and (bound or any(flow.tight and not flow.is_sure for flow in flows)):
        return joined(changed)
    return flows, lines


def divide(flows: Collection[Shared], lines: Collection[EdgeLoad], weights: tuple[int, ...]) -> None:
    """Set the rates of ``flows``. ``lines``: the edges that can be their necks; rates of other flows there stay."""
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
                line.remaining -= -(-flow.rate * wire_bytes // flow.nbytes)
    strict = [[flow for flow in flows if flow.vc == vc] for vc, weight in enumerate(weights) if not weight]
    levels = [level for level in (*strict, [flow for flow in flows if weights[flow.vc]]) if level]
    for flow in chain.from_iterable(levels[1:]):
        _fix(flow, 0)
    for number, unfilled in enumerate(levels):
        if number:
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
    """Make the rates of fixed flows open again."""
    for flow in flows:
        _fix(flow, -flow.rate, -1)
        flow.rate, flow.neck = _OPEN, None


def _fill(flows: list[Shared], lines: Collection[EdgeLoad]) -> None:
    """Divide the remaining bandwidth of ``lines`` among ``flows`` once, the least rate first."""
    by_limit = sorted(flows, key=attrgetter("limit"), reverse=True)
    offers = [(_rounded(line.offer()), line.key, index, line) for index, line in enumerate(lines) if line.open_share]
    heapify(offers)
    while by_limit:
        if by_limit[-1].rate != _OPEN:
            by_limit.pop()
            continue
        while offers and not offers[0][-1].open_share:
            heappop(offers)
        if not offers:
            _fix(by_limit[-1], by_limit[-1].limit)
            continue
        least, key, index, neck = offers[0]
        offer = neck.offer()
        rounded = _rounded(offer)
        if rounded > least:
            heapreplace(offers, (rounded, key, index, neck))
        elif by_limit[-1].limit <= offer:
            _fix(by_limit[-1], by_limit[-1].limit)
        else:
            for flow in neck.held_at(offer):
                flow.neck = neck
                _fix(flow, offer)


def _fix(flow: Shared, rate: int, fixed: int = 1) -> None:
    """Fix a flow's rate and subtract the rate from the flow's edges; with -rate and ``fixed`` -1, undo this."""
    flow.rate = rate
    vc, nbytes = flow.vc, flow.nbytes
    for line, wire_bytes in flow.tight:
        line.open_counts[vc] -= fixed
        line.open_share -= line.shares[vc] * fixed
        line.remaining -= rate if wire_bytes == nbytes else -(-rate * wire_bytes // nbytes)


def _rounded(offer: int) -> int:
    """Return an offer in units of the rounding error."""
    return (offer + _ALIKE // 2) >> _ALIKE_BITS


def check_division(flows: Iterable[Shared]) -> None:
    """Check the result of a division.

    Raises:
        InvariantViolation: if an edge is above its capacity, or a flow could be faster without delaying others.
    """
    for line in {line: None for flow in flows for line, _ in flow.loads if line.is_tight}:
        taken = sum(-(-flow.rate * wire // flow.nbytes) for flow, wire in line.flows.items())
        if taken > line.capacity + _ALIKE:
            text = f"flows have {taken >> RATE_BITS} B/s of its {line.capacity >> RATE_BITS} B/s"
            raise InvariantViolation(f"edge {line.edge.name}: {text}")
    for flow in flows:
        if flow.rate != flow.limit and not _is_used_up(flow):
            rates = f"{flow.rate >> RATE_BITS} B/s, below its limit of {flow.limit >> RATE_BITS} B/s"
            raise InvariantViolation(f"a flow of {flow.nbytes} B has {rates}, but none of its edges is used up")
