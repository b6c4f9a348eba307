"""What the parts of a SIP ask of its fabric, whichever it is (:mod:`sipsim.fabric.open`)."""

from typing import Protocol

from sipsim.fabric.buffered.ports.far import FarBuffers
from sipsim.fabric.graph.graph import Edge, Route
from sipsim.fabric.noc.arbitration import COMPUTE
from sipsim.fabric.noc.transfer.transfer import Done
from sipsim.fabric.transport.edge_use import EdgeUse

Ps = int


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
