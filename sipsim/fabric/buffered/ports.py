"""Input FIFOs and outputs of nodes with finite buffers: where packets wait, and which packet an output sends next.

An input port has one FIFO per *lane*: per virtual channel of the arbitration, virtual network, and class.

* **Networks** separate packets that could wait for each other in a cycle: requests (commands, data that are written,
  messages), replies (data that were read, acknowledgements), packets that leave by a link, and packets from a link.
  Endpoints never block, so only leaving packets wait for another network: for the far SIP's arrivals,
  which wait for no other network.
* **Classes** make the routes of a mesh of cubes free of cycles. Routes are dimension-ordered twice, among cubes and in
  each cube, so a packet from a cube to the north or south may move along a row of routers again, and four such
  turns close a cycle. A packet is of class 0 until it crosses to a cube north or south, and of class 1 from then on;
  within a class, no turn is reversed. ``tests/pure/fabric/test_buffered_deadlock.py`` sorts the dependencies of
  all routes.
"""

from collections import deque
from collections.abc import Callable, Iterator
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from sipsim.config.schema import Resolved
from sipsim.fabric.graph import Done, Edge, Route

if TYPE_CHECKING:
    from sipsim.fabric.links.kind import FarCredits

REQUEST, REPLY, LEAVING, ARRIVING = 0, 1, 2, 3
NETWORKS, CLASSES = 4, 2


class Buffers(NamedTuple):
    """Sizes of input buffers. ``depth``: packets per FIFO. ``packet_bytes``: the most bytes of a packet.

    ``link_depth``: packets per virtual channel in the buffer at a link's far end; None: no limit.
    """

    depth: int
    packet_bytes: int
    link_depth: int | None = None

    def check(self, chunk_bytes: int) -> None:
        """Check that packets can be sent.

        Raises:
            ValueError: if there is no room for a packet, or packets are shorter than a chunk of the arbitration: a
                transfer reports its end when its last chunk starts.
        """
        for depth in (self.depth, 1 if self.link_depth is None else self.link_depth):
            if depth < 1:
                raise ValueError(f"a buffer holds at least a packet, not {depth}")
        if self.packet_bytes < chunk_bytes:
            raise ValueError(f"a packet has at least a chunk of {chunk_bytes} bytes, not {self.packet_bytes}")


def buffers_of(resolved: Resolved, chunk_bytes: int) -> Buffers | None:
    """Return the input buffers of a system's routers; None if they have no limit."""
    router = resolved.components.router
    if router.buffer_packets is None:
        return None
    link_depth = resolved.components.io_port.buffer_packets
    return Buffers(router.buffer_packets, router.packet_bytes or chunk_bytes, link_depth)


def network_of(route: Route, is_reply: bool) -> int:
    """Return the virtual network of packets on a route."""
    if is_reply:
        return REPLY
    if route.edges and route.edges[-1].is_link:
        return LEAVING
    return ARRIVING if route.start.kind == "io" else REQUEST


def classes_on(route: Route) -> Iterator[int]:
    """Yield the class of a packet in the buffer at the end of each edge of a route."""
    has_turned = 0
    for edge in route.edges:
        if edge.src.kind == edge.dst.kind == "ucie" and edge.src.place in ("N", "S"):
            has_turned = 1
        yield has_turned


def lanes_on(route: Route, vc: int, is_reply: bool) -> Iterator[int]:
    """Yield the lane of a packet in the buffer at the end of each edge of a route."""
    network = vc * NETWORKS + network_of(route, is_reply)
    for each in classes_on(route):
        yield network * CLASSES + each


def vc_of(lane: int) -> int:
    """Return the virtual channel of a lane."""
    return lane // (NETWORKS * CLASSES)


Ps = int
FOREVER: Ps = 1 << 62


class Cut(NamedTuple):
    """Division of a time among packets: ``first_ps``, then ``each_ps``, and 1 ps more from ``longer_from`` on."""

    first_ps: Ps
    each_ps: Ps
    longer_from: int

    def part_ps(self, packet: int) -> Ps:
        """Return the part of packet number ``packet``."""
        return self.each_ps + (packet >= self.longer_from) if packet else self.first_ps


def cut(total_ps: Ps, nbytes: int, packet_bytes: int) -> Cut:
    """Divide the drain of ``nbytes`` among their packets so that the parts add up to it.

    The first packet has the remainder, all others are full. A packet that needs longer on one edge than on another does
    so for every packet (a house-monotone division): therefore a train of packets takes the slowest edge's drain exactly
    once, to the picosecond, over any chain of edges.
    """
    others = -(-nbytes // packet_bytes) - 1
    if not others:
        return Cut(total_ps, 0, 1)
    first_ps = total_ps * (nbytes - others * packet_bytes) // nbytes
    each_ps, longer = divmod(total_ps - first_ps, others)
    return Cut(first_ps, each_ps, others + 1 - longer)


class PathStep(NamedTuple):
    """One edge of a path. ``onward_ps``: wire and end node. ``drain_ps``: of the whole transfer, divided into
    ``parts``.

    ``lane``: of the buffer at its end; None at the end of the path, which never blocks. ``places``: the places that a
    transfer needs in the buffer at the far end of a link.
    """

    output: "Output"
    onward_ps: Ps
    drain_ps: Ps
    parts: Cut
    lane: int | None
    places: int = 0


class PacketPath:
    """Path of transfers of one size on a lane: a route, and its times. ``packets``: per transfer. ``most_lead_ps``: the
    last packet's time on the last edge, and its wire. ``least_ps``: the least time from the head's arrival at the
    source to the last packet's start on the last edge. ``transfers``: started so far. ``port``: the port of the link
    from which they come, if it returns places; ``leaves``: they leave by a link. ``is_together``: no packet of another
    transfer may be between their packets. ``wires``: the edges except those of memories, if there are others.
    """

    __slots__ = (
        "is_together", "least_ps", "leaves", "most_lead_ps", "nbytes", "packets", "port", "route", "steps", "transfers",
        "vc", "wires",
    )  # fmt: skip

    def __init__(self, route: Route, nbytes: int, packets: int, steps: list[PathStep], vc: int) -> None:
        self.route = route
        self.nbytes = nbytes
        self.packets = packets
        self.steps = steps
        self.vc = vc
        self.most_lead_ps = steps[-1].onward_ps + steps[-1].parts.part_ps(packets - 1) if steps else 0
        self.transfers = 0
        self.port: FarCredits | None = None
        self.is_together = bool(steps and steps[-1].places)
        self.leaves = bool(steps) and route.edges[-1].is_link
        self.wires = [edge for edge in route.edges if not edge.memory] or list(route.edges)
        last_ps = steps[-1].drain_ps if steps else 0
        self.least_ps = route.head_ps() + last_ps - self.most_lead_ps


class PacketTrain:
    """Transfers of one source on one channel: ``in_flight`` of them leave at a time, never two over the same wires.

    ``passing``: transfers whose packets are under way; ``waiting``: transfers after one whose bytes another transfer
    brings; ``coming``: transfers whose heads are at the source, behind others. ``clear_ps``: the time of the last byte
    of the last transfer at the source. ``number``: among the trains of a fabric.
    """

    __slots__ = ("_fifos", "clear_ps", "coming", "in_flight", "is_reply", "number", "passing", "vc", "waiting")

    def __init__(self, number: int, vc: int, is_reply: bool, in_flight: int) -> None:
        self.number = number
        self.vc = vc
        self.is_reply = is_reply
        self.in_flight = in_flight
        self.coming: deque[PacketFlow] = deque()
        self._fifos: list[Fifo] = []
        self.passing: dict[object, Ps] = {}
        self.waiting: deque[FedTransfer] = deque()
        self.clear_ps: Ps = 0

    def least_mail_ps(self, now: Ps) -> Ps:
        """Return a time before which no transfer of the train leaves, as each takes at least its time alone."""
        return min(self.passing.values(), default=FOREVER)

    def next_in(self) -> "Fifo | None":
        """Put the first arriving transfer into a FIFO and return the FIFO; None if no transfer may start now."""
        wires, fifos = self.coming[0].path.wires if self.coming else None, self._fifos
        if wires is None or any(each.flow is not None and each.flow.path.wires == wires for each in fifos):
            return None
        free = next((each for each in fifos if each.flow is None), None)
        if free is None:
            if len(fifos) == self.in_flight:
                return None
            free = Fifo(None, self.vc * NETWORKS * CLASSES, ("", self.number, "", len(fifos)))
            fifos.append(free)
        free.flow = self.coming.popleft()
        free.queue.append(free.flow.next_packet())
        return free


class FedTransfer:
    """Transfer that waits for another transfer to bring its bytes, or for such a transfer before it in its train.

    ``times_ps``: the times of head and tail at the source, once known; ``start`` then starts the transfer.
    """

    __slots__ = ("start", "times_ps", "train")

    def __init__(self, train: PacketTrain, start: Callable[[Ps, Ps], None], times_ps: tuple[Ps, Ps] | None) -> None:
        self.train = train
        self.start = start
        self.times_ps = times_ps


class PacketFlow:
    """Transfer as packets. ``comes_ps``: when the head of the next packet reaches the first node; ``feed``: the time
    that each packet takes to arrive there. ``tails``: when the last packet's tail left each edge, if noted. ``number``:
    of its places in a link's buffer, by its port. ``done``, ``left``, ``feeds``: see ``FlowFabric.start``.
    """

    __slots__ = (
        "comes_ps", "done", "end_ps", "feed", "feeds", "head_ps", "left", "made", "number", "path", "source_ps",
        "tails", "train",
    )  # fmt: skip

    def __init__(
        self,
        train: PacketTrain,
        path: PacketPath,
        done: Done | None,
        left: Done | None,
        source_ps: tuple[Ps, Ps],
        feed: Cut,
    ) -> None:
        self.train = train
        self.path = path
        self.done = done
        self.left = left
        self.feeds: FedTransfer | None = None
        self.source_ps = source_ps
        self.comes_ps = source_ps[0]
        self.feed = feed
        self.made = 0
        self.number = 0
        self.head_ps: Ps = 0
        self.end_ps: Ps | None = None
        self.tails: list[Ps] | None = None

    def next_packet(self) -> "BufferedPacket":
        """Make the next packet at the first node, when those before it have left."""
        index = self.made
        self.made += 1
        head_ps = self.comes_ps
        self.comes_ps = head_ps + self.feed.part_ps(index)
        return BufferedPacket(self, index, head_ps, self.comes_ps)

    @property
    def is_made(self) -> bool:
        """Whether all packets are made."""
        return self.made == self.path.packets


class BufferedPacket:
    """Packet at the node before edge ``hop`` of its path, or on the wire to it; head and tail arrive at these times."""

    __slots__ = ("flow", "head_ps", "hop", "index", "tail_ps")

    def __init__(self, flow: PacketFlow, index: int, head_ps: Ps, tail_ps: Ps) -> None:
        self.flow = flow
        self.index = index
        self.hop = 0
        self.head_ps = head_ps
        self.tail_ps = tail_ps


class Fifo:
    """FIFO of one lane at one input of a node; ``upstream``: the output that fills it, None at a source.

    A FIFO at a source has one transfer, ``flow``, until its last packet has left, and only the front in ``queue``.
    ``key`` orders the inputs of a node. ``free_ps``: when the last packet had left. ``ready_ps``: when the front can
    leave.
    """

    __slots__ = ("flow", "free_ps", "key", "lane", "queue", "ready_ps", "upstream")

    def __init__(self, upstream: "Output | None", lane: int, key: tuple[str, int, str, int]) -> None:
        self.upstream = upstream
        self.lane = lane
        self.queue: deque[BufferedPacket] = deque()
        self.flow: PacketFlow | None = None
        self.free_ps: Ps = -FOREVER
        self.ready_ps: Ps = 0
        self.key = key

    def pop(self) -> BufferedPacket:
        """Remove the front. At a source, the next packet takes its place."""
        packet = self.queue.popleft()
        if self.flow is not None:
            if self.flow.is_made:
                self.flow = None
            else:
                self.queue.append(self.flow.next_packet())
        return packet


class Output:
    """Sending side of an edge. ``slots``: by lane, the times since which the places of the buffer at its end are free.

    ``waiting``: by virtual channel, FIFOs whose front waits for this edge. ``free_ps``: when the last packet had left.
    ``wake_ps``: when the next choice among the waiting is due. ``far``: of a link whose far end has a finite buffer, by
    virtual channel, the times since which its places are free. ``held``: by lane, the unfinished transfer whose packets
    must stay together; the key is -1 - channel for the last edge of a path.
    """

    __slots__ = (
        "_depth", "_last", "_scale", "_served", "_tags", "_weights", "edge", "far", "fifos", "free_ps", "held", "slots",
        "waiting", "wake_ps",
    )  # fmt: skip

    def __init__(self, edge: Edge, weights: tuple[int, ...], depth: int) -> None:
        self.edge = edge
        self.free_ps: Ps = -FOREVER
        self.wake_ps: Ps = -FOREVER
        self.waiting: list[list[Fifo]] = [[] for _ in weights]
        self.slots: dict[int, deque[Ps]] = {}
        self.fifos: dict[int, Fifo] = {}
        self.held: dict[int, PacketFlow] = {}
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
            kind, cube, place = self.edge.src
            self.fifos[lane] = Fifo(self, lane, (kind, cube, f"{place:>8}", lane))

    def offer(self, fifo: Fifo) -> None:
        """Let the front of a FIFO wait for this edge."""
        self.waiting[vc_of(fifo.lane)].append(fifo)

    def choose(self) -> Fifo | None:
        """Remove and return the FIFO whose front is sent next, among those with room at the edge's end: by virtual
        channel, then round robin among the inputs in the order of their keys."""
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
        """Charge a virtual channel for its use of the edge: start-time fair queueing by weight, so that other channels
        get the share that a channel leaves unused, and no channel saves it up."""
        weight = self._weights[vc]
        if weight:
            self._served = max(self._tags[vc], self._served)
            self._tags[vc] = self._served + drain_ps * self._scale // weight

    def _first(self, vc: int, fifos: list[Fifo]) -> Fifo:
        """Return the FIFO that is next in turn."""
        last = self._last[vc]
        return min(fifos, key=lambda fifo: (fifo.key <= last, fifo.key))

    def _able(self, vc: int) -> list[Fifo]:
        """Return the FIFOs of a virtual channel with room for their front. Of frames that wait for room at a link's far
        end, only the first in turn may take it, so that a long frame is not starved."""
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
        path = packet.flow.path
        lane = path.steps[packet.hop].lane
        if path.is_together and self.held.get(-1 - path.vc if lane is None else lane, packet.flow) is not packet.flow:
            return False
        return lane is None or bool(self.slots[lane])

    def hold(self, packet: BufferedPacket) -> None:
        """Note a sent packet of a transfer that no other may interrupt: the lane is held until its last packet."""
        flow = packet.flow
        lane = flow.path.steps[packet.hop].lane
        key = -1 - flow.path.vc if lane is None else lane
        if packet.index < flow.path.packets - 1:
            self.held[key] = flow
        else:
            self.held.pop(key, None)


def _places(fifo: Fifo) -> int:
    """Return the places at a link's far end that the front of a FIFO takes: its frame's if it is the first."""
    packet = fifo.queue[0]
    return 0 if packet.index else packet.flow.path.steps[packet.hop].places
