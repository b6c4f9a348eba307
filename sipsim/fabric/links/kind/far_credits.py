"""A port's side of the finite buffers at the ends of its link (:mod:`sipsim.fabric.buffered.ports.far`).

A credit is a message of ``nbytes`` that competes for the link with the frames of its virtual channel, and takes no
place itself. It leaves as soon as a frame has left the buffer, so a port that gives credits may answer an arrival at
once (``JoinedSips.answers_ps``), as may a frame that waits for them.
"""

from collections.abc import Callable
from typing import NamedTuple

from sipsim.fabric.buffered.ports.far import FarBuffers
from sipsim.fabric.graph.graph import Edge
from sipsim.fabric.links.frames import Body, Small, codec


class LinkCredit(NamedTuple):
    """So many places of a virtual channel are free in the buffer at the end of the link that leads to its sender."""

    vc: int
    places: int


@codec(LinkCredit)
class _LinkCreditBody(Body, tag=9):
    vc: Small
    places: Small

    def payload(self) -> LinkCredit:
        return LinkCredit(self.vc, self.places)


class FarCredits:
    """``announce()`` numbers what may be sent from now on; ``send(credit, number)`` sends it."""

    def __init__(
        self, link: Edge, buffers: FarBuffers, announce: Callable[[], int], send: Callable[[LinkCredit, int], None]
    ) -> None:
        self._link = link
        self._buffers = buffers
        self.came = announce
        self._send = send
        buffers.join(link, self)

    def left(self, number: int, vc: int, places: int) -> None:
        """A frame has left the buffer of this port."""
        self._send(LinkCredit(vc, places), number)

    def take(self, credit: LinkCredit) -> bool:
        """A credit of the far end arrives; False for one that it cannot have sent."""
        return self._buffers.credit(self._link, *credit)
