"""The data plane of PE_IPCQ: messages into their peers' slots, on this SIP or behind links, and credits back."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from sipsim.chips.ahbm.address import PhysAddr, space_of
from sipsim.chips.ahbm.ipcq.messages import (
    CreditPacket,
    IpcqCreditMetadata,
    IpcqDmaToken,
    PeCredit,
    PeMessage,
    WireFormat,
)
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.memory.ports import MemoryPort, MemoryPorts
from sipsim.chips.ahbm.mesh import CubeMeshGraph, Graph
from sipsim.chips.ahbm.pe.dma import PeTcm
from sipsim.core.engine import Engine
from sipsim.fabric.graph import Node, Route
from sipsim.fabric.links.frames import encode
from sipsim.fabric.links.network import BadPacket, Delivery, Router, Way
from sipsim.fabric.noc.arbitration import COMM
from sipsim.fabric.transport import Transport

Ps = int
Go = Callable[[Ps, Ps], None]
"""Called with the times at which head and tail pass PE_DMA; that of the head may be in the past."""


class Departure:
    """A message that was sent and has not left. ``is_here`` once the times of its head and tail are known."""

    __slots__ = ("go", "head_ps", "is_here", "tail_ps")

    def __init__(self, go: Go) -> None:
        self.go = go
        self.is_here = False
        self.head_ps: Ps = 0
        self.tail_ps: Ps = 0


class Departures:
    """PE_DMA's queue for communication, of one PE: its messages leave in the order of their sends.

    A message whose bytes are fetched from another memory arrives at the PE some time after its send. Later messages,
    already in the PE or fetched faster, leave after its last byte; otherwise they would overtake it (I2). So does any
    message after one that was in the PE and left at once, but waits for the ports of the TCM. All times are those at
    which bytes pass PE_DMA on the way out.
    """

    __slots__ = ("_at_once_ps", "_clear_ps", "_engine", "_waiting")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: deque[Departure] = deque()
        self._clear_ps: Ps = 0
        self._at_once_ps: Ps = 0

    @property
    def is_clear(self) -> bool:
        """Whether a message that needs no fetch can leave at once."""
        return not self._waiting and self._clear_ps <= self._engine.now_ps

    def leave_at_once(self, head_ps: Ps, tail_ps: Ps) -> Ps:
        """A message that needs no fetch leaves now: its head and tail pass at these times, but for how much later its
        head must be to come behind the last one that left so; the answer is that."""
        later_ps = max(self._at_once_ps - head_ps, 0)
        self._at_once_ps = tail_ps + later_ps
        return later_ps

    def add(self, go: Go) -> Departure:
        """Queue the next message, whose bytes are being fetched."""
        departure = Departure(go)
        self._waiting.append(departure)
        return departure

    def here(self, departure: Departure, head_ps: Ps, tail_ps: Ps) -> None:
        """Set the times of a message's head and tail, and let messages leave in order."""
        departure.is_here, departure.head_ps, departure.tail_ps = True, head_ps, tail_ps
        while self._waiting and self._waiting[0].is_here:
            first = self._waiting.popleft()
            head_ps = max(first.head_ps, self._clear_ps, self._at_once_ps)
            self._clear_ps = max(first.tail_ps, head_ps)
            first.go(head_ps, self._clear_ps)


class Fetch:
    """Fetches for all PEs of one SIP: a message's bytes from another memory, which PE_DMA passes on as they come.

    A fetch is a command of ``command_bytes`` to the memory, its read, and the data back.
    """

    def __init__(
        self,
        engine: Engine,
        fabric: Transport,
        graph: CubeMeshGraph,
        memory_ports: MemoryPorts,
        wire_format: WireFormat,
        command_bytes: int,
        chunk_bytes: int,
    ) -> None:
        self._engine = engine
        self._fabric = fabric
        self._graph = graph
        self._memory_ports = memory_ports
        self._data_bytes = wire_format.data_bytes
        self._command_bytes = command_bytes
        self._chunk_bytes = chunk_bytes

    def start(self, src: Node, address: int, nbytes: int, delay_ps: Ps, here: Callable[[Ps, Ps], None]) -> None:
        """Bring bytes at a physical address to a PE's DMA.

        ``here(head_ps, tail_ps)`` when the last chunk starts on the wire into the PE. So what follows on a link can be
        told in time: a chunk and the way to the port later, at least.
        """
        place = PhysAddr.decode(address)
        route, wire_bytes = self._graph.route(self._graph.node_of(place), src), self._data_bytes(nbytes)
        lead_ps = route.edges[-1].drain_ps(min(wire_bytes, self._chunk_bytes))
        memory, delay_ps = self._memory_of(place), delay_ps + self._command_ps(src, place)
        if memory.is_constant:
            delay_ps += memory.least_read_ps
            self._fabric.start(route, wire_bytes, here, COMM, lead_ps, delay_ps, is_reply=True)
            return

        def send(span_ps: Ps) -> None:
            self._fabric.start(route, wire_bytes, here, COMM, lead_ps, span_ps, span_ps, is_reply=True)

        def at_memory() -> None:
            memory.stream_read(address, nbytes, send)

        self._engine.at(self._engine.now_ps + delay_ps, at_memory)

    def least_ps(self, src: Node, place: PhysAddr) -> Ps:
        """How much later the head of what is fetched passes PE_DMA, if nothing else is there."""
        fetch = self._graph.route(self._graph.node_of(place), src)
        until_read_ps = self._command_ps(src, place) + self._memory_of(place).least_read_ps
        return until_read_ps + fetch.head_ps() - self._graph.overhead_ps(src)

    def _command_ps(self, src: Node, place: PhysAddr) -> Ps:
        """The time of a command on its way to the memory. It meets no other traffic."""
        return self._graph.route(src, self._graph.node_of(place)).latency_ps(self._command_bytes)

    def _memory_of(self, place: PhysAddr) -> MemoryPort:
        return self._memory_ports.at(place.space, self._graph.node_of(place))


RING_SPACES = ("tcm", "hbm", "sram")


class Ipcqs(dict[tuple[int, int], PeIpcq]):
    """PE_IPCQ of each PE in use, by cube and PE. ``make``: makes that of another PE, None where there is no such PE."""

    def __init__(self, make: Callable[[int, int], PeIpcq | None]) -> None:
        super().__init__()
        self._make = make

    def of_packet(self, cube: int, pe: int, generation: int = 0) -> PeIpcq:
        """That of the PE that a packet is for.

        A message of a generation that is installed later may come before its PE is made, and makes it.

        Raises:
            BadPacket: where there is none.
        """
        found = self.get((cube, pe))
        if found is None and generation:
            found = self._make(cube, pe)
        if found is None:
            raise BadPacket(f"is for cube {cube} PE {pe}, which has no queues")
        return found


class MessageDelivery(Delivery):
    """A message ends in the memory that its slot is in. The slot's write is timed there, then PE_IPCQ takes it.

    ``ring_kind``: where an address leads that can be no ring's, until PE_IPCQ refuses it.
    """

    vc = COMM

    def __init__(
        self,
        fabric: Transport,
        graph: CubeMeshGraph,
        ipcqs: Ipcqs,
        wire_format: WireFormat,
        ring_kind: str,
        memory_ports: MemoryPorts,
    ) -> None:
        self._fabric = fabric
        self._graph = graph
        self._ipcqs = ipcqs
        self._message_bytes = wire_format.message_bytes
        self._ring_kind = ring_kind
        self._memory_ports = memory_ports
        self._writes: dict[tuple[int, int, str], Callable[[IpcqDmaToken, Ps, Ps], None]] = {}

    def wire_bytes(self, payload: PeMessage) -> int:
        return self._message_bytes(len(payload.token.data))

    def landing(self, payload: PeMessage) -> Node:
        return self._graph.memory_node(payload.cube, payload.pe, self._space(payload.token))

    def check(self, payload: PeMessage) -> None:
        self._ipcqs.of_packet(payload.cube, payload.pe, payload.token.generation)

    def start(self, route: Route, payload: PeMessage, nbytes: int, delay_ps: Ps = 0, span_ps: Ps = 0) -> None:
        cube, pe, token = payload
        space = self._space(token)
        write = self._writes.get((cube, pe, space)) or self._write_at(cube, pe, space)
        self._fabric.start(route, nbytes, partial(write, token), COMM, 0, delay_ps, span_ps)

    def _space(self, token: IpcqDmaToken) -> str:
        space = space_of(token.dst_addr)
        return space if space in RING_SPACES else self._ring_kind

    def _write_at(self, cube: int, pe: int, space: str) -> Callable[[IpcqDmaToken, Ps, Ps], None]:
        """What times the write of a message at its memory, and then hands it to PE_IPCQ."""
        arrive = self._ipcqs.of_packet(cube, pe, 1).arrive
        node = self._graph.memory_node(cube, pe, space)
        port = self._memory_ports.at(space, node)
        stream_write = port.stream_write
        order = None if port.keeps_order else _WritesInOrder(arrive)

        def write(token: IpcqDmaToken, head_ps: Ps, tail_ps: Ps) -> None:
            ended = partial(arrive, token) if order is None else order.begin(token)
            stream_write(token.dst_addr, len(token.data), tail_ps - head_ps, ended)

        self._writes[cube, pe, space] = write
        return write


class _WritesInOrder:
    """Writes of messages to one PE's rings in a memory that may end a later one first.

    A message arrives when its own write and those of all before it in its ring have ended: the head pointer that it
    brings stands for all of them (I6).
    """

    def __init__(self, arrive: Callable[[IpcqDmaToken], None]) -> None:
        self._arrive = arrive
        self._under_way: dict[tuple[int | str, ...], deque[_Write]] = {}

    def begin(self, token: IpcqDmaToken) -> Callable[[], None]:
        """The next write of a ring begins; what is to be called at its end."""
        sender = token.src_sip, token.src_cube, token.src_pe, token.src_direction, token.generation
        write = _Write(token)
        self._under_way.setdefault(sender, deque()).append(write)
        return partial(self._end, sender, write)

    def _end(self, sender: tuple[int | str, ...], write: "_Write") -> None:
        write.has_ended = True
        writes = self._under_way[sender]
        while writes and writes[0].has_ended:
            self._arrive(writes.popleft().token)
        if not writes:
            del self._under_way[sender]


class _Write:
    """Of one message."""

    __slots__ = ("has_ended", "token")

    def __init__(self, token: IpcqDmaToken) -> None:
        self.token = token
        self.has_ended = False


class CreditDelivery(Delivery):
    """A credit sent as a message ends at the PE itself."""

    def __init__(self, fabric: Transport, graph: CubeMeshGraph, ipcqs: Ipcqs, credit_bytes: int, vc: int) -> None:
        self.vc = vc
        self._fabric = fabric
        self._graph = graph
        self._ipcqs = ipcqs
        self._credit_bytes = credit_bytes

    def wire_bytes(self, payload: PeCredit) -> int:
        return self._credit_bytes

    def landing(self, payload: PeCredit) -> Node:
        return self._graph.memory_node(payload.cube, payload.pe, "tcm")

    def check(self, payload: PeCredit) -> None:
        self._ipcqs.of_packet(payload.cube, payload.pe)

    def start(self, route: Route, payload: PeCredit, nbytes: int, delay_ps: Ps = 0, span_ps: Ps = 0) -> None:
        cube, pe, credit = payload
        take = self._ipcqs[cube, pe].credit
        self._fabric.start(route, nbytes, lambda _head, _tail: take(credit), self.vc, 0, delay_ps, span_ps)


Emit = Callable[[int, Ps, bytes], None]
"""``Session.emit`` takes a channel, ``Session.emit_far`` a SIP; then the arrival and the body."""


class CreditSender:
    """Sends the credits of SIP ``sip``: on a wire of their own, or over the fabric as messages.

    ``channels``: by destination, the channel of credits on their own wire; to other SIPs they are far packets.
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


class _Path(NamedTuple):
    """Of one queue pair's messages. ``behind_pe`` is the way of what has passed the PE's DMA already."""

    src: Node
    way: Way
    behind_pe: Way
    departures: Departures
    tcm: PeTcm


class MessageSender:
    """Sends the messages of one SIP's PEs, each into its peer's slot. ``overhead_ps`` is PE_IPCQ's."""

    def __init__(
        self,
        engine: Engine,
        router: Router,
        graph: Graph,
        fetch: Fetch,
        memory_ports: MemoryPorts,
        wire_format: WireFormat,
        overhead_ps: Ps,
    ) -> None:
        self._engine = engine
        self._memory_ports = memory_ports
        self._router = router
        self._graph = graph
        self._fetch = fetch
        self._message_bytes = wire_format.message_bytes
        self._overhead_ps = overhead_ps
        self._departures: dict[Node, Departures] = {}
        self._paths: dict[QueuePair, _Path] = {}

    def carry_token(
        self,
        queue: QueuePair,
        token: IpcqDmaToken,
        read_pa: int | None,
        passed: Callable[[IpcqDmaToken, Ps], None] | None,
    ) -> None:
        """Write a message into the peer's slot; it leaves at ``token.sent_ps`` and nobody waits for it here.

        With ``read_pa`` PE_DMA first fetches the bytes from there, and passes them on as they come. ``passed`` is
        told when it passes the last one on at the rate of its edge, or gets it, whichever it waits for.
        """
        peer, nbytes = queue.peer, self._message_bytes(len(token.data))
        overhead_ps = self._overhead_ps + token.sent_ps - self._engine.now_ps
        message = PeMessage(peer.cube, peer.pe, token)
        src, way, behind_pe, departures, tcm = self._paths.get(queue) or self._path_of(queue, message)
        source = None if read_pa is None else PhysAddr.decode(read_pa)
        if source is not None and self._graph.node_of(source) == src:
            source = None
        fetch_ps = 0 if source is None or way.port is None else self._fetch.least_ps(src, source)
        number = way.announce(nbytes, overhead_ps + fetch_ps)
        tcm_ps, span_ps = tcm.take(len(token.data)) if source is None else (0, 0)
        if source is None and departures.is_clear:
            now, tail_ps = self._engine.now_ps, overhead_ps + tcm_ps + way.route.start_ps
            later_ps = departures.leave_at_once(now + tail_ps - span_ps, now + tail_ps)
            way.depart(message, nbytes, number, overhead_ps + tcm_ps + later_ps, span_ps)
            if passed is not None:
                tail_ps += later_ps
                passing_ps = max(tail_ps, tail_ps - span_ps + way.route.first_drain_ps(nbytes))
                passed(token, now + passing_ps)
            return

        def go(head_ps: Ps, tail_ps: Ps) -> None:
            if passed is not None:
                drain_ps = 0 if source is not None else way.route.first_drain_ps(nbytes)
                passed(token, tail_ps + drain_ps)
            behind_pe.depart(message, nbytes, number, tail_ps - self._engine.now_ps, tail_ps - head_ps)

        departure = departures.add(go)
        if source is not None and read_pa is not None:
            here = partial(departures.here, departure)
            self._fetch.start(src, read_pa, len(token.data), overhead_ps, here)
            return
        here_ps = self._engine.now_ps + overhead_ps + tcm_ps + way.route.start_ps
        departures.here(departure, here_ps - span_ps, here_ps)

    def forget(self, queue: QueuePair) -> None:
        """Drop the path of a queue pair, which sends no more."""
        self._paths.pop(queue, None)

    def _path_of(self, queue: QueuePair, message: PeMessage) -> _Path:
        """How the messages of a queue pair leave."""
        src = Node("pe", message.token.src_cube, message.token.src_pe)
        way = self._router.way(src, queue.peer.sip, message, queue.short_name)
        behind_pe = way._replace(route=way.route._replace(start_ps=0))
        departures = self._departures.setdefault(src, Departures(self._engine))
        tcm = PeTcm(message.token.src_sip, self._memory_ports, src)
        path = self._paths[queue] = _Path(src, way, behind_pe, departures, tcm)
        return path
