"""How deep the input buffers are, and which of them a packet waits in: virtual channels, networks and classes.

An input port has one FIFO for each *lane*: a virtual channel of the arbitration, a virtual network, a class.

* **Networks** keep what could wait for each other in a circle apart: requests (commands, data that are written,
  messages), replies (data that were read, acknowledgements), what leaves by a link, and what has come over one.
  Endpoints take what comes without waiting, so only what leaves waits for another network: for the far SIP's arrivals,
  which wait for nobody.
* **Classes** make the routes of a mesh of cubes free of cycles. Routes are dimension-ordered twice, among cubes and in
  each cube, so a packet that came from a cube to the north or south may go along a row of routers again, and four such
  turns close a cycle. A packet is of class 0 until it crosses to a cube north or south, and of class 1 from then on;
  within each class every turn is one way. ``tests/pure/machine/test_buffered_deadlock.py`` sorts the dependencies of
  all routes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from sipsim.config.schema.model import Resolved
from sipsim.fabric.graph.graph import Route

REQUEST, REPLY, LEAVING, ARRIVING = 0, 1, 2, 3
NETWORKS, CLASSES = 4, 2


class Buffers(NamedTuple):
    """``depth``: packets of each FIFO. ``packet_bytes``: the most that a packet carries.

    ``link_depth``: packets of each virtual channel in the buffer at a link's far end; None for no limit.
    """

    depth: int
    packet_bytes: int
    link_depth: int | None = None

    def check(self, chunk_bytes: int) -> None:
        """Check that packets can be sent.

        Raises:
            ValueError: no room for a packet, or packets shorter than a chunk of the arbitration: the end of a transfer
                is told when the last chunk starts.
        """
        for depth in (self.depth, 1 if self.link_depth is None else self.link_depth):
            if depth < 1:
                raise ValueError(f"a buffer holds at least a packet, not {depth}")
        if self.packet_bytes < chunk_bytes:
            raise ValueError(f"a packet has at least a chunk of {chunk_bytes} bytes, not {self.packet_bytes}")


def buffers_of(resolved: Resolved, chunk_bytes: int) -> Buffers | None:
    """The input buffers of a system's routers; None where they have no limit."""
    router = resolved.components.router
    if router.buffer_packets is None:
        return None
    link_depth = resolved.components.io_port.buffer_packets
    return Buffers(router.buffer_packets, router.packet_bytes or chunk_bytes, link_depth)


def network_of(route: Route, is_reply: bool) -> int:
    """The virtual network of what takes a route."""
    if is_reply:
        return REPLY
    if route.edges and route.edges[-1].framing is not None:
        return LEAVING
    return ARRIVING if route.start.kind == "io" else REQUEST


def classes_on(route: Route) -> Iterator[int]:
    """The class of a packet in the buffer at the end of each edge of a route."""
    has_turned = 0
    for edge in route.edges:
        if edge.src.kind == edge.dst.kind == "ucie" and edge.src.place in ("N", "S"):
            has_turned = 1
        yield has_turned


def lanes_on(route: Route, vc: int, is_reply: bool) -> Iterator[int]:
    """The lane of a packet in the buffer at the end of each edge of a route."""
    network = vc * NETWORKS + network_of(route, is_reply)
    for each in classes_on(route):
        yield network * CLASSES + each


def vc_of(lane: int) -> int:
    """The virtual channel of a lane."""
    return lane // (NETWORKS * CLASSES)
