"""Transfers on a fabric, and what must come of them by a plain reference. Not a test.

The reference plans nothing ahead: it goes from head to head in the order in which they reach edges, and keeps for each
edge the picoseconds that are taken, one by one. It is slow and knows nothing of lines, shares or agendas.
"""

import heapq
import random
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from hypothesis import strategies as st

from sipsim.core.engine import Engine
from sipsim.fabric.graph import Edge, Framing, Node, Route
from sipsim.fabric.links.ucie import UcieCrossing
from sipsim.fabric.noc.arbitration import ONE_QUEUE, Arbitration
from sipsim.fabric.noc.fabric import Fabric
from sipsim.fabric.noc.transfer import Transfer
from sipsim.fabric.noc.witness import FabricWitness

PS_PER_S = 10**12


def edge(name: int, wire_ps: int, overhead_ps: int, ps_per_byte: int, framing: Framing | None = None) -> Edge:
    """An edge with a name of its own, of ``ps_per_byte``."""
    ends = Node("router", 0, name), Node("router", 1, name)
    return Edge(*ends, wire_ps, overhead_ps, PS_PER_S // ps_per_byte, framing)


def route(*edges: Edge, start_ps: int = 0) -> Route:
    return Route(edges[0].src, start_ps, edges)


def flits(flit_bytes: int, overhead: int) -> Framing:
    return UcieCrossing(2_000, 0, 0, flit_bytes, overhead)


framings = st.none() | st.builds(flits, st.integers(8, 300), st.integers(0, 7))
edges = st.builds(edge, st.integers(), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 99), framings)
routes = st.builds(
    lambda found, start_ps: route(*found, start_ps=start_ps),
    st.lists(edges, min_size=1, max_size=12, unique_by=lambda e: e.src),
    st.integers(0, 5000),
)
amounts = st.integers(1, 10**5)
"""Ways and sizes of any kind, for one transfer alone."""


def lead_of(way: Route, nbytes: int, arbitration: Arbitration, percent: int) -> int:
    """A part of the longest lead that a transfer alone may have."""
    last = way.edges[-1]
    most_ps = last.wire_ps + last.overhead_ps + last.drain_ps(min(nbytes, arbitration.chunk_bytes))
    return most_ps * percent // 100


class Journey(NamedTuple):
    """A transfer to be: when it starts, its way, and the arguments of ``Fabric.start``."""

    start_ps: int
    route: Route
    nbytes: int
    delay_ps: int = 0
    span_ps: int = 0
    lead_ps: int = 0
    vc: int = 0


class Watched(Fabric):
    """A fabric with a witness."""

    def __init__(self, engine: Engine, arbitration: Arbitration) -> None:
        super().__init__(engine, arbitration)
        self.witness = FabricWitness(arbitration.chunk_bytes)


class End(NamedTuple):
    """When a transfer's event came, and the head and tail that it told."""

    now_ps: int
    head_ps: int
    tail_ps: int


class Traffic:
    """Journeys on one fabric, in the order of their starts. By their numbers, ``made``: the transfers; ``ends``: where
    and when each ended."""

    def __init__(self, journeys: Sequence[Journey], kind: Any = Fabric, arbitration: Arbitration = ONE_QUEUE) -> None:
        self.engine = Engine()
        self.fabric = kind(self.engine, arbitration)
        self.made: dict[int, Transfer] = {}
        self.ends: dict[int, End] = {}
        for index, journey in enumerate(journeys):
            self.engine.at(journey.start_ps, partial(self._begin, index, journey))

    def _begin(self, index: int, journey: Journey) -> None:
        def done(head_ps: int, tail_ps: int) -> None:
            assert index not in self.ends
            self.ends[index] = End(self.engine.now_ps, head_ps, tail_ps)

        rest = journey.lead_ps, journey.delay_ps, journey.span_ps
        self.made[index] = self.fabric.start(journey.route, journey.nbytes, done, journey.vc, *rest)

    def limit(self, at_ps: int, index: int, where: Edge, part: float | None) -> None:
        """Limit a transfer to a part of an edge's bandwidth, at a time; None for no limit."""
        bandwidth = None if part is None else int(where.bandwidth_bps * part)
        self.engine.at(at_ps, lambda: self.fabric.limit(self.made[index], where, bandwidth))


def travel(
    journeys: list[Journey], kind: Any = Fabric, arbitration: Arbitration = ONE_QUEUE
) -> tuple[list[End], Fabric, Engine]:
    """All journeys on one fabric, to their ends."""
    traffic = Traffic(journeys, kind, arbitration)
    assert traffic.engine.run_before(None, 10**6)
    return [traffic.ends[index] for index in range(len(journeys))], traffic.fabric, traffic.engine


def ends_of(*journeys: Journey) -> list[tuple[int, int]]:
    """(head, tail) of each."""
    return [end[1:] for end in travel(list(journeys))[0]]


def alone(journey: Journey) -> End:
    """Every wire and every node once, the bottleneck's drain once, on the bytes of its wire."""
    way, nbytes = journey.route, journey.nbytes
    head = journey.start_ps + journey.delay_ps + way.start_ps + sum(e.wire_ps + e.overhead_ps for e in way.edges)
    wires = [e.wire_bytes(nbytes) for e in way.edges]
    drain = max(-(-n * PS_PER_S // e.bandwidth_bps) for n, e in zip(wires, way.edges, strict=True))
    return End(head + drain - journey.lead_ps, head, head + drain)


# --- the reference --------------------------------------------------------------------------------------------


class Slots:
    """One edge of the reference: which picoseconds are taken, and before which it is too late."""

    def __init__(self) -> None:
        self.taken: set[int] = set()
        self.latest_head_ps = 0

    def serve(self, head_ps: int, tail_ps: int, drain_ps: int) -> tuple[int, int]:
        """Take the last ``drain_ps`` free ones before the end: the first time, past the tail, that comes after so many
        free ones and touches one. Also the first free one, when the head leaves."""
        time_ps = self.latest_head_ps = max(self.latest_head_ps, head_ps)
        free: list[int] = []
        while not self._is_end(time_ps, tail_ps, drain_ps, free):
            if time_ps not in self.taken:
                free.append(time_ps)
            time_ps += 1
        self.taken.update(free[-drain_ps:])
        return free[0], time_ps

    def _is_end(self, time_ps: int, tail_ps: int, drain_ps: int, free: list[int]) -> bool:
        touches = time_ps not in self.taken or free[-1:] == [time_ps - 1]
        return time_ps >= tail_ps and len(free) >= drain_ps and touches


def reference(journeys: list[Journey]) -> list[End]:
    """What must happen."""
    slots: dict[Edge, Slots] = {}
    ends: dict[int, End] = {}
    heads: list[tuple[int, int, int, int, int]] = []
    for index, journey in enumerate(journeys):
        tail = journey.start_ps + journey.delay_ps + journey.route.start_ps
        heapq.heappush(heads, (max(tail - journey.span_ps, journey.start_ps), index, 0, tail - journey.span_ps, tail))
    while heads:
        now, index, hop, head, tail = heapq.heappop(heads)
        journey = journeys[index]
        here, onward = journey.route.edges[hop], hop + 1
        drain = here.drain_ps(journey.nbytes)
        leaves = slots.setdefault(here, Slots()).serve(head, tail, drain)
        head, tail = (t + here.wire_ps + here.overhead_ps for t in leaves)
        if onward < len(journey.route.edges):
            heapq.heappush(heads, (max(head, now), index, onward, head, tail))
        else:
            ends[index] = End(max(tail - journey.lead_ps, journey.start_ps), head, tail)
    return [ends[index] for index in range(len(journeys))]


# --- the reference with virtual channels ----------------------------------------------------------------------


class Chunk(NamedTuple):
    """One chunk of a journey; ``left`` counts it and those after it."""

    index: int
    left: int
    first: bool


class Crossing:
    """One edge: per channel the journeys that are here and their chunks, who is sending, and whose turn it is."""

    def __init__(self, arbitration: Arbitration) -> None:
        self.weights = arbitration.weights
        self.journeys: list[deque[int]] = [deque() for _ in self.weights]
        self.chunks: dict[int, deque[Chunk]] = {}
        self.busy = False
        self.turn, self.left = len(self.weights) - 1, 0

    def next(self) -> Chunk | None:
        """The chunk that goes now; the edge is idle and forgets its turn when there is none."""
        n = len(self.weights)
        first = {vc: index for vc in range(n) for index in reversed(self.journeys[vc]) if self.chunks[index]}
        able = sorted(first)
        if not able:
            self.turn, self.left = n - 1, 0
            return None
        strict = [vc for vc in able if self.weights[vc] == 0]
        if strict:
            return self.chunks[first[strict[0]]].popleft()
        if self.left == 0 or self.turn not in able:
            self.turn = min(able, key=lambda vc: (vc - self.turn - 1) % n)
            self.left = self.weights[self.turn]
        self.left -= 1
        return self.chunks[first[self.turn]].popleft()


def chunk_drain_ps(here: Edge, nbytes: int, chunk: Chunk, chunk_bytes: int) -> int:
    return here.drain_ps(min(nbytes, chunk.left * chunk_bytes)) - here.drain_ps((chunk.left - 1) * chunk_bytes)


def chunked_reference(journeys: list[Journey], arbitration: Arbitration) -> list[End]:
    """What must happen with virtual channels, where no edge is faster than the one before it: every chunk by itself,
    in the order of time, of start, and of place on the way; its head before its end.
    """
    crossings: dict[Edge, Crossing] = {}
    heads: dict[int, int] = {}
    ends: dict[int, End] = {}
    agenda: list[tuple[int, int, int, int, int, Chunk]] = []
    for index, journey in enumerate(journeys):
        count = -(-journey.nbytes // arbitration.chunk_bytes)
        arrives = journey.start_ps + journey.delay_ps + journey.route.start_ps
        for left in range(count, 0, -1):
            heapq.heappush(agenda, (arrives, index, 0, 0, -left, Chunk(index, left, left == count)))
    while agenda:
        now, index, hop, ended, _, chunk = heapq.heappop(agenda)
        journey = journeys[index]
        crossing = crossings.setdefault(journey.route.edges[hop], Crossing(arbitration))
        line = crossing.journeys[journey.vc]
        if ended:
            crossing.busy = False
            if chunk.left == 1:
                line.remove(index)
        else:
            if chunk.first:
                line.append(index)
                crossing.chunks[index] = deque()
            crossing.chunks[index].append(chunk)
        following = None if crossing.busy else crossing.next()
        if following is None:
            continue
        crossing.busy = True
        mover = journeys[following.index]
        here = journey.route.edges[hop]
        place = mover.route.edges.index(here)
        tail = now + chunk_drain_ps(here, mover.nbytes, following, arbitration.chunk_bytes)
        onward = here.wire_ps + here.overhead_ps
        heapq.heappush(agenda, (tail, following.index, place, 1, -following.left, following))
        if place + 1 < len(mover.route.edges):
            heapq.heappush(agenda, (now + onward, following.index, place + 1, 0, -following.left, following))
            continue
        if following.first:
            heads[following.index] = now + onward
        if following.left == 1:
            told = max(tail + onward - mover.lead_ps, mover.start_ps)
            ends[following.index] = End(told, heads[following.index], tail + onward)
    return [ends[index] for index in range(len(journeys))]


WEIGHTS = ((1, 1), (2, 1), (1, 4), (1, 1, 0), (0, 2, 0), (2, 1, 3))


def random_mixed_journeys(seed: int) -> tuple[list[Journey], Arbitration]:
    """A few transfers of two or three channels, over edges no faster than those before them: short ways, near in time,
    so that most meet and many tie.
    """
    rng = random.Random(seed)
    count, quick = rng.randint(1, 6), rng.random() < 0.5
    speeds = sorted(rng.choice((1, 1, 2, 5)) for _ in range(count))
    if rng.random() < 0.5:
        speeds = [rng.choice((1, 3))] * count
    made = [edge(i, rng.choice((0, 1, 3, 10, 40)), rng.choice((0, 1, 2)), speeds[i]) for i in range(count)]
    arbitration = Arbitration(rng.choice((1, 2, 3, 5)), rng.choice(WEIGHTS))
    starts = sorted(rng.randrange(8 if quick else 200) for _ in range(rng.randint(2, 14)))
    journeys = []
    for start in starts:
        ways = sorted(rng.sample(range(count), rng.randint(1, min(4, count))))
        way = route(*(made[i] for i in ways), start_ps=rng.choice((0, 0, 3)))
        nbytes, last = rng.choice((1, 2, 3, 8, 20, 40)), way.edges[-1]
        chunk = last.drain_ps(min(nbytes, arbitration.chunk_bytes))
        lead = rng.choice((0, 0, last.wire_ps + last.overhead_ps + rng.randint(1, chunk)))
        vc = rng.randrange(len(arbitration.weights))
        journeys.append(Journey(start, way, nbytes, rng.choice((0, 0, 5, 30)), 0, lead, vc))
    return journeys, arbitration
