"""The ports of a SIP: one for each link that leaves it."""

from collections.abc import Callable
from itertools import chain

from sipsim.core.engine import Engine
from sipsim.fabric.graph.graph import Node, port_node
from sipsim.fabric.links.frames import Frame
from sipsim.fabric.links.kind.far_credits import LinkCredit
from sipsim.fabric.links.kind.port import Port, PortContext
from sipsim.fabric.links.network.delivery import BadPacket
from sipsim.fabric.links.outages.record_outages import OutageUse
from sipsim.fabric.sips import JoinedSips
from sipsim.fabric.transport.transport import Transport

Ps = int


class Ports:
    """``by_letter``; ``by_arrival``: by the channel that arrives there. ``egress_ps``: see ``RunPlan``."""

    def __init__(
        self,
        sip: int,
        system: JoinedSips,
        egress_ps: Ps,
        engine: Engine,
        fabric: Transport,
        emit: Callable[[int, Ps, bytes], None],
        on_frame: Callable[[Node, Frame], None],
    ) -> None:
        self._egress_ps = egress_ps
        self.by_letter: dict[str, Port] = {}
        self.by_arrival: dict[int, Port] = {}
        for number, link in enumerate(system.links):
            if link.src == sip:
                context = PortContext(
                    port_node(link.src_port),
                    number,
                    link.dst,
                    engine,
                    fabric,
                    emit,
                    on_frame,
                    system.chunk_bytes,
                    system.resolved.components.pe_dma.ack_bytes,
                    link.name,
                    system.outages[number],
                )
                self.by_letter[link.src_port] = system.link_kinds[number].open(context)
        for number, link in enumerate(system.links):
            if link.dst == sip:
                self.by_arrival[number] = self.by_letter[link.dst_port]

        self._ports = list(self.by_letter.values())

    def take_link_credit(self, channel: int, credit: LinkCredit) -> None:
        """A port's far end gives places in its buffer back.

        Raises:
            BadPacket: for more than it can have, or where links have no such buffers.
        """
        port = self.by_arrival.get(channel)
        if port is None or port.far_credits is None or not port.far_credits.take(credit):
            raise BadPacket(f"gives back {credit.places} places of channel {credit.vc}, which were not taken")

    def outages_used(self) -> tuple[OutageUse, ...]:
        """What each outage of the links that leave has cost."""
        return tuple(chain(*(port.outages_used() for port in self._ports)))

    @property
    def bytes_sent(self) -> int:
        """Data bytes that left over links, through traffic included."""
        return sum(port.bytes_sent for port in self.by_letter.values())

    def next_send_bound_ps(self, next_ps: Ps) -> Ps:
        """No packet is sent before this by local events, the first of them at ``next_ps`` (``Report.promise_ps``).

        Not all packets leave by a port, and what is not announced needs an event first, and then the SIP's egress.
        """
        return min([next_ps + self._egress_ps, *[port.earliest_send_ps(next_ps) for port in self._ports]])
