"""Brings IPCQ messages and credits to their peer, on this SIP or behind a link. The only part that knows which.

A message over a link is carried in pieces: over this SIP's edges and the link in one transfer, as a packet to the
next SIP, and from the port there onwards. The packet says how long its train is, so that the next SIP can
continue exactly where a single fabric would (DESIGN section 5).
"""

from sipsim.engine import Engine
from sipsim.io.packets import CreditPacket, DataPacket, decode, encode
from sipsim.noc.fabric import Fabric
from sipsim.noc.graph import Node, Route
from sipsim.pe.dma import MemoryTiming
from sipsim.pe.ipcq import IpcqCreditMetadata, IpcqDmaToken, PeIpcq, QueuePair
from sipsim.plan import Plan
from sipsim.session import Session


class Carrier:
    """The IPCQ side of one SIP's IO: ``carry_token`` and ``carry_credit`` go out, :meth:`receive` comes in."""

    def __init__(self, sip: int, plan: Plan, session: Session, fabric: Fabric, timing: MemoryTiming) -> None:
        self._sip = sip
        self._plan = plan
        self._system = plan.system
        self._session = session
        self._engine: Engine = session.engine
        self._fabric = fabric
        self._write_ps = timing.write_ps
        self._data_channels = len(plan.system.links)
        self.ipcqs: dict[tuple[int, int], PeIpcq] = {}
        self._leaving_ps: dict[int, int] = {}
        self._least_ways: dict[tuple[Node, str, int], int] = {}
        self._started = 0
        self.bytes_sent = 0

    def carry_token(self, queue: QueuePair, token: IpcqDmaToken) -> None:
        """Write a message into the peer's slot; it leaves now and nobody waits for it here."""
        src, peer = Node("pe", token.src_cube, token.src_pe), queue.peer
        delay = self._plan.ipcq_overhead_ps
        if peer.sip == self._sip:
            route = self._system.graph.route(src, self._landing(peer.cube, peer.pe))
            self._deliver(route, token, peer.cube, peer.pe, delay_ps=delay)
            return
        port = self._system.port_towards(self._sip, peer.sip, queue.direction)
        self._send_on(src, port, DataPacket(peer.sip, peer.cube, peer.pe, 0, token), delay_ps=delay)

    def carry_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, arrival_ps: int) -> None:
        """Bring a credit to the peer at ``arrival_ps``, on its own wire."""
        peer = queue.peer
        if peer.sip == self._sip:
            ipcq = self.ipcqs[peer.cube, peer.pe]
            self._engine.at(arrival_ps, lambda: ipcq.credit(credit))
            return
        channel = self._plan.credit_channel[self._sip, peer.sip]
        self._session.emit(channel, arrival_ps, encode(CreditPacket(peer.cube, peer.pe, credit)))

    def receive(self, channel: int, body: bytes) -> None:
        """A packet's last byte is here: it goes to its PE, or on to the next SIP."""
        packet = decode(body)
        if isinstance(packet, CreditPacket):
            self.ipcqs[packet.dst_cube, packet.dst_pe].credit(packet.credit)
            return
        link = self._system.links[channel]
        port = Node("io", -1, link.dst_port)
        if packet.dst_sip != self._sip:
            self._send_on(port, self._system.next_port(self._sip, packet.dst_sip), packet, span_ps=packet.span_ps)
            return
        route = self._system.graph.route(port, self._landing(packet.dst_cube, packet.dst_pe))
        self._deliver(route, packet.token, packet.dst_cube, packet.dst_pe, span_ps=packet.span_ps)

    def sends_ps(self, next_ps: int) -> int:
        """Nothing is sent before this by what is on its way to a port, or by events from ``next_ps`` on.

        What is on its way is not sent before its head could reach the link if nothing else were there, nor, with a
        longer message, before all but a least chunk of it could be through. That holds whatever the fabric plans
        again later. Anything else that will be sent needs an event first, and then the way from a PE to a port.
        """
        later_ps = next_ps + self._plan.egress_ps[self._sip]
        return min(later_ps, min(self._leaving_ps.values(), default=later_ps))

    def _to_the_link_ps(self, src: Node, port: str, nbytes: int) -> int:
        """From a PE to when all but a least chunk of a message is on the link, if nothing else is there."""
        known = self._least_ways.get((src, port, nbytes))
        if known is None:
            link, chunk = self._system.link, self._system.chunk_bytes
            head_ps = self._system.leaving(src, port).head_ps() - link.latency_ps
            known = head_ps + link.drain_ps(nbytes) - link.least_chunk_ps(chunk)
            self._least_ways[src, port, nbytes] = known
        return known

    def _landing(self, cube: int, pe: int) -> Node:
        """Where a message to a PE's ring ends: at the memory that the rings are in; a TCM is the PE's own."""
        return self._system.graph.memory_node(cube, pe, self._plan.ipcq.buffer_kind)

    def _deliver(
        self, route: Route, token: IpcqDmaToken, cube: int, pe: int, delay_ps: int = 0, span_ps: int = 0
    ) -> None:
        ipcq = self.ipcqs[cube, pe]
        self._fabric.start(
            route,
            len(token.data),
            lambda _head, _tail: ipcq.arrive(token),
            lead_ps=-self._write_ps[self._plan.ipcq.buffer_kind],
            delay_ps=delay_ps,
            span_ps=span_ps,
        )

    def _send_on(self, src: Node, port: str, packet: DataPacket, delay_ps: int = 0, span_ps: int = 0) -> None:
        channel = self._system.far_ends[self._sip, port].channel
        nbytes = len(packet.token.data)
        self.bytes_sent += nbytes
        self._started += 1
        number = self._started

        def leave(head_ps: int, tail_ps: int) -> None:
            del self._leaving_ps[number]
            body = encode(packet._replace(span_ps=tail_ps - head_ps))
            self._session.emit(channel, tail_ps, body)

        link = self._system.link
        lead_ps = link.latency_ps + link.last_chunk_ps(nbytes, self._system.chunk_bytes)
        route = self._system.leaving(src, port)
        self._leaving_ps[number] = self._engine.now_ps
        if src.kind == "pe":
            self._leaving_ps[number] += delay_ps + self._to_the_link_ps(src, port, nbytes)
        self._fabric.start(route, nbytes, leave, lead_ps=lead_ps, delay_ps=delay_ps, span_ps=span_ps)
