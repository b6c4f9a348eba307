"""The definition of the flow fabric, in fractions: all rates of all flows anew at every change, without a shortcut.

A train sends one transfer at a time; a transfer uses its whole route at one rate from its first byte's leaving its
source to its last's; rates are max-min fair by water-filling (docs/decisions.md, "Rates are max-min fair").
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from sipsim.fabric.graph import Edge, Route

PS_PER_S = 10**12


class Offered(NamedTuple):
    """``nbytes`` that ``source`` offers at ``start_ps`` on ``channel``, over ``route``."""

    source: object
    channel: int
    start_ps: int
    nbytes: int
    route: Route


def ends_ps(offered: Sequence[Offered], weights: Sequence[int], number: Mapping[Edge, int]) -> list[Fraction]:
    """When the last byte of each transfer is at the end of its route. ``number``: the order of edges that tie."""
    left = [Fraction(each.nbytes) for each in offered]
    ends = [Fraction(0)] * len(offered)
    trains: dict[object, list[int]] = {}
    for at in sorted(range(len(offered)), key=lambda at: (offered[at].start_ps, at)):
        trains.setdefault((offered[at].source, offered[at].channel), []).append(at)
    now = Fraction(0)
    while trains:
        first = [train[0] for train in trains.values()]
        present = [at for at in first if offered[at].start_ps <= now]
        rates = dict(zip(present, divide([offered[at] for at in present], weights, number), strict=True))
        steps = [offered[at].start_ps - now for at in first if offered[at].start_ps > now]
        steps += [left[at] * PS_PER_S / rate for at, rate in rates.items() if rate]
        step = min(steps)
        for at, rate in rates.items():
            left[at] -= rate * step / PS_PER_S
        now += step
        for key, train in list(trains.items()):
            if not left[train[0]]:
                ends[train[0]] = now + offered[train[0]].route.head_ps()
                del train[0]
            if not train:
                del trains[key]
    return ends


def divide(flows: Sequence[Offered], weights: Sequence[int], number: Mapping[Edge, int]) -> list[Fraction]:
    """The rate of each flow, in bytes of payload a second."""
    left = {edge: Fraction(edge.bandwidth_bps) for flow in flows for edge in flow.route.edges}
    rates: dict[int, Fraction] = {}
    for level in (*(vc for vc, weight in enumerate(weights) if not weight), None):
        open_flows = [at for at, flow in enumerate(flows) if level == (None if weights[flow.channel] else flow.channel)]
        while open_flows:
            _fill(flows, open_flows, rates, left, weights, number)
            open_flows = [at for at in open_flows if rates[at] < _limit(flows[at]) and _has_room(flows[at], left)]
            for at in open_flows:
                _use(flows[at], -rates[at], left)
    return [rates[at] for at in range(len(flows))]


def _fill(
    flows: Sequence[Offered],
    open_flows: Sequence[int],
    rates: dict[int, Fraction],
    left: dict[Edge, Fraction],
    weights: Sequence[int],
    number: Mapping[Edge, int],
) -> None:
    still = list(open_flows)
    while still:
        offers = [(_limit(flows[at]), -1, at) for at in still]
        for edge in dict.fromkeys(edge for at in still for edge in flows[at].route.edges):
            here = [at for at in still if edge in flows[at].route.edges]
            shares = {at: _share(flows, flows[at], edge, weights) for at in here}
            for at, share in shares.items():
                wire = left[edge] * share / sum(shares.values())
                offers.append((wire * flows[at].nbytes / edge.wire_bytes(flows[at].nbytes), number[edge], at))
        least = min(offers)[:2]
        for rate, of, at in offers:
            if (rate, of) == least:
                rates[at] = rate
                _use(flows[at], rate, left)
                still.remove(at)


def _share(flows: Sequence[Offered], flow: Offered, edge: Edge, weights: Sequence[int]) -> Fraction:
    alike = sum(other.channel == flow.channel and edge in other.route.edges for other in flows)
    return Fraction(weights[flow.channel] or 1, alike)


def _limit(flow: Offered) -> Fraction:
    edges = flow.route.edges
    return min(Fraction(edge.bandwidth_bps * flow.nbytes, edge.wire_bytes(flow.nbytes)) for edge in edges)


def _has_room(flow: Offered, left: Mapping[Edge, Fraction]) -> bool:
    return all(left[edge] > 0 for edge in flow.route.edges)


def _use(flow: Offered, rate: Fraction, left: dict[Edge, Fraction]) -> None:
    for edge in flow.route.edges:
        left[edge] -= rate * edge.wire_bytes(flow.nbytes) / flow.nbytes
