"""The network interface of a SIP: its ports, and the parts that send to and receive from other SIPs.

A message over a link is carried in pieces: over this SIP's edges and the link in one transfer, as a packet to the next
SIP, and from the port there onwards. The packet says how long its train is, so that the next SIP can continue exactly
where a single fabric would (DESIGN section 5).
"""

from sipsim.chips.ahbm.barrier import Barrier, BarrierPacket
from sipsim.chips.ahbm.ipcq.messages.flits import WireFormat
from sipsim.chips.ahbm.ipcq.messages.payloads import CreditPacket, PeCredit, PeMessage
from sipsim.chips.ahbm.ipcq.transport.credits import CreditSender
from sipsim.chips.ahbm.ipcq.transport.fetch import Fetch
from sipsim.chips.ahbm.ipcq.transport.ipcq_deliveries import CreditDelivery, Ipcqs, MessageDelivery
from sipsim.chips.ahbm.ipcq.transport.messages import MessageSender
from sipsim.chips.ahbm.memory.ports.port import MemoryPorts
from sipsim.chips.ahbm.plan import Plan
from sipsim.core.session.session import Session
from sipsim.fabric.links.kind.far_credits import LinkCredit
from sipsim.fabric.links.network.endpoint import TakeControl
from sipsim.fabric.links.network.interface import Interface
from sipsim.fabric.links.network.router import Deliveries
from sipsim.fabric.noc.arbitration import COMM, CREDIT
from sipsim.fabric.transport.transport import Transport

Ps = int


class NetworkInterface:
    """The parts of SIP ``sip`` that its PEs and its session use: ``messages``, ``credits``, ``ports``."""

    def __init__(
        self,
        sip: int,
        plan: Plan,
        session: Session,
        barrier: Barrier,
        fabric: Transport,
        memory_ports: MemoryPorts,
        wire_format: WireFormat,
        ipcqs: Ipcqs,
    ) -> None:
        system, engine, knobs = plan.system, session.engine, plan.ipcq
        graph, overhead_ps, credit_bytes = system.graph, plan.ipcq_overhead_ps, knobs.ipcq_credit_size_bytes
        credit_vc = CREDIT if knobs.credit_virtual_channel else COMM
        deliveries: Deliveries = {
            PeMessage: MessageDelivery(fabric, graph, ipcqs, wire_format, knobs.buffer_kind, memory_ports),
            PeCredit: CreditDelivery(fabric, graph, ipcqs, credit_bytes, credit_vc),
        }
        controls: dict[type, TakeControl] = {}
        interface = Interface(system, plan.channels, plan.egress_ps[sip], session, fabric, deliveries, controls)
        self.ports, self.receive, router = interface.ports, interface.receive, interface.router
        command_bytes = plan.resolved.components.pe_dma.command_bytes
        fetch = Fetch(engine, fabric, graph, memory_ports, wire_format, command_bytes, system.chunk_bytes)
        self.messages = MessageSender(engine, router, graph, fetch, memory_ports, wire_format, overhead_ps)
        to_sips = {dst: channel for (src, dst), channel in plan.credit_channel.items() if src == sip}
        self.credits = CreditSender(
            sip,
            engine,
            fabric,
            router,
            ipcqs,
            session.emit,
            session.emit_far,
            to_sips,
            credit_bytes,
            system.chunk_bytes,
            credit_vc,
            overhead_ps,
        )
        controls |= {LinkCredit: self.ports.take_link_credit}
        controls |= {CreditPacket: self.credits.receive, BarrierPacket: barrier.receive}
