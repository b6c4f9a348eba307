"""Data plane of PE_IPCQ: writes messages into peers' slots, on this SIP or across links, and returns credits.

With ``head_update: doorbell`` (ADR-0023 D23) a message is two writes and a fence: the data, whose memory acknowledges
them to the sender, and then a doorbell, which moves the receiver's pointer. PE_DMA sends the doorbell behind the
messages that it already has, and needs no kernel for it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import Block, PhysAddr, space_of
from sipsim.chips.ahbm.ipcq.messages import (
    HEADER_BYTES,
    Acknowledgement,
    Credit,
    CreditFrame,
    Doorbell,
    Message,
    Notice,
    WireCredit,
)
from sipsim.chips.ahbm.ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.memory.ports import MemoryPort
from sipsim.chips.ahbm.parts import SipParts
from sipsim.chips.ahbm.pe.dma import PeTcm
from sipsim.fabric.channels import COMM, CREDIT
from sipsim.fabric.graph import Done, Node, Route
from sipsim.fabric.links.frames import UNSENT, encode
from sipsim.fabric.links.network import BadPacket, Delivery, FramePath, NetworkInterface
from sipsim.records.dump import Place

Ps = int


RING_SPACES = ("tcm", "hbm", "sram")


class Ipcqs(dict[tuple[int, int], PeIpcq]):
    """PE_IPCQ of each PE in use, by cube and PE. ``make`` builds the PE_IPCQ of another PE, if this PE exists."""

    def __init__(self, make: Callable[[int, int], PeIpcq | None]) -> None:
        super().__init__()
        self._make = make

    def of_packet(self, cube: int, pe: int, generation: int = 0) -> PeIpcq:
        """Return PE_IPCQ of a packet's destination.

        A message of a generation that is not installed yet may arrive before its PE is built; then the PE is built.

        Raises:
            BadPacket: if the PE does not exist or has no queues.
        """
        ipcq = self.get((cube, pe))
        if ipcq is None and generation:
            ipcq = self._make(cube, pe)
        if ipcq is None:
            raise BadPacket(f"is for cube {cube} PE {pe}, which has no queues")
        return ipcq


class MessageDelivery(Delivery):
    """Delivery of messages: the port of the slot's memory times the write, then PE_IPCQ takes the message.

    A message to an address in no ring memory is routed to the configured ring memory, where PE_IPCQ rejects it.
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

        def write(_head_ps: Ps = 0, _tail_ps: Ps = 0) -> None:
            engine.at(engine.now_ps + port.written_ps(_slot(frame)), partial(arrive, frame))

        if port.is_served:
            return lambda _head_ps, _tail_ps: port.when_served(_slot(frame), False, write)
        return write

    def _space(self, message: Message) -> str:
        space = space_of(message.dst_addr)
        return space if space in RING_SPACES else self._ring_kind

    def _place_of(self, message: Message) -> tuple[MemoryPort, Callable[[Message], None]]:
        """Return the port of the memory that contains a message's slot, and the receiver's ``arrive``."""
        cube, pe, space = key = message.cube, message.pe, self._space(message)
        place = self._places.get(key)
        if place is None:
            port = self._memory_ports.at(space, self._graph.memory_node(cube, pe, space))
            place = self._places[key] = port, self._ipcqs.of_packet(cube, pe, 1).arrive
        return place


def _slot(message: Message) -> Block:
    return Block.piece(message.dst_addr, len(message.data))


class HeaderDelivery(Delivery):
    """Delivery of headers of ``nbytes``: their routes end at a PE, not at a memory, and ``take`` hands them over."""

    vc = COMM

    def __init__(self, sip: SipParts, nbytes: int, take: Callable[[PeIpcq, Any], None], engine: str = "dma") -> None:
        self.engine = engine
        self._graph = sip.graph
        self._ipcqs = sip.ipcqs
        self._nbytes = nbytes
        self._take = take

    def source(self, frame: CreditFrame | Notice) -> tuple[int | str, ...]:
        place = frame.sender
        return place if self.engine == super().engine else (*place, self.engine)

    def wire_bytes(self, frame: CreditFrame | Notice) -> int:
        return self._nbytes

    def landing(self, frame: CreditFrame | Notice) -> Node:
        return self._graph.memory_node(frame.cube, frame.pe, "tcm")

    def check(self, frame: CreditFrame | Notice) -> None:
        self._ipcqs.of_packet(frame.cube, frame.pe)

    def taker(self, frame: CreditFrame | Notice) -> Done:
        take, ipcq = self._take, self._ipcqs[frame.cube, frame.pe]
        return lambda _head, _tail: take(ipcq, frame)


def header_deliveries(sip: SipParts) -> dict[type, Delivery]:
    """Return the deliveries of credits over the fabric and, with doorbells, of acknowledgements and doorbells, by type
    of frame.
    """
    knobs = sip.plan.ipcq
    part = "ipcq" if knobs.virtual_channels else "dma"
    credit = HeaderDelivery(sip, knobs.ipcq_credit_size_bytes, lambda ipcq, frame: ipcq.credit(frame.credit), part)
    credit.vc = CREDIT if knobs.credit_virtual_channel else COMM
    if not sip.plan.ipcq.has_doorbells:
        return {CreditFrame: credit}
    acknowledgement = HeaderDelivery(sip, ack_bytes(sip), PeIpcq.acknowledged, "replies")
    acknowledgement.is_reply = True
    doorbell = HeaderDelivery(sip, HEADER_BYTES, PeIpcq.ring)
    return {CreditFrame: credit, Acknowledgement: acknowledgement, Doorbell: doorbell}


def ack_bytes(sip: SipParts) -> int:
    """Return the size of the acknowledgement of a write, in bytes."""
    return sip.plan.resolved.components.pe_dma.ack_bytes


class CreditSender:
    """Sends the credits of one SIP's PEs: on a dedicated wire, or over the fabric as frames."""

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

    def send_on_wire(self, queue: QueuePair, credit: Credit, arrival_ps: Ps, emitted: Callable[[], None]) -> None:
        """Send a credit on its dedicated wire; ``emitted`` is called at ``arrival_ps``, when the credit arrives."""
        peer = queue.peer
        if peer.sip == self._sip:
            ipcq = self._ipcqs[peer.cube, peer.pe]

            def arrive() -> None:
                ipcq.credit(credit)
                emitted()

            self._engine.at(arrival_ps, arrive)
            return
        body, channel = encode(WireCredit(peer.cube, peer.pe, credit)), self._channels.get(peer.sip)
        if channel is None:
            self._session.emit_far(peer.sip, arrival_ps, body)
        else:
            self._session.emit(channel, arrival_ps, body)
        self._engine.at(arrival_ps, emitted)

    def receive(self, _channel: int, packet: WireCredit) -> None:
        """Take a credit that arrives from another SIP on a dedicated wire.

        Raises:
            BadPacket: if its PE does not exist or has no queues.
        """
        self._ipcqs.of_packet(packet.cube, packet.pe).credit(packet.credit)

    def send_on_fabric(self, queue: QueuePair, credit: Credit, injected: Callable[[], None] | None) -> None:
        """Send a credit over the fabric as a frame; call ``injected`` when its last byte has left the PE."""
        src, peer = Node("pe", credit.src_cube, credit.src_pe), queue.peer
        nbytes, delay_ps = self._nbytes, self._overhead_ps + max(credit.sent_ps - self._engine.now_ps, 0)
        message = CreditFrame(*UNSENT, peer.cube, peer.pe, credit)
        path = self._network.frame_path(src, peer.sip, message, queue.short_name)
        if injected is None:
            path.depart(message, nbytes, delay_ps)
            return
        on_left, beyond_ps = injected, _beyond_ps(path)

        def left(_head_ps: Ps, tail_ps: Ps) -> None:
            self._engine.at(max(tail_ps - beyond_ps, self._engine.now_ps), on_left)

        path.depart(message, nbytes, delay_ps, 0, left)


def _beyond_ps(path: FramePath) -> Ps:
    """Return the time in ps from when a head leaves PE_DMA until it reaches the end of its path."""
    return path.route.head_ps() - path.route.start_ps


class _Path(NamedTuple):
    """Path of a queue pair's messages: source, frame path, TCM ports, and time of a head from PE_DMA to the end."""

    src: Node
    path: FramePath
    tcm: PeTcm
    beyond_ps: Ps


class MessageSender:
    """Sends the messages of one SIP's PEs into the slots of their peers.

    PE_DMA fetches bytes that are not in the PE's TCM: it sends a read command to their memory and forwards the data as
    they arrive.
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
        self._ack_bytes = ack_bytes(sip)
        self._paths: dict[QueuePair, _Path] = {}

    def send_message(
        self,
        queue: QueuePair,
        message: Message,
        source_pa: int | None,
        on_dma_done: Callable[[Message, Ps], None] | None,
    ) -> None:
        """Send a message, at ``message.sent_ps``, to be written into the peer's slot; do not wait for its arrival.

        ``source_pa``: address of the bytes; None for bytes in the PE's TCM without an address. Bytes in the PE's TCM
        pass the ports of the TCM; PE_DMA fetches all other bytes. ``on_dma_done`` is called when the last byte has left
        PE_DMA's queue, with the time at which this byte passes PE_DMA.
        """
        nbytes = self._wire_format.message_bytes(len(message.data))
        overhead_ps = self._overhead_ps + message.sent_ps - self._engine.now_ps
        src, path, tcm, beyond_ps = self._paths.get(queue) or self._path_of(queue, message)
        left = None if on_dma_done is None else self._at_tail(on_dma_done, message, beyond_ps)
        place = None if source_pa is None else PhysAddr.decode(source_pa)
        node = src if place is None else self._graph.node_of(place)
        if place is None or source_pa is None or node == src:
            route, first_ps, span_ps = tcm.leaving(len(message.data), path.route, source_pa)
            path.depart(message, nbytes, overhead_ps + first_ps + span_ps, span_ps, left, route=route)
            return
        memory, back = self._memory_ports.at(place.space, node), self._graph.route(node, src)
        # In the model no other traffic delays the command.
        command_ps = self._graph.route(src, node).latency_ps(self._command_bytes)
        head_ps = command_ps + memory.least_read_ps + back.head_ps() - self._graph.overhead_ps(src)
        fed = path.depart(message, nbytes, overhead_ps + head_ps, 0, left, is_fed=True)
        delay_ps, block = overhead_ps + command_ps, Block.piece(source_pa, len(message.data))
        wire_bytes = self._wire_format.data_bytes(block.nbytes)
        train = self._fabric.train((node, src), COMM, is_reply=True)

        def read_out(later_ps: Ps = 0) -> None:
            route, first_ps, span_ps = memory.reading(block, back)
            self._fabric.start(train, route, wire_bytes, None, None, later_ps + first_ps + span_ps, span_ps, fed)

        if memory.is_constant:
            read_out(delay_ps)
        else:
            self._engine.at(self._engine.now_ps + delay_ps, partial(memory.when_served, block, True, read_out))

    def acknowledge(self, queue: QueuePair, message: Message) -> None:
        """Send the acknowledgement of a message from the memory of its slot, in which it is now, to its sender."""
        peer, here = queue.peer, (self._sip, message.cube, message.pe)
        slot_pa, number, generation = message.dst_addr, message.sender_seq, message.generation
        frame = Acknowledgement(*UNSENT, peer.cube, peer.pe, slot_pa, number, generation, message.src_direction, *here)
        node = self._graph.memory_node(message.cube, message.pe, space_of(slot_pa))
        self._network.frame_path(node, peer.sip, frame, queue.short_name).depart(frame, self._ack_bytes)

    def ring(self, queue: QueuePair, of: Acknowledgement) -> None:
        """Send the doorbell of an acknowledged message."""
        peer, here = queue.peer, (self._sip, of.cube, of.pe)
        frame = Doorbell(
            *UNSENT, peer.cube, peer.pe, of.dst_addr, of.sender_seq, of.generation, of.src_direction, *here
        )
        path = self._network.frame_path(Node("pe", of.cube, of.pe), peer.sip, frame, queue.short_name)
        path.depart(frame, HEADER_BYTES, self._overhead_ps)

    def _at_tail(self, on_dma_done: Callable[[Message, Ps], None], message: Message, beyond_ps: Ps) -> Done:
        """Return a callback for a transfer: its last byte passes PE_DMA ``beyond_ps`` before it reaches the end."""
        return lambda _head_ps, tail_ps: on_dma_done(message, max(tail_ps - beyond_ps, self._engine.now_ps))

    def forget(self, queue: QueuePair) -> None:
        """Drop the path of a closed queue pair."""
        self._paths.pop(queue, None)

    def _path_of(self, queue: QueuePair, message: Message) -> _Path:
        """Compute and store the path of a queue pair's messages."""
        src = Node("pe", message.src_cube, message.src_pe)
        path = self._network.frame_path(src, queue.peer.sip, message, queue.short_name)
        tcm = PeTcm(message.src_sip, self._memory_ports, src)
        stored = self._paths[queue] = _Path(src, path, tcm, _beyond_ps(path))
        return stored
