"""The buffers at the far ends of a SIP's links, as the fabric and the ports see them.

A frame crosses a link as one message that leaves when its last packet is decided, so the far SIP learns of all of its
packets at once. Its places in the far buffer are therefore taken together, when its first packet takes the link: as
many as it has packets, or the whole buffer if it has more. They are given back together, by a message over the link's
other direction, when the last packet has left the buffer.

Packets of a frame that takes such places stay together: in no buffer is there another's between them, as a link's own
arbiter and those of wormhole routers hold a virtual channel. Otherwise a frame whose first packet has its places could
wait for its own last packets behind another that waits for those places. Nothing but frames to links is in their
buffers (network ``LEAVING``), so one that has its places always gets through.

What only passes through a SIP is taken out of the buffer at once, into the port's store for through traffic, which has
no limit: so what has arrived over a link waits for nothing that leaves by one, and a ring of SIPs cannot block itself.
"""

from typing import Protocol

from sipsim.fabric.graph.graph import Edge


class FarPort(Protocol):
    """A port, which gives places of its buffer back to the port at the far end of its link."""

    def came(self) -> int:
        """A frame is in the buffer from now on; a number for :meth:`left`."""

    def left(self, number: int, vc: int, places: int) -> None:
        """It has left its places of a virtual channel."""


class FarBuffers(Protocol):
    """A fabric whose links end at buffers of finite depth."""

    def join(self, link: Edge, port: FarPort) -> None:
        """A port of this SIP, at the start of its link. Call it before the first transfer."""

    def credit(self, link: Edge, vc: int, places: int) -> bool:
        """Places of the buffer at a link's end are free; False if so many were not in use."""
