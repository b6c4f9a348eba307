"""Transfers cut into packets: how long each packet needs on each edge, and where it is.

The first packet is what is left over, all others are full. The drain of a transfer over an edge is divided among its
packets so that the parts add up to it, and a packet that needs longer on one edge than on another does so for every
packet (a house-monotone division): therefore a train of packets takes the slowest edge's drain exactly once, to the
picosecond, over any chain of edges.
"""

from typing import TYPE_CHECKING, NamedTuple

from sipsim.fabric.noc.transfer.transfer import Done

if TYPE_CHECKING:
    from sipsim.fabric.buffered.ports.far import FarPort
    from sipsim.fabric.buffered.ports.ports import Fifo, Output
    from sipsim.fabric.graph.graph import Route

Ps = int


class Cut(NamedTuple):
    """A time divided among packets: ``first_ps``, then ``each_ps``, and one more from packet ``longer_from`` on."""

    first_ps: Ps
    each_ps: Ps
    longer_from: int

    def part_ps(self, packet: int) -> Ps:
        """The part of one packet, from 0."""
        return self.each_ps + (packet >= self.longer_from) if packet else self.first_ps


def cut(total_ps: Ps, nbytes: int, packet_bytes: int) -> Cut:
    """Divide the drain of ``nbytes`` among their packets."""
    others = -(-nbytes // packet_bytes) - 1
    if not others:
        return Cut(total_ps, 0, 1)
    first_ps = total_ps * (nbytes - others * packet_bytes) // nbytes
    each_ps, longer = divmod(total_ps - first_ps, others)
    return Cut(first_ps, each_ps, others + 1 - longer)


class Leg(NamedTuple):
    """One edge of a way. ``onward_ps``: wire and end node. ``drain_ps``: of the whole transfer, and ``parts`` of it.

    ``lane``: of the buffer at its end; None at the end of the way, which takes what comes. ``places``: what it
    needs in the buffer at the far end of a link.
    """

    output: "Output"
    onward_ps: Ps
    drain_ps: Ps
    parts: Cut
    lane: int | None
    places: int = 0


class Way:
    """A route for a number of bytes on a lane. ``packets``: their number. ``entry``: where they wait before the first
    edge. ``most_lead_ps``: the last packet's time on the last edge, and its wire. ``transfers``: that have started.
    ``port``: where it has come over a link, if it gives places back; ``is_transit``: it leaves by another link.
    ``is_together``: no packet of another transfer comes between its packets.
    """

    __slots__ = (
        "entry", "is_together", "is_transit", "legs", "most_lead_ps", "nbytes", "packets", "port", "route", "transfers",
        "vc",
    )  # fmt: skip

    def __init__(
        self, route: "Route", nbytes: int, packets: int, legs: list[Leg], entry: "Fifo | None", vc: int
    ) -> None:
        self.route = route
        self.nbytes = nbytes
        self.packets = packets
        self.legs = legs
        self.entry = entry
        self.vc = vc
        self.most_lead_ps = legs[-1].onward_ps + legs[-1].parts.part_ps(packets - 1) if legs else 0
        self.transfers = 0
        self.port: FarPort | None = None
        self.is_together = bool(legs and legs[-1].places)
        self.is_transit = bool(legs) and route.edges[-1].framing is not None


class Flow:
    """A transfer. ``comes_ps``: when the head of the next packet reaches the first node; ``feed``: how long each packet
    takes to come there. ``tails``: when the last packet's tail left each edge, if that is kept. ``number``: its port's,
    of what it holds in the buffer of a link.
    """

    __slots__ = (
        "comes_ps", "done", "end_ps", "feed", "head_ps", "lead_ps", "made", "number", "source_ps", "tails", "way",
    )  # fmt: skip

    def __init__(self, way: Way, done: Done, lead_ps: Ps, source_ps: tuple[Ps, Ps], feed: Cut) -> None:
        self.way = way
        self.done = done
        self.lead_ps = lead_ps
        self.source_ps = source_ps
        self.comes_ps = source_ps[0]
        self.feed = feed
        self.made = 0
        self.number = 0
        self.head_ps: Ps = 0
        self.end_ps: Ps | None = None
        self.tails: list[Ps] | None = None

    def next_packet(self) -> "Packet":
        """The next packet, at the first node; it is made when those before it have left."""
        index = self.made
        self.made += 1
        head_ps = self.comes_ps
        self.comes_ps = head_ps + self.feed.part_ps(index)
        return Packet(self, index, head_ps, self.comes_ps)

    @property
    def is_made(self) -> bool:
        """Whether all packets are made."""
        return self.made == self.way.packets


class Packet:
    """At the node before edge ``hop`` of its way, or on the wire to it: its head and tail come at these times."""

    __slots__ = ("flow", "head_ps", "hop", "index", "tail_ps")

    def __init__(self, flow: Flow, index: int, head_ps: Ps, tail_ps: Ps) -> None:
        self.flow = flow
        self.index = index
        self.hop = 0
        self.head_ps = head_ps
        self.tail_ps = tail_ps
