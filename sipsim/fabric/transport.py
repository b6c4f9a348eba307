"""Interface of a SIP's fabric, whichever it is (:mod:`sipsim.fabric.open`), and the use of its edges."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sipsim.core.units import drain_ps
from sipsim.fabric.channels import COMPUTE
from sipsim.fabric.graph import Done, Edge, Route

if TYPE_CHECKING:
    from sipsim.fabric.buffered.fabric import BufferedFabric

Ps = int
NEVER: Ps = 1 << 62
First = Callable[[Ps, Ps, Ps], None]
"""Callback with three times at the end of a transfer's route: the arrival of the first byte, that of the first packet,
and a time before which the last byte does not arrive."""


class EdgeUse(NamedTuple):
    """Use of an edge by the started transfers: their number, bytes with framing, and the time that these need."""

    transfers: int
    nbytes: int
    busy_ps: Ps


def edge_use(paths: Iterable[tuple[Route, int, int]], past: Mapping[Edge, EdgeUse]) -> dict[Edge, EdgeUse]:
    """Return the use of every edge: ``past``, and by path (route, bytes of a transfer, transfers started)."""
    # Edges are looked up by their ids: the hash of an edge takes ten times as long.
    totals: dict[int, tuple[Edge, list[int]]] = {}
    for route, nbytes, count in paths:
        for edge in route.edges:
            known = totals.get(id(edge)) or totals.setdefault(id(edge), (edge, [0, 0, 0]))
            total, framing = known[1], edge.framing
            wire_bytes = nbytes if framing is None else framing.wire_bytes(nbytes)
            total[0] += count
            total[1] += count * wire_bytes
            total[2] += count * drain_ps(wire_bytes, edge.bandwidth_bps)
    found = dict(past)
    for edge, total in totals.values():
        edge = edge.shared
        before = found.get(edge)
        found[edge] = EdgeUse(*total if before is None else map(add, before, total))
    return found


class Train(Protocol):
    """Transfers of one source on one channel, in order."""

    def least_mail_ps(self, now: Ps) -> Ps:
        """Return a time before which none of the started transfers is mailed."""


class Transport(Protocol):
    """Fabric that carries bytes over the edges of one SIP; see :class:`sipsim.fabric.flows.FlowFabric`."""

    def train(self, source: Hashable, vc: int = COMPUTE, in_flight: int = 1, is_reply: bool = False) -> Any:
        """Return the train of ``source`` on a channel, with at most ``in_flight`` transfers under way.

        ``is_reply``: the transfers are answers, such as data that were read or acknowledgements.
        """

    def start(
        self,
        train: Any,
        route: Route,
        nbytes: int,
        done: Done | None,
        left: Done | None = None,
        delay_ps: Ps = 0,
        span_ps: Ps = 0,
        feeds: Any = None,
        is_fed: bool = False,
        first: First | None = None,
    ) -> Any:
        """Send ``nbytes`` over ``route``; see :meth:`sipsim.fabric.flows.FlowFabric.start`."""

    def feed(self, fed: Any, head_ps: Ps, least_tail_ps: Ps, tail_ps: Ps = NEVER) -> None:
        """Set the times of a fed transfer's bytes; see :meth:`sipsim.fabric.flows.FlowFabric.feed`."""

    @property
    def far_buffers(self) -> "BufferedFabric | None":
        """The fabric whose far buffers bound the traffic on links; None without such buffers."""

    def use(self) -> dict[Edge, EdgeUse]:
        """Return the use of every edge so far."""
