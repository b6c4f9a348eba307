"""Random traffic on a 4x4 mesh of cubes, and what becomes of it on a fabric. Not a test."""

import random
from typing import Any, NamedTuple

from hardware import system_of
from plain_fabric import Journey, travel

from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.fabric.graph import Node, Route
from sipsim.fabric.noc.arbitration import Arbitration

GRAPH = system_of(load(overrides=[Override("system.sips.count", 1, "")], variant="adr")).graph
"""Without the costs of parts, which would hide what sharing an edge costs."""
CUBES, PES = 16, 8
CHUNK_BYTES = 256
CHUNK_PS = 4000
"""Time of a chunk on the edges of the mesh."""
LOADS = (0.1, 0.3, 0.6, 0.9)
SIZES = tuple(2**k for k in range(6, 17))


def random_route(rng: random.Random) -> Route:
    """From a PE to another PE or to the HBM of one."""
    while True:
        src = Node("pe", rng.randrange(CUBES), rng.randrange(PES))
        dst = Node(rng.choice(("pe", "hbm")), rng.randrange(CUBES), rng.randrange(PES))
        if src != dst:
            return GRAPH.route(src, dst)


def arbitration(channels: int) -> Arbitration:
    return Arbitration(CHUNK_BYTES, (1,) * channels)


def meeting(seed: int, count: int, window_ps: int = 200_000) -> tuple[list[Journey], Arbitration]:
    """A few transfers near in time, all of which share edges with the first."""
    rng = random.Random(f"{count}.{seed}")
    channels = rng.choice((2, 3))
    routes = [random_route(rng)]
    while len(routes) < count:
        route = random_route(rng)
        if set(route.edges) & set(routes[0].edges):
            routes.append(route)
    starts = sorted(rng.randrange(window_ps) for _ in routes)
    journeys = [
        Journey(start, route, rng.choice(SIZES[:9]), vc=rng.randrange(channels))
        for start, route in zip(starts, routes, strict=True)
    ]
    return journeys, arbitration(channels)


def workload(seed: int, load: float, count: int = 200) -> tuple[list[Journey], Arbitration]:
    """Poisson arrivals at all PEs, 64 B to 64 KiB. ``load``: about the use of the busiest edges."""
    rng = random.Random(f"{seed} {load}")
    channels = 2 + seed % 2
    first = random_route(rng).edges[0]
    mean_ps = first.drain_ps(sum(SIZES) // len(SIZES)) / (load * CUBES * PES / BUSIEST)
    journeys, now = [], 0.0
    for _ in range(count):
        now += rng.expovariate(1 / mean_ps)
        journeys.append(Journey(int(now), random_route(rng), rng.choice(SIZES), vc=rng.randrange(channels)))
    return journeys, arbitration(channels)


BUSIEST = 8
"""How much busier the edges in the middle of the mesh are than those of a PE, under uniform traffic."""


class Compared(NamedTuple):
    """How long transfers take on two fabrics, in all, and the difference of each."""

    took_ps: int
    expected_ps: int
    differences_ps: list[int]


def compared(journeys: list[Journey], how: Arbitration, kind: Any, reference: Any) -> Compared:
    """The same traffic on both."""
    found, expected = (travel(journeys, each, how)[0] for each in (kind, reference))
    starts = sum(journey.start_ps for journey in journeys)
    return Compared(
        sum(end.tail_ps for end in found) - starts,
        sum(end.tail_ps for end in expected) - starts,
        [abs(a.tail_ps - b.tail_ps) for a, b in zip(found, expected, strict=True)],
    )
