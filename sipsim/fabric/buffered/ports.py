"""Input FIFOs and outputs of nodes with finite buffers: where packets wait, and which packet an output sends next.

An input port has one FIFO per *lane*: per virtual channel of the arbitration, virtual network, and class.

* **Networks** separate packets that could wait for each other in a cycle: requests (commands, written data, messages),
  replies (read data, acknowledgements), packets that leave by a link, and packets from a link. The ends of routes never
  block, so only packets that leave by a link wait for another network: the far SIP's packets from that link, which wait
  for no other network.
* **Classes** make the routes of a mesh of cubes free of cycles. Routes are dimension-ordered twice, among cubes and in
  each cube, so a packet from a cube to the north or south may move along a row of routers again, and four such turns
  close a cycle. A packet has class 0 until it crosses to a cube north or south, and class 1 from then on; within a
  class, no turn is reversed. ``tests/pure/fabric/test_buffered_deadlock.py`` sorts the dependencies of all routes.
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
    """Sizes of input buffers. ``depth``: packets per FIFO. ``packet_bytes``: the maximum size of a packet.

    ``link_depth``: packets per virtual channel in the buffer at a link's far end; None if there is no limit.
    """

    depth: int
    packet_bytes: int
    link_depth: int | None = None

    def check(self, chunk_bytes: int) -> None:
        """Check that a packet fits in each buffer, and a chunk of ``chunk_bytes`` in a packet.

        Raises:
            ValueError: if one does not fit; a transfer reports its end when its last chunk starts.
        """
        for depth in (self.depth, 1 if self.link_depth is None else self.link_depth):
            if depth < 1:
                raise ValueError(f"a buffer of {depth} packets is too small; give at least 1")
        if self.packet_bytes < chunk_bytes:
            sizes = f"packet_bytes is {self.packet_bytes}, less than a chunk of {chunk_bytes} bytes"
            raise ValueError(f"{sizes}; give packet_bytes of at least {chunk_bytes}")


def buffers_of(resolved: Resolved, chunk_bytes: int) -> Buffers | None:
    """Return the sizes of the input buffers of a system's routers; None if the buffers have no limit."""
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
    packet_class = 0
    for edge in route.edges:
        if edge.src.kind == edge.dst.kind == "ucie" and edge.src.place in ("N", "S"):
            packet_class = 1
        yield packet_class


def lanes_on(route: Route, vc: int, is_reply: bool) -> Iterator[int]:
    """Yield the lane of a packet in the buffer at the end of each edge of a route."""
    network = vc * NETWORKS + network_of(route, is_reply)
    for packet_class in classes_on(route):
        yield network * CLASSES + packet_class


def vc_of(lane: int) -> int:
    """Return the virtual channel of a lane."""
    return lane // (NETWORKS * CLASSES)


Ps = int
FOREVER: Ps = 1 << 62


class Cut(NamedTuple):
    """Division of a time among packets: ``first_ps``, then ``each_ps`` each, 1 ps more from ``longer_from`` on."""

    first_ps: Ps
    each_ps: Ps
    longer_from: int

    def part_ps(self, packet: int) -> Ps:
        """Return the time of packet number ``packet``."""
        return self.each_ps + (packet >= self.longer_from) if packet else self.first_ps


def cut(total_ps: Ps, nbytes: int, packet_bytes: int) -> Cut:
    """Divide the drain of ``nbytes`` among packets of at most ``packet_bytes``; the parts add up to ``total_ps``.

    The first packet has the remainder, all others are full. If one edge has the longer drain, then every packet takes
    at least as long on that edge as on another (a house-monotone division). Therefore the packets of a transfer take
    the slowest edge's drain exactly once, to the picosecond, over any chain of edges.
    """
    others = -(-nbytes // packet_bytes) - 1
    if not others:
        return Cut(total_ps, 0, 1)
    first_ps = total_ps * (nbytes - others * packet_bytes) // nbytes
    each_ps, longer = divmod(total_ps - first_ps, others)
    return Cut(first_ps, each_ps, others + 1 - longer)


class PathStep(NamedTuple):
    """One edge of a path. ``onward_ps``: the delay of wire and end node. ``drain_ps``: the drain of the whole transfer,
    divided into ``parts`` by packet. ``lane``: the lane of the buffer at the edge's end; None at the end of the path,
    which never blocks. ``places``: places that a transfer needs in the buffer at the far end of a link.
    """

    output: "Output"
    onward_ps: Ps
    drain_ps: Ps
    parts: Cut
    lane: int | None
    places: int = 0


class PacketPath:
    """Path of transfers of one size on a channel: a route and its times. ``packets``: number per transfer.
    ``last_packet_ps``: the last packet's time on the last edge, with wire and end node. ``least_ps``: the least time
    from the head's arrival at the source to the last packet's start on the last edge. ``transfers``: number started so
    far. ``port``: the port where transfers from a link arrive, if that returns places. ``leaves``: the route ends with
    a link. ``is_together``: no packet of another transfer may be between those of a transfer. ``wires``: the edges
    outside of memories; all edges, if none is outside.
    """

    __slots__ = (
        "is_together", "last_packet_ps", "least_ps", "leaves", "nbytes", "packets", "port", "route", "steps",
        "transfers", "vc", "wires",
    )  # fmt: skip

    def __init__(self, route: Route, nbytes: int, packets: int, steps: list[PathStep], vc: int) -> None:
        self.route = route
        self.nbytes = nbytes
        self.packets = packets
        self.steps = steps
        self.vc = vc
        self.last_packet_ps = steps[-1].onward_ps + steps[-1].parts.part_ps(packets - 1) if steps else 0
        self.transfers = 0
        self.port: FarCredits | None = None
        self.is_together = bool(steps and steps[-1].places)
        self.leaves = bool(steps) and route.edges[-1].is_link
        self.wires = [edge for edge in route.edges if not edge.memory] or list(route.edges)
        last_ps = steps[-1].drain_ps if steps else 0
        self.least_ps = route.head_ps() + last_ps - self.last_packet_ps


class PacketTrain:
    """Transfers of one source on one channel: at most ``in_flight`` leave at a time, never two over the same wires.

    ``waiting``: a transfer whose bytes another one brings, and those after it; ``arrived``: transfers whose heads are
    at the source, behind others. ``passing``: for transfers that end with a link, the time before which they are not
    mailed. ``clear_ps``: when the last byte of the latest transfer is at the source. ``number``: among all trains.
    """

    __slots__ = ("_fifos", "arrived", "clear_ps", "in_flight", "is_reply", "number", "passing", "vc", "waiting")

    def __init__(self, number: int, vc: int, is_reply: bool, in_flight: int) -> None:
        self.number = number
        self.vc = vc
        self.is_reply = is_reply
        self.in_flight = in_flight
        self.arrived: deque[PacketFlow] = deque()
        self._fifos: list[Fifo] = []
        self.passing: dict[object, Ps] = {}
        self.waiting: deque[FedTransfer] = deque()
        self.clear_ps: Ps = 0

    def least_mail_ps(self, now: Ps) -> Ps:
        """Return a time before which no transfer of the train is mailed: each needs at least its time alone."""
        return min(self.passing.values(), default=FOREVER)

    def fill_fifo(self) -> "Fifo | None":
        """Put the first arrived transfer into a FIFO and return the FIFO; None if no transfer may start now."""
        wires, fifos = self.arrived[0].path.wires if self.arrived else None, self._fifos
        if wires is None or any(fifo.flow is not None and fifo.flow.path.wires == wires for fifo in fifos):
            return None
        free = next((fifo for fifo in fifos if fifo.flow is None), None)
        if free is None:
            if len(fifos) == self.in_flight:
                return None
            free = Fifo(None, self.vc * NETWORKS * CLASSES, ("", self.number, "", len(fifos)))
            fifos.append(free)
        free.flow = self.arrived.popleft()
        free.queue.append(free.flow.next_packet())
        return free


class FedTransfer:
    """Transfer that waits until another transfer brings its bytes, or behind such a transfer in its train.

    ``times_ps``: when head and tail are at the source, None until known; ``start`` starts the transfer with them.
    """

    __slots__ = ("start", "times_ps", "train")

    def __init__(self, train: PacketTrain, start: Callable[[Ps, Ps], None], times_ps: tuple[Ps, Ps] | None) -> None:
        self.train = train
        self.start = start
        self.times_ps = times_ps


class PacketFlow:
    """Transfer as packets. ``next_head_ps``: when the head of the next packet is at the first node; ``feed``: the time
    that each packet takes to arrive there. ``tails``: when the last packet's tail left each edge, None without history.
    ``number``: the port's number of the credit for its places. ``done``, ``left``, ``feeds``: see ``FlowFabric.start``.
    """

    __slots__ = (
        "done", "end_ps", "feed", "feeds", "head_ps", "left", "n_made", "next_head_ps", "number", "path", "source_ps",
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
        self.next_head_ps = source_ps[0]
        self.feed = feed
        self.n_made = 0
        self.number = 0
        self.head_ps: Ps = 0
        self.end_ps: Ps | None = None
        self.tails: list[Ps] | None = None

    def next_packet(self) -> "BufferedPacket":
        """Make the next packet at the first node. The caller calls it when all earlier packets have left."""
        index = self.n_made
        self.n_made += 1
        head_ps = self.next_head_ps
        self.next_head_ps = head_ps + self.feed.part_ps(index)
        return BufferedPacket(self, index, head_ps, self.next_head_ps)

    @property
    def is_made(self) -> bool:
        """Whether all packets of the transfer are made."""
        return self.n_made == self.path.packets


class BufferedPacket:
    """Packet at the node before edge ``hop`` of its path, or on the wire to that node. ``head_ps``, ``tail_ps``: when
    head and tail arrive there.
    """

    __slots__ = ("flow", "head_ps", "hop", "index", "tail_ps")

    def __init__(self, flow: PacketFlow, index: int, head_ps: Ps, tail_ps: Ps) -> None:
        self.flow = flow
        self.index = index
        self.hop = 0
        self.head_ps = head_ps
        self.tail_ps = tail_ps


class Fifo:
    """FIFO of one lane at one input of a node; ``upstream``: the output that fills the FIFO, None at a source.

    A FIFO at a source has one transfer, ``flow``, until the last packet has left; ``queue`` then contains only the
    front. ``key`` orders the inputs of a node. ``free_ps``: when the previous packet left; ``ready_ps``: when the front
    can leave.
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
        """Remove and return the front. At a source, the transfer's next packet becomes the front."""
        packet = self.queue.popleft()
        if self.flow is not None:
            if self.flow.is_made:
                self.flow = None
            else:
                self.queue.append(self.flow.next_packet())
        return packet


class Output:
    """Sending side of an edge. ``slots``: by lane, since when each free place of the buffer at the edge's end is free.

    ``waiting``: by virtual channel, FIFOs whose front waits for this edge. ``free_ps``: when the previous packet left.
    ``wake_ps``: when the edge chooses next among these FIFOs. ``far``: for a link to a finite buffer, by virtual
    channel, since when each free place there is free; None for other edges. ``held``: by lane, the unfinished transfer
    whose packets must stay together; on the last edge of a path, by -1 - channel.
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
        """Make the buffer of a lane at this edge's end, if there is none yet."""
        if lane not in self.slots:
            self.slots[lane] = deque([-FOREVER] * self._depth)
            kind, cube, place = self.edge.src
            self.fifos[lane] = Fifo(self, lane, (kind, cube, f"{place:>8}", lane))

    def offer(self, fifo: Fifo) -> None:
        """Add a FIFO whose front waits for this edge."""
        self.waiting[vc_of(fifo.lane)].append(fifo)

    def choose(self) -> Fifo | None:
        """Remove and return the FIFO whose front is sent next, by virtual channel, then round robin among the inputs in
        the order of their keys; None if no front has a place at the edge's end.
        """
        chosen_vc, least = -1, FOREVER
        for vc, fifos in enumerate(self.waiting):
            if not fifos or not self._ready(vc):
                continue
            if not self._weights[vc]:
                chosen_vc = vc
                break
            tag = max(self._tags[vc], self._served)
            if tag < least:
                chosen_vc, least = vc, tag
        if chosen_vc < 0:
            return None
        chosen = self._next_in_turn(chosen_vc, self._ready(chosen_vc))
        self.waiting[chosen_vc].remove(chosen)
        self._last[chosen_vc] = chosen.key
        return chosen

    def charge(self, vc: int, drain_ps: Ps) -> None:
        """Charge a virtual channel for its use of the edge (start-time fair queueing by weight): other channels get the
        share that a channel does not use, and no channel can save a share for later.
        """
        weight = self._weights[vc]
        if weight:
            self._served = max(self._tags[vc], self._served)
            self._tags[vc] = self._served + drain_ps * self._scale // weight

    def _next_in_turn(self, vc: int, fifos: list[Fifo]) -> Fifo:
        """Return the FIFO that round robin serves next."""
        last = self._last[vc]
        return min(fifos, key=lambda fifo: (fifo.key <= last, fifo.key))

    def _ready(self, vc: int) -> list[Fifo]:
        """Return the FIFOs of a virtual channel whose front can be sent. Among frames that wait for places at a link's
        end, only the next in turn may take places, so that no long frame starves.
        """
        ready = [fifo for fifo in self.waiting[vc] if self._has_room(fifo)]
        if self.far is None:
            return ready
        frames = [fifo for fifo in ready if _places(fifo)]
        if frames:
            ready = [fifo for fifo in ready if not _places(fifo)]
            first = self._next_in_turn(vc, frames)
            ready += [first] if _places(first) <= len(self.far[vc]) else []
        return ready

    def _has_room(self, fifo: Fifo) -> bool:
        packet = fifo.queue[0]
        path = packet.flow.path
        lane = path.steps[packet.hop].lane
        if path.is_together and self.held.get(-1 - path.vc if lane is None else lane, packet.flow) is not packet.flow:
            return False
        return lane is None or bool(self.slots[lane])

    def hold(self, packet: BufferedPacket) -> None:
        """Hold a packet's lane for its transfer, or release the lane if the packet is the transfer's last."""
        flow = packet.flow
        lane = flow.path.steps[packet.hop].lane
        key = -1 - flow.path.vc if lane is None else lane
        if packet.index < flow.path.packets - 1:
            self.held[key] = flow
        else:
            self.held.pop(key, None)


def _places(fifo: Fifo) -> int:
    """Return the places at a link's far end that the front of a FIFO takes: all its frame's for the first packet."""
    packet = fifo.queue[0]
    return 0 if packet.index else packet.flow.path.steps[packet.hop].places
