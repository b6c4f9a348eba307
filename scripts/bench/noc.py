"""What finite input buffers do to a mesh: throughput at saturation, waits under load, head-of-line blocking.

Simulated figures, the same in every run; only the CPU times are of this machine. All of it on one cube of 4x4 routers
with a PE each, packets of 256 B, 4 ns on an edge, 1 ns a node, and the fabrics that a SIP has.

``throughput``: what a node gets through when every node always has packets for random others, as a part of its edge's
bandwidth and of the ideal mesh's, whose bisection is always busy: 8 of 15 destinations lie beyond it, so 16/2 nodes
with 8/15 of their traffic over 4 edges give 15/16. ``flows`` is ``router.buffer_packets: null``, where a node sends one
packet at a time at the rate that its whole way allows, and the network takes no burst up. ``wait``: the mean time from
a packet's making to its arrival, in packet times, at a part of the ideal throughput. ``blocked``: two flows that share
the first of their edges alone.

``switch``: one router of n inputs and n outputs with deep FIFOs, all of them always full, for which theory gives the
throughput. ``published``: other networks, the same mechanism.
"""

import argparse
import random
import statistics
from collections.abc import Iterator
from typing import Any

from sipsim.chips.ahbm.mesh import CubeMeshGraph
from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.core.engine import Engine
from sipsim.fabric.buffered.ports import Buffers
from sipsim.fabric.channels import ONE_QUEUE, Arbitration
from sipsim.fabric.graph import Edge, Node, Route
from sipsim.fabric.open import open_fabric

from .fabric import MESH
from .kit import Flag, Table, cpu_s

FLAGS = {
    "packets": Flag(1000, 60, "length of the traffic, in packet times"),
    "seeds": Flag(2, 1, "runs of each throughput"),
}
NODES = 16
PACKET_BYTES = 256
PACKET_PS = 4000
IDEAL = 15 / 16
DEPTHS: tuple[int | None, ...] = (1, 2, 4, 8, 64, None)
LOADS = (0.2, 0.4, 0.5, 0.6)
EVENTS = 10**9

KAROL = {2: 0.7500, 3: 0.6825, 4: 0.6553, 8: 0.6184}
"""Throughput of a saturated switch with FIFO input queues, by its ports: Karol, Hluchyj, Morgan, "Input Versus Output
Queueing on a Space-Division Packet Switch", IEEE Trans. Comm. 1987, table I; 2 - sqrt 2 for many."""
PUBLISHED = [
    ("a switch of many ports with FIFO input queues: 2 - sqrt 2", 0.586, "Karol et al., IEEE Trans. Comm. 1987"),
    ("networks with one queue a channel, of capacity", (0.2, 0.5), "Dally, Virtual-Channel Flow Control, ISCA 1990"),
    ("8x8 honeycomb, 4 virtual channels, of capacity", 0.625, "Joseph et al., RECONNECT, IEEE"),
]
"""What, a figure or its range, where it stands."""


class Mesh:
    """The 4x4 mesh with buffers of a depth; ``channels`` virtual channels of equal weight, used at random."""

    def __init__(self, depth: int | None, channels: int = 1) -> None:
        resolved = load(overrides=[Override(path, value, path) for path, value in MESH.items()])
        self._graph = CubeMeshGraph(resolved)
        self._engine = Engine()
        self._channels = channels
        arbitration = ONE_QUEUE if channels == 1 else Arbitration(PACKET_BYTES, (1,) * channels)
        buffers = None if depth is None else Buffers(depth, PACKET_BYTES)
        self._fabric = open_fabric(self._engine, arbitration, buffers, False, None)

    def route(self, a: int, b: int) -> Route:
        """From a PE to another."""
        return self._graph.route(Node("pe", 0, a), Node("pe", 0, b))

    def random_traffic(self, chance: float, packets: int, seed: int) -> list[tuple[int, int]]:
        """When each packet was made and arrived, in ps. Every packet time a node makes one, with a chance."""
        rng, arrived = random.Random(seed), []

        def send(route: Route, vc: int) -> None:
            made = self._engine.now_ps
            train = self._fabric.train(route.start, vc)
            self._fabric.start(train, route, PACKET_BYTES, lambda _head, tail: arrived.append((made, tail)))

        for slot in range(packets):
            for node in range(NODES):
                if rng.random() < chance:
                    route = self.route(node, (node + rng.randrange(1, NODES)) % NODES)
                    vc = rng.randrange(self._channels)
                    self._engine.at(slot * PACKET_PS, lambda r=route, v=vc: send(r, v))  # type: ignore[misc]
        self._engine.run_before(packets * PACKET_PS, EVENTS)
        return arrived

    def throughput(self, packets: int, seed: int) -> float:
        """Packets a node and packet time in the second half, when all nodes always have packets."""
        arrived = self.random_traffic(1.0, packets, seed)
        first_ps, last_ps = packets // 2 * PACKET_PS, packets * PACKET_PS
        return sum(first_ps <= tail < last_ps for _, tail in arrived) / (packets - packets // 2) / NODES

    def wait(self, part: float, packets: int, seed: int) -> float:
        """The mean time on the way, in packet times, of those made in the second half that have arrived."""
        arrived = self.random_traffic(part * IDEAL, packets, seed)
        late = [tail - made for made, tail in arrived if made >= packets // 2 * PACKET_PS]
        return statistics.mean(late) / PACKET_PS

    def blocked(self) -> tuple[float, float]:
        """When 16 KiB to a slow end and then 256 B to another are there, in ns, from one PE."""
        onward = self.route(0, 3)
        last = onward.edges[-1]
        slow = Edge(last.src, Node("hbm", 0, 3), last.wire_ps, last.overhead_ps, last.bandwidth_bps // 8)
        ends: list[int] = []
        for route, nbytes in ((onward._replace(edges=(*onward.edges[:-1], slow)), 2**14), (self.route(0, 12), 256)):
            self._fabric.start(self._fabric.train(route.start), route, nbytes, lambda _head, tail: ends.append(tail))
        self._engine.run_before(None, EVENTS)
        return max(ends) / 1000, min(ends) / 1000


def switch_throughput(ports: int, packets: int, seed: int) -> float:
    """Packets an output and packet time of one router, when every input always has packets for random outputs."""
    rng, engine, router = random.Random(seed), Engine(), Node("router", 0, 0)
    fabric = open_fabric(engine, ONE_QUEUE, Buffers(64, PACKET_BYTES), False, None)
    rate, arrived = PACKET_BYTES * 10**12 // PACKET_PS, []
    inputs = [Edge(Node("pe", 0, port), router, 0, 1000, rate) for port in range(ports)]
    outputs = [Edge(router, Node("sram", 0, port), 0, 1000, rate) for port in range(ports)]
    ways = [[Route(first.src, 0, (first, last)) for last in outputs] for first in inputs]
    for way in ways:
        for _ in range(packets):
            train = fabric.train(way[0].start)
            fabric.start(train, rng.choice(way), PACKET_BYTES, lambda _head, tail: arrived.append(tail))
    engine.run_before(packets * PACKET_PS, EVENTS)
    warm_ps = packets // 10 * PACKET_PS
    return sum(tail >= warm_ps for tail in arrived) / (packets - packets // 10) / ports


def rows(packets: int, seeds: int) -> Iterator[dict[str, Any]]:
    """One row a measurement."""
    for channels, depths in ((1, DEPTHS), (2, (4,))):
        for depth in depths:
            took_s, got = cpu_s(
                lambda d=depth, c=channels: [Mesh(d, c).throughput(packets, seed) for seed in range(seeds)]  # type: ignore[misc]
            )
            mean = statistics.mean(got)
            yield {
                "what": "throughput",
                "depth": depth,
                "channels": channels,
                "of_edge": mean,
                "of_ideal": mean / IDEAL,
                "cpu_us_a_packet": took_s * 1e6 / (mean * packets * NODES * seeds),
            }
    for depth in DEPTHS:
        waits = {str(part): Mesh(depth).wait(part, packets, 0) for part in LOADS}
        slow_ns, other_ns = Mesh(depth).blocked()
        yield {"what": "wait", "depth": depth, "waits": waits}
        yield {"what": "blocked", "depth": depth, "slow_ns": slow_ns, "other_ns": other_ns}
    for ports, theory in KAROL.items():
        got = [switch_throughput(ports, 4 * packets, seed) for seed in range(seeds)]
        yield {"what": "switch", "ports": ports, "of_edge": statistics.mean(got), "theory": theory}
    for what, figure, source in PUBLISHED:
        yield {"what": "published", "of": what, "figure": figure, "source": source}


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print a table for each kind of row."""
    made = list(rows(chosen.packets, chosen.seeds))

    def some(what: str) -> list[dict[str, Any]]:
        return [{**row, "depth": row.get("depth") or "flows"} for row in made if row["what"] == what]

    table = Table("packets of buffer:<20", "channels:9", "of edge:9.1%", "of ideal:9.1%", "CPU us a packet:16.0f")
    for row in some("throughput"):
        table.row(str(row["depth"]), row["channels"], row["of_edge"], row["of_ideal"], row["cpu_us_a_packet"])
    table = Table("ports:<20", "measured:9.1%", "theory:9.1%", title="\na switch beside theory (Karol et al. 1987)")
    for row in some("switch"):
        table.row(row["ports"], row["of_edge"], row["theory"])
    table = Table("figure:<20", "what:<1", title="\npublished")
    for row in some("published"):
        figures = row["figure"] if isinstance(row["figure"], tuple) else (row["figure"],)
        table.row(" to ".join(f"{each:.1%}" for each in figures), f"{row['of']} ({row['source']})")
    loads = (f"{part:.0%}:9.2f" for part in LOADS)
    table = Table("packets of buffer:<20", *loads, title="\npacket times on the way, by load")
    for row in some("wait"):
        table.row(str(row["depth"]), *row["waits"].values())
    table = Table(
        "packets of buffer:<20", "to slow end:12.1f", "other:9.1f", title="\n16 KiB, then 256 B elsewhere: ns"
    )
    for row in some("blocked"):
        table.row(str(row["depth"]), row["slow_ns"], row["other_ns"])
    return {"rows": made}
