"""The near end of a link between SIPs: frames leave by it, and those of the far end arrive at it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.ids import Channel
from sipsim.engine import Engine
from sipsim.links.frames import Frame, encode
from sipsim.noc.fabric import Fabric
from sipsim.noc.graph import Node, Route

if TYPE_CHECKING:
    from sipsim.links.base import LinkKind

Ps = int


class PortContext(NamedTuple):
    """Where a port is, and the parts of its SIP that it uses.

    ``channel`` is number ``number`` of the run's channels. ``emit(channel, arrival_ps, body)`` sends a packet;
    ``on_frame(node, frame)`` takes a frame that has arrived at the port's node. ``transit_ps``: the least path from
    another port. ``egress_ps``: the least time from an event of this SIP to a sending that it causes.
    """

    node: Node
    number: int
    channel: Channel
    engine: Engine
    fabric: Fabric
    emit: Callable[[int, Ps, bytes], None]
    on_frame: Callable[[Node, Frame], None]
    chunk_bytes: int
    transit_ps: Ps
    egress_ps: Ps


class Port:
    """A port whose link is the last edge of the transfer that brings a frame to it.

    A frame is sent when its last chunk starts on the link; it arrives with its last byte. ``lookahead_ps``: least time
    from a sending to the arrival; ``reaction_ps``: least time from an arrival at another port of the SIP to the sending
    that it causes here. A link kind with other rules returns a port of its own from ``LinkKind.open``.
    """

    def __init__(self, link: "LinkKind", context: PortContext) -> None:
        self.link = link
        self.node = context.node
        self.lookahead_ps: Ps = context.channel.delay_ps
        self.reaction_ps: Ps = link.reaction_ps(context.transit_ps, context.chunk_bytes)
        self.bytes_sent = 0
        self._context = context
        self._least_chunk_ps = link.least_chunk_ps(context.chunk_bytes)
        self._least_ways: dict[tuple[Node, int], Ps] = {}
        self._announced: dict[int, Ps] = {}
        self._count = 0

    def earliest_send_ps(self, next_ps: Ps) -> Ps:
        """Nothing is sent here before this by what was announced, or by local events from ``next_ps`` on.

        What is announced is not sent before its head could reach the link if nothing else were there, nor, with a
        longer frame, before all but a least chunk of it could be through. That holds whatever the fabric plans again
        later. Anything else needs an event first, and then the way from a part to the port.
        """
        later_ps = next_ps + self._context.egress_ps
        return min(later_ps, min(self._announced.values(), default=later_ps))

    def announce(self, way: Route, nbytes: int, delay_ps: Ps) -> int:
        """The number for :meth:`send` of a frame that will start on ``way``, to the link's end, after ``delay_ps``."""
        key = way.start, nbytes
        least_ps = self._least_ways.get(key)
        if least_ps is None:
            head_ps = way.head_ps() - self.link.latency_ps
            least_ps = self._least_ways[key] = head_ps + self.link.drain_ps(nbytes) - self._least_chunk_ps
        return self._note(self._context.engine.now_ps + delay_ps + least_ps)

    def announce_transit(self) -> int:
        """The number for :meth:`send` of a frame that has arrived at another port."""
        return self._note(self._context.engine.now_ps)

    def send(self, frame: Frame, way: Route, vc: int, number: int, delay_ps: Ps = 0) -> None:
        """Send a frame that was announced over ``way``, in virtual channel ``vc``."""
        context, link, nbytes = self._context, self.link, frame.nbytes
        self.bytes_sent += frame.payload.data_bytes

        def leave(head_ps: Ps, tail_ps: Ps) -> None:
            del self._announced[number]
            context.emit(context.number, tail_ps, encode(Frame(frame[0], nbytes, tail_ps - head_ps, frame[3])))

        lead_ps = link.latency_ps + link.last_chunk_ps(nbytes, context.chunk_bytes)
        context.fabric.start(way, nbytes, leave, vc, lead_ps, delay_ps, frame.span_ps)

    def receive(self, frame: Frame) -> None:
        """The last byte of a frame of the far end arrives now."""
        self._context.on_frame(self.node, frame)

    def _note(self, earliest_ps: Ps) -> int:
        self._count += 1
        self._announced[self._count] = earliest_ps
        return self._count
