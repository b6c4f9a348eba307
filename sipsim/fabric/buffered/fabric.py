"""A mesh of routers with finite input buffers: virtual cut-through of packets, with credits.

It stands where :class:`sipsim.fabric.flows.FlowFabric` does when ``router.buffer_packets`` is a number. The model:

* A transfer is cut into packets of at most ``packet_bytes``. At every input of a node each lane
  (:mod:`sipsim.fabric.buffered.ports`) has a FIFO of ``depth`` packets. Only the front of a FIFO can leave: one
  that must wait holds all behind it back, whatever their ways (head-of-line blocking).
* A packet's head leaves for an edge when the edge is free and the buffer at its end has room for the whole packet, a
  *credit*. It then passes without a stop: a head that left at ``s`` has its tail out at ``max(s + d, tail's coming)``,
  where ``d`` is the packet's part of the transfer's drain. Edge, FIFO and buffer are held until then.
* A credit is back at the sender a wire's delay after the packet's tail has left the buffer.
* An edge serves virtual channels by weight, and within one the inputs round robin in a canonical order.
* What one source sends on one channel is a train, as in the fabric of flows: some transfers of it leave at a time,
  never two of one route, each by a FIFO of its own; others wait without limit. The ends of routes take what comes.

**Uncontended** a transfer takes ``Route.latency_ps`` exactly, as among flows, if buffers are deep enough for the
credit's round trip. On an edge whose full packet takes ``d``, with ``wire`` and ``overhead`` (of its end node), a place
in the buffer is in use for ``wire + overhead + max(d, d')``, and its credit comes ``wire`` later, where ``d'`` is what
the packet takes on the next edge. So a transfer runs at full bandwidth from ``depth >= 1 + (2 * wire + overhead) / d``
on (with ``d' <= d``), and with less at ``depth * d / (d + 2 * wire + overhead)`` of it.

**Limits.** An edge is held by one packet at a time, so one that comes from a slower edge holds it for as long as its
tail takes, for other virtual channels, too. A train that has come over a link is known here only when its tail is; its
packets take edges that were idle meanwhile as of then, evenly spread between head and tail. An input's FIFOs have ways
of their own through a router's crossbar. A packet costs some three entries of the agenda an edge, a transfer alone
included. What has crossed a link waits in a buffer of its own, counted in frames; it has no limit unless
``io_port.buffer_packets`` gives it one.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from sipsim.core.engine import Engine
from sipsim.fabric.buffered.ports import (
    FOREVER,
    Buffers,
    Fed,
    Fifo,
    Flow,
    Leg,
    Output,
    Packet,
    PacketTrain,
    Way,
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
_WAYS_KEPT = 4096
_Key = tuple[int, int, int, bool]


class Sent(NamedTuple):
    """A transfer that started at ``now_ps``, for :func:`delayed_packets`."""

    flow: Flow
    now_ps: Ps


class BufferedFabric:
    """All edges of one SIP, the buffers at their ends, and the packets in them. ``history``: transfers that have
    started, if it is a list; ``witness``: checks what the buffers do, if there is one.
    """

    def __init__(self, engine: Engine, arbitration: Arbitration, buffers: Buffers) -> None:
        arbitration.check()
        buffers.check(arbitration.chunk_bytes)
        self._engine = engine
        self._arbitration = arbitration
        self._buffers = buffers
        self._outputs: dict[Edge, Output] = {}
        self._trains: dict[Hashable, PacketTrain] = {}
        self._ways: dict[_Key, Way] = {}
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
        """What ``source`` sends on a channel; ``is_reply``: in the virtual network of replies.

        Raises:
            ValueError: for a channel that the arbitration does not have.
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
        feeds: Fed | None = None,
        is_fed: bool = False,
        first: First | None = None,
    ) -> Fed | None:
        """Send ``nbytes`` over ``route``; see :meth:`sipsim.fabric.flows.FlowFabric.start`.

        ``left`` is called when the last packet has left the first node, with the times at the end of the route if
        nobody held it back from there on; ``done``, if the route ends with a link, when it starts there; ``first`` is
        not, as frames are mailed once.

        Raises:
            ValueError: no byte.
        """
        way = self._ways.get((id(route), nbytes, train.vc, train.is_reply)) or self._way(
            route, nbytes, train.vc, train.is_reply
        )
        way.transfers += 1
        now = self._engine.now_ps
        tail = now + delay_ps
        made = Flow(train, way, done, left, (0, 0), cut(0, nbytes, self._buffers.packet_bytes))
        made.feeds = feeds
        if way.leaves:
            train.passing[made] = (tail if is_fed else tail - span_ps) + way.least_ps
        begin = partial(self._begin, made, now)
        if not (is_fed or train.waiting):
            begin(tail - span_ps, tail)
            return None
        fed = Fed(train, begin, None if is_fed else (tail - span_ps, tail))
        train.waiting.append(fed)
        return fed

    def feed(self, fed: Fed, head_ps: Ps, least_tail_ps: Ps, tail_ps: Ps = NEVER) -> None:
        """The times are known at which another transfer brings head and tail of what is fed to the node that they have
        in common, whose overhead counts once. Nothing happens before both are known."""
        if tail_ps == NEVER:
            return
        fed.times_ps, waiting = (head_ps, tail_ps), fed.train.waiting
        while waiting and waiting[0].times_ps is not None:
            first = waiting.popleft()
            assert first.times_ps is not None
            first.start(*first.times_ps)

    def _begin(self, flow: Flow, now: Ps, head: Ps, tail: Ps) -> None:
        """The times are known at which head and tail are at the source."""
        way, train = flow.way, flow.train
        route, nbytes, vc = way.route, way.nbytes, train.vc
        head, span_ps = max(head, train.clear_ps), tail - head
        tail = train.clear_ps = max(tail, head + span_ps)
        head, tail = head + route.start_ps, tail + route.start_ps
        flow.source_ps, flow.comes_ps = (head, tail), head
        flow.feed = cut(tail - head, nbytes, self._buffers.packet_bytes)
        if self.history is not None:
            flow.tails = []
            self.history.append(Sent(flow, now))
        if way.port is not None:
            flow.number = way.port.came()
            if way.leaves:
                way.port.left(flow.number, vc, self._places(way.packets))
        if way.legs:
            self._push(head, self._come, flow)
        else:
            self._end(flow, head, tail)

    def use(self) -> dict[Edge, EdgeUse]:
        """How much every edge was used so far by the transfers that have started: bytes with framing, and time."""
        return edge_use(((way.route, way.nbytes, way.transfers) for way in self._ways.values()), self._past_use)

    # --- the far ends of links ------------------------------------------------------------------------------------

    @property
    def far_buffers(self) -> "BufferedFabric | None":
        """This fabric, if buffers at the ends of links have a limit.

        A frame crosses a link as one message that leaves when its last packet is decided, so the far SIP learns of all
        of its packets at once. Its places in the far buffer are therefore taken together, when its first packet takes
        the link: as many as it has packets, or the whole buffer if it has more. They are given back together, by a
        message over the link's other direction, when the last packet has left the buffer.

        Packets of a frame that takes such places stay together: in no buffer is there another's between them, as a
        link's own arbiter and those of wormhole routers hold a virtual channel. Otherwise a frame whose first packet
        has its places could wait for its own last packets behind another that waits for those places. Nothing but
        frames to links is in their buffers (network ``LEAVING``), so one that has its places always gets through.

        What only passes through a SIP is taken out of the buffer at once, into the port's store for through traffic,
        which has no limit: so what has arrived over a link waits for nothing that leaves by one, and a ring of SIPs
        cannot block itself.
        """
        return None if self._buffers.link_depth is None else self

    def join(self, link: Edge, port: "FarCredits") -> None:
        """A port of this SIP, at the start of its link. Call it before the first transfer."""
        assert self._buffers.link_depth is not None
        self._ports[link.src] = port
        depth, output = self._buffers.link_depth, self._output(link)
        output.far = [deque([-FOREVER] * depth) for _ in self._arbitration.weights]

    def credit(self, link: Edge, vc: int, places: int) -> bool:
        """Places of the buffer at a link's end are free; False if so many were not in use."""
        output, depth = self._outputs[link], self._buffers.link_depth
        if output.far is None or depth is None or vc >= len(output.far) or len(output.far[vc]) + places > depth:
            return False
        output.far[vc].extend([self._engine.now_ps] * places)
        self._push(self._engine.now_ps, self._look, output)
        return True

    def _places(self, packets: int) -> int:
        depth = self._buffers.link_depth
        return 0 if depth is None else min(packets, depth)

    # --- ways -----------------------------------------------------------------------------------------------------

    def _way(self, route: Route, nbytes: int, vc: int, is_reply: bool) -> Way:
        if nbytes < 1:
            raise ValueError(f"a transfer has at least a byte, not {nbytes}")
        if len(self._ways) >= _WAYS_KEPT:
            self._past_use = self.use()
            self._ways.clear()  # transfers on their way keep theirs
        packet_bytes, legs = self._buffers.packet_bytes, []
        packets = -(-nbytes // packet_bytes)
        lanes = list(lanes_on(route, vc, is_reply))
        for hop, (edge, lane) in enumerate(zip(route.edges, lanes, strict=True)):
            output, drain_ps = self._output(edge), edge.drain_ps(nbytes)
            is_last = hop == len(lanes) - 1
            if not is_last:
                output.open_lane(lane)
            onward_ps, parts = edge.wire_ps + edge.overhead_ps, cut(drain_ps, nbytes, packet_bytes)
            places = self._places(packets) if hop and output.far is not None else 0
            legs.append(Leg(output, onward_ps, drain_ps, parts, None if is_last else lane, places))
        way = Way(route, nbytes, packets, legs, vc)
        way.port = self._ports.get(route.start) if len(legs) > 1 else None
        self._ways[id(route), nbytes, vc, is_reply] = way
        return way

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
        """Let the engine run the agenda at a time, or now if that has passed."""
        when = max(when, self._engine.now_ps)
        if when < self._wake_ps:
            self._wake_ps = when
            self._engine.at(when, self._run)

    def _run(self) -> None:
        """Carry the agenda out up to now: all that happens at a time before an edge chooses among those that wait."""
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

    def _come(self, flow: Flow, _when: Ps) -> None:
        """A transfer's head comes to its first node."""
        flow.train.coming.append(flow)
        self._let_in(flow.train)

    def _let_in(self, train: PacketTrain) -> None:
        """Let what is coming leave its source, as far as those before it let it."""
        while (fifo := train.next_in()) is not None:
            self._call_front(fifo)

    def _arrive(self, packet: Packet, _when: Ps) -> None:
        """A packet's head comes to a node that it passes."""
        leg = packet.flow.way.legs[packet.hop - 1]
        assert leg.lane is not None
        fifo = leg.output.fifos[leg.lane]
        fifo.queue.append(packet)
        if self.witness is not None:
            self.witness.arrived(fifo, packet)
        if len(fifo.queue) == 1:
            self._call_front(fifo)

    def _call_front(self, fifo: Fifo) -> None:
        """There is another packet at the front of a FIFO: it can go when it has come and the one before it is out."""
        fifo.ready_ps = max(fifo.queue[0].head_ps, fifo.free_ps)
        self._push(fifo.ready_ps, self._offer, fifo)

    def _offer(self, fifo: Fifo, _when: Ps) -> None:
        packet = fifo.queue[0]
        output = packet.flow.way.legs[packet.hop].output
        output.offer(fifo)
        self._touched[output] = None

    def _credit(self, place: tuple[Output, int], when: Ps) -> None:
        """A place in the buffer at an output's end is free."""
        output, lane = place
        output.slots[lane].append(when)
        self._touched[output] = None
        if self.witness is not None:
            self.witness.credited(output, lane)

    def _look(self, output: Output, _when: Ps) -> None:
        self._touched[output] = None

    # --- sending --------------------------------------------------------------------------------------------------

    def _send_from(self, output: Output, now: Ps) -> None:
        """Send what an edge can send up to now."""
        while output.free_ps <= now:
            fifo = output.choose()
            if fifo is None:
                return
            self._send(output, fifo, now)
        if output.wake_ps < output.free_ps and any(output.waiting):
            output.wake_ps = output.free_ps
            self._push(output.free_ps, self._look, output)

    def _send(self, output: Output, fifo: Fifo, now: Ps) -> None:
        """The front of a FIFO takes an edge, as of when all that it needs was there: in the past if its train was."""
        packet = fifo.pop()
        flow = packet.flow
        leg = flow.way.legs[packet.hop]
        part_ps, start_ps = leg.parts.part_ps(packet.index), max(fifo.ready_ps, output.free_ps)
        if leg.lane is not None:
            start_ps = max(start_ps, output.slots[leg.lane].popleft())
        elif leg.places and not packet.index:
            assert output.far is not None
            start_ps = max(start_ps, *(output.far[flow.way.vc].popleft() for _ in range(leg.places)))
        tail_ps = max(start_ps + part_ps, packet.tail_ps)
        if self.witness is not None:
            self.witness.sent(output, fifo, packet, start_ps, tail_ps)
        if flow.way.is_together:
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
        packet.head_ps, packet.tail_ps = start_ps + leg.onward_ps, tail_ps + leg.onward_ps
        is_last_packet = packet.index == flow.way.packets - 1
        if is_last_packet and flow.tails is not None:
            flow.tails.append(tail_ps)
        if is_last_packet and fifo.upstream is None and flow.way.port is not None and not flow.way.leaves:
            leave = partial(flow.way.port.left, flow.number, flow.way.vc, self._places(flow.way.packets))
            self._engine.at(max(tail_ps, now), leave)
        if is_last_packet and fifo.upstream is None and flow.left is not None:
            beyond_ps = flow.way.route.head_ps() - flow.way.route.start_ps
            self._engine.at(max(tail_ps, now), partial(flow.left, start_ps + beyond_ps, tail_ps + beyond_ps))
        if leg.lane is not None:
            self._push(packet.head_ps, self._arrive, packet)
            return
        if not packet.index:
            flow.head_ps = packet.head_ps
        if is_last_packet:
            self._end(flow, flow.head_ps, packet.tail_ps)

    def _end(self, flow: Flow, head_ps: Ps, tail_ps: Ps) -> None:
        """All times of a transfer are known. What leaves by a link, or is passed on, is known when its last packet
        starts on the last edge."""
        flow.head_ps, flow.end_ps = head_ps, tail_ps
        early_ps = max(tail_ps - flow.way.most_lead_ps, self._engine.now_ps)
        if flow.left is not None and not flow.way.legs:
            self._engine.at(early_ps, partial(flow.left, head_ps, tail_ps))
        if flow.feeds is not None:
            start_ps = flow.way.route.edges[-1].overhead_ps
            times_ps = head_ps - start_ps, tail_ps - start_ps
            self._engine.at(early_ps, partial(self.feed, flow.feeds, *times_ps, times_ps[1]))
        if flow.way.leaves:
            self._engine.at(early_ps, partial(self._is_mailed, flow, head_ps, tail_ps))
        elif flow.done is not None:
            self._engine.at(max(tail_ps, self._engine.now_ps), partial(flow.done, head_ps, tail_ps))

    def _is_mailed(self, flow: Flow, head_ps: Ps, tail_ps: Ps) -> None:
        """The last packet of a transfer starts on the link by which it leaves."""
        del flow.train.passing[flow]
        if flow.done is not None:
            flow.done(head_ps, tail_ps)


def _delay_by_edge(legs: Iterable[Leg], source_ps: tuple[Ps, Ps], tails: Iterable[Ps]) -> list[Ps]:
    """What is added to a transfer's end on each edge and is still there at the end.

    ``source_ps``: its head and tail at the first node. ``tails``: when its tail left each edge.
    """
    late, (alone_head, alone_tail) = [], source_ps
    for leg, tail in zip(legs, tails, strict=True):
        alone_tail = max(alone_tail, alone_head + leg.drain_ps)
        late.append(tail - alone_tail)
        alone_head, alone_tail = alone_head + leg.onward_ps, alone_tail + leg.onward_ps
    least = late[-1]
    for hop in range(len(late) - 1, -1, -1):
        late[hop] = least = max(min(least, late[hop]), 0)
    return [after - before for before, after in zip([0, *late], late, strict=False)]


OTHERS = "others, or waiting for room in its buffer"


def delayed_packets(history: Iterable[Sent]) -> Iterator[Delayed]:
    """The transfers that came later than alone, in the order of their starts, and on which edges.

    A transfer waits at an edge for other packets on it, or for room in the buffer at its end. Both are one part
    (``OTHERS``), on the edge for which the last packet waited.
    """
    for flow, now_ps in history:
        if flow.end_ps is None or not flow.way.legs:
            continue
        assert flow.tails is not None
        parts = _delay_by_edge(flow.way.legs, flow.source_ps, flow.tails)
        if any(parts):
            shares = tuple(
                Sharing.on(leg.output.edge, OTHERS, delay_ps)
                for leg, delay_ps in zip(flow.way.legs, parts, strict=True)
                if delay_ps
            )
            route = flow.way.route
            yield Delayed(str(route.start), str(route.edges[-1].dst), flow.way.nbytes, now_ps, flow.end_ps, shares)
