"""Interface of both fabrics of a SIP (:mod:`sipsim.fabric.open`), and the use of edges."""

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
"""Callback for a transfer's first packet, with three times, in ps, at the end of the route: the arrival of the first
byte, the arrival of the first packet, and a lower bound of the last byte's arrival."""


class EdgeUse(NamedTuple):
    """Use of an edge by the started transfers: their number, bytes with framing, and the time that the bytes need."""

    transfers: int
    nbytes: int
    busy_ps: Ps


def edge_use(paths: Iterable[tuple[Route, int, int]], past: Mapping[Edge, EdgeUse]) -> dict[Edge, EdgeUse]:
    """Return the use of every edge: ``past`` plus the use by ``paths`` (route, bytes per transfer, transfers)."""
    # Edges are looked up by their ids: the hash of an edge takes ten times as long.
    totals: dict[int, tuple[Edge, list[int]]] = {}
    for route, nbytes, count in paths:
        for edge in route.edges:
            _, total = totals.get(id(edge)) or totals.setdefault(id(edge), (edge, [0, 0, 0]))
            framing = edge.framing
            wire_bytes = nbytes if framing is None else framing.wire_bytes(nbytes)
            total[0] += count
            total[1] += count * wire_bytes
            total[2] += count * drain_ps(wire_bytes, edge.bandwidth_bps)
    uses = dict(past)
    for edge, total in totals.values():
        edge = edge.shared
        before = uses.get(edge)
        uses[edge] = EdgeUse(*total if before is None else map(add, before, total))
    return uses


class Train(Protocol):
    """Transfers of one source on one channel, in order."""

    def least_mail_ps(self, now: Ps) -> Ps:
        """Return a time, in ps, before which no transfer that has started is mailed."""


class Transport(Protocol):
    """Fabric that times transfers over the edges of one SIP; see :class:`sipsim.fabric.flows.FlowFabric`."""

    def train(self, source: Hashable, vc: int = COMPUTE, in_flight: int = 1, is_reply: bool = False) -> Any:
        """Return the train of ``source`` on a channel, with at most ``in_flight`` transfers under way.

        ``is_reply``: the transfers are replies, such as read data or acknowledgements.
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
        """This fabric, if buffers at the far ends of links have a limit; else None."""

    def use(self) -> dict[Edge, EdgeUse]:
        """Return the use of every edge so far."""
