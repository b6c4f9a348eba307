"""The data plane of PE_IPCQ: messages into their peers' slots, on this SIP or behind links, and credits back."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sipsim.chips.ahbm.address import Block, PhysAddr, space_of
from sipsim.chips.ahbm.ipcq.messages import Credit, CreditMessage, CreditPacket, Message
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.memory.ports import MemoryPort
from sipsim.chips.ahbm.parts import SipParts
from sipsim.chips.ahbm.pe.dma import PeTcm
from sipsim.fabric.channels import COMM, CREDIT
from sipsim.fabric.graph import Done, Node, Route
from sipsim.fabric.links.frames import UNSENT, encode
from sipsim.fabric.links.network import BadPacket, Delivery, NetworkInterface, Way
from sipsim.records.dump import Place

Ps = int


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

    def __init__(self, sip: SipParts) -> None:
        self._engine = sip.engine
        self._graph = sip.graph
        self._ipcqs = sip.ipcqs
        self._message_bytes = sip.wire_format.message_bytes
        self._ring_kind = sip.plan.ipcq.buffer_kind
        self._memory_ports = sip.memory_ports
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

    def __init__(self, sip: SipParts) -> None:
        knobs = sip.plan.ipcq
        self.vc = CREDIT if knobs.credit_virtual_channel else COMM
        self.engine = "ipcq" if knobs.virtual_channels else "dma"
        self._graph = sip.graph
        self._ipcqs = sip.ipcqs
        self._credit_bytes = knobs.ipcq_credit_size_bytes

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


class CreditSender:
    """Sends the credits of one SIP's PEs: on a wire of their own, or over the fabric as messages."""

    def __init__(self, sip: SipParts, network: NetworkInterface) -> None:
        self._sip = sip.sip
        self._engine = sip.engine
        self._network = network
        self._ipcqs = sip.ipcqs
        self._session = sip.session
        self._nbytes = sip.plan.ipcq.ipcq_credit_size_bytes
        self._overhead_ps = sip.plan.ipcq_overhead_ps
        wires = sip.plan.credit_channel.items()
        self._channels = {dst: channel for (src, dst), channel in wires if src == sip.sip}

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
            self._session.emit_far(peer.sip, arrival_ps, body)
        else:
            self._session.emit(channel, arrival_ps, body)
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
        way = self._network.way(src, peer.sip, message, queue.short_name)
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
    """Sends the messages of one SIP's PEs, each into its peer's slot.

    Bytes that lie in another memory than the PE's TCM are fetched: PE_DMA sends a command to that memory, and passes
    the data on as they come.
    """

    def __init__(self, sip: SipParts, network: NetworkInterface) -> None:
        self._sip = sip.sip
        self._engine = sip.engine
        self._fabric = sip.fabric
        self._memory_ports = sip.memory_ports
        self._network = network
        self._graph = sip.graph
        self._wire_format = sip.wire_format
        self._overhead_ps = sip.plan.ipcq_overhead_ps
        self._command_bytes = sip.plan.resolved.components.pe_dma.command_bytes
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
        nbytes = self._wire_format.message_bytes(len(message.data))
        overhead_ps = self._overhead_ps + message.sent_ps - self._engine.now_ps
        src, way, tcm, beyond_ps = self._paths.get(queue) or self._path_of(queue, message)
        left = None if passed is None else self._telling(passed, message, beyond_ps)
        place = None if source_pa is None else PhysAddr.decode(source_pa)
        node = src if place is None else self._graph.node_of(place)
        if place is None or source_pa is None or node == src:
            route, first_ps, span_ps = tcm.leaving(len(message.data), way.route, source_pa)
            way.depart(message, nbytes, overhead_ps + first_ps + span_ps, span_ps, left, route=route)
            return
        memory, back = self._memory_ports.at(place.space, node), self._graph.route(node, src)
        # The command meets no other traffic.
        command_ps = self._graph.route(src, node).latency_ps(self._command_bytes)
        head_ps = command_ps + memory.least_read_ps + back.head_ps() - self._graph.overhead_ps(src)
        fed = way.depart(message, nbytes, overhead_ps + head_ps, 0, left, is_fed=True)
        delay_ps, block = overhead_ps + command_ps, Block.piece(source_pa, len(message.data))
        wire_bytes = self._wire_format.data_bytes(block.nbytes)
        train = self._fabric.train((node, src), COMM, is_reply=True)

        def read_out(later_ps: Ps = 0) -> None:
            route, first_ps, span_ps = memory.reading(block, back)
            self._fabric.start(train, route, wire_bytes, None, None, later_ps + first_ps + span_ps, span_ps, fed)

        if memory.is_constant:
            read_out(delay_ps)
        else:
            self._engine.at(self._engine.now_ps + delay_ps, read_out)

    def _telling(self, passed: Callable[[Message, Ps], None], message: Message, beyond_ps: Ps) -> Done:
        """A call of ``passed`` when the last byte has left the queue: it passes PE_DMA ``beyond_ps`` before its end."""
        return lambda _head_ps, tail_ps: passed(message, max(tail_ps - beyond_ps, self._engine.now_ps))

    def forget(self, queue: QueuePair) -> None:
        """Drop the path of a queue pair, which sends no more."""
        self._paths.pop(queue, None)

    def _path_of(self, queue: QueuePair, message: Message) -> _Path:
        """How the messages of a queue pair leave."""
        src = Node("pe", message.src_cube, message.src_pe)
        way = self._network.way(src, queue.peer.sip, message, queue.short_name)
        tcm = PeTcm(message.src_sip, self._memory_ports, src)
        path = self._paths[queue] = _Path(src, way, tcm, _beyond_ps(way))
        return path
