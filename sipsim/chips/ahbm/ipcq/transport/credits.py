"""How credits travel to the peer: on a wire of their own, or over the fabric as messages."""

from collections.abc import Callable, Mapping

from sipsim.chips.ahbm.ipcq.messages.messages import IpcqCreditMetadata
from sipsim.chips.ahbm.ipcq.messages.payloads import CreditPacket, PeCredit
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.ipcq.transport.ipcq_deliveries import Ipcqs
from sipsim.core.engine import Engine
from sipsim.fabric.graph.graph import Node, Route
from sipsim.fabric.links.frames import encode
from sipsim.fabric.links.network.router import Router
from sipsim.fabric.transport.transport import Transport

Ps = int
Emit = Callable[[int, Ps, bytes], None]
"""``Session.emit`` takes a channel, ``Session.emit_far`` a SIP; then the arrival and the body."""


class CreditSender:
    """Sends the credits of SIP ``sip``. ``channels``: by destination, the channel of credits on their own wire; to
    other SIPs they are far packets.

    ``nbytes``: a credit as a message; ``vc``: its virtual channel; ``overhead_ps``: PE_IPCQ's.
    """

    def __init__(
        self,
        sip: int,
        engine: Engine,
        fabric: Transport,
        router: Router,
        ipcqs: Ipcqs,
        emit: Emit,
        emit_far: Emit,
        channels: Mapping[int, int],
        nbytes: int,
        chunk_bytes: int,
        vc: int,
        overhead_ps: Ps,
    ) -> None:
        self._sip = sip
        self._engine = engine
        self._fabric = fabric
        self._router = router
        self._ipcqs = ipcqs
        self._emit = emit
        self._emit_far = emit_far
        self._channels = channels
        self._nbytes = nbytes
        self._chunk_bytes = chunk_bytes
        self._vc = vc
        self._overhead_ps = overhead_ps
        self._halves: dict[int, tuple[Route, Route, Route]] = {}

    def carry_credit(
        self, queue: QueuePair, credit: IpcqCreditMetadata, arrival_ps: Ps, emitted: Callable[[], None]
    ) -> None:
        """Bring a credit to the peer at ``arrival_ps``, on its own wire; call ``emitted`` then."""
        peer = queue.peer
        if peer.sip == self._sip:
            ipcq = self._ipcqs[peer.cube, peer.pe]

            def arrive() -> None:
                ipcq.credit(credit)
                emitted()

            self._engine.at(arrival_ps, arrive)
            return
        body, channel = encode(CreditPacket(peer.cube, peer.pe, credit)), self._channels.get(peer.sip)
        if channel is None:
            self._emit_far(peer.sip, arrival_ps, body)
        else:
            self._emit(channel, arrival_ps, body)
        self._engine.at(arrival_ps, emitted)

    def receive(self, _channel: int, packet: CreditPacket) -> None:
        """A credit on its own wire arrives from another SIP.

        Raises:
            BadPacket: when there is no such PE.
        """
        self._ipcqs.of_packet(packet.cube, packet.pe).credit(packet.credit)

    def inject_credit(self, queue: QueuePair, credit: IpcqCreditMetadata, injected: Callable[[], None] | None) -> None:
        """Send a credit over the fabric as a message; call ``injected`` when its last byte has left the PE's edge."""
        src, peer = Node("pe", credit.src_cube, credit.src_pe), queue.peer
        nbytes, delay_ps = self._nbytes, self._overhead_ps + max(credit.sent_ps - self._engine.now_ps, 0)
        message = PeCredit(peer.cube, peer.pe, credit)
        way = self._router.way(src, peer.sip, message, queue.short_name)
        number = way.announce(nbytes, delay_ps)
        if injected is None:
            way.depart(message, nbytes, number, delay_ps)
            return
        first, onward = self._in_two(way.route)
        onward_ps = first.head_ps() - first.start_ps

        def last_chunk_leaves(head_ps: Ps, tail_ps: Ps) -> None:
            span_ps, now_ps = tail_ps - head_ps, self._engine.now_ps
            way._replace(route=onward).depart(message, nbytes, number, tail_ps - now_ps, span_ps)
            self._engine.at(tail_ps - onward_ps, injected)

        lead_ps = onward_ps + first.drain_ps(min(nbytes, self._chunk_bytes))
        self._fabric.start(first, nbytes, last_chunk_leaves, self._vc, lead_ps, delay_ps)

    def _in_two(self, route: Route) -> tuple[Route, Route]:
        """A route's first edge, if it has one, and what follows it. They are kept with the route, found by its id."""
        known = self._halves.get(id(route))
        if known is None:
            first = route.edges[:1]
            known = route, route._replace(edges=first), Route(route.start, 0, route.edges[1:])
            self._halves[id(route)] = known
        return known[1], known[2]
