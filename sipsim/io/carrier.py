"""Brings IPCQ messages and credits to their peer, on this SIP or behind a link. No other module tells the two apart.

A message over a link is carried in pieces: over this SIP's edges and the link in one transfer, as a packet to the
next SIP, and from the port there onwards. The packet says how long its train is, so that the next SIP can
continue exactly where a single fabric would (DESIGN section 5).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.wire import BadFrame
from sipsim.engine import Engine
from sipsim.errors import InvariantViolation
from sipsim.io.barrier import Barrier
from sipsim.io.departures import Departures
from sipsim.io.packets import BarrierPacket, CreditPacket, Freight, decode, encode
from sipsim.ipcq.flits import WireFormat
from sipsim.ipcq.messages import IpcqCreditMetadata, IpcqDmaToken
from sipsim.ipcq.pe_ipcq import PeIpcq
from sipsim.ipcq.queue_pair import QueuePair
from sipsim.noc.arbitration import COMM, CREDIT
from sipsim.noc.fabric import Fabric
from sipsim.noc.graph import Node, Route
from sipsim.pe.dma import MemoryTiming
from sipsim.plan.plan import Plan
from sipsim.sync.session import Session
from sipsim.topology.address import PhysAddr

Ps = int


class Way(NamedTuple):
    """From a PE to a peer's ring, or to the far end of the link behind ``port``, which is "" on the same SIP.

    ``behind_pe`` is the route of what has passed the PE's DMA already.
    """

    src: Node
    port: str
    route: Route
    behind_pe: Route
    departures: Departures


class Carrier:
    """The IPCQ side of one SIP's IO: ``carry_...`` and ``inject_credit`` go out, :meth:`receive` comes in."""

    def __init__(
        self, sip: int, plan: Plan, session: Session, fabric: Fabric, timing: MemoryTiming, wire_format: WireFormat
    ) -> None:
        self._sip = sip
        self._plan = plan
        self._system = plan.system
        self._session = session
        self._engine: Engine = session.engine
        self._fabric = fabric
        self._timing = timing
        self._ring_kind = plan.ipcq.buffer_kind
        self._ring_write_ps = timing.write_ps[self._ring_kind]
        self._message_bytes = wire_format.message_bytes
        self._data_bytes = wire_format.data_bytes
        self._credit_vc = CREDIT if plan.ipcq.credit_virtual_channel else COMM
        links = enumerate(plan.system.links)
        self._ports = {channel: Node("io", -1, link.dst_port) for channel, link in links if link.dst == sip}
        self.ipcqs: dict[tuple[int, int], PeIpcq] = {}
        self._leaving_ps: dict[int, Ps] = {}
        self._least_ways: dict[tuple[Node, str, int], Ps] = {}
        self._departures: dict[Node, Departures] = {}
        self._ways: dict[int, Way] = {}
        self._halves: dict[int, tuple[Route, tuple[Route, Route]]] = {}
        self._started = 0
        self.barrier = Barrier(sip, plan, session)
        self.bytes_sent = 0

    def carry_token(self, queue: QueuePair, token: IpcqDmaToken, read_pa: int | None) -> None:
        """Write a message into the peer's slot; it leaves now and nobody waits for it here.

        With ``read_pa`` PE_DMA first fetches the bytes from there, and passes them on as they come.
        """
        way = self._ways.get(id(queue)) or self._way_of(queue, token)
        peer, (src, port, route, onward, departures) = queue.peer, way
        nbytes, overhead_ps = self._message_bytes(len(token.data)), self._plan.ipcq_overhead_ps
        freight = Freight(peer.sip, peer.cube, peer.pe, nbytes, 0, token)
        source = None if read_pa is None else PhysAddr.decode(read_pa)
        if source is not None and self._system.graph.node_of(source) == src:
            source = None
        number = 0
        if port:
            fetch_ps = 0 if source is None else self._least_fetch_ps(src, source)
            number = self._note_leaving(src, port, nbytes, overhead_ps + fetch_ps)
        if source is None and departures.is_clear:
            self._depart(route, port, freight, number, overhead_ps)
            return

        def go(head_ps: Ps, tail_ps: Ps) -> None:
            train = freight._replace(span_ps=tail_ps - head_ps)
            self._depart(onward, port, train, number, tail_ps - self._engine.now_ps)

        departure = departures.add(go)
        if source is not None:
            here = partial(departures.here, departure)
            self._fetch(src, source, len(token.data), overhead_ps, here)
            return
        here_ps = self._engine.now_ps + overhead_ps + route.start_ps
        departures.here(departure, here_ps, here_ps)

    def _way_of(self, queue: QueuePair, token: IpcqDmaToken) -> "Way":
        """How the messages of a queue pair leave. Queue pairs live as long as their SIP."""
        src = Node("pe", token.src_cube, token.src_pe)
        port, route = self._towards_peer(src, queue, self._ring_kind)
        way = Way(src, port, route, route._replace(start_ps=0), self._departures_of(src))
        self._ways[id(queue)] = way
        return way

    def _towards_peer(self, src: Node, queue: QueuePair, kind: str) -> tuple[str, Route]:
        """The port, "" on this SIP, and the route to it or to a memory of the peer."""
        peer = queue.peer
        if peer.sip == self._sip:
            return "", self._system.graph.route(src, self._system.graph.memory_node(peer.cube, peer.pe, kind))
        port = self._system.port_towards(self._sip, peer.sip, queue.direction)
        return port, self._system.leaving(self._sip, src, port)

    def carry_credit(
        self, queue: QueuePair, credit: IpcqCreditMetadata, arrival_ps: Ps, emitted: Callable[[], None]
    ) -> None:
        """Bring a credit to the peer at ``arrival_ps``, on its own wire; call ``emitted`` then."""
        peer = queue.peer
        if peer.sip == self._sip:
            ipcq = self.ipcqs[peer.cube, peer.pe]

            def arrive() -> None:
                ipcq.credit(credit)
                emitted()

            self._engine.at(arrival_ps, arrive)
            return
        channel = self._plan.credit_channel[self._sip, peer.sip]
        self._session.emit(channel, arrival_ps, encode(CreditPacket(peer.cube, peer.pe, credit)))
        self._engine.at(arrival_ps, emitted)

    def inject_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, injected: Callable[[], None] | None) -> None:
        """Send a credit over the fabric as a message; call ``injected`` when its last byte has left the PE's edge."""
        src, peer = Node("pe", credit.src_cube, credit.src_pe), queue.peer
        nbytes, delay_ps = self._plan.ipcq.ipcq_credit_size_bytes, self._plan.ipcq_overhead_ps
        freight = Freight(peer.sip, peer.cube, peer.pe, nbytes, 0, credit)
        port, route = self._towards_peer(src, queue, "tcm")
        number = self._note_leaving(src, port, nbytes, delay_ps) if port else 0
        if injected is None:
            self._depart(route, port, freight, number, delay_ps)
            return
        first, onward = self._in_two(route)
        onward_ps = first.head_ps() - first.start_ps

        def last_chunk_leaves(head_ps: Ps, tail_ps: Ps) -> None:
            train = freight._replace(span_ps=tail_ps - head_ps)
            self._depart(onward, port, train, number, tail_ps - self._engine.now_ps)
            self._engine.at(tail_ps - onward_ps, injected)

        lead_ps = onward_ps + first.drain_ps(min(nbytes, self._system.chunk_bytes))
        self._fabric.start(first, nbytes, last_chunk_leaves, self._credit_vc, lead_ps, delay_ps)

    def receive(self, channel: int, body: bytes) -> None:
        """A packet's last byte is here: it goes to its PE, or on to the next SIP.

        Raises:
            InvariantViolation: when there is no such PE, SIP or way.
        """
        try:
            packet = decode(body)
        except BadFrame as error:
            raise self._bad_packet(channel, f"is {error}") from None
        if isinstance(packet, BarrierPacket):
            self.barrier.receive(channel, packet)
            return
        if isinstance(packet, CreditPacket):
            self._ipcq_for(channel, packet).credit(packet.credit)
            return
        port = self._ports.get(channel)
        if port is None:
            raise self._bad_packet(channel, f"is a message, and no link to SIP {self._sip} has that channel")
        if not 0 < packet.nbytes == self._wire_bytes(packet.load) or packet.span_ps > self._engine.now_ps:
            said = f"{packet.nbytes} bytes and {packet.span_ps} ps from head to tail"
            raise self._bad_packet(channel, f"claims {said}, which cannot be")
        if packet.dst_sip == self._sip:
            self._ipcq_for(channel, packet)
            self._deliver(self._system.graph.route(port, self._landing(packet)), packet)
            return
        onward = self._port_onward(channel, packet.dst_sip)
        self._started += 1
        self._leaving_ps[self._started] = self._engine.now_ps
        self._send_on(self._system.leaving(self._sip, port, onward), onward, packet, self._started)

    def _wire_bytes(self, load: IpcqDmaToken | IpcqCreditMetadata) -> int:
        if isinstance(load, IpcqDmaToken):
            return self._message_bytes(len(load.data))
        return self._plan.ipcq.ipcq_credit_size_bytes

    def _ipcq_for(self, channel: int, packet: CreditPacket | Freight) -> PeIpcq:
        ipcq = self.ipcqs.get((packet.dst_cube, packet.dst_pe))
        if ipcq is None:
            raise self._bad_packet(channel, f"is for cube {packet.dst_cube} PE {packet.dst_pe}, which has no queues")
        return ipcq

    def _port_onward(self, channel: int, dst_sip: int) -> str:
        try:
            return self._system.next_port(self._sip, dst_sip)
        except (IndexError, StopIteration):
            raise self._bad_packet(channel, f"is for SIP {dst_sip}, to which no route leads from here") from None

    def _bad_packet(self, channel: int, what: str) -> InvariantViolation:
        known = self._plan.channels
        name = known[channel].name if channel < len(known) else f"{channel}, which is none"
        return InvariantViolation(f"a packet on channel {name} that came to SIP {self._sip} {what}")

    def next_send_bound_ps(self, next_ps: Ps) -> Ps:
        """Nothing is sent before this by what is on its way to a port, or by events from ``next_ps`` on.

        What is on its way is not sent before its head could reach the link if nothing else were there, nor, with a
        longer message, before all but a least chunk of it could be through. That holds whatever the fabric plans
        again later. Anything else that will be sent needs an event first, and then the way from a PE to a port.
        """
        later_ps = next_ps + self._plan.egress_ps[self._sip]
        return min(later_ps, min(self._leaving_ps.values(), default=later_ps))

    def _note_leaving(self, src: Node, port: str, nbytes: int, delay_ps: Ps) -> int:
        """Something starts from a PE towards a port: its number, under which its earliest sending is kept."""
        self._started += 1
        self._leaving_ps[self._started] = self._engine.now_ps + delay_ps + self._to_the_link_ps(src, port, nbytes)
        return self._started

    def _to_the_link_ps(self, src: Node, port: str, nbytes: int) -> Ps:
        """From a PE to when all but a least chunk of a message is on the link, if nothing else is there."""
        known = self._least_ways.get((src, port, nbytes))
        if known is None:
            link, chunk = self._system.link_of(self._sip, port), self._system.chunk_bytes
            head_ps = self._system.leaving(self._sip, src, port).head_ps() - link.latency_ps
            known = head_ps + link.drain_ps(nbytes) - link.least_chunk_ps(chunk)
            self._least_ways[src, port, nbytes] = known
        return known

    def _landing(self, freight: Freight) -> Node:
        """Where it ends: a message at the memory that the rings are in (a TCM is the PE's own), a credit at the PE."""
        kind = self._ring_kind if isinstance(freight.load, IpcqDmaToken) else "tcm"
        return self._system.graph.memory_node(freight.dst_cube, freight.dst_pe, kind)

    def _fetch(self, src: Node, place: PhysAddr, nbytes: int, delay_ps: Ps, here: Callable[[Ps, Ps], None]) -> None:
        """Bring bytes to a PE's DMA; ``here(head_ps, tail_ps)`` when the last chunk starts on the wire into the PE.

        So what follows on a link can be told in time: a chunk and the way to the port later, at least.
        """
        route, wire_bytes = self._system.graph.route(self._system.graph.node_of(place), src), self._data_bytes(nbytes)
        lead_ps = route.edges[-1].drain_ps(min(wire_bytes, self._system.chunk_bytes))
        self._fabric.start(route, wire_bytes, here, COMM, lead_ps, delay_ps + self._until_memory_gives_ps(src, place))

    def _least_fetch_ps(self, src: Node, place: PhysAddr) -> Ps:
        """How much later the head of what is fetched passes PE_DMA, if nothing else is there."""
        fetch = self._system.graph.route(self._system.graph.node_of(place), src)
        return self._until_memory_gives_ps(src, place) + fetch.head_ps() - self._system.graph.overhead_ps(src)

    def _until_memory_gives_ps(self, src: Node, place: PhysAddr) -> Ps:
        """What PE_DMA waits for before bytes come from a memory: a command to it, and its read."""
        command = self._system.graph.route(src, self._system.graph.node_of(place))
        return command.latency_ps(self._timing.command_bytes) + self._timing.read_ps[place.space]

    def _departures_of(self, src: Node) -> Departures:
        departures = self._departures.get(src)
        if departures is None:
            departures = self._departures[src] = Departures(self._engine)
        return departures

    def _in_two(self, route: Route) -> tuple[Route, Route]:
        """A route's first edge, if it has one, and what follows it."""
        known = self._halves.get(id(route))
        if known is None:
            first = route.edges[:1]
            halves = route._replace(edges=first), Route(route.start, 0, route.edges[1:])
            known = self._halves[id(route)] = (route, halves)
        return known[1]

    def _depart(self, route: Route, port: str, freight: Freight, number: int, delay_ps: Ps) -> None:
        """To a PE of this SIP, or over the link behind ``port``."""
        if freight.dst_sip == self._sip:
            self._deliver(route, freight, delay_ps)
        else:
            self._send_on(route, port, freight, number, delay_ps)

    def _deliver(self, route: Route, freight: Freight, delay_ps: Ps = 0) -> None:
        ipcq, load = self.ipcqs[freight.dst_cube, freight.dst_pe], freight.load
        if isinstance(load, IpcqDmaToken):
            self._fabric.start(
                route,
                freight.nbytes,
                lambda _head, _tail: ipcq.arrive(load),
                COMM,
                -self._ring_write_ps,
                delay_ps,
                freight.span_ps,
            )
            return
        vc = self._credit_vc
        self._fabric.start(route, freight.nbytes, lambda _h, _t: ipcq.credit(load), vc, 0, delay_ps, freight.span_ps)

    def _send_on(self, route: Route, port: str, freight: Freight, number: int, delay_ps: Ps = 0) -> None:
        """Over the link behind a port, by a route that ends with it."""
        channel, nbytes, vc = self._system.far_ends[self._sip, port].channel, freight.nbytes, self._credit_vc
        if isinstance(freight.load, IpcqDmaToken):
            vc = COMM
            self.bytes_sent += len(freight.load.data)

        def leave(head_ps: Ps, tail_ps: Ps) -> None:
            del self._leaving_ps[number]
            self._session.emit(channel, tail_ps, encode(freight._replace(span_ps=tail_ps - head_ps)))

        link = self._system.link_of(self._sip, port)
        lead_ps = link.latency_ps + link.last_chunk_ps(nbytes, self._system.chunk_bytes)
        self._fabric.start(route, nbytes, leave, vc, lead_ps, delay_ps, freight.span_ps)
