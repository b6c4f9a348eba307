"""Where frames go from here: to a part of this SIP, or by the port of their next hop. Through traffic, too."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sipsim.io.deliveries import BadPacket, Delivery
from sipsim.links.frames import Frame
from sipsim.links.port import Port
from sipsim.noc.graph import Node, Route
from sipsim.system.joined import JoinedSips

Ps = int
Deliveries = Mapping[type, Delivery]


class Way(NamedTuple):
    """The route of a frame from here to where it lands, or with ``port`` to the far end of that port's link."""

    port: Port | None
    route: Route

    def announce(self, nbytes: int, delay_ps: Ps) -> int:
        """A frame will start on this way (``Port.announce``)."""
        return 0 if self.port is None else self.port.announce(self.route, nbytes, delay_ps)


class Router:
    """The ways of SIP ``sip``. ``ports``: by letter."""

    def __init__(self, sip: int, system: JoinedSips, ports: Mapping[str, Port], deliveries: Deliveries) -> None:
        self._sip = sip
        self._system = system
        self._ports = ports
        self._deliveries = deliveries

    def way(self, src: Node, dst_sip: int, payload: Any, direction: str) -> Way:
        """From a node to where a payload lands on ``dst_sip``; by the link of a ``global_`` direction that leads there.

        Only its place counts, so messages of one queue pair share their way.
        """
        if dst_sip == self._sip:
            return Way(None, self._system.graph.route(src, self._deliveries[type(payload)].landing(payload)))
        letter = self._system.port_towards(self._sip, dst_sip, direction)
        return Way(self._ports[letter], self._system.leaving(self._sip, src, letter))

    def depart(self, way: Way, frame: Frame, number: int, delay_ps: Ps = 0) -> None:
        """Start a frame; ``number`` is that of its announcement."""
        delivery = self._deliveries[type(frame.payload)]
        if way.port is None:
            delivery.start(way.route, frame, delay_ps)
        else:
            way.port.send(frame, way.route, delivery.vc, number, delay_ps)

    def from_port(self, node: Node, frame: Frame) -> None:
        """A frame has arrived at a port: it goes to its place here, or on to the next SIP."""
        delivery = self._deliveries[type(frame.payload)]
        if frame.dst_sip == self._sip:
            delivery.start(self._system.graph.route(node, delivery.landing(frame.payload)), frame)
            return
        letter = self._system.next_port(self._sip, frame.dst_sip)
        port = self._ports[letter]
        port.send(frame, self._system.leaving(self._sip, node, letter), delivery.vc, port.announce_transit())

    def check(self, frame: Frame, now_ps: Ps) -> None:
        """Check a frame that comes from another SIP.

        Raises:
            BadPacket: for a size or a train that it cannot have, or a place that does not exist.
        """
        delivery = self._deliveries.get(type(frame.payload))
        if delivery is None:
            raise BadPacket(f"carries a {type(frame.payload).__name__}, which this chip does not take")
        if not 0 < frame.nbytes == delivery.wire_bytes(frame.payload) or frame.span_ps > now_ps:
            raise BadPacket(f"claims {frame.nbytes} bytes and {frame.span_ps} ps from head to tail, which cannot be")
        if frame.dst_sip == self._sip:
            delivery.check(frame.payload)
            return
        try:
            self._system.next_port(self._sip, frame.dst_sip)
        except (IndexError, StopIteration):
            raise BadPacket(f"is for SIP {frame.dst_sip}, to which no route leads from here") from None
