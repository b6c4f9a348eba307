"""How flows that meet divide the bandwidth of edges: max-min fairness by water-filling (DESIGN 5, "Contended").

A rate is a flow's payload, in units of ``2 ** -RATE_BITS`` bytes a second. On an edge the flow takes its rate times the
edge's wire bytes for a byte of payload, and shares of an edge are shares of wire bytes.

The flow that some edge, or its own limit, allows least gets that; the others divide what is left. A flow whose edges
all have bandwidth left in the end is filled again. Rates depend on the set of flows alone: edges that offer alike are
taken in the order of their keys, and flows that an edge offers the same get it together.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Any

from sipsim.core.errors import InvariantViolation
from sipsim.fabric.graph import Edge, Node

RATE_BITS = 16
_ALIKE_BITS = 10
_ALIKE = 1 << _ALIKE_BITS
"""What rounding may leave: offers that differ by less are alike, and an edge with less left is used up."""
_OPEN = -1
"""The rate of a flow that is not fixed yet."""


class Line:
    """An edge, the flows on it, and while bandwidth is divided what is left of it.

    ``flows``: each a :class:`Shared`, with its wire bytes here. ``load``: what they would take at their own limits;
    only above ``capacity`` can the edge hold one of them back (``is_tight``). ``shares``: by channel, the weight of
    each of its flows here, empty when they have changed; ``whole_share``: of all. ``is_plain``: all weigh the same and
    have no framing. ``opened``: the flows that are to be filled; ``open_count``, ``open_share``: of those that are not
    fixed yet. ``is_divided``: it takes part in a division.
    """

    __slots__ = (
        "capacity", "edge", "flows", "is_divided", "is_plain", "is_tight", "key", "left", "load", "open_count",
        "open_share", "opened", "shares", "whole_share",
    )  # fmt: skip

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.key = (edge.is_link, *_place(edge.src), *_place(edge.dst))
        self.capacity = edge.bandwidth_bps << RATE_BITS
        self.flows: dict[Any, int] = {}
        self.opened: dict[Any, int] = {}
        self.shares: list[int] = []
        self.load = self.left = self.open_count = self.open_share = self.whole_share = 0
        self.is_plain = True
        self.is_tight = self.is_divided = False

    def put_on(self, flow: Any, wire_bytes: int) -> None:
        """A flow begins to use it."""
        self.flows[flow] = wire_bytes
        self._is_changed(_taken(flow, wire_bytes))

    def take_off(self, flow: Any) -> None:
        """A flow has left it."""
        self._is_changed(-_taken(flow, self.flows.pop(flow)))

    def _is_changed(self, more: int) -> None:
        self.load += more
        self.is_tight = self.load > self.capacity
        self.shares = []

    def hand_on(self, flow: Any, following: Any) -> None:
        """A flow takes the place of another that is like it."""
        self.flows[following] = self.flows.pop(flow)

    @property
    def is_used_up(self) -> bool:
        """Whether a division has left nothing of it but what rounding leaves."""
        return self.left < _ALIKE * len(self.flows)

    def begin(self, weights: Sequence[int]) -> None:
        """Begin a division. A flow weighs its channel's weight divided by the number of that channel's flows here."""
        self.left, self.is_divided = self.capacity, True
        if self.shares:
            return
        counts = [0] * len(weights)
        is_framed = False
        for flow, wire_bytes in self.flows.items():
            counts[flow.vc] += 1
            is_framed = is_framed or wire_bytes != flow.nbytes
        every = 1
        for count in counts:
            every *= count or 1
        self.shares = [(weight or 1) * every // (count or 1) for weight, count in zip(weights, counts, strict=True)]
        self.whole_share = sum(share * count for share, count in zip(self.shares, counts, strict=True))
        self.is_plain = not is_framed and counts.count(0) == len(counts) - 1

    def open_all(self) -> None:
        """Open all flows on the edge for a water-filling."""
        self.opened, self.open_count, self.open_share = self.flows, len(self.flows), self.whole_share

    def open(self, flow: "Shared", wire_bytes: int) -> None:
        """Open one flow for a water-filling."""
        self.opened[flow] = wire_bytes
        self.open_count += 1
        self.open_share += self.shares[flow.vc]

    def offer(self) -> int:
        """The least payload rate that it allows one of its open flows."""
        if self.is_plain:
            return max(self.left // self.open_count, 0)
        return min([self.offer_to(flow, wire) for flow, wire in self.opened.items() if flow.rate == _OPEN])

    def held_at(self, offer: int) -> list["Shared"]:
        """The open flows that it allows no more than its least offer."""
        open_flows = [leg for leg in self.opened.items() if leg[0].rate == _OPEN]
        return [flow for flow, wire in open_flows if self.is_plain or self.offer_to(flow, wire) <= offer]

    def offer_to(self, flow: "Shared", wire_bytes: int) -> int:
        """The payload rate that it allows one of its open flows."""
        return max(self.left * self.shares[flow.vc] * flow.nbytes // (self.open_share * wire_bytes), 0)


def _taken(flow: Any, wire_bytes: int) -> int:
    """What a flow takes of an edge at its own limit."""
    limit: int = flow.limit
    return limit if wire_bytes == flow.nbytes else -(-limit * wire_bytes // flow.nbytes)


def _place(node: Node) -> tuple[int, str, int, str]:
    place = node.place
    return (node.cube, node.kind, place, "") if isinstance(place, int) else (node.cube, node.kind, -1, place)


class Shared:
    """What a division knows of a flow: its channel, its payload, its own limit, its legs, and the rate that it gets.

    ``legs``: (line, wire bytes there). ``tight``: those that may hold it back. ``neck``: the line that does, if any.
    """

    __slots__ = ("legs", "limit", "nbytes", "neck", "rate", "tight", "vc")

    vc: int
    nbytes: int
    limit: int
    rate: int
    legs: Sequence[tuple[Line, int]]
    tight: list[tuple[Line, int]]
    neck: Line | None


def divide(flows: Iterable[Shared], lines: Iterable[Line], weights: Sequence[int]) -> None:
    """Set the rates of ``flows``: all that are on ``lines``, which are all tight ones of these flows."""
    divided = _binding(lines)
    for line in divided:
        line.begin(weights)
    levels: dict[int, list[Shared]] = {}
    for flow in flows:
        flow.tight = [leg for leg in flow.legs if leg[0].is_divided]
        levels.setdefault(len(weights) if weights[flow.vc] else flow.vc, []).append(flow)
    for level in sorted(levels):
        unfilled = levels[level]
        _open(unfilled, divided if len(levels) == 1 else None)
        while unfilled:
            _fill(unfilled)
            again = [each for each in unfilled if each.neck and not any(line.is_used_up for line, _ in each.tight)]
            if len(again) == len(unfilled):
                break  # it would be filled the same
            unfilled = again
            for flow in unfilled:
                _use(flow, -flow.rate)
            _open(unfilled, None)
    for line in divided:
        line.is_divided = False


def _binding(lines: Iterable[Line]) -> list[Line]:
    """Those that can bind: of edges with the same flows, the narrowest. Framing makes an edge narrower."""
    plain: dict[tuple[int, ...], Line] = {}
    framed: dict[tuple[int, ...], list[Line]] = {}
    for line in lines:
        flows = tuple(map(id, line.flows))
        if line.edge.framing is not None:
            framed.setdefault(flows, []).append(line)
        elif flows not in plain or (line.capacity, line.key) < (plain[flows].capacity, plain[flows].key):
            plain[flows] = line
    for flows, found in framed.items():
        if flows in plain and plain[flows].capacity >= min(line.capacity for line in found):
            del plain[flows]
    return [*plain.values(), *(line for found in framed.values() for line in found)]


def _open(flows: list[Shared], lines: list[Line] | None) -> None:
    """Open flows for a water-filling: all that are on ``lines``, if these are given."""
    for flow in flows:
        flow.rate, flow.neck = _OPEN, None
    if lines is not None:
        for line in lines:
            line.open_all()
        return
    for flow in flows:
        for line, _ in flow.tight:
            line.opened, line.open_count, line.open_share = {}, 0, 0
    for flow in flows:
        for line, wire_bytes in flow.tight:
            line.open(flow, wire_bytes)


def _fill(flows: list[Shared]) -> None:
    """One water-filling of what is left."""
    lines = {line: None for flow in flows for line, _ in flow.tight}
    modest = sorted(flows, key=_limit, reverse=True)
    offers = [(_rounded(line.offer()), line.key, at, line) for at, line in enumerate(lines)]
    heapify(offers)
    while modest:
        if modest[-1].rate != _OPEN:
            modest.pop()
            continue
        while offers and not offers[0][-1].open_count:
            heappop(offers)
        if not offers:
            _fix(modest[-1], modest[-1].limit)
            continue
        least, key, at, neck = offers[0]
        offer = neck.offer()
        if _rounded(offer) > least:
            heapreplace(offers, (_rounded(offer), key, at, neck))
        elif modest[-1].limit <= offer:
            _fix(modest[-1], modest[-1].limit)
        else:
            for flow in neck.held_at(offer):
                flow.neck = neck
                _fix(flow, offer)


def _fix(flow: Shared, rate: int) -> None:
    flow.rate = rate
    for line, _ in flow.tight:
        line.open_count -= 1
        line.open_share -= line.shares[flow.vc]
    _use(flow, rate)


def _use(flow: Shared, rate: int) -> None:
    nbytes = flow.nbytes
    for line, wire_bytes in flow.tight:
        line.left -= rate if wire_bytes == nbytes else -(-rate * wire_bytes // nbytes)


def _rounded(offer: int) -> int:
    return (offer + _ALIKE // 2) >> _ALIKE_BITS


def _limit(flow: Shared) -> int:
    return flow.limit


def check_division(flows: Iterable[Shared], lines: Iterable[Line]) -> None:
    """Check what a division promises.

    Raises:
        InvariantViolation: for an edge above its rate, or a flow that could be faster and holds nobody back.
    """
    for line in lines:
        taken = sum(-(-flow.rate * wire // flow.nbytes) for flow, wire in line.flows.items())
        if taken > line.capacity + _ALIKE:
            raise InvariantViolation(f"edge {line.edge.name}: flows take {taken} of {line.capacity} units of rate")
    for flow in flows:
        if flow.rate != flow.limit and not any(line.is_used_up for line, _ in flow.tight):
            rates = f"{flow.rate} of {flow.limit} units of rate"
            raise InvariantViolation(f"a flow of {flow.nbytes} B gets {rates}, and no edge of it is used up")
