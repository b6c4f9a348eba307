"""A mesh of routers with finite input buffers: virtual cut-through of packets, with credits.

It replaces :class:`sipsim.fabric.flows.FlowFabric` when ``router.buffer_packets`` is a number. The model:

* A transfer is cut into packets of at most ``packet_bytes``. At every input of a node each lane
  (:mod:`sipsim.fabric.buffered.ports`) has a FIFO of ``depth`` packets. Only the front of a FIFO can leave: a packet
  that must wait blocks all packets behind it, whatever their paths (head-of-line blocking).
* A packet's head leaves for an edge when the edge is free and the buffer at its end has room for the whole packet, a
  *credit*. It then passes without a stop: if its head leaves at ``s``, its tail leaves at ``max(s + d, arrival of
  the tail)``, where ``d`` is the packet's part of the transfer's drain. Edge, FIFO and buffer are held until then.
* A credit is back at the sender a wire's delay after the packet's tail has left the buffer.
* An edge serves virtual channels by weight, and within one the inputs round robin in a canonical order.
* The transfers of one source on one channel are a train, as in the fabric of flows: some of them leave at a time,
  never two of one route, each through its own FIFO; others wait without limit. The ends of routes never block.

**Uncontended**, a transfer takes ``Route.latency_ps`` exactly, as among flows, if buffers are deep enough for the
credit's round trip. On an edge whose full packet takes ``d``, with ``wire`` and ``overhead`` (of its end node), a place
in the buffer is in use for ``wire + overhead + max(d, d')``, and its credit returns ``wire`` later, where ``d'`` is the
packet's time on the next edge. So a transfer runs at full bandwidth if ``depth >= 1 + (2 * wire + overhead) / d`` (with
``d' <= d``), else at ``depth * d / (d + 2 * wire + overhead)`` of it.

**Limits.** One packet at a time holds an edge, so a packet that arrives from a slower edge holds it for as long as its
tail takes, also against other virtual channels. A train that arrives over a link is known here only when its tail is;
its packets then take edges that were idle meanwhile at past times, evenly spread between head and tail. The FIFOs of an
input have separate paths through a router's crossbar. A packet costs some three entries of the agenda per edge, even if
its transfer is alone. Frames that have crossed a link wait in a separate buffer, counted in frames, which has no limit
unless ``io_port.buffer_packets`` sets one.
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
_MOST_PATHS = 4096
_Key = tuple[int, int, int, bool]


class Sent(NamedTuple):
    """Transfer that started at ``now_ps``, for :func:`delayed_packets`."""

    flow: PacketFlow
    now_ps: Ps


class BufferedFabric:
    """Fabric of one SIP: its edges, the buffers at their ends, and the packets in them. ``history``: a list of the
    started transfers, or None; ``witness``: checks the buffers, if there is one.
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
        """Return the train of ``source`` on a channel; ``is_reply``: in the virtual network of replies.

        Raises:
            ValueError: for a channel without a weight in the arbitration.
        """
        vc = self._arbitration.queue_of(vc)
        found = self._trains.get((source, vc))
        if found is None:
            found = self._trains[source, vc] = PacketTrain(len(self._trains), vc, is_reply, in_flight)
        return found

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

        ``left`` is called when the last packet has left the first node, with its arrival times at the route's end
        if nothing delays it further. If the route ends with a link, ``done`` is called when the last packet starts on
        that link. ``first`` is never called, as each frame is mailed once.

        Raises:
            ValueError: if ``nbytes`` is less than 1.
        """
        path = self._paths.get((id(route), nbytes, train.vc, train.is_reply)) or self._path(
            route, nbytes, train.vc, train.is_reply
        )
        path.transfers += 1
        now = self._engine.now_ps
        tail = now + delay_ps
        made = PacketFlow(train, path, done, left, (0, 0), cut(0, nbytes, self._buffers.packet_bytes))
        made.feeds = feeds
        if path.leaves:
            train.passing[made] = (tail if is_fed else tail - span_ps) + path.least_ps
        begin = partial(self._begin, made, now)
        if not (is_fed or train.waiting):
            begin(tail - span_ps, tail)
            return None
        fed = FedTransfer(train, begin, None if is_fed else (tail - span_ps, tail))
        train.waiting.append(fed)
        return fed

    def feed(self, fed: FedTransfer, head_ps: Ps, least_tail_ps: Ps, tail_ps: Ps = NEVER) -> None:
        """Set the times at which another transfer brings the head and tail of a fed transfer to their common node,
        whose overhead counts once. Nothing happens before both times are known.
        """
        if tail_ps == NEVER:
            return
        fed.times_ps, waiting = (head_ps, tail_ps), fed.train.waiting
        while waiting and waiting[0].times_ps is not None:
            first = waiting.popleft()
            assert first.times_ps is not None
            first.start(*first.times_ps)

    def _begin(self, flow: PacketFlow, now: Ps, head: Ps, tail: Ps) -> None:
        """Begin a transfer, as the times of its head and tail at the source are known."""
        path, train = flow.path, flow.train
        route, nbytes, vc = path.route, path.nbytes, train.vc
        head, span_ps = max(head, train.clear_ps), tail - head
        tail = train.clear_ps = max(tail, head + span_ps)
        head, tail = head + route.start_ps, tail + route.start_ps
        flow.source_ps, flow.comes_ps = (head, tail), head
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
        """Return the use of every edge so far by the transfers that have started: bytes with framing, and time."""
        return edge_use(((path.route, path.nbytes, path.transfers) for path in self._paths.values()), self._past_use)

    # --- the far ends of links ------------------------------------------------------------------------------------

    @property
    def far_buffers(self) -> "BufferedFabric | None":
        """This fabric, if buffers at the ends of links have a limit.

        A frame crosses a link as one message that leaves when its last packet is decided, so the far SIP learns of all
        its packets at once. Its places in the far buffer are therefore taken together, when its first packet takes the
        link: one per packet, or the whole buffer if the frame has more. They are returned together, by a message in the
        link's other direction, when the last packet has left the buffer.

        The packets of such a frame stay together: no buffer has another frame's packet between them, as a link's
        arbiter and wormhole routers hold a virtual channel. Otherwise the first packet of a frame could have places
        while its last packets wait behind a frame that waits for these places. The buffers of network ``LEAVING``
        contain only frames to links, so a frame with places always gets through.

        Through traffic of a SIP leaves the buffer at once, into the port's store, which has no limit. So frames that
        have arrived over a link wait for none that leave by a link, and a ring of SIPs cannot block itself.
        """
        return None if self._buffers.link_depth is None else self

    def join(self, link: Edge, port: "FarCredits") -> None:
        """Register the port at the start of a link. Call it before the first transfer."""
        assert self._buffers.link_depth is not None
        self._ports[link.src] = port
        depth, output = self._buffers.link_depth, self._output(link)
        output.far = [deque([-FOREVER] * depth) for _ in self._arbitration.weights]

    def credit(self, link: Edge, vc: int, places: int) -> bool:
        """Return places of the buffer at a link's end; False if so many places were not in use."""
        output, depth = self._outputs[link], self._buffers.link_depth
        if output.far is None or depth is None or vc >= len(output.far) or len(output.far[vc]) + places > depth:
            return False
        output.far[vc].extend([self._engine.now_ps] * places)
        self._push(self._engine.now_ps, self._look, output)
        return True

    def _places(self, packets: int) -> int:
        depth = self._buffers.link_depth
        return 0 if depth is None else min(packets, depth)

    def _path(self, route: Route, nbytes: int, vc: int, is_reply: bool) -> PacketPath:
        if nbytes < 1:
            raise ValueError(f"a transfer has at least a byte, not {nbytes}")
        if len(self._paths) >= _MOST_PATHS:
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
        """Schedule the agenda at a time, or now if the time has passed."""
        when = max(when, self._engine.now_ps)
        if when < self._wake_ps:
            self._wake_ps = when
            self._engine.at(when, self._run)

    def _run(self) -> None:
        """Execute the agenda up to now: an edge chooses among waiting packets after all other events of a time."""
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
        flow.train.coming.append(flow)
        self._let_in(flow.train)

    def _let_in(self, train: PacketTrain) -> None:
        """Let the arriving transfers leave their source, as far as those before them allow it."""
        while (fifo := train.next_in()) is not None:
            self._call_front(fifo)

    def _arrive(self, packet: BufferedPacket, _when: Ps) -> None:
        """Put a packet into the FIFO of a node that its head reaches."""
        step = packet.flow.path.steps[packet.hop - 1]
        assert step.lane is not None
        fifo = step.output.fifos[step.lane]
        fifo.queue.append(packet)
        if self.witness is not None:
            self.witness.arrived(fifo, packet)
        if len(fifo.queue) == 1:
            self._call_front(fifo)

    def _call_front(self, fifo: Fifo) -> None:
        """Schedule the new front of a FIFO: it can leave once it has arrived and the packet before it has left."""
        fifo.ready_ps = max(fifo.queue[0].head_ps, fifo.free_ps)
        self._push(fifo.ready_ps, self._offer, fifo)

    def _offer(self, fifo: Fifo, _when: Ps) -> None:
        packet = fifo.queue[0]
        output = packet.flow.path.steps[packet.hop].output
        output.offer(fifo)
        self._touched[output] = None

    def _credit(self, place: tuple[Output, int], when: Ps) -> None:
        """Return a credit: a place in the buffer at an output's end is free."""
        output, lane = place
        output.slots[lane].append(when)
        self._touched[output] = None
        if self.witness is not None:
            self.witness.credited(output, lane)

    def _look(self, output: Output, _when: Ps) -> None:
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
            self._push(output.free_ps, self._look, output)

    def _send(self, output: Output, fifo: Fifo, now: Ps) -> None:
        """Send the front of a FIFO over an edge, from the time when it could go: in the past if its train was."""
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
            self._call_front(fifo)
        elif fifo.upstream is None:
            self._let_in(flow.train)
        packet.hop += 1
        packet.head_ps, packet.tail_ps = start_ps + step.onward_ps, tail_ps + step.onward_ps
        is_last_packet = packet.index == flow.path.packets - 1
        if is_last_packet and flow.tails is not None:
            flow.tails.append(tail_ps)
        if is_last_packet and fifo.upstream is None and flow.path.port is not None and not flow.path.leaves:
            leave = partial(flow.path.port.left, flow.number, flow.path.vc, self._places(flow.path.packets))
            self._engine.at(max(tail_ps, now), leave)
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
        """End a transfer, as all its times are known. A transfer that leaves by a link or feeds another is reported
        when its last packet starts on the last edge.
        """
        flow.head_ps, flow.end_ps = head_ps, tail_ps
        early_ps = max(tail_ps - flow.path.most_lead_ps, self._engine.now_ps)
        if flow.left is not None and not flow.path.steps:
            self._engine.at(early_ps, partial(flow.left, head_ps, tail_ps))
        if flow.feeds is not None:
            start_ps = flow.path.route.edges[-1].overhead_ps
            times_ps = head_ps - start_ps, tail_ps - start_ps
            self._engine.at(early_ps, partial(self.feed, flow.feeds, *times_ps, times_ps[1]))
        if flow.path.leaves:
            self._engine.at(early_ps, partial(self._is_mailed, flow, head_ps, tail_ps))
        elif flow.done is not None:
            self._engine.at(max(tail_ps, self._engine.now_ps), partial(flow.done, head_ps, tail_ps))

    def _is_mailed(self, flow: PacketFlow, head_ps: Ps, tail_ps: Ps) -> None:
        """Mail a transfer, as its last packet starts on the link."""
        del flow.train.passing[flow]
        if flow.done is not None:
            flow.done(head_ps, tail_ps)


def _delays_by_edge(steps: Iterable[PathStep], source_ps: tuple[Ps, Ps], tails: Iterable[Ps]) -> list[Ps]:
    """Return, for each edge, the delay that it adds to a transfer and that remains at the transfer's end.

    ``source_ps``: the times of head and tail at the first node. ``tails``: the times at which the tail left each edge.
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


OTHERS = "others, or waiting for room in its buffer"


def delayed_packets(history: Iterable[Sent]) -> Iterator[Delayed]:
    """Yield the transfers that arrived later than alone, in the order of their starts, with the edges that delayed
    them.

    A transfer waits at an edge for other packets on it, or for room in the buffer at its end. Both are one part
    (``OTHERS``), on the edge for which the last packet waited.
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
