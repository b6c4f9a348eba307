"""The deliveries of PE_IPCQ: messages end in a ring, and credits that are sent as messages at their PE."""

from collections import deque
from collections.abc import Callable
from functools import partial

from sipsim.chips.ahbm.address import space_of
from sipsim.chips.ahbm.ipcq.messages.flits import WireFormat
from sipsim.chips.ahbm.ipcq.messages.messages import IpcqDmaToken
from sipsim.chips.ahbm.ipcq.messages.payloads import PeCredit, PeMessage
from sipsim.chips.ahbm.ipcq.pe_ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.memory.ports.port import MemoryPorts
from sipsim.chips.ahbm.mesh.cube_mesh import CubeMeshGraph
from sipsim.fabric.graph.graph import Node, Route
from sipsim.fabric.links.network.delivery import BadPacket, Delivery
from sipsim.fabric.noc.arbitration import COMM
from sipsim.fabric.transport.transport import Transport

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
