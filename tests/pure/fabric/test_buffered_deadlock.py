"""No deadlock with finite buffers: the dependencies between buffers have no cycle, and random workloads all end."""

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from cube_traffic import Shape, SipRoutes, workload
from sweeps import batches

import sipsim.fabric.buffered.ports
from sipsim.fabric.buffered.ports import ARRIVING, CLASSES, LEAVING, NETWORKS, REPLY, REQUEST, lanes_on
from sipsim.fabric.graph import Node, Route

Buffer = tuple[Node, Node, int]
"""The buffer at the end of an edge, of a lane."""

SHAPES = [
    Shape((1, 1), (4, 4)),
    Shape((4, 1), (4, 2)),
    Shape((1, 4), (2, 4)),
    Shape((2, 2), (1, 1)),
    Shape((2, 2), (4, 2)),
    Shape((2, 2), (2, 4)),
    Shape((3, 3), (2, 2)),
    Shape((3, 3), (3, 3)),
    Shape((3, 2), (1, 4)),
    Shape((2, 3), (4, 1)),
    Shape((2, 2), (5, 5)),
    Shape((4, 4), (4, 2)),
    Shape((3, 3), (3, 2), (("E", 0), ("W", 8), ("N", 4), ("S", 4))),
]
BURSTS = batches(10_000, 100)


def waits(routes: Iterable[Route], is_reply: bool = False) -> dict[Buffer, set[Buffer]]:
    """For which buffers a packet in each buffer may wait. The end of a route takes what comes, and has none."""
    found: dict[Buffer, set[Buffer]] = {}
    for route in routes:
        buffers = [
            (edge.src, edge.dst, lane)
            for edge, lane in zip(route.edges[:-1], lanes_on(route, 0, is_reply), strict=False)
        ]
        for here, onward in pairwise(buffers):
            found.setdefault(here, set()).add(onward)
    return found


def of_networks(shape: Shape) -> dict[int, dict[Buffer, set[Buffer]]]:
    routes = SipRoutes(shape)
    return {
        REQUEST: waits(routes.requests()),
        REPLY: waits(routes.replies(), True),
        LEAVING: waits(routes.departures()),
        ARRIVING: waits(routes.arrivals()),
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_buffers_wait_for_each_other_in_no_circle(shape: Shape) -> None:
    for network, dependencies in of_networks(shape).items():
        used = {lane // CLASSES % NETWORKS for here, onward in dependencies.items() for _, _, lane in (here, *onward)}
        assert used <= {network}
        assert len(list(TopologicalSorter(dependencies).static_order())) >= len(dependencies)


def test_without_classes_turns_among_cubes_close_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a packet that has come from a cube to the north or south needs buffers of its own."""
    monkeypatch.setattr(sipsim.fabric.buffered.ports, "classes_on", lambda route: [0] * len(route.edges))
    with pytest.raises(CycleError):
        list(TopologicalSorter(of_networks(Shape((2, 2), (4, 2)))[REQUEST]).static_order())


@pytest.mark.parametrize("first", BURSTS)
def test_random_workloads_end(first: int) -> None:
    for seed in range(first, first + 100):
        sent, ended, _ = workload(seed)
        assert sent == ended, f"seed {seed}: {sent - ended} transfers never end"
