"""Network interface of a SIP, for every chip: ports, paths of frames, and the arrival of packets."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from broker.ids import MAX_PS, Channel
from broker.wire import BadFrame
from sipsim.core.errors import InvariantViolation
from sipsim.core.session import Session
from sipsim.fabric.graph import Done, Node, Route, port_node
from sipsim.fabric.links.frames import Frame, Tail, decode
from sipsim.fabric.links.kind import LinkCredit, Port, PortContext
from sipsim.fabric.links.outages import OutageUse
from sipsim.fabric.sips import RoutedSips
from sipsim.fabric.transport import Transport

Ps = int


class BadPacket(Exception):
    """Packet that no SIP of the system can have sent. The message continues "a packet ... that arrived at SIP 1 "."""


class Delivery(ABC):
    """Delivery of one type of frame on its destination SIP: the node where transfers end, virtual channel and taker.

    A chip has one delivery for each type of frame that it takes, so the network interface names no type. ``engine``:
    the part of a node that sends the frames; its frames over one port, or within its SIP, are one train. ``is_reply``:
    within a SIP the frames use the network of replies.
    """

    vc: int
    engine: str = "dma"
    is_reply: bool = False

    @abstractmethod
    def wire_bytes(self, frame: Any) -> int:
        """Return the bytes that a frame takes on the wires within a SIP."""

    @abstractmethod
    def landing(self, frame: Any) -> Node:
        """Return the node where the frame's transfer ends."""

    def ending(self, route: Route, frame: Any) -> Route:
        """Return ``route`` to :meth:`landing` with the edges that the frame's transfer uses of a memory there."""
        return route

    @abstractmethod
    def check(self, frame: Any) -> None:
        """Check that this SIP has the frame's destination.

        Raises:
            BadPacket: if the destination does not exist.
        """

    def source(self, frame: Any) -> Hashable:
        """Return a key for the sender of a frame. Frames with one key that arrive by one link continue in order."""
        return type(frame).__name__

    @abstractmethod
    def taker(self, frame: Any) -> Done:
        """Return the callback that hands a frame over when its tail is at :meth:`landing`."""


Deliveries = Mapping[type, Delivery]
TakeControl = Callable[[int, Any], None]
"""Callback with the channel of a control record, and the record. Raises ``BadPacket`` for an impossible record."""


class FramePath(NamedTuple):
    """Path of frames of one type: the route to the destination or, with ``port``, to the far end of the port's link."""

    fabric: Transport
    delivery: Delivery
    dst_sip: int
    port: Port | None
    route: Route
    train: Any

    def depart(
        self,
        frame: Frame,
        nbytes: int,
        delay_ps: Ps = 0,
        span_ps: Ps = 0,
        left: Done | None = None,
        is_fed: bool = False,
        route: Route | None = None,
    ) -> Any:
        """Start the transfer of a frame of ``nbytes``. The caller must not use the frame again: the port or taker does.

        ``route``: the path's route with the edges of a memory at the source, if the frame uses such edges. Other
        arguments and the returned value: see ``FlowFabric.start``.
        """
        route = route or self.route
        if self.port is None:
            route, done = self.delivery.ending(route, frame), self.delivery.taker(frame)
            return self.fabric.start(self.train, route, nbytes, done, left, delay_ps, span_ps, None, is_fed)
        frame.dst_sip, frame.nbytes, frame.span_ps = self.dst_sip, nbytes, span_ps
        return self.port.send(frame, route, self.train, delay_ps, left, is_fed)


class NetworkInterface:
    """Network interface of the SIP that ``session`` simulates: ports, paths of frames, and the arrival of packets.

    Each link that leaves the SIP has a port. ``by_letter`` has the ports by letter, ``by_arrival`` by the channel that
    arrives there. ``egress_ps``: the least time from an event on this SIP to a packet that the event causes
    (``RunPlan``). ``deliveries`` by type of frame and ``controls`` by type of control record may be extended later.
    """

    def __init__(
        self,
        system: RoutedSips,
        channels: list[Channel],
        egress_ps: Ps,
        session: Session,
        fabric: Transport,
        deliveries: Deliveries,
        controls: Mapping[type, TakeControl],
    ) -> None:
        self._sip = session.rank
        self._system = system
        self._channels = channels
        self._egress_ps = egress_ps
        self._engine = session.engine
        self._fabric = fabric
        self._deliveries = deliveries
        self._controls = controls
        self._onward: dict[tuple[Node, int], tuple[Port, Route]] = {}
        self.by_letter: dict[str, Port] = {}
        for number, link in enumerate(system.links):
            if link.src == self._sip:
                context = PortContext(
                    port_node(link.src_port),
                    number,
                    link.dst,
                    self._engine,
                    fabric,
                    session.emit,
                    self._from_port,
                    system.chunk_bytes,
                    system.resolved.components.pe_dma.ack_bytes,
                    link.name,
                    system.outages[number],
                )
                self.by_letter[link.src_port] = system.link_kinds[number].open(context)
        self.by_arrival = {
            number: self.by_letter[link.dst_port] for number, link in enumerate(system.links) if link.dst == self._sip
        }
        self._ports = list(self.by_letter.values())

    def frame_path(self, src: Node, dst_sip: int, frame: Frame, direction: str) -> FramePath:
        """Return the path from a node to a frame's destination on ``dst_sip``, over the link of a ``global_`` direction
        if that leads there. It depends only on the frame's type and destination, so a queue pair's messages share it.
        """
        delivery, fabric = self._deliveries[type(frame)], self._fabric
        if dst_sip == self._sip:
            route = self._system.graph.route(src, delivery.landing(frame))
            train = fabric.train((src, delivery.engine), delivery.vc, is_reply=delivery.is_reply)
            return FramePath(fabric, delivery, dst_sip, None, route, train)
        letter = self._system.port_towards(self._sip, dst_sip, direction)
        route = self._system.leaving(self._sip, src, letter)
        train = fabric.train((src, delivery.engine, letter), delivery.vc)
        return FramePath(fabric, delivery, dst_sip, self.by_letter[letter], route, train)

    def _from_port(self, node: Node, frame: Frame) -> Any:
        """Start and return the transfer of a frame from a port to its destination on this SIP, or to the next SIP."""
        delivery, is_fed = self._deliveries[type(frame)], frame.frame_number > 0
        if frame.dst_sip == self._sip:
            route = delivery.ending(self._system.graph.route(node, delivery.landing(frame)), frame)
            train, done = self._fabric.train((delivery.source(frame), node), delivery.vc), delivery.taker(frame)
            return self._fabric.start(train, route, frame.nbytes, done, None, 0, frame.span_ps, None, is_fed)
        port, route = self._next_hop(node, frame.dst_sip)
        train = self._fabric.train((delivery.source(frame), node, port.node), delivery.vc)
        return port.send(frame, route, train, is_fed=is_fed)

    def _check(self, node: Node, frame: Frame, now_ps: Ps) -> None:
        """Check a frame from another SIP that arrives at a port's ``node``.

        Raises:
            BadPacket: for an impossible size or time, or a destination that does not exist.
        """
        delivery = self._deliveries.get(type(frame))
        if delivery is None:
            raise BadPacket(f"is a {type(frame).__name__}, which this chip does not take")
        if not 0 < frame.nbytes == delivery.wire_bytes(frame) or frame.span_ps > now_ps:
            raise BadPacket(f"claims {frame.nbytes} bytes and a span of {frame.span_ps} ps, which is impossible")
        if frame.frame_rest_ps > (MAX_PS - now_ps if frame.frame_number else 0):
            raise BadPacket(f"claims that its tail arrives {frame.frame_rest_ps} ps later, which is impossible")
        if frame.dst_sip == self._sip:
            delivery.check(frame)
            return
        try:
            self._next_hop(node, frame.dst_sip)
        except (IndexError, StopIteration):
            raise BadPacket(f"is for SIP {frame.dst_sip}, to which no route leads from here") from None

    def _next_hop(self, node: Node, dst_sip: int) -> tuple[Port, Route]:
        """Return the next port for through traffic from a port's ``node``, and the route over that port's link."""
        hop = self._onward.get((node, dst_sip))
        if hop is None:
            letter = self._system.next_port(self._sip, dst_sip)
            hop = self._onward[node, dst_sip] = self.by_letter[letter], self._system.leaving(self._sip, node, letter)
        return hop

    def receive(self, channel: int, body: bytes) -> None:
        """Take a packet that arrives from another SIP now.

        Raises:
            InvariantViolation: for a packet that no SIP of this system can have sent.
        """
        try:
            packet = decode(body)
            if isinstance(packet, Frame):
                port = self.by_arrival.get(channel)
                if port is None:
                    raise BadPacket(f"is a {type(packet).__name__}, but no link to SIP {self._sip} has that channel")
                if type(packet) not in port.port_frames:
                    self._check(port.node, packet, self._engine.now_ps)
                elif packet.frame_number:
                    raise BadPacket(f"is a {type(packet).__name__} in parts, but ports send each other whole frames")
                if port.is_arriving(packet.frame_number):
                    raise BadPacket(f"begins frame {packet.frame_number}, which has begun and not ended")
            elif type(packet) is Tail:
                port = self.by_arrival.get(channel)
                if port is None or not port.may_end(packet.number):
                    what = "which has not begun, or has ended; a port must pass each arriving frame to Port.receive or "
                    raise BadPacket(f"ends frame {packet.number}, {what}Port.pass_on")
            else:
                take = self._controls.get(type(packet))
                if take is None:
                    raise BadPacket(f"is a {type(packet).__name__}, which this chip does not take")
                take(channel, packet)
                return
        except BadFrame as error:
            raise self._refused(channel, f"is {error}") from None
        except BadPacket as error:
            raise self._refused(channel, str(error)) from None
        if type(packet) is Tail:
            port.receive_tail(packet)
        else:
            port.receive(packet)

    def _refused(self, channel: int, what: str) -> InvariantViolation:
        name, sender = f"{channel} (unknown)", None
        if channel < len(self._channels):
            name, sender = self._channels[channel].name, self._channels[channel].src
        return InvariantViolation(f"a packet on channel {name} that arrived at SIP {self._sip} {what}", rank=sender)

    def take_link_credit(self, channel: int, credit: LinkCredit) -> None:
        """Take a credit from a port's far end, which frees places in the far buffer.

        Raises:
            BadPacket: if fewer places are in use, or the link has no finite buffers.
        """
        port = self.by_arrival.get(channel)
        if port is None or port.far_credits is None or not port.far_credits.take(credit):
            raise BadPacket(f"frees {credit.places} places of virtual channel {credit.vc}, more than are in use")

    def outages_used(self) -> tuple[OutageUse, ...]:
        """Return the cost so far of each outage of the links that leave the SIP, in that direction."""
        return tuple(chain(*(port.outages_used() for port in self._ports)))

    def next_send_bound_ps(self, next_ps: Ps) -> Ps:
        """Return a lower bound of the time at which local events, the first at ``next_ps``, send a packet
        (``Report.promise_ps``).

        Not all packets leave by a port. A packet that no port has announced leaves the SIP's egress after an event.
        """
        return min([next_ps + self._egress_ps, *[port.earliest_send_ps(next_ps) for port in self._ports]])
