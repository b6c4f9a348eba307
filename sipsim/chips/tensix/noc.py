"""The two NoCs of a chip: the coordinates of the tiles, and the routes on both tori."""

from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from sipsim.chips.tensix.params import ChipParams
from sipsim.core.units import gbytes_per_s_to_bps, ns_to_ps
from sipsim.fabric.graph import Edge, Framing, Node, Route


class Kind(Enum):
    """Kind of a tile."""

    TENSIX = "tensix"
    ETHERNET = "ethernet"
    DRAM = "dram"


class Core(NamedTuple):
    """Coordinates of a tile on NoC 0, also used for NoC 1."""

    x: int
    y: int

    def __str__(self) -> str:
        return f"{self.x}-{self.y}"


class FloorPlan:
    """Floor plan of a chip. ``kinds``: the kind of each tile that has a memory.

    ``ethernet``, ``dram``: tiles in the order of their channels. ``workers``: Tensix tiles, row by row.
    """

    def __init__(self, params: ChipParams) -> None:
        self.params = params
        self.ethernet = [Core(*each) for each in params.ethernet.cores]
        self.dram = [Core(*each) for each in params.dram.cores]
        tensix = params.tensix
        columns = [x for first, last in tensix.columns for x in range(first, last + 1)]
        rows = [y for first, last in tensix.rows for y in range(first, last + 1)]
        self.workers = [Core(x, y) for y in rows for x in columns]
        self.kinds: dict[Core, Kind] = {
            **dict.fromkeys(self.workers, Kind.TENSIX),
            **dict.fromkeys(self.ethernet, Kind.ETHERNET),
            **dict.fromkeys(self.dram, Kind.DRAM),
        }

    def problem(self) -> str:
        """Return why the tiles do not fit on the NoC, or an empty text if all tiles fit."""
        noc, every = self.params.noc, [*self.workers, *self.ethernet, *self.dram]
        if len(every) != len(self.kinds):
            twice = next(core for core in every if every.count(core) > 1)
            return f"tile {twice} is named twice among tensix, ethernet and dram; name each tile once"
        outside = [core for core in every if core.x >= noc.width or core.y >= noc.height]
        return f"tile {outside[0]} is outside of the NoC of {noc.width}x{noc.height}; enlarge noc" if outside else ""


NOCS = (0, 1)
DRAM_PORT = "dram"


class NocFraming(Framing):
    """Framing of a NoC edge: one header flit per packet."""

    def __init__(self, flit_bytes: int, packet_flits: int) -> None:
        self._flit_bytes = flit_bytes
        self._packet_bytes = flit_bytes * packet_flits

    def wire_bytes(self, payload_bytes: int) -> int:
        """Return the bytes on the wire: whole flits for the payload, and one header flit per packet."""
        flits = -(-payload_bytes // self._flit_bytes) + -(-payload_bytes // self._packet_bytes)
        return flits * self._flit_bytes


class NocGraph:
    """Routes of both NoCs, as edges of a :class:`~sipsim.fabric.flows.FlowFabric`.

    NoC 0 leads to the right, then down; NoC 1 leads up, then to the left (tt-isa-documentation, RoutingPaths). A packet
    turns at most once. The head takes ``niu_cycles`` into the first router, ``hop_cycles`` from router to router, and
    ``niu_cycles`` out of the last router. One flit follows per cycle (cut-through); each packet of ``packet_flits`` has
    one header flit in front. Nodes: routers ``noc0`` and ``noc1``, and ``tile``, each with its coordinates.
    """

    def __init__(self, params: ChipParams) -> None:
        self._params = params
        noc = params.noc
        self._framing = NocFraming(noc.flit_bytes, noc.packet_flits)
        self._hop_ps, self._niu_ps = params.cycles_ps(noc.hop_cycles), params.cycles_ps(noc.niu_cycles)
        self._bps = params.noc_bps
        self._dram = {Core(*each) for each in params.dram.cores}
        self._routes: dict[tuple[int, Core, Core], Route] = {}
        self._data_routes: dict[tuple[int, Core, Core], Route] = {}
        self._words_ps: dict[tuple[int, Core, Core, int], int] = {}
        self._nearer: dict[tuple[Core, Core], int] = {}

    def data_route(self, noc: int, src: Core, dst: Core) -> Route:
        """Return the route of bytes that are read from tile ``src`` and written to tile ``dst``: the route
        :meth:`between` the tiles, plus the DRAM channels of DRAM tiles.
        """
        route = self._data_routes.get((noc, src, dst))
        if route is None:
            route = self.between(noc, src, dst)
            if src in self._dram or dst in self._dram:
                read = (self._bank(src),) if src in self._dram else ()
                written = (self._bank(dst),) if dst in self._dram else ()
                route = Route(route.start, 0, (*read, *route.edges, *written))
            self._data_routes[noc, src, dst] = route
        return route

    def between(self, noc: int, src: Core, dst: Core) -> Route:
        """Return the route of a NoC from one tile to another. Repeated calls return the same object."""
        route = self._routes.get((noc, src, dst))
        if route is None:
            route = self._routes[noc, src, dst] = self._route(noc, src, dst)
        return route

    def word_ps(self, noc: int, src: Core, dst: Core, nbytes: int) -> int:
        """Return the time of ``nbytes``, at most a word, on an idle NoC, in ps. Cached, as few sizes occur."""
        time_ps = self._words_ps.get((noc, src, dst, nbytes))
        if time_ps is None:
            time_ps = self._words_ps[noc, src, dst, nbytes] = self.between(noc, src, dst).latency_ps(nbytes)
        return time_ps

    def nearer(self, src: Core, dst: Core) -> int:
        """Return the number of the NoC, 0 or 1, with the shorter path between two tiles."""
        nearer = self._nearer.get((src, dst))
        if nearer is None:
            nearer = self._nearer[src, dst] = min(NOCS, key=lambda noc: self.hops(noc, src, dst))
        return nearer

    def hops(self, noc: int, src: Core, dst: Core) -> int:
        """Return the number of hops of a NoC between the routers of two tiles."""
        dx, dy = self._distance(noc, src, dst)
        return dx + dy

    def _distance(self, noc: int, src: Core, dst: Core) -> tuple[int, int]:
        params, sign = self._params.noc, 1 if noc == 0 else -1
        return (dst.x - src.x) * sign % params.width, (dst.y - src.y) * sign % params.height

    def _route(self, noc: int, src: Core, dst: Core) -> Route:
        params, sign = self._params.noc, 1 if noc == 0 else -1
        dx, dy = self._distance(noc, src, dst)
        x, y = src
        places = [(x, y)]
        for horizontal in (True, False) if noc == 0 else (False, True):
            for _ in range(dx if horizontal else dy):
                if horizontal:
                    x = (x + sign) % params.width
                else:
                    y = (y + sign) % params.height
                places.append((x, y))
        routers = [Node(f"noc{noc}", -1, f"{each_x}-{each_y}") for each_x, each_y in places]
        edges = [self._edge(self._tile(src), routers[0], self._niu_ps)]
        edges += [self._edge(a, b, self._hop_ps) for a, b in pairwise(routers)]
        edges.append(self._edge(routers[-1], self._tile(dst), self._niu_ps))
        return Route(edges[0].src, 0, tuple(edges))

    def _bank(self, core: Core) -> Edge:
        """Return the edge of a DRAM channel, whose bus carries both reads and writes."""
        dram, tile = self._params.dram, self._tile(core)
        return Edge(tile, Node(DRAM_PORT, -1, str(core)), ns_to_ps(dram.latency_ns), 0, gbytes_per_s_to_bps(dram.GBps))

    def _edge(self, src: Node, dst: Node, ps: int) -> Edge:
        return Edge(src, dst, ps, 0, self._bps, self._framing)

    @staticmethod
    def _tile(core: Core) -> Node:
        return Node("tile", -1, str(core))
