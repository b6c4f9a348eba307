"""The packet oracle: a discrete-event network of packets of 256 B, to compare the flow fabric with. Not a test.

Cut-through: a packet's head goes on after the wire and the overhead of its edge, while its tail still drains. An edge
has a queue of 8 packets a (source, channel). A packet starts over the edge before only if a place is free there; its
place is free again when its tail has left. Deficit round robin divides an edge twice: by weight among channels, in
bytes among the queues of a channel. A channel of weight 0 goes first, the lower before the higher. A source's own queue
has no limit.

An edge is taken for a packet's own drain from its head on. Where the edge before is slower, the tail follows later, and
others use what is left between. Framing is not modelled. A wire longer than 7 packets' time is not filled, for want of
places. Routes whose edges wait for each other in a circle may deadlock; dimension-ordered ones do not.

Times inside are ticks: parts of a picosecond of which each edge needs a whole number for a byte, so nothing is rounded.
"""

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from math import lcm
from typing import Any

from water_filling import Offered

from sipsim.core.units import PS_PER_S
from sipsim.fabric.graph import Edge

PACKET_BYTES = 256
PLACES = 8


class Channel:
    """One channel at one edge. ``ready``: the ring of its queues, without those that wait for a place.

    ``waiting``: how many queues hold packets, ready or not. ``deficit`` and ``quantum``: bytes times the least weight.
    """

    def __init__(self, quantum: int) -> None:
        self.quantum = self.deficit = quantum
        self.ready: deque[Queue] = deque()
        self.waiting = 0


class Wire:
    """One edge, free for the next packet at ``free``. ``is_due``: an event will choose one then.

    ``last``: the queue that sent last. It has had its turn, also if it was empty for a while.
    """

    def __init__(self, edge: Edge, ticks_per_ps: int, weights: Sequence[int]) -> None:
        self.latency = (edge.wire_ps + edge.overhead_ps) * ticks_per_ps
        self.ticks_per_byte = PS_PER_S * ticks_per_ps // edge.bandwidth_bps
        self.least = min((weight for weight in weights if weight), default=1)
        self.channels = [Channel(PACKET_BYTES * weight) for weight in weights]
        self.strict = [channel for channel in self.channels if not channel.quantum]
        self.ring = deque(channel for channel in self.channels if channel.quantum)
        self.queues: dict[Any, Queue] = {}
        self.free = 0
        self.last: Queue | None = None
        self.is_due = False

    def queue(self, source: object, channel: int, is_own: bool) -> "Queue":
        """The queue of a source and channel, ``is_own``: the source's own one, before its first edge."""
        key = source, channel, is_own
        if key not in self.queues:
            self.queues[key] = Queue(self, self.channels[channel])
        return self.queues[key]


class Queue:
    """Packets before an edge: (transfer, hop, bytes, when the tail is there).

    ``taken``: places, also those of packets under way; ``leaving``: when tails leave, of places not yet given back.
    ``blocked``: queues before it that wait for a place.
    """

    def __init__(self, wire: Wire, channel: Channel) -> None:
        self.wire, self.channel = wire, channel
        self.packets: deque[tuple[Transfer, int, int, int]] = deque()
        self.deficit = 0
        self.taken = 0
        self.leaving: deque[int] = deque()
        self.blocked: list[Queue] = []

    def has_place(self, now: int) -> bool:
        while self.leaving and self.leaving[0] <= now:
            self.leaving.popleft()
            self.taken -= 1
        return self.taken < PLACES


class Transfer:
    """One transfer: its queues from the source's own one to that of the last edge, and None behind it."""

    def __init__(self, nbytes: int, queues: list[Queue | None], train: "Train") -> None:
        self.nbytes, self.queues, self.train = nbytes, queues, train
        self.end: int | None = None


class Train:
    """What one source sends on one channel.

    ``last``: the transfer at the end of its own queue; ``later``: those behind one with another first edge.
    """

    def __init__(self) -> None:
        self.last: Transfer | None = None
        self.later: deque[Transfer] = deque()


class Network:
    """The network while it runs: an agenda of calls, in the order of their times and of their making."""

    def __init__(self) -> None:
        self._agenda: list[tuple[int, int, Callable[[int, Any], None], Any]] = []
        self._made = 0

    def at(self, when: int, call: Callable[[int, Any], None], of: Any) -> None:
        self._made += 1
        heapq.heappush(self._agenda, (when, self._made, call, of))

    def run(self) -> None:
        agenda, pop = self._agenda, heapq.heappop
        while agenda:
            now, _, call, of = pop(agenda)
            call(now, of)

    def offer(self, now: int, transfer: Transfer) -> None:
        transfer.train.later.append(transfer)
        self._admit(now, transfer.train)

    def _left(self, now: int, transfer: Transfer) -> None:
        """The last byte of a transfer has left its source."""
        if transfer.train.last is transfer:
            transfer.train.last = None
            self._admit(now, transfer.train)

    def _admit(self, now: int, train: Train) -> None:
        while train.later and (train.last is None or train.last.queues[0] is train.later[0].queues[0]):
            transfer = train.last = train.later.popleft()
            queue = transfer.queues[0]
            for first in range(0, transfer.nbytes, PACKET_BYTES):
                queue.packets.append((transfer, 0, min(PACKET_BYTES, transfer.nbytes - first), now))
            self._filled(now, queue, -(-transfer.nbytes // PACKET_BYTES))

    def _arrive(self, now: int, what: tuple[Queue, tuple[Transfer, int, int, int]]) -> None:
        queue, packet = what
        queue.packets.append(packet)
        self._filled(now, queue, 1)

    def _filled(self, now: int, queue: Queue, by: int) -> None:
        if len(queue.packets) == by:
            if queue is not queue.wire.last:
                queue.deficit = PACKET_BYTES
            queue.channel.ready.append(queue)
            queue.channel.waiting += 1
        self._wake(now, queue.wire)

    def _unblock(self, now: int, queue: Queue) -> None:
        """A queue that lost its turn for want of a place has the next one, or others could starve it."""
        queue.channel.ready.appendleft(queue)
        self._wake(now, queue.wire)

    def _due(self, now: int, wire: Wire) -> None:
        wire.is_due = False
        self._wake(now, wire)

    def _wake(self, now: int, wire: Wire) -> None:
        if wire.free <= now:
            queue = self._chosen(now, wire)
            if queue is None:
                return
            self._send(now, wire, queue)
            if not any(channel.ready for channel in wire.channels):
                return
        if not wire.is_due:
            wire.is_due = True
            self.at(wire.free, self._due, wire)

    def _chosen(self, now: int, wire: Wire) -> Queue | None:
        for channel in wire.strict:
            if channel.ready and (queue := self._first(now, channel)):
                return queue
        for _ in range(2 * len(wire.ring)):
            channel = wire.ring[0]
            if channel.ready and (queue := self._first(now, channel)):
                cost = queue.packets[0][2] * wire.least
                if channel.deficit >= cost:
                    channel.deficit -= cost
                    return queue
                channel.deficit += channel.quantum
            wire.ring.rotate(-1)
        return None

    def _first(self, now: int, channel: Channel) -> Queue | None:
        """The queue of a channel whose turn it is, at the front of the ring; those without a place onward leave it."""
        ready = channel.ready
        while ready:
            queue = ready[0]
            transfer, hop, nbytes, _ = queue.packets[0]
            onward = transfer.queues[hop + 1]
            if onward is not None and onward.taken >= PLACES and not onward.has_place(now):
                ready.popleft()
                if onward.leaving:
                    self.at(onward.leaving[0], self._unblock, queue)
                else:
                    onward.blocked.append(queue)
            elif queue.deficit < nbytes:
                queue.deficit += PACKET_BYTES
                ready.rotate(-1)
            else:
                return queue
        return None

    def _send(self, now: int, wire: Wire, queue: Queue) -> None:
        transfer, hop, nbytes, tail = queue.packets.popleft()
        wire.free = now + nbytes * wire.ticks_per_byte
        left = max(wire.free, tail)
        wire.last = queue
        queue.deficit -= nbytes
        if hop:
            queue.leaving.append(left)
            for before in queue.blocked:
                self.at(left, self._unblock, before)
            queue.blocked.clear()
        elif not queue.packets:
            self.at(left, self._left, transfer)
        if not queue.packets:
            channel = queue.channel
            channel.ready.popleft()
            channel.waiting -= 1
            if not channel.waiting and channel.quantum:
                channel.deficit = channel.quantum
                wire.ring.rotate(-1)
        onward = transfer.queues[hop + 1]
        if onward is None:
            transfer.end = left + wire.latency
        else:
            onward.taken += 1
            self.at(now + wire.latency, self._arrive, (onward, (transfer, hop + 1, nbytes, left + wire.latency)))


def packet_ends_ps(offered: Sequence[Offered], weights: Sequence[int]) -> list[int]:
    """When the tail of each transfer is at the end of its route, in ps. ``weights``: of the channels."""
    edges = dict.fromkeys(edge for each in offered for edge in each.route.edges)
    ticks = lcm(*(_ticks_per_ps(edge) for edge in edges))
    wires = {edge: Wire(edge, ticks, weights) for edge in edges}
    trains: dict[tuple[object, int], Train] = {}
    network, transfers = Network(), []
    for source, channel, start_ps, nbytes, route in offered:
        train = trains.setdefault((source, channel), Train())
        queues = [wires[edge].queue(source, channel, not hop) for hop, edge in enumerate(route.edges)]
        transfers.append(Transfer(nbytes, [*queues, None], train))
        network.at((start_ps + route.start_ps) * ticks, network.offer, transfers[-1])
    network.run()
    assert all(transfer.end is not None for transfer in transfers), "the packets of these routes wait for each other"
    return [-(-transfer.end // ticks) for transfer in transfers]


def _ticks_per_ps(edge: Edge) -> int:
    """The least parts of a picosecond of which a byte takes a whole number on an edge."""
    return lcm(PS_PER_S, edge.bandwidth_bps) // PS_PER_S
