"""Random transfers in a mesh of cubes with small buffers. Not a test."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from buffered_traffic import FarEnd, watched
from hardware import config

from sipsim.chips.ahbm.mesh import CubeMeshGraph
from sipsim.core.engine import Engine
from sipsim.fabric.buffered.fabric import BufferedFabric
from sipsim.fabric.channels import Arbitration, ChunkFraming
from sipsim.fabric.graph import PORTS, Node, Route, link_edge

EVENTS = 10**7


class Shape(NamedTuple):
    """Cubes of a SIP, routers of a cube, and the cubes of IO ports that are not in the middle of their side."""

    cubes: tuple[int, int]
    routers: tuple[int, int]
    ports: tuple[tuple[str, int], ...] = ()


class SipRoutes:
    """The routes of one SIP of a shape, by what they carry."""

    def __init__(self, shape: Shape) -> None:
        (w, h), routers = shape.cubes, shape.routers
        resolved = config(
            {
                "sip.cube_mesh": {"w": w, "h": h},
                "cube.noc.routers": {"w": routers[0], "h": routers[1]},
                "cube.pes": routers[0] * routers[1],
                **{f"sip.ports.{port}": cube for port, cube in shape.ports},
            }
        )
        self.graph = CubeMeshGraph(resolved, ChunkFraming(256, 16))
        cubes, places = range(w * h), range(routers[0] * routers[1])
        self.pes = [Node("pe", cube, place) for cube in cubes for place in places]
        self.memories = [Node("sram", cube, 0) for cube in cubes]
        self.memories += [Node("hbm", cube, place) for cube in cubes for place in (places[0], places[-1])]
        self.ports = [Node("io", -1, port) for port in PORTS]

    def requests(self) -> Iterator[Route]:
        """From PEs to memories and PEs."""
        for pe in self.pes:
            yield from (self.graph.route(pe, end) for end in (*self.pes, *self.memories) if end != pe)

    def departures(self) -> Iterator[Route]:
        """From PEs out of the SIP, and from ports out of it again."""
        for start in (*self.pes, *self.ports):
            yield from (self.leaving(start, port) for port in self.ports if port != start)

    def replies(self) -> Iterator[Route]:
        """From memories and PEs back to PEs."""
        for start in (*self.pes, *self.memories):
            yield from (self.graph.route(start, pe) for pe in self.pes if pe != start)

    def arrivals(self) -> Iterator[Route]:
        """From ports to PEs and memories."""
        for port in self.ports:
            yield from (self.graph.route(port, end) for end in (*self.pes, *self.memories))

    def leaving(self, start: Node, port: Node) -> Route:
        """From a node over the link of a port, one without framing."""
        found = self.graph.route(start, port)
        link = link_edge(str(port.place), 20_000, 32 * 10**9, _Unframed())
        return found._replace(edges=(*found.edges, link))


class _Unframed(NamedTuple):
    def wire_bytes(self, payload_bytes: int) -> int:
        return payload_bytes


def workload(seed: int) -> tuple[int, int, BufferedFabric]:
    """A random workload on a random shape: the transfers that have started, those that have ended, and the fabric."""
    draw = random.Random(seed)
    shape = Shape(draw.choice(((2, 2), (3, 2), (2, 3), (3, 3))), draw.choice(((1, 1), (2, 2), (3, 2), (2, 3), (4, 2))))
    routes, engine = _routes(shape), Engine()
    weights = draw.choice(((1,), (1, 1), (2, 1, 0)))
    packet_bytes, link_depth = draw.choice((64, 128)), draw.choice((None, 1, 3, 20))
    fabric = watched(engine, Arbitration(64, weights), draw.choice((1, 1, 2)), packet_bytes, link_depth)
    ended, kinds = [], (routes.pes, routes.memories, routes.ports)
    links = {port: routes.leaving(routes.pes[0], port).edges[-1] for port in routes.ports}
    ends: dict[Node, FarEnd] = {}
    if link_depth is not None:
        ends = {port: FarEnd(engine, fabric, link, 50_000) for port, link in links.items()}

    def send(start: Node, end: Node, nbytes: int, vc: int) -> None:
        is_reply = start.kind in ("sram", "hbm")
        if end.kind == "io":
            way = fabric_ways.setdefault((start, end), routes.leaving(start, end))
        else:
            way = routes.graph.route(start, end)

        def done(_head: int, tail: int) -> None:
            ended.append(tail)
            if end in ends:
                ends[end].arrived(vc, min(-(-nbytes // packet_bytes), link_depth or 0), tail)

        fabric.start(fabric.train((start, end), vc, is_reply=is_reply), way, nbytes, done)

    fabric_ways: dict[tuple[Node, Node], Route] = {}
    sent, burst = draw.randint(15, 50), draw.choice((1, 5_000, 50_000))
    for _ in range(sent):
        start = draw.choice(draw.choice(kinds))
        others = {"pe": kinds, "io": kinds[::2]}.get(start.kind, kinds[:1])
        end = draw.choice([node for node in draw.choice(others) if node != start])
        nbytes, vc = draw.choice((16, 64, 300, 700)), draw.randrange(len(weights))
        engine.at(draw.randrange(burst), lambda s=start, e=end, n=nbytes, v=vc: send(s, e, n, v))  # type: ignore[misc]
    assert engine.run_before(None, EVENTS)
    assert all(end.held == 0 for end in ends.values()) or len(ended) < sent
    return sent, len(ended), fabric


_KNOWN: dict[Shape, SipRoutes] = {}


def _routes(shape: Shape) -> SipRoutes:
    if shape not in _KNOWN:
        _KNOWN[shape] = SipRoutes(shape)
    return _KNOWN[shape]
