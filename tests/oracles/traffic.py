"""Workloads for fabrics, and a summary of how a fabric carried one. Not a test.

The traffic is that of a SIP of 4x4 cubes of 4x2 routers with 128 PEs, over the product's routes, all edges of 64 GB/s
and none with flits. A random system is small, and has what such a mesh has not: mixed rates, strict channels, equal
starts.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from water_filling import Offered

from sipsim.chips.ahbm.mesh import CubeMeshGraph
from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.core.engine import Engine
from sipsim.core.units import PS_PER_S
from sipsim.fabric.channels import Arbitration
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.graph import Edge, Node, Route
from sipsim.fabric.links.ucie import UcieCrossing

WEIGHTS = (50, 50)
"""Of the two channels of the traffic."""
CLASSES = (256, 4096, 2**16, 2**18)
"""The most bytes of each size class."""
MESH = {"sip.cube_mesh": {"w": 4, "h": 4}, "cube.noc.routers": {"w": 4, "h": 2}}
NO_FLITS = {"ucie_port.flit_bytes": None, "ucie_port.flit_overhead_bytes": 0}


@cache
def graph() -> CubeMeshGraph:
    """The SIP of the traffic."""
    return CubeMeshGraph(load(overrides=[Override(path, value, path) for path, value in {**MESH, **NO_FLITS}.items()]))


def _pes(*cubes: int) -> list[Node]:
    return [Node("pe", cube, place) for cube in cubes for place in range(8)]


def _single(draw: random.Random) -> Route:
    """One of 8 PEs over its own edge and then the edge of one HBM port, which all share: 2 edges."""
    first, shared = draw.choice(_pes(0)), graph().edge(Node("router", 0, 0), Node("hbm", 0, 0))
    own = graph().edge(first, Node("router", 0, int(first.place)))
    return Route(first, graph().overhead_ps(first), (own, shared))


def _hot(draw: random.Random) -> Route:
    """One of the 16 PEs of two neighbouring cubes to one HBM port: some 6 edges."""
    return graph().route(draw.choice(_pes(0, 1)), Node("hbm", 0, 6))


def _corner(draw: random.Random) -> Route:
    """A PE of the 6 other cubes of the first row and column to one of the corner's: some 13 edges."""
    return graph().route(draw.choice(_pes(1, 2, 3, 4, 8, 12)), draw.choice(_pes(0)))


def _uniform(draw: random.Random) -> Route:
    """Any PE to any other: some 16 edges."""
    return graph().route(*draw.sample(_pes(*range(16)), 2))


KINDS: dict[str, Callable[[random.Random], Route]] = {
    "single": _single,
    "hot": _hot,
    "corner": _corner,
    "uniform": _uniform,
}


def traffic(kind: str, seed: int, transfers: int, percent: int) -> list[Offered]:
    """``transfers`` of a kind, sizes log-uniform from 64 B to 256 KiB, each channel as likely, sources the PEs.

    They start as a Poisson process that uses the busiest edge to ``percent``.
    """
    draw = random.Random(f"{kind} {seed}")
    routes = [KINDS[kind](draw) for _ in range(transfers)]
    sizes = [round(64 * 4096 ** draw.random()) for _ in routes]
    needs: dict[Edge, int] = {}
    for route, nbytes in zip(routes, sizes, strict=True):
        for edge in route.edges:
            needs[edge] = needs.get(edge, 0) + nbytes * PS_PER_S // edge.bandwidth_bps
    gaps = [draw.expovariate(1) for _ in routes]
    ps_per_gap = max(needs.values()) * 100 / percent / sum(gaps)
    return [
        Offered(route.start, draw.randrange(len(WEIGHTS)), round(passed * ps_per_gap), nbytes, route)
        for route, nbytes, passed in zip(routes, sizes, accumulate(gaps), strict=True)
    ]


RATES_BPS = (12_500_000_000, 60_000_000_000, 64_000_000_000, 128_000_000_000)
MIXED_WEIGHTS = ((50, 50, 0), (1, 4, 0), (3, 1, 0), (0, 50, 50))
FLITS = UcieCrossing(2_000, 0, 0, 256, 16)


class System(NamedTuple):
    """``number``: of each edge, in the order of their keys."""

    weights: tuple[int, ...]
    number: dict[Edge, int]
    offered: list[Offered]


def random_system(seed: int, channels: int, with_flits: bool = False) -> System:
    """Eight edges of mixed rates, 3 to 12 sources with a route or two of up to five of them, up to 30 transfers."""
    draw = random.Random(seed)
    framings = (None, FLITS) if with_flits else (None,)
    edges = [
        Edge(Node("a", 0, at), Node("b", 0, at), draw.choice((0, 100, 1234, 5000)), 0, draw.choice(RATES_BPS))._replace(
            framing=draw.choice(framings)
        )
        for at in range(8)
    ]
    weights = (1,) if channels == 1 else draw.choice(MIXED_WEIGHTS)
    sources = [
        [_route(draw, source, edges) for _ in range(draw.choice((1, 1, 2)))] for source in range(draw.randint(3, 12))
    ]
    starts = [draw.randrange(3_000_000) for _ in range(12)]
    offered = []
    for _ in range(draw.randint(5, 30)):
        source, nbytes = draw.randrange(len(sources)), draw.choice((1, 64, int(2 ** draw.uniform(6, 18))))
        channel, start_ps = draw.randrange(len(weights)), draw.choice(starts)
        offered.append(Offered(source, channel, start_ps, nbytes, draw.choice(sources[source])))
    return System(weights, {edge: at for at, edge in enumerate(edges)}, offered)


def _route(draw: random.Random, source: int, edges: list[Edge]) -> Route:
    return Route(Node("s", 0, source), 0, tuple(edges[at] for at in sorted(draw.sample(range(8), draw.randint(1, 5)))))


class SizeClass(NamedTuple):
    """How transfers of one size class fared. A slowdown is latency over latency alone, a wait their difference."""

    transfers: int
    mean_slowdown: float
    p99_slowdown: float
    mean_wait_ns: float


def classes(ends_ps: Sequence[int], offered: Sequence[Offered]) -> dict[int, SizeClass]:
    """What came of each size class, by its most bytes (:data:`CLASSES`); classes without transfers are left out."""
    found: dict[int, list[tuple[int, int]]] = {most: [] for most in CLASSES}
    for end_ps, each in zip(ends_ps, offered, strict=True):
        most = next(most for most in CLASSES if each.nbytes <= most)
        found[most].append((end_ps - each.start_ps, each.route.latency_ps(each.nbytes)))
    return {most: _size_class(pairs) for most, pairs in found.items() if pairs}


def _size_class(pairs: list[tuple[int, int]]) -> SizeClass:
    slowdowns = sorted(took / alone for took, alone in pairs)
    p99 = slowdowns[-(-99 * len(pairs) // 100) - 1]
    wait_ns = statistics.mean(took - alone for took, alone in pairs) / 1000
    return SizeClass(len(pairs), statistics.mean(slowdowns), p99, wait_ns)


def ends_on(fabric_of: type[FlowFabric], system: System) -> list[int]:
    """When the last byte of each transfer is at the end of its route, on a fabric that checks each division."""
    engine = Engine()
    fabric = fabric_of(engine, Arbitration(256, system.weights))
    fabric.is_watched = True
    ends: dict[int, int] = {}

    def start(at: int) -> None:
        each = system.offered[at]
        train = fabric.train(each.source, each.channel)
        fabric.start(train, each.route, each.nbytes, lambda _head, tail: ends.update({at: tail}))

    for at, each in enumerate(system.offered):
        engine.at(each.start_ps, lambda at=at: start(at))  # type: ignore[misc]
    assert engine.run_before(None, 10**7)
    return [ends[at] for at in range(len(system.offered))]
