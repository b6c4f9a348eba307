"""How PE_DMA brings the bytes of a message from another memory, to pass them on as they come."""

from collections.abc import Callable

from sipsim.ipcq.flits import WireFormat
from sipsim.noc.arbitration import COMM
from sipsim.noc.cube_mesh import CubeMeshGraph
from sipsim.noc.fabric import Fabric
from sipsim.noc.graph import Node
from sipsim.pe.dma import MemoryTiming
from sipsim.topology.address import PhysAddr

Ps = int


class Fetch:
    """Fetches for all PEs of one SIP."""

    def __init__(
        self, fabric: Fabric, graph: CubeMeshGraph, timing: MemoryTiming, wire_format: WireFormat, chunk_bytes: int
    ) -> None:
        self._fabric = fabric
        self._graph = graph
        self._timing = timing
        self._data_bytes = wire_format.data_bytes
        self._chunk_bytes = chunk_bytes

    def start(self, src: Node, place: PhysAddr, nbytes: int, delay_ps: Ps, here: Callable[[Ps, Ps], None]) -> None:
        """Bring bytes to a PE's DMA; ``here(head_ps, tail_ps)`` when the last chunk starts on the wire into the PE.

        So what follows on a link can be told in time: a chunk and the way to the port later, at least.
        """
        route, wire_bytes = self._graph.route(self._graph.node_of(place), src), self._data_bytes(nbytes)
        lead_ps = route.edges[-1].drain_ps(min(wire_bytes, self._chunk_bytes))
        self._fabric.start(route, wire_bytes, here, COMM, lead_ps, delay_ps + self._until_memory_gives_ps(src, place))

    def least_ps(self, src: Node, place: PhysAddr) -> Ps:
        """How much later the head of what is fetched passes PE_DMA, if nothing else is there."""
        fetch = self._graph.route(self._graph.node_of(place), src)
        return self._until_memory_gives_ps(src, place) + fetch.head_ps() - self._graph.overhead_ps(src)

    def _until_memory_gives_ps(self, src: Node, place: PhysAddr) -> Ps:
        """What PE_DMA waits for before bytes come from a memory: a command to it, and its read."""
        command = self._graph.route(src, self._graph.node_of(place))
        return command.latency_ps(self._timing.command_bytes) + self._timing.read_ps[place.space]
