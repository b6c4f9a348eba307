"""A mesh of routers with finite input buffers: virtual cut-through of packets, with credits.

This fabric replaces :class:`sipsim.fabric.flows.FlowFabric` if ``router.buffer_packets`` is a number. The model:

* A transfer is cut into packets of at most ``packet_bytes``. At every input of a node each lane
  (:mod:`sipsim.fabric.buffered.ports`) has a FIFO of ``depth`` packets. Only the front of a FIFO can leave: a packet
  that must wait blocks all packets behind it, whatever their paths (head-of-line blocking).
* A packet's head leaves over an edge when the edge is free and the buffer at its end has a place for the packet, a
  *credit*. The packet then passes without a stop: if the head leaves at ``s``, the tail leaves at ``max(s + d, arrival
  of the tail)``, where ``d`` is the packet's part of the transfer's drain. Edge, FIFO and buffer are in use until then.
* A credit is back at the sender one wire delay after the packet's tail has left the buffer.
* An edge serves virtual channels by weight, and the inputs of one channel round robin in a canonical order.
* The transfers of one source on one channel are a train, as in the fabric of flows: at most ``in_flight`` leave at a
  time, never two over the same wires, each through a separate FIFO; the others wait. The ends of routes never block.

**Uncontended**, a transfer takes ``Route.latency_ps`` exactly, as among flows, if buffers are deep enough for the
credit's round trip. Let a full packet need ``d`` on an edge and ``d'`` on the next one, and let ``wire`` and
``overhead`` be the delays of the edge's wire and end node. Then a place in the buffer is in use for ``wire + overhead +
max(d, d')``, and the credit returns ``wire`` later. So if ``d' <= d``, a transfer has the full bandwidth from a depth
of ``1 + (2 * wire + overhead) / d`` on, and with fewer places ``depth * d / (d + 2 * wire + overhead)`` of it.

**Limits.** One packet at a time holds an edge, so a packet from a slower edge blocks the next edge until the packet's
tail has passed, also for other virtual channels. A frame from a link enters the fabric only when its tail arrives. Its
packets, spread evenly between head and tail, then take edges at past times at which these were idle. The FIFOs of an
input have separate paths through a router's crossbar. A packet costs about three agenda entries per edge, even if its
transfer is alone. Frames that have crossed a link wait in a separate buffer; a frame takes and returns its places
together, and their number has no limit unless ``io_port.buffer_packets`` sets one.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from sipsim.core.engine import Engine
from sipsim.fabric.buffered.ports import (
    FOREVER,
    BufferedPacket,
    Buffers,
    FedTransfer,
    Fifo,
    Output,
    PacketFlow,
    PacketPath,
    PacketTrain,
    PathStep,
    cut,
    lanes_on,
    vc_of,
)
from sipsim.fabric.buffered.witness import BufferWitness
from sipsim.fabric.channels import COMPUTE, Arbitration
from sipsim.fabric.delays import Delayed, Sharing
from sipsim.fabric.graph import Done, Edge, Node, Route
from sipsim.fabric.transport import NEVER, EdgeUse, First, edge_use

if TYPE_CHECKING:
    from sipsim.fabric.links.kind import FarCredits

Ps = int
_MAX_PATHS = 4096
_Key = tuple[int, int, int, bool]


class Sent(NamedTuple):
    """Transfer in the history of a fabric, started at ``now_ps``."""

    flow: PacketFlow
    now_ps: Ps


class BufferedFabric:
    """Fabric of one SIP: edges, the buffers at the ends of edges, and the packets in buffers. ``history``: the started
    transfers, or None if no history is recorded; ``witness``: checks the buffers, or None.
    """

    def __init__(self, engine: Engine, arbitration: Arbitration, buffers: Buffers) -> None:
        arbitration.check()
        buffers.check(arbitration.chunk_bytes)
        self._engine = engine
        self._arbitration = arbitration
        self._buffers = buffers
        self._outputs: dict[Edge, Output] = {}
        self._trains: dict[Hashable, PacketTrain] = {}
        self._paths: dict[_Key, PacketPath] = {}
        self._past_use: dict[Edge, EdgeUse] = {}
        self._agenda: list[tuple[Ps, int, Callable[[Any, Ps], None], Any]] = []
        self._count = 0
        self._wake_ps: Ps = FOREVER
        self._is_running = False
        self._touched: dict[Output, None] = {}
        self._ports: dict[Node, FarCredits] = {}
        self.history: list[Sent] | None = None
        self.witness: BufferWitness | None = None

    def train(self, source: Hashable, vc: int = COMPUTE, in_flight: int = 1, is_reply: bool = False) -> PacketTrain:
        """Return the train of ``source`` on a channel; ``is_reply``: the packets use the virtual network of replies.

        Raises:
            ValueError: for a channel without a weight in the arbitration.
        """
        vc = self._arbitration.weighted_channel(vc)
        train = self._trains.get((source, vc))
        if train is None:
            train = self._trains[source, vc] = PacketTrain(len(self._trains), vc, is_reply, in_flight)
        return train

    def start(
        self,
        train: PacketTrain,
        route: Route,
        nbytes: int,
        done: Done | None,
        left: Done | None = None,
        delay_ps: Ps = 0,
        span_ps: Ps = 0,
        feeds: FedTransfer | None = None,
        is_fed: bool = False,
        first: First | None = None,
    ) -> FedTransfer | None:
        """Send ``nbytes`` over ``route``; see :meth:`sipsim.fabric.flows.FlowFabric.start`.

        ``left`` is called when the last packet has left the first node, with the arrival times of head and tail at the
        route's end if nothing delays the transfer further. If the route ends with a link, ``done`` is called when the
        last packet starts on that link. ``first`` is never called, as each frame is mailed once.

        Raises:
            ValueError: if ``nbytes`` is less than 1.
        """
        path = self._paths.get((id(route), nbytes, train.vc, train.is_reply)) or self._path(
            route, nbytes, train.vc, train.is_reply
        )
        path.transfers += 1
        now = self._engine.now_ps
        tail = now + delay_ps
        flow = PacketFlow(train, path, done, left, (0, 0), cut(0, nbytes, self._buffers.packet_bytes))
        flow.feeds = feeds
        if path.leaves:
            train.passing[flow] = (tail if is_fed else tail - span_ps) + path.least_ps
        begin = partial(self._begin, flow, now)
        if not (is_fed or train.waiting):
            begin(tail - span_ps, tail)
            return None
        fed = FedTransfer(train, begin, None if is_fed else (tail - span_ps, tail))
        train.waiting.append(fed)
        return fed

    def feed(self, fed: FedTransfer, head_ps: Ps, least_tail_ps: Ps, tail_ps: Ps = NEVER) -> None:
        """Set the times at which the head and tail of a fed transfer arrive at its source, with another transfer. The
        source's overhead counts once. A call before ``tail_ps`` is known has no effect.
        """
        if tail_ps == NEVER:
            return
        fed.times_ps, waiting = (head_ps, tail_ps), fed.train.waiting
        while waiting and waiting[0].times_ps is not None:
            first = waiting.popleft()
            assert first.times_ps is not None
            first.start(*first.times_ps)

    def _begin(self, flow: PacketFlow, now: Ps, head: Ps, tail: Ps) -> None:
        """Begin a transfer whose head and tail are at the source at the times ``head`` and ``tail``, in ps."""
        path, train = flow.path, flow.train
        route, nbytes, vc = path.route, path.nbytes, train.vc
        head, span_ps = max(head, train.clear_ps), tail - head
        tail = train.clear_ps = max(tail, head + span_ps)
        head, tail = head + route.start_ps, tail + route.start_ps
        flow.source_ps, flow.next_head_ps = (head, tail), head
        flow.feed = cut(tail - head, nbytes, self._buffers.packet_bytes)
        if self.history is not None:
            flow.tails = []
            self.history.append(Sent(flow, now))
        if path.port is not None:
            flow.number = path.port.announce()
            if path.leaves:
                path.port.left(flow.number, vc, self._places(path.packets))
        if path.steps:
            self._push(head, self._arrive_at_source, flow)
        else:
            self._end(flow, head, tail)

    def use(self) -> dict[Edge, EdgeUse]:
        """Return the use of every edge so far by all started transfers: their number, bytes with framing, and time."""
        return edge_use(((path.route, path.nbytes, path.transfers) for path in self._paths.values()), self._past_use)

    # --- the far ends of links ------------------------------------------------------------------------------------

    @property
    def far_buffers(self) -> "BufferedFabric | None":
        """This fabric, if buffers at the ends of links have a limit.

        A frame crosses a link as one message, sent when the times of the frame's last packet are known, so the far SIP
        learns of all packets at once. The frame therefore takes all its places in the far buffer when its first packet
        takes the link: one per packet, or the whole buffer if the frame has more packets. It returns them together, by
        a message in the link's other direction, when its last packet has left the buffer.

        The packets of such a frame stay together, as if a wormhole router held a virtual channel: no buffer has another
        frame's packet between them. Otherwise the first packet of a frame could have places while the last packets wait
        behind a frame that waits for the same places. The buffers of network ``LEAVING`` contain only frames to links,
        so a frame with places always passes.

        Through traffic of a SIP leaves the buffer at once, into the port's store, which has no limit. So frames from a
        link do not wait for frames to a link, and a ring of SIPs cannot deadlock.
        """
        return None if self._buffers.link_depth is None else self

    def join(self, link: Edge, port: "FarCredits") -> None:
        """Register the port at the start of a link. Call it before the first transfer."""
        assert self._buffers.link_depth is not None
        self._ports[link.src] = port
        depth, output = self._buffers.link_depth, self._output(link)
        output.far = [deque([-FOREVER] * depth) for _ in self._arbitration.weights]

    def credit(self, link: Edge, vc: int, places: int) -> bool:
        """Free ``places`` of the buffer at a link's end; return False if fewer places were in use."""
        output, depth = self._outputs[link], self._buffers.link_depth
        if output.far is None or depth is None or vc >= len(output.far) or len(output.far[vc]) + places > depth:
            return False
        output.far[vc].extend([self._engine.now_ps] * places)
        self._push(self._engine.now_ps, self._touch, output)
        return True

    def _places(self, packets: int) -> int:
        depth = self._buffers.link_depth
        return 0 if depth is None else min(packets, depth)

    def _path(self, route: Route, nbytes: int, vc: int, is_reply: bool) -> PacketPath:
        if nbytes < 1:
            raise ValueError(f"a transfer of {nbytes} bytes cannot be sent; nbytes must be at least 1")
        if len(self._paths) >= _MAX_PATHS:
            self._past_use = self.use()
            self._paths.clear()  # transfers under way hold their paths
        packet_bytes, steps = self._buffers.packet_bytes, []
        packets = -(-nbytes // packet_bytes)
        lanes = list(lanes_on(route, vc, is_reply))
        for hop, (edge, lane) in enumerate(zip(route.edges, lanes, strict=True)):
            output, drain_ps = self._output(edge), edge.drain_ps(nbytes)
            is_last = hop == len(lanes) - 1
            if not is_last:
                output.open_lane(lane)
            onward_ps, parts = edge.wire_ps + edge.overhead_ps, cut(drain_ps, nbytes, packet_bytes)
            places = self._places(packets) if hop and output.far is not None else 0
            steps.append(PathStep(output, onward_ps, drain_ps, parts, None if is_last else lane, places))
        path = PacketPath(route, nbytes, packets, steps, vc)
        path.port = self._ports.get(route.start) if len(steps) > 1 else None
        self._paths[id(route), nbytes, vc, is_reply] = path
        return path

    def _output(self, edge: Edge) -> Output:
        shared = edge.shared
        if shared not in self._outputs:
            self._outputs[shared] = Output(shared, self._arbitration.weights, self._buffers.depth)
        return self._outputs[shared]

    # --- the agenda -----------------------------------------------------------------------------------------------

    def _push(self, when: Ps, action: Callable[[Any, Ps], None], what: Any) -> None:
        self._count += 1
        heappush(self._agenda, (when, self._count, action, what))
        if not self._is_running:
            self._wake(when)

    def _wake(self, when: Ps) -> None:
        """Schedule the execution of the agenda at a time, or now if the time has passed."""
        when = max(when, self._engine.now_ps)
        if when < self._wake_ps:
            self._wake_ps = when
            self._engine.at(when, self._run)

    def _run(self) -> None:
        """Execute the agenda up to now. An edge chooses among waiting packets after all other entries of a time."""
        now, agenda = self._engine.now_ps, self._agenda
        if now >= self._wake_ps:
            self._wake_ps = FOREVER
        self._is_running = True
        while True:
            while agenda and agenda[0][0] <= now:
                when, _, action, what = heappop(agenda)
                action(what, when)
            if not self._touched:
                break
            touched, self._touched = self._touched, {}
            for output in touched:
                self._send_from(output, now)
        self._is_running = False
        if agenda:
            self._wake(agenda[0][0])

    def _arrive_at_source(self, flow: PacketFlow, _when: Ps) -> None:
        """Queue a transfer whose head arrives at its first node."""
        flow.train.arrived.append(flow)
        self._fill_fifos(flow.train)

    def _fill_fifos(self, train: PacketTrain) -> None:
        """Put transfers of a train that have arrived at its source into FIFOs, as many as may start now."""
        while (fifo := train.fill_fifo()) is not None:
            self._schedule_front(fifo)

    def _arrive(self, packet: BufferedPacket, _when: Ps) -> None:
        """Put a packet into the FIFO of a node that its head reaches."""
        step = packet.flow.path.steps[packet.hop - 1]
        assert step.lane is not None
        fifo = step.output.fifos[step.lane]
        fifo.queue.append(packet)
        if self.witness is not None:
            self.witness.arrived(fifo, packet)
        if len(fifo.queue) == 1:
            self._schedule_front(fifo)

    def _schedule_front(self, fifo: Fifo) -> None:
        """Schedule the new front of a FIFO for when its head has arrived and the packet before it has left."""
        fifo.ready_ps = max(fifo.queue[0].head_ps, fifo.free_ps)
        self._push(fifo.ready_ps, self._offer, fifo)

    def _offer(self, fifo: Fifo, _when: Ps) -> None:
        """Offer the front of a FIFO to its next edge."""
        packet = fifo.queue[0]
        output = packet.flow.path.steps[packet.hop].output
        output.offer(fifo)
        self._touched[output] = None

    def _credit(self, place: tuple[Output, int], when: Ps) -> None:
        """Take a returned credit: a place in the buffer at an output's end is free."""
        output, lane = place
        output.slots[lane].append(when)
        self._touched[output] = None
        if self.witness is not None:
            self.witness.credited(output, lane)

    def _touch(self, output: Output, _when: Ps) -> None:
        self._touched[output] = None

    # --- sending --------------------------------------------------------------------------------------------------

    def _send_from(self, output: Output, now: Ps) -> None:
        """Send all packets that an edge can send up to now."""
        while output.free_ps <= now:
            fifo = output.choose()
            if fifo is None:
                return
            self._send(output, fifo, now)
        if output.wake_ps < output.free_ps and any(output.waiting):
            output.wake_ps = output.free_ps
            self._push(output.free_ps, self._touch, output)

    def _send(self, output: Output, fifo: Fifo, now: Ps) -> None:
        """Send the front of a FIFO over an edge from the earliest possible time on, which may have passed."""
        packet = fifo.pop()
        flow = packet.flow
        step = flow.path.steps[packet.hop]
        part_ps, start_ps = step.parts.part_ps(packet.index), max(fifo.ready_ps, output.free_ps)
        if step.lane is not None:
            start_ps = max(start_ps, output.slots[step.lane].popleft())
        elif step.places and not packet.index:
            assert output.far is not None
            start_ps = max(start_ps, *(output.far[flow.path.vc].popleft() for _ in range(step.places)))
        tail_ps = max(start_ps + part_ps, packet.tail_ps)
        if self.witness is not None:
            self.witness.sent(output, fifo, packet, start_ps, tail_ps)
        if flow.path.is_together:
            output.hold(packet)
        output.free_ps = fifo.free_ps = tail_ps
        output.charge(vc_of(fifo.lane), part_ps)
        if fifo.upstream is not None:
            self._push(tail_ps + fifo.upstream.edge.wire_ps, self._credit, (fifo.upstream, fifo.lane))
        if fifo.queue:
            self._schedule_front(fifo)
        elif fifo.upstream is None:
            self._fill_fifos(flow.train)
        packet.hop += 1
        packet.head_ps, packet.tail_ps = start_ps + step.onward_ps, tail_ps + step.onward_ps
        is_last_packet = packet.index == flow.path.packets - 1
        if is_last_packet and flow.tails is not None:
            flow.tails.append(tail_ps)
        if is_last_packet and fifo.upstream is None and flow.path.port is not None and not flow.path.leaves:
            return_places = partial(flow.path.port.left, flow.number, flow.path.vc, self._places(flow.path.packets))
            self._engine.at(max(tail_ps, now), return_places)
        if is_last_packet and fifo.upstream is None and flow.left is not None:
            beyond_ps = flow.path.route.head_ps() - flow.path.route.start_ps
            self._engine.at(max(tail_ps, now), partial(flow.left, start_ps + beyond_ps, tail_ps + beyond_ps))
        if step.lane is not None:
            self._push(packet.head_ps, self._arrive, packet)
            return
        if not packet.index:
            flow.head_ps = packet.head_ps
        if is_last_packet:
            self._end(flow, flow.head_ps, packet.tail_ps)

    def _end(self, flow: PacketFlow, head_ps: Ps, tail_ps: Ps) -> None:
        """Schedule the end of a transfer whose times are all known. A transfer that leaves by a link or feeds another
        ends when its last packet starts on the last edge.
        """
        flow.head_ps, flow.end_ps = head_ps, tail_ps
        early_ps = max(tail_ps - flow.path.last_packet_ps, self._engine.now_ps)
        if flow.left is not None and not flow.path.steps:
            self._engine.at(early_ps, partial(flow.left, head_ps, tail_ps))
        if flow.feeds is not None:
            start_ps = flow.path.route.edges[-1].overhead_ps
            times_ps = head_ps - start_ps, tail_ps - start_ps
            self._engine.at(early_ps, partial(self.feed, flow.feeds, *times_ps, times_ps[1]))
        if flow.path.leaves:
            self._engine.at(early_ps, partial(self._mail, flow, head_ps, tail_ps))
        elif flow.done is not None:
            self._engine.at(max(tail_ps, self._engine.now_ps), partial(flow.done, head_ps, tail_ps))

    def _mail(self, flow: PacketFlow, head_ps: Ps, tail_ps: Ps) -> None:
        """Mail a transfer whose last packet starts on the link now."""
        del flow.train.passing[flow]
        if flow.done is not None:
            flow.done(head_ps, tail_ps)


def _delays_by_edge(steps: Iterable[PathStep], source_ps: tuple[Ps, Ps], tails: Iterable[Ps]) -> list[Ps]:
    """Return for each edge of a path the delay that the edge adds to a transfer and that remains at the route's end.

    ``source_ps``: the times of head and tail at the first node; ``tails``: when the tail left each edge.
    """
    late, (alone_head, alone_tail) = [], source_ps
    for step, tail in zip(steps, tails, strict=True):
        alone_tail = max(alone_tail, alone_head + step.drain_ps)
        late.append(tail - alone_tail)
        alone_head, alone_tail = alone_head + step.onward_ps, alone_tail + step.onward_ps
    least = late[-1]
    for hop in range(len(late) - 1, -1, -1):
        late[hop] = least = max(min(least, late[hop]), 0)
    return [after - before for before, after in zip([0, *late], late, strict=False)]


OTHERS = "other transfers, or waiting for a place in the buffer at its end"


def delayed_packets(history: Iterable[Sent]) -> Iterator[Delayed]:
    """Yield the transfers that others delayed, in the order of their starts, with the edges that delayed each.

    A packet waits at an edge for other packets on the edge, or for a place in the buffer at the edge's end. Both count
    together (``OTHERS``), for the edge where a transfer's last packet waited.
    """
    for flow, now_ps in history:
        if flow.end_ps is None or not flow.path.steps:
            continue
        assert flow.tails is not None
        parts = _delays_by_edge(flow.path.steps, flow.source_ps, flow.tails)
        if any(parts):
            shares = tuple(
                Sharing.on(step.output.edge, OTHERS, delay_ps)
                for step, delay_ps in zip(flow.path.steps, parts, strict=True)
                if delay_ps
            )
            route = flow.path.route
            yield Delayed(str(route.start), str(route.edges[-1].dst), flow.path.nbytes, now_ps, flow.end_ps, shares)
