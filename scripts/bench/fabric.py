"""How edges are shared: waits on a mesh under load, shares of competing flows, what virtual channels save a message.

Simulated figures, the same in every run; only the CPU times are of this machine. ``wait``: what single flits of uniform
random traffic on a 4x4 mesh wait beyond what they wait at 0.01 flits a node and cycle, next to an ideal mesh that moves
in whole cycles; then how often the fabric divides bandwidth, and among how many flows each time. ``share``: what closed
loops of equal messages get of an edge that all of them cross. ``message``: 4 KiB on ``vc_comm`` behind a DMA of 256 KiB
on ``vc_compute``, with and without virtual channels, on an edge between two cubes and on a link between two SIPs.
"""

import argparse
import random
import statistics
from collections.abc import Sequence
from typing import Any

from sipsim.chips.ahbm.mesh import CubeMeshGraph
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.core.engine import Engine
from sipsim.fabric.channels import COMM, COMPUTE, ONE_QUEUE, Arbitration
from sipsim.fabric.flows import FlowFabric
from sipsim.fabric.graph import Node, Route

from .kit import Flag, Table, cpu_s

FLAGS = {"cycles": Flag(4000, 200, "length of the mesh's traffic")}
CYCLE_PS = 1000
FLIT_BYTES = 64
IDEAL_CYCLES = {0.4: 0.51, 0.6: 1.16, 0.8: 3.13}
EVENTS = 10**9

MESH = {"cube.noc.routers": {"w": 4, "h": 4}, "cube.pes": 16, "sip.cube_mesh": {"w": 1, "h": 1}, "wire.ns_per_mm": 0}
PAIR = {"sip.cube_mesh": {"w": 2, "h": 1}}
EQUAL, FOUR_TO_ONE = Arbitration(256, (1, 1)), Arbitration(256, (4, 1))

Flow = tuple[int, int]
"""A PE of cube 0, which sends to its twin on cube 1, and a virtual channel."""

SHARES: list[tuple[str, Arbitration, list[Flow]]] = [
    ("two flows, one channel", ONE_QUEUE, [(0, COMM), (4, COMM)]),
    ("four flows, one channel", ONE_QUEUE, [(0, COMM), (1, COMM), (2, COMM), (4, COMM)]),
    ("two channels, 1:1", EQUAL, [(0, COMPUTE), (4, COMM)]),
    ("two channels, 4:1", FOUR_TO_ONE, [(0, COMPUTE), (4, COMM)]),
    ("three channels, 4:1:5, the third idle", Arbitration(256, (4, 1, 5)), [(0, COMPUTE), (4, COMM)]),
]


def system(settings: dict[str, Any]) -> AhbmSystem:
    """The default system with some keys set."""
    return Plan(load(overrides=[Override(path, value, path) for path, value in settings.items()])).system


class Mesh:
    """One cube of 4x4 routers and 16 PEs, where a flit takes a cycle an edge. Nodes send to any, also themselves.

    ``divisions``, ``touched``: of the last traffic, the divisions of bandwidth a flit and the flows a division.
    """

    def __init__(self) -> None:
        self._graph = CubeMeshGraph(system(MESH).resolved)
        self._routes = {(a, b): self._route(a, b) for a in range(16) for b in range(16)}
        self.divisions = self.touched = 0.0

    def _route(self, a: int, b: int) -> Route:
        src, router = Node("pe", 0, a), Node("router", 0, a)
        if a != b:
            return self._graph.route(src, Node("pe", 0, b))
        edges = self._graph.edge(src, router), self._graph.edge(router, src)
        return Route(src, self._graph.overhead_ps(src), edges)

    def waits(self, load: float, cycles: int, seed: int, arbitration: Arbitration) -> list[int]:
        """What each flit waited, in ps. ``load``: the chance that a node sends one in a cycle."""
        rng, engine = random.Random(seed), Engine()
        fabric = FlowFabric(engine, arbitration)
        waited: list[int] = []

        def send(route: Route) -> None:
            due = engine.now_ps + route.latency_ps(FLIT_BYTES)
            fabric.start(fabric.train(route.start), route, FLIT_BYTES, lambda _head, tail: waited.append(tail - due))

        for cycle in range(cycles):
            for node in range(16):
                if rng.random() < load:
                    route = self._routes[node, rng.randrange(16)]
                    engine.at(cycle * CYCLE_PS, lambda route=route: send(route))  # type: ignore[misc]
        engine.run_before(None, EVENTS)
        self.divisions, self.touched = fabric.divisions / len(waited), fabric.touched / max(fabric.divisions, 1)
        return waited

    def wait_cycles(self, load: float, cycles: int, seed: int, arbitration: Arbitration = ONE_QUEUE) -> float:
        """The mean wait in cycles over that of a nearly empty mesh."""
        empty = statistics.mean(self.waits(0.01, 4 * cycles, seed, arbitration))
        return (statistics.mean(self.waits(load, cycles, seed, arbitration)) - empty) / CYCLE_PS


def shares(
    flows: Sequence[Flow], arbitration: Arbitration, nbytes: int = 4096, rounds: int = 400, window: int = 8
) -> list[float]:
    """What part of the edge between two cubes each flow gets, when it keeps ``window`` messages on their way."""
    graph, engine = CubeMeshGraph(system(PAIR).resolved), Engine()
    fabric = FlowFabric(engine, arbitration)
    first_ps, last_ps = (graph.route(Node("pe", 0, 0), Node("pe", 1, 0)).drain_ps(nbytes) * n for n in (50, rounds))
    got = [0] * len(flows)

    def run(index: int, route: Route, vc: int) -> None:
        def done(_head: int, tail: int) -> None:
            got[index] += first_ps <= tail < last_ps
            if tail < last_ps:
                fabric.start(fabric.train(route.start, vc), route, nbytes, done)

        for _ in range(window):
            fabric.start(fabric.train(route.start, vc), route, nbytes, done)

    for index, (pe, vc) in enumerate(flows):
        run(index, graph.route(Node("pe", 0, pe), Node("pe", 1, pe)), vc)
    engine.run_before(None, EVENTS)
    return [count / sum(got) for count in got]


def message_ps(route: Route, arbitration: Arbitration, behind_ps: int, dma: int, message: int) -> int:
    """How long a message takes that starts ``behind_ps`` after a long DMA over the same route."""
    engine, took = Engine(), [0]
    fabric = FlowFabric(engine, arbitration)
    engine.at(0, lambda: fabric.start(fabric.train("dma", COMPUTE), route, dma, None))

    def done(_head: int, tail: int) -> None:
        took[0] = tail - behind_ps

    engine.at(behind_ps, lambda: fabric.start(fabric.train("dma", COMM), route, message, done))
    engine.run_before(None, EVENTS)
    return took[0]


def wait_rows(cycles: int) -> list[dict[str, Any]]:
    """One row a load."""
    mesh, rows = Mesh(), []
    for load_, ideal in IDEAL_CYCLES.items():
        took_s, found = cpu_s(
            lambda load_=load_: [mesh.wait_cycles(load_, cycles, 1, how) for how in (ONE_QUEUE, EQUAL)]  # type: ignore[misc]
        )
        row = {"load": load_, "wait_cycles": found[0], "with_channels": found[1], "ideal": ideal}
        row |= {"divisions": mesh.divisions, "touched": mesh.touched}
        rows.append({"what": "wait", **row, "cpu_s": took_s})
    return rows


def share_rows() -> list[dict[str, Any]]:
    """One row a set of flows."""
    return [{"what": "share", "of": name, "shares": shares(flows, how)} for name, how, flows in SHARES]


def message_rows() -> list[dict[str, Any]]:
    """One row a route."""
    pair, rows = system({**PAIR, "system.sips.link": "ucie"}), []
    src = Node("pe", 0, 0)
    routes = {"between cubes": pair.graph.route(src, Node("pe", 1, 0)), "link": pair.leaving(0, src, "E")}
    for name, route in routes.items():
        times = {
            key: message_ps(route, how, 1_000_000, 2**18, 4096) / 1000
            for key, how in (("one_queue_ns", ONE_QUEUE), ("channels_ns", EQUAL))
        }
        rows.append({"what": "message", "on": name, "alone_ns": route.latency_ps(4096) / 1000, **times})
    return rows


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """The three tables."""
    waits, shared, messages = wait_rows(chosen.cycles), share_rows(), message_rows()
    columns = "load:<26", "wait:9.2f", "channels:9.2f", "ideal:9.2f", "divisions a flit:17.2f", "flows a division:17.1f"
    table = Table(*columns, title="cycles over an empty mesh")
    for row in waits:
        table.row(*(row[key] for key in ("load", "wait_cycles", "with_channels", "ideal", "divisions", "touched")))
    table = Table("flows:<40", "shares:<32", title="\nshares of an edge")
    for row in shared:
        table.row(row["of"], "".join(f"{share:>8.1%}" for share in row["shares"]))
    table = Table("4 KiB behind 256 KiB:<26", "alone:9.1f", "one queue:9.1f", "channels:9.1f", title="\nns")
    for row in messages:
        table.row(row["on"], row["alone_ns"], row["one_queue_ns"], row["channels_ns"])
    return {"rows": [*waits, *shared, *messages]}
