"""The data plane of PE_IPCQ: writes each message into its peer's slot, on this SIP or behind links."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.ipcq.messages.flits import WireFormat
from sipsim.chips.ahbm.ipcq.messages.messages import IpcqDmaToken
from sipsim.chips.ahbm.ipcq.messages.payloads import PeMessage
from sipsim.chips.ahbm.ipcq.queue_pair import QueuePair
from sipsim.chips.ahbm.ipcq.transport.departures import Departures
from sipsim.chips.ahbm.ipcq.transport.fetch import Fetch
from sipsim.chips.ahbm.memory.ports.port import MemoryPorts
from sipsim.chips.ahbm.mesh.cube_mesh import Graph
from sipsim.chips.ahbm.pe.dma import PeTcm
from sipsim.core.engine import Engine
from sipsim.fabric.graph.graph import Node
from sipsim.fabric.links.network.router import Router, Way

Ps = int


class _Path(NamedTuple):
    """Of one queue pair's messages. ``behind_pe`` is the way of what has passed the PE's DMA already."""

    src: Node
    way: Way
    behind_pe: Way
    departures: Departures
    tcm: PeTcm


class MessageSender:
    """Sends the messages of one SIP's PEs. ``overhead_ps`` is PE_IPCQ's."""

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
