"""The interface of a SIP's fabric, whichever it is (:mod:`sipsim.fabric.open`), and how much its edges were used."""

from collections.abc import Iterable, Mapping
from operator import add
from typing import NamedTuple, Protocol

from sipsim.core.units import drain_ps
from sipsim.fabric.buffered.ports import FarBuffers
from sipsim.fabric.graph import Edge, Route
from sipsim.fabric.noc.arbitration import COMPUTE
from sipsim.fabric.noc.transfer import Done

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


class Transport(Protocol):
    """Carries bytes over the edges of one SIP; see :class:`sipsim.fabric.noc.fabric.Fabric`."""

    def start(
        self,
        route: Route,
        nbytes: int,
        done: Done,
        vc: int = COMPUTE,
        lead_ps: Ps = 0,
        delay_ps: Ps = 0,
        span_ps: Ps = 0,
        is_reply: bool = False,
    ) -> object:
        """Send ``nbytes`` over ``route``, now; call ``done(head_ps, tail_ps)`` when they are through.

        ``is_reply``: they answer a transfer, as data that were read and acknowledgements do.
        """

    @property
    def far_buffers(self) -> FarBuffers | None:
        """What bounds what is on links; None if nothing does."""

    def use(self) -> dict[Edge, EdgeUse]:
        """How much every edge was used so far."""
