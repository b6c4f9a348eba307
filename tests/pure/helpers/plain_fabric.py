"""Transfers on a fabric of their own. Not a test."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from hypothesis import strategies as st

from sipsim.core.engine import Engine
from sipsim.fabric.channels import ONE_QUEUE, Arbitration, ChunkFraming
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.graph import Edge, Framing, Node, Route
from sipsim.fabric.links.ucie import UcieCrossing

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
framings |= st.builds(ChunkFraming, st.integers(1, 1024), st.integers(0, 64), framings)
edges = st.builds(edge, st.integers(), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(1, 99), framings)
routes = st.builds(
    lambda found, start_ps: route(*found, start_ps=start_ps),
    st.lists(edges, min_size=1, max_size=12, unique_by=lambda e: e.src),
    st.integers(0, 5000),
)
amounts = st.integers(1, 10**5)
"""Ways and sizes of any kind, for one transfer alone."""


class Journey(NamedTuple):
    """A transfer to be. ``source``: what sends it; without, nothing else does."""

    start_ps: int
    route: Route
    nbytes: int
    delay_ps: int = 0
    span_ps: int = 0
    vc: int = 0
    source: object = None
    in_flight: int = 1


class Watched(FlowFabric):
    """A fabric that checks each division."""

    def __init__(self, engine: Engine, arbitration: Arbitration) -> None:
        super().__init__(engine, arbitration)
        self.is_watched = True


class End(NamedTuple):
    """When the end of a transfer was told, and the head and tail that it told."""

    now_ps: int
    head_ps: int
    tail_ps: int


class Traffic:
    """Journeys on one fabric. ``ends``: by their numbers, when each ended."""

    def __init__(self, journeys: Sequence[Journey], kind: Any = Watched, arbitration: Arbitration = ONE_QUEUE) -> None:
        self.engine = Engine()
        self.fabric = kind(self.engine, arbitration)
        self.ends: dict[int, End] = {}
        for index, journey in enumerate(journeys):
            self.engine.at(journey.start_ps, partial(self._begin, index, journey))

    def _begin(self, index: int, journey: Journey) -> None:
        source = index if journey.source is None else journey.source
        train = self.fabric.train(source, journey.vc, journey.in_flight)
        done = partial(self._note, index)
        self.fabric.start(train, journey.route, journey.nbytes, done, None, journey.delay_ps, journey.span_ps)

    def _note(self, index: int, head_ps: int, tail_ps: int) -> None:
        assert index not in self.ends
        self.ends[index] = End(self.engine.now_ps, head_ps, tail_ps)


def travel(
    journeys: Sequence[Journey], kind: Any = Watched, arbitration: Arbitration = ONE_QUEUE
) -> tuple[list[End], Any, Engine]:
    """All journeys on one fabric, to their ends."""
    traffic = Traffic(journeys, kind, arbitration)
    assert traffic.engine.run_before(None, 10**7)
    return [traffic.ends[index] for index in range(len(journeys))], traffic.fabric, traffic.engine


def alone(journey: Journey) -> End:
    """Every wire and every node once, the bottleneck's drain once, on the bytes of its wire."""
    way, nbytes = journey.route, journey.nbytes
    head = journey.start_ps + journey.delay_ps + way.start_ps + sum(e.wire_ps + e.overhead_ps for e in way.edges)
    wires = [e.wire_bytes(nbytes) for e in way.edges]
    drain = max(-(-n * PS_PER_S // e.bandwidth_bps) for n, e in zip(wires, way.edges, strict=True))
    return End(head + drain, head, head + drain)
