"""A SIP's side of its links, whatever the chip: ports, the router of their frames, the endpoint of all packets."""

from collections.abc import Mapping

from broker.ids import Channel
from sipsim.core.session.session import Session
from sipsim.fabric.graph.graph import Node
from sipsim.fabric.links.frames import Frame
from sipsim.fabric.links.network.endpoint import Endpoint, TakeControl
from sipsim.fabric.links.network.ports import Ports
from sipsim.fabric.links.network.router import Deliveries, Router
from sipsim.fabric.sips import JoinedSips
from sipsim.fabric.transport.transport import Transport


class Interface:
    """``ports``, ``router``, and ``receive`` of the SIP that ``session`` simulates.

    ``egress_ps``: the least time from an event on this SIP to a packet that it causes. ``deliveries``: by type of
    payload; ``controls``: by type of control record. Both may be added to later.
    """

    def __init__(
        self,
        system: JoinedSips,
        channels: list[Channel],
        egress_ps: int,
        session: Session,
        fabric: Transport,
        deliveries: Deliveries,
        controls: Mapping[type, TakeControl],
    ) -> None:
        sip, engine = session.rank, session.engine
        self.ports = Ports(sip, system, egress_ps, engine, fabric, session.emit, self._on_frame)
        self.router = Router(sip, system, self.ports.by_letter, deliveries)
        self.receive = Endpoint(sip, engine, channels, self.ports.by_arrival, self.router, controls).receive

    def _on_frame(self, node: Node, frame: Frame) -> None:
        self.router.from_port(node, frame)
