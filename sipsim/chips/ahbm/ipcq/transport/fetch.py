"""How PE_DMA brings the bytes of a message from another memory, to pass them on as they come."""

from collections.abc import Callable

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.ipcq.messages.flits import WireFormat
from sipsim.chips.ahbm.memory.ports.port import MemoryPort, MemoryPorts
from sipsim.chips.ahbm.mesh.cube_mesh import CubeMeshGraph
from sipsim.core.engine import Engine
from sipsim.fabric.graph.graph import Node
from sipsim.fabric.noc.arbitration import COMM
from sipsim.fabric.transport.transport import Transport

Ps = int


class Fetch:
    """Fetches for all PEs of one SIP: a command of ``command_bytes`` to the memory, its read, and the data back."""

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
