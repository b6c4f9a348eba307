"""The interface of a SIP's fabric, whichever it is (:mod:`sipsim.fabric.open`), and how much its edges were used."""

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
"""Called with the times at which the first byte and the first packet of a transfer are at the end of its route, and
before which its last byte is not."""


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
        edge = edge.shared
        before = found.get(edge)
        found[edge] = EdgeUse(*total if before is None else map(add, before, total))
    return found


class Train(Protocol):
    """What one source sends on one channel, in order."""

    def least_mail_ps(self, now: Ps) -> Ps:
        """Nothing is mailed of its transfers before this, as far as those count that have been started."""


class Transport(Protocol):
    """Carries bytes over the edges of one SIP; see :class:`sipsim.fabric.flows.FlowFabric`."""

    def train(self, source: Hashable, vc: int = COMPUTE, in_flight: int = 1, is_reply: bool = False) -> Any:
        """What ``source`` sends on a channel, ``in_flight`` transfers of it at a time.

        ``is_reply``: they answer transfers, as data that were read and acknowledgements do.
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
        """What a fed transfer passes on comes; see :meth:`sipsim.fabric.flows.FlowFabric.feed`."""

    @property
    def far_buffers(self) -> "BufferedFabric | None":
        """What bounds what is on links; None if nothing does."""

    def use(self) -> dict[Edge, EdgeUse]:
        """How much every edge was used so far."""
