"""The data plane of PE_IPCQ: messages into their peers' slots, on this SIP or behind links, and credits back."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import PhysAddr, space_of
from sipsim.chips.ahbm.ipcq.messages import (
    Credit,
    CreditMessage,
    CreditPacket,
    Message,
    WireFormat,
)
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.memory.ports import MemoryPort, MemoryPorts
from sipsim.chips.ahbm.memory.store import Block
from sipsim.chips.ahbm.mesh import CubeMeshGraph, Graph
from sipsim.chips.ahbm.pe.dma import PeTcm
from sipsim.core.engine import Engine
from sipsim.fabric.channels import COMM
from sipsim.fabric.graph import Done, Node, Route
from sipsim.fabric.links.frames import UNSENT, encode
from sipsim.fabric.links.network import BadPacket, Delivery, Router, Way
from sipsim.fabric.transport import Transport
from sipsim.records.dump import Place

Ps = int


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
    ) -> None:
        self._engine = engine
        self._fabric = fabric
        self._graph = graph
        self._memory_ports = memory_ports
        self._data_bytes = wire_format.data_bytes
        self._command_bytes = command_bytes

    def start(self, src: Node, address: int, nbytes: int, delay_ps: Ps, message: Any) -> None:
        """Bring bytes at a physical address to a PE's DMA, which passes them on as ``message``, a fed transfer."""
        place = PhysAddr.decode(address)
        node = self._graph.node_of(place)
        route, wire_bytes = self._graph.route(node, src), self._data_bytes(nbytes)
        train = self._fabric.train((node, src), COMM, is_reply=True)
        memory, delay_ps = self._memory_of(place), delay_ps + self._command_ps(src, place)

        def send(later_ps: Ps = 0) -> None:
            read, first_ps, span_ps = memory.reading(Block.piece(address, nbytes), route)
            self._fabric.start(train, read, wire_bytes, None, None, later_ps + first_ps + span_ps, span_ps, message)

        if memory.is_constant:
            send(delay_ps)
        else:
            self._engine.at(self._engine.now_ps + delay_ps, send)

    def least_ps(self, src: Node, place: PhysAddr) -> Ps:
        """How much later the head of what is fetched is at PE_DMA, if nothing else is there."""
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
        graph: CubeMeshGraph,
        ipcqs: Ipcqs,
        wire_format: WireFormat,
        ring_kind: str,
        engine: Engine,
        memory_ports: MemoryPorts,
    ) -> None:
        self._engine = engine
        self._graph = graph
        self._ipcqs = ipcqs
        self._message_bytes = wire_format.message_bytes
        self._ring_kind = ring_kind
        self._memory_ports = memory_ports
        self._places: dict[tuple[int, int, str], tuple[MemoryPort, Callable[[Message], None]]] = {}

    def source(self, frame: Message) -> Place:
        return frame.sender

    def wire_bytes(self, frame: Message) -> int:
        return self._message_bytes(len(frame.data))

    def landing(self, frame: Message) -> Node:
        return self._graph.memory_node(frame.cube, frame.pe, self._space(frame))

    def check(self, frame: Message) -> None:
        self._ipcqs.of_packet(frame.cube, frame.pe, frame.generation)

    def ending(self, route: Route, frame: Message) -> Route:
        return self._place_of(frame)[0].writing(_slot(frame), route)

    def taker(self, frame: Message) -> Done:
        (port, arrive), engine = self._place_of(frame), self._engine

        def write(_head_ps: Ps, _tail_ps: Ps) -> None:
            engine.at(engine.now_ps + port.written_ps(_slot(frame)), partial(arrive, frame))

        return write

    def _space(self, message: Message) -> str:
        space = space_of(message.dst_addr)
        return space if space in RING_SPACES else self._ring_kind

    def _place_of(self, message: Message) -> tuple[MemoryPort, Callable[[Message], None]]:
        """The port of the memory that a message's slot is in, and what hands the message to PE_IPCQ."""
        cube, pe, space = key = message.cube, message.pe, self._space(message)
        found = self._places.get(key)
        if found is None:
            port = self._memory_ports.at(space, self._graph.memory_node(cube, pe, space))
            found = self._places[key] = port, self._ipcqs.of_packet(cube, pe, 1).arrive
        return found


def _slot(message: Message) -> Block:
    return Block.piece(message.dst_addr, len(message.data))


class CreditDelivery(Delivery):
    """A credit sent as a message ends at the PE itself."""

    def __init__(self, graph: CubeMeshGraph, ipcqs: Ipcqs, credit_bytes: int, vc: int, engine: str) -> None:
        self.vc = vc
        self.engine = engine
        self._graph = graph
        self._ipcqs = ipcqs
        self._credit_bytes = credit_bytes

    def source(self, frame: CreditMessage) -> tuple[int | str, ...]:
        place = frame.credit.sender
        return place if self.engine == super().engine else (*place, self.engine)

    def wire_bytes(self, frame: CreditMessage) -> int:
        return self._credit_bytes

    def landing(self, frame: CreditMessage) -> Node:
        return self._graph.memory_node(frame.cube, frame.pe, "tcm")

    def check(self, frame: CreditMessage) -> None:
        self._ipcqs.of_packet(frame.cube, frame.pe)

    def taker(self, frame: CreditMessage) -> Done:
        take, credit = self._ipcqs[frame.cube, frame.pe].credit, frame.credit
        return lambda _head, _tail: take(credit)


Emit = Callable[[int, Ps, bytes], None]
"""``Session.emit`` takes a channel, ``Session.emit_far`` a SIP; then the arrival and the body."""


class CreditSender:
    """Sends the credits of SIP ``sip``: on a wire of their own, or over the fabric as messages.

    ``channels``: by destination, the channel of credits on their own wire; to other SIPs they are far packets.
    ``nbytes``: a credit as a message; ``overhead_ps``: PE_IPCQ's.
    """

    def __init__(
        self,
        sip: int,
        engine: Engine,
        router: Router,
        ipcqs: Ipcqs,
        emit: Emit,
        emit_far: Emit,
        channels: Mapping[int, int],
        nbytes: int,
        overhead_ps: Ps,
    ) -> None:
        self._sip = sip
        self._engine = engine
        self._router = router
        self._ipcqs = ipcqs
        self._emit = emit
        self._emit_far = emit_far
        self._channels = channels
        self._nbytes = nbytes
        self._overhead_ps = overhead_ps

    def carry_credit(self, queue: QueuePair, credit: Credit, arrival_ps: Ps, emitted: Callable[[], None]) -> None:
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

    def inject_credit(self, queue: QueuePair, credit: Credit, injected: Callable[[], None] | None) -> None:
        """Send a credit over the fabric as a message; call ``injected`` when its last byte has left the PE."""
        src, peer = Node("pe", credit.src_cube, credit.src_pe), queue.peer
        nbytes, delay_ps = self._nbytes, self._overhead_ps + max(credit.sent_ps - self._engine.now_ps, 0)
        message = CreditMessage(*UNSENT, peer.cube, peer.pe, credit)
        way = self._router.way(src, peer.sip, message, queue.short_name)
        if injected is None:
            way.depart(message, nbytes, delay_ps)
            return
        passed, beyond_ps = injected, _beyond_ps(way)

        def left(_head_ps: Ps, tail_ps: Ps) -> None:
            self._engine.at(max(tail_ps - beyond_ps, self._engine.now_ps), passed)

        way.depart(message, nbytes, delay_ps, 0, left)


def _beyond_ps(way: Way) -> Ps:
    """The time of a head from PE_DMA to the end of its way, without the one that PE_DMA takes."""
    return way.route.head_ps() - way.route.start_ps


class _Path(NamedTuple):
    """The source, the way and the TCM's ports of one queue pair's messages, and their heads' time beyond PE_DMA."""

    src: Node
    way: Way
    tcm: PeTcm
    beyond_ps: Ps


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
        self._paths: dict[QueuePair, _Path] = {}

    def carry_message(
        self,
        queue: QueuePair,
        message: Message,
        source_pa: int | None,
        passed: Callable[[Message, Ps], None] | None,
    ) -> None:
        """Write a message into the peer's slot; it leaves at ``message.sent_ps`` and nobody waits for it here.

        ``source_pa``: where the bytes lie, None for the PE's TCM without an address. Bytes in the PE's TCM pass its
        ports; PE_DMA fetches all others first, and passes them on as they come. ``passed`` is called when the last byte
        has left PE_DMA's queue, with the time at which that byte passes PE_DMA.
        """
        nbytes = self._message_bytes(len(message.data))
        overhead_ps = self._overhead_ps + message.sent_ps - self._engine.now_ps
        src, way, tcm, beyond_ps = self._paths.get(queue) or self._path_of(queue, message)
        left = None if passed is None else self._telling(passed, message, beyond_ps)
        source = None if source_pa is None else PhysAddr.decode(source_pa)
        if source is None or source_pa is None or self._graph.node_of(source) == src:
            route, first_ps, span_ps = tcm.leaving(len(message.data), way.route, source_pa)
            way.depart(message, nbytes, overhead_ps + first_ps + span_ps, span_ps, left, route=route)
            return
        least_ps = overhead_ps + self._fetch.least_ps(src, source)
        fetched = way.depart(message, nbytes, least_ps, 0, left, is_fed=True)
        self._fetch.start(src, source_pa, len(message.data), overhead_ps, fetched)

    def _telling(self, passed: Callable[[Message, Ps], None], message: Message, beyond_ps: Ps) -> Done:
        """A call of ``passed`` when the last byte has left the queue: it passes PE_DMA ``beyond_ps`` before its end."""
        return lambda _head_ps, tail_ps: passed(message, max(tail_ps - beyond_ps, self._engine.now_ps))

    def forget(self, queue: QueuePair) -> None:
        """Drop the path of a queue pair, which sends no more."""
        self._paths.pop(queue, None)

    def _path_of(self, queue: QueuePair, message: Message) -> _Path:
        """How the messages of a queue pair leave."""
        src = Node("pe", message.src_cube, message.src_pe)
        way = self._router.way(src, queue.peer.sip, message, queue.short_name)
        tcm = PeTcm(message.src_sip, self._memory_ports, src)
        path = self._paths[queue] = _Path(src, way, tcm, _beyond_ps(way))
        return path
