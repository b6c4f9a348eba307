"""How much every edge of a SIP was used, summed up from how often each way was."""

from collections.abc import Iterable, Mapping
from operator import add
from typing import NamedTuple

from sipsim.core.units import drain_ps
from sipsim.fabric.graph.graph import Edge, Route

Ps = int


class EdgeUse(NamedTuple):
    """What the transfers that have started move over an edge: bytes with framing, and the time that these need."""

    transfers: int
    nbytes: int
    busy_ps: Ps


def edge_use(ways: Iterable[tuple[Route, int, int]], past: Mapping[Edge, EdgeUse]) -> dict[Edge, EdgeUse]:
    """The use of every edge: ``past``, and by way (route, bytes of a transfer, transfers that have started)."""
    # Edges are looked up by their ids: one takes ten times as long to hash.
    totals: dict[int, tuple[Edge, list[int]]] = {}
    for route, nbytes, count in ways:
        for edge in route.edges:
            known = totals.get(id(edge)) or totals.setdefault(id(edge), (edge, [0, 0, 0]))
            total, framing = known[1], edge.framing
            wire_bytes = nbytes if framing is None else framing.wire_bytes(nbytes)
            total[0] += count
            total[1] += count * wire_bytes
            total[2] += count * drain_ps(wire_bytes, edge.bandwidth_bps)
    found = dict(past)
    for edge, total in totals.values():
        before = found.get(edge)
        found[edge] = EdgeUse(*total if before is None else map(add, before, total))
    return found
