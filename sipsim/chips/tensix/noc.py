"""The two NoCs of a chip: the coordinates of the tiles, and the routes on both tori."""

from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from sipsim.chips.tensix.params import ChipParams
from sipsim.core.errors import KernelMisuse
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

    def receivers(self, first: Core, last: Core) -> list[Core]:
        """Return the Tensix tiles of a rectangle, row by row, which are the tiles that take a multicast: tiles of other
        kinds opt out (tt-isa-documentation, RoutingPaths). ``first``, ``last``: the upper left tile, the lower right.

        Raises:
            KernelMisuse: if a corner is no Tensix tile, or the corners are in another order.
        """
        for corner in (first, last):
            if self.kinds.get(corner) is not Kind.TENSIX:
                kind = self.kinds.get(corner)
                what = "is no tile with memory" if kind is None else f"is of kind {kind.value}"
                raise KernelMisuse(f"a multicast to tiles {first} to {last}: {corner} {what}; give Tensix tiles")
        if first.x > last.x or first.y > last.y:
            what = f"a multicast to tiles {first} to {last}: the first is not above and left of the second"
            raise KernelMisuse(f"{what}; give the upper left tile and then the lower right one, on both NoCs")
        return [core for core in self.workers if first.x <= core.x <= last.x and first.y <= core.y <= last.y]


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


class Tree(NamedTuple):
    """Tree of a multicast. ``route``: all edges of the tree, each once. ``heads_ps``: latency of the head to a tile.
    ``longest_ps``: the largest of these.
    """

    route: Route
    heads_ps: dict[Core, int]
    longest_ps: int


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
        self._trees: dict[tuple[int, Core, tuple[Core, ...]], Tree] = {}

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

    def tree(self, noc: int, src: Core, tiles: tuple[Core, ...]) -> Tree:
        """Return the tree of a NoC from a tile to the tiles of a rectangle. Repeated calls return the same object.

        The packet goes along the source's row to the first column that it reaches, along this column, and from there
        along each row, in the directions of the NoC: x is the major axis (tt-isa-documentation, RoutingPaths), as
        ``dataflow_api.h`` of tt-metal asks. It ends in each direction at the last tile.
        """
        tree = self._trees.get((noc, src, tiles))
        if tree is None:
            tree = self._trees[noc, src, tiles] = self._tree(noc, src, tiles)
        return tree

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

    def nearer_tree(self, src: Core, tiles: tuple[Core, ...]) -> int:
        """Return the number of the NoC whose tree has the shorter longest path."""
        return min(NOCS, key=lambda noc: self.tree(noc, src, tiles).longest_ps)

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
        routers = [self._router(noc, Core(*place)) for place in places]
        edges = [self._edge(self._tile(src), routers[0], self._niu_ps)]
        edges += [self._edge(a, b, self._hop_ps) for a, b in pairwise(routers)]
        edges.append(self._edge(routers[-1], self._tile(dst), self._niu_ps))
        return Route(edges[0].src, 0, tuple(edges))

    def _tree(self, noc: int, src: Core, tiles: tuple[Core, ...]) -> Tree:
        params, sign = self._params.noc, 1 if noc == 0 else -1
        to_trunk = min((core.x - src.x) * sign % params.width for core in tiles)
        rows = {core.y for core in tiles}
        edges = [self._edge(self._tile(src), self._router(noc, src), self._niu_ps)]
        heads_ps: dict[Core, int] = {}

        def walk(at: Core, dx: int, dy: int, steps: int, head_ps: int) -> tuple[Core, int]:
            for _ in range(steps):
                onward = Core((at.x + dx * sign) % params.width, (at.y + dy * sign) % params.height)
                edges.append(self._edge(self._router(noc, at), self._router(noc, onward), self._hop_ps))
                at, head_ps = onward, head_ps + self._hop_ps
                if not dy:
                    reach(at, head_ps)
            return at, head_ps

        def reach(at: Core, head_ps: int) -> None:
            if at in tiles and at not in heads_ps:
                edges.append(self._edge(self._router(noc, at), self._tile(at), self._niu_ps))
                heads_ps[at] = head_ps + self._niu_ps

        def branch(at: Core, head_ps: int) -> None:
            if at.y in rows:
                reach(at, head_ps)
                walk(at, 1, 0, max((core.x - at.x) * sign % params.width for core in tiles if core.y == at.y), head_ps)

        trunk, head_ps = walk(src, 1, 0, to_trunk, self._niu_ps)
        branch(trunk, head_ps)
        for _ in range(max((y - src.y) * sign % params.height for y in rows)):
            trunk, head_ps = walk(trunk, 0, 1, 1, head_ps)
            branch(trunk, head_ps)
        return Tree(Route(edges[0].src, 0, tuple(edges)), heads_ps, max(heads_ps.values()))

    def _bank(self, core: Core) -> Edge:
        """Return the edge of a DRAM channel, whose bus carries both reads and writes."""
        dram, tile = self._params.dram, self._tile(core)
        return Edge(tile, Node(DRAM_PORT, -1, str(core)), ns_to_ps(dram.latency_ns), 0, gbytes_per_s_to_bps(dram.GBps))

    def _edge(self, src: Node, dst: Node, ps: int) -> Edge:
        return Edge(src, dst, ps, 0, self._bps, self._framing)

    @staticmethod
    def _router(noc: int, core: Core) -> Node:
        return Node(f"noc{noc}", -1, str(core))

    @staticmethod
    def _tile(core: Core) -> Node:
        return Node("tile", -1, str(core))
