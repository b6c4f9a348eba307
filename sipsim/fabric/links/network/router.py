"""Where frames go from here: to a part of this SIP, or by the port of their next hop. Through traffic, too."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sipsim.fabric.graph.graph import Node, Route
from sipsim.fabric.links.frames import Frame
from sipsim.fabric.links.kind.port import Port
from sipsim.fabric.links.network.delivery import BadPacket, Delivery
from sipsim.fabric.sips import JoinedSips

Ps = int
Deliveries = Mapping[type, Delivery]


class Way(NamedTuple):
    """The route to where payloads of one type land on SIP ``dst_sip``, or with ``port`` to the far end of its link."""

    delivery: Delivery
    dst_sip: int
    port: Port | None
    route: Route

    def announce(self, nbytes: int, delay_ps: Ps) -> int:
        """The number for :meth:`depart` of a payload that will start on this way after ``delay_ps``."""
        return 0 if self.port is None else self.port.announce(self.route, nbytes, delay_ps)

    def depart(self, payload: Any, nbytes: int, number: int, delay_ps: Ps = 0, span_ps: Ps = 0) -> None:
        """Start a payload of ``nbytes`` on the wires that was announced; its tail is ``span_ps`` behind its head."""
        if self.port is None:
            self.delivery.start(self.route, payload, nbytes, delay_ps, span_ps)
        else:
            frame = Frame(self.dst_sip, nbytes, span_ps, payload)
            self.port.send(frame, self.route, self.delivery.vc, number, delay_ps)


class Router:
    """The ways of SIP ``sip``. ``ports``: by letter."""

    def __init__(self, sip: int, system: JoinedSips, ports: Mapping[str, Port], deliveries: Deliveries) -> None:
        self._sip = sip
        self._system = system
        self._ports = ports
        self._deliveries = deliveries
        self._onward: dict[tuple[Node, int], tuple[Port, Route]] = {}

    def way(self, src: Node, dst_sip: int, payload: Any, direction: str) -> Way:
        """From a node to where a payload lands on ``dst_sip``; by the link of a ``global_`` direction that leads there.

        Only its place counts, so messages of one queue pair share their way.
        """
        delivery = self._deliveries[type(payload)]
        if dst_sip == self._sip:
            return Way(delivery, dst_sip, None, self._system.graph.route(src, delivery.landing(payload)))
        letter = self._system.port_towards(self._sip, dst_sip, direction)
        return Way(delivery, dst_sip, self._ports[letter], self._system.leaving(self._sip, src, letter))

    def from_port(self, node: Node, frame: Frame) -> None:
        """A frame has arrived at a port: it goes to its place here, or on to the next SIP."""
        payload = frame.payload
        delivery = self._deliveries[type(payload)]
        if frame.dst_sip == self._sip:
            route = self._system.graph.route(node, delivery.landing(payload))
            delivery.start(route, payload, frame.nbytes, 0, frame.span_ps)
        else:
            port, route = self._next_hop(node, frame.dst_sip)
            port.send(frame, route, delivery.vc, port.announce_transit())

    def check(self, node: Node, frame: Frame, now_ps: Ps) -> None:
        """Check a frame that comes from another SIP, at a port's node.

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
            self._next_hop(node, frame.dst_sip)
        except (IndexError, StopIteration):
            raise BadPacket(f"is for SIP {frame.dst_sip}, to which no route leads from here") from None

    def _next_hop(self, node: Node, dst_sip: int) -> tuple[Port, Route]:
        """The port for through traffic from a port's node, and the route over its link."""
        known = self._onward.get((node, dst_sip))
        if known is None:
            letter = self._system.next_port(self._sip, dst_sip)
            known = self._ports[letter], self._system.leaving(self._sip, node, letter)
            self._onward[node, dst_sip] = known
        return known
