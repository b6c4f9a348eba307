"""Input FIFOs and outputs of nodes, and which packet an output sends next."""

from collections import deque
from math import lcm

from sipsim.fabric.buffered.ports.depth import vc_of
from sipsim.fabric.buffered.ports.packets import Flow, Packet
from sipsim.fabric.graph.graph import Edge

Ps = int
FOREVER: Ps = 1 << 62


class Fifo:
    """The packets of one lane at one input of a node; ``upstream``: the output that fills it, None at a source.

    A source has ``flows`` that wait in line, without limit, and one packet in ``queue``: that at the front. ``key``
    orders the inputs of a node. ``free_ps``: when the last packet that left was out. ``ready_ps``: since when the front
    can go.
    """

    __slots__ = ("flows", "free_ps", "key", "lane", "queue", "ready_ps", "upstream")

    def __init__(self, upstream: "Output | None", lane: int) -> None:
        self.upstream = upstream
        self.lane = lane
        self.queue: deque[Packet] = deque()
        self.flows: deque[Flow] = deque()
        self.free_ps: Ps = -FOREVER
        self.ready_ps: Ps = 0
        self.key: tuple[str, int, str, int] = ("", 0, "", lane)
        if upstream is not None:
            kind, cube, place = upstream.edge.src
            self.key = (kind, cube, f"{place:>8}", lane)

    def pop(self) -> Packet:
        """Remove the front. At a source the next packet takes its place."""
        packet = self.queue.popleft()
        if self.upstream is None:
            if packet.flow.is_made:
                self.flows.popleft()
            if self.flows:
                self.queue.append(self.flows[0].next_packet())
        return packet


class Output:
    """The sending side of an edge. ``slots``: by lane, since when each free place of the buffer at its end is free.

    ``waiting``: by virtual channel, FIFOs whose front waits for this edge. ``free_ps``: when the last packet was out.
    ``wake_ps``: when the next look at those that wait is due. ``far``: of a link whose far end has a finite buffer, by
    virtual channel, since when each free place there is free. ``held``: by lane, the transfer whose packets must not be
    parted and are not all through; -1 - channel for the last edge of a way.
    """

    __slots__ = (
        "_depth", "_last", "_scale", "_served", "_tags", "_weights", "edge", "far", "fifos", "free_ps", "held",
        "slots",
        "waiting", "wake_ps",
    )  # fmt: skip

    def __init__(self, edge: Edge, weights: tuple[int, ...], depth: int) -> None:
        self.edge = edge
        self.free_ps: Ps = -FOREVER
        self.wake_ps: Ps = -FOREVER
        self.waiting: list[list[Fifo]] = [[] for _ in weights]
        self.slots: dict[int, deque[Ps]] = {}
        self.fifos: dict[int, Fifo] = {}
        self.held: dict[int, Flow] = {}
        self.far: list[deque[Ps]] | None = None
        self._depth = depth
        self._weights = weights
        self._scale = lcm(*(weight for weight in weights if weight))
        self._tags = [0] * len(weights)
        self._served = 0
        self._last = [("", 0, "", -1)] * len(weights)

    def open_lane(self, lane: int) -> None:
        """Make the buffer of a lane at this edge's end."""
        if lane not in self.slots:
            self.slots[lane] = deque([-FOREVER] * self._depth)
            self.fifos[lane] = Fifo(self, lane)

    def offer(self, fifo: Fifo) -> None:
        """The front of a FIFO waits for this edge from now on."""
        self.waiting[vc_of(fifo.lane)].append(fifo)

    def choose(self) -> Fifo | None:
        """Which front goes next, of those with room at the edge's end: by virtual channel, then round robin among the
        inputs in the order of their keys. It waits no longer."""
        chosen_vc, least = -1, FOREVER
        for vc, fifos in enumerate(self.waiting):
            if not fifos or not self._able(vc):
                continue
            if not self._weights[vc]:
                chosen_vc = vc
                break
            tag = max(self._tags[vc], self._served)
            if tag < least:
                chosen_vc, least = vc, tag
        if chosen_vc < 0:
            return None
        chosen = self._first(chosen_vc, self._able(chosen_vc))
        self.waiting[chosen_vc].remove(chosen)
        self._last[chosen_vc] = chosen.key
        return chosen

    def charge(self, vc: int, drain_ps: Ps) -> None:
        """A virtual channel has used the edge: start-time fair queueing by weight, so that what a channel does not use
        is the others', and is not saved up."""
        weight = self._weights[vc]
        if weight:
            self._served = max(self._tags[vc], self._served)
            self._tags[vc] = self._served + drain_ps * self._scale // weight

    def _first(self, vc: int, fifos: list[Fifo]) -> Fifo:
        """Whose turn it is."""
        last = self._last[vc]
        return min(fifos, key=lambda fifo: (fifo.key <= last, fifo.key))

    def _able(self, vc: int) -> list[Fifo]:
        """The FIFOs of a virtual channel for whose front there is room. Of frames that wait for room at a link's far
        end only the first in turn may take it, so that a long one comes to its own."""
        able = [fifo for fifo in self.waiting[vc] if self._has_room(fifo)]
        if self.far is None:
            return able
        frames = [fifo for fifo in able if _places(fifo)]
        if frames:
            able = [fifo for fifo in able if not _places(fifo)]
            first = self._first(vc, frames)
            able += [first] if _places(first) <= len(self.far[vc]) else []
        return able

    def _has_room(self, fifo: Fifo) -> bool:
        packet = fifo.queue[0]
        way = packet.flow.way
        lane = way.legs[packet.hop].lane
        if way.is_together and self.held.get(-1 - way.vc if lane is None else lane, packet.flow) is not packet.flow:
            return False
        return lane is None or bool(self.slots[lane])

    def hold(self, packet: Packet) -> None:
        """A packet of a transfer that must not be parted is sent: others wait until its last one is."""
        flow = packet.flow
        lane = flow.way.legs[packet.hop].lane
        key = -1 - flow.way.vc if lane is None else lane
        if packet.index < flow.way.packets - 1:
            self.held[key] = flow
        else:
            self.held.pop(key, None)


def _places(fifo: Fifo) -> int:
    """How many places at a link's far end the front of a FIFO takes: those of its frame, if it is the first packet."""
    packet = fifo.queue[0]
    return 0 if packet.index else packet.flow.way.legs[packet.hop].places
