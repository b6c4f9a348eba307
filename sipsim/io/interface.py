"""A SIP's side of its links, whatever the chip: ports, the router of their frames, the endpoint of all packets."""

from collections.abc import Mapping

from sipsim.io.endpoint import Endpoint, TakeControl
from sipsim.io.ports import Ports
from sipsim.io.router import Deliveries, Router
from sipsim.links.frames import Frame
from sipsim.noc.graph import Node
from sipsim.noc.transport import Transport
from sipsim.plan.base import RunPlan
from sipsim.sync.session import Session


class Interface:
    """``ports``, ``router``, and ``receive`` of the SIP that ``session`` simulates.

    ``deliveries``: by type of payload; ``controls``: by type of control record. Both may be added to later.
    """

    def __init__(
        self,
        plan: RunPlan,
        session: Session,
        fabric: Transport,
        deliveries: Deliveries,
        controls: Mapping[type, TakeControl],
    ) -> None:
        sip, engine, system, channels = session.rank, session.engine, plan.system, plan.channels
        self.ports = Ports(sip, system, plan.egress_ps[sip], engine, fabric, session.emit, self._on_frame)
        self.router = Router(sip, system, self.ports.by_letter, deliveries)
        self.receive = Endpoint(sip, engine, channels, self.ports.by_arrival, self.router, controls).receive

    def _on_frame(self, node: Node, frame: Frame) -> None:
        self.router.from_port(node, frame)
