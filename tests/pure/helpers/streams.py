"""Streams of messages between PEs of a few cubes, as queue pairs send them, and which of them overtook another. Not a
test.

A PE's messages of one channel leave one after the other: the head of each comes when the tail of the one before it has
passed. Some are trains that a memory gives out slowly, or announced long before they leave. For tests with the default
config.
"""

import random
from collections.abc import Sequence
from functools import cache

from hardware import config, system_of
from plain_fabric import End, Journey, lead_of

from sipsim.chips.ahbm.system import System
from sipsim.fabric.graph import Node, Route
from sipsim.fabric.noc.arbitration import Arbitration

MESSAGE_BYTES = (16, 256, 1000, 4096, 4096, 8192, 8192, 16384)
WEIGHTS = ((50, 50), (50, 50), (1,), (1, 4), (1, 1, 0))
CHUNKS = (256, 256, 256, 64, 1024)
CUBES = ((5, 6), (3, 6, 7), (0, 1, 2, 3), (5, 6, 9, 10), (2, 6, 10, 14))
DELAYS_PS = (0, 0, 21_000, 51_000, 81_000)


@cache
def system() -> System:
    return system_of(config({"system.sips.count": 4}))


def journey(
    start_ps: int, src: str, dst: str, nbytes: int, delay_ps: int, span_ps: int, lead_ps: int = 0, vc: int = 0
) -> Journey:
    """From one PE to another, or to a port, which is its letter: ``"6.pe2"``, ``"6.hbm0"``, ``"E"``."""
    start = _node(src)
    route = system().leaving(0, start, dst) if dst in "NESW" else system().graph.route(start, _node(dst))
    return Journey(start_ps, route, nbytes, delay_ps, span_ps, lead_ps, vc)


def _node(name: str) -> Node:
    cube, place = name.split(".")
    return Node(place.rstrip("0123456789"), int(cube), int(place.lstrip("abcdefghijklmnopqrstuvwxyz")))


def streams(seed: int) -> tuple[list[Journey], Arbitration]:
    """Up to a dozen streams of up to eight messages, in the order of their sends."""
    rng = random.Random(seed)
    arbitration = Arbitration(rng.choice(CHUNKS), rng.choice(WEIGHTS))
    cubes, count, load = rng.choice(CUBES), rng.randint(2, 12), rng.choice((0.3, 0.8, 1.2, 2))
    sends: list[tuple[int, Route, int, int]] = []
    for _ in range(count):
        route, vc, nbytes = _route(rng, cubes), rng.randrange(len(arbitration.weights)), rng.choice(MESSAGE_BYTES)
        now = rng.randrange(100_000)
        for _ in range(rng.randint(1, 8)):
            size = nbytes if rng.random() < 0.8 else rng.choice((16, 64, 4096))
            drain = route.edges[0].drain_ps(size)
            mean_ps = drain * count / (4 * load)
            now += int(rng.expovariate(1 / mean_ps)) if rng.random() < 0.7 else rng.choice((0, 1, 1000, drain))
            sends.append((now, route, vc, size))
    sends.sort(key=lambda send: send[0])
    clear: dict[tuple[Node, int], int] = {}
    journeys = []
    for now, route, vc, size in sends:
        drain, key = route.edges[0].drain_ps(size), (route.start, vc)
        span = rng.choice((0, 0, drain // 2, drain, 2 * drain))
        head = max(now + rng.choice(DELAYS_PS) - span, clear.get(key, 0))
        tail = clear[key] = max(head + span, now)
        lead = lead_of(route, size, arbitration, 100) if route.edges[-1].is_link else 0
        journeys.append(Journey(now, route, size, tail - now, tail - head, lead, vc))
    return journeys, arbitration


def _route(rng: random.Random, cubes: Sequence[int]) -> Route:
    src = Node("pe", rng.choice(cubes), rng.randrange(8))
    if rng.random() < 0.2:
        return system().leaving(0, src, rng.choice("EW"))
    while True:
        dst = Node(rng.choice(("pe", "pe", "hbm")), rng.choice(cubes), rng.randrange(8))
        if dst != src:
            return system().graph.route(src, dst)


def overtaken(journeys: Sequence[Journey], ends: Sequence[End]) -> list[tuple[int, int]]:
    """Pairs of one route and channel of which the later ended first."""
    last: dict[tuple[int, int], int] = {}
    found = []
    for index, each in enumerate(journeys):
        before = last.get((id(each.route), each.vc))
        if before is not None and ends[before].tail_ps >= ends[index].tail_ps:
            found.append((before, index))
        last[id(each.route), each.vc] = index
    return found
