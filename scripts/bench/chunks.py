"""Both sides of ``vc_chunk_size`` (ADR-0023 D8): larger chunks are more efficient, smaller ones fairer.

Simulated figures, the same in every run, of one cube of the default config, where each chunk has a header.
``efficiency``: of 1 MiB alone, what its bytes take at the bandwidth of an edge by what they take. ``wait``: how much
later 64 B on ``vc_comm`` come beside 8 MiB on ``vc_compute`` than alone, from an input of their own, over one edge; the
mean and the most of messages at as many places of a packet. Of flows, and of packets with buffers of eight.
"""

import argparse
import statistics
from typing import Any

from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.config import load
from sipsim.config.load import Override
from sipsim.core.engine import Engine
from sipsim.core.units import drain_ps
from sipsim.fabric.buffered.ports import buffers_of
from sipsim.fabric.channels import COMM, COMPUTE
from sipsim.fabric.graph import Node, Route
from sipsim.fabric.open import open_fabric

from .kit import Flag, Table

FLAGS = {
    "chunks": Flag((64, 256, 1024, 4096, 16384, 65536), (256, 1024, 16384, 65536), "sizes of a chunk, in bytes"),
    "header": Flag(16, 16, "bytes of its header"),
}
MODELS: dict[str, int | None] = {"flows": None, "packets": 8}
LONG_BYTES, STREAM_BYTES, MESSAGE_BYTES = 2**20, 2**23, 64
MESSAGES, FIRST_PS, EACH_PS = 32, 1_000_000, 3_919_000
EVENTS = 10**9


class Cube:
    """PE 0 sends a stream to PE 1, and PE 4 messages: they meet on the edge from router 1 to PE 1."""

    def __init__(self, chunk_bytes: int, header_bytes: int, depth: int | None) -> None:
        settings = {
            "defaults.vc_chunk_size": chunk_bytes,
            "defaults.vc_chunk_header_bytes": header_bytes,
            "router.buffer_packets": depth,
        }
        self._plan = Plan(load(overrides=[Override(path, value, path) for path, value in settings.items()]))
        self.stream, self.message = self._route(0), self._route(4)

    def _route(self, pe: int) -> Route:
        return self._plan.system.graph.route(Node("pe", 0, pe), Node("pe", 0, 1))

    def latencies_ps(self, stream_bytes: int, messages: int = 0) -> list[int]:
        """Of the stream, if it has bytes, and then of each message."""
        plan, engine = self._plan, Engine()
        buffers = buffers_of(plan.resolved, plan.system.chunk_bytes)
        fabric, found = open_fabric(engine, plan.arbitration, buffers, False, None), []

        def send(route: Route, vc: int, nbytes: int) -> None:
            start_ps = engine.now_ps
            train = fabric.train(route.start, vc)
            fabric.start(train, route, nbytes, lambda _head, tail: found.append((vc, start_ps, tail - start_ps)))

        if stream_bytes:
            engine.at(0, lambda: send(self.stream, COMPUTE, stream_bytes))
        for number in range(messages):
            engine.at(FIRST_PS + number * EACH_PS, lambda: send(self.message, COMM, MESSAGE_BYTES))
        engine.run_before(None, EVENTS)
        return [latency_ps for _, _, latency_ps in sorted(found)]

    def efficiency(self) -> float:
        """Of a long transfer alone, without the way of its head."""
        [latency_ps] = self.latencies_ps(LONG_BYTES)
        edge = self.stream.edges[0]
        return drain_ps(LONG_BYTES, edge.bandwidth_bps) / (latency_ps - self.stream.head_ps())

    def waits_ns(self) -> list[float]:
        """How much later than alone each message comes beside the stream."""
        [alone_ps] = self.latencies_ps(0, 1)
        return [(each - alone_ps) / 1000 for each in self.latencies_ps(STREAM_BYTES, MESSAGES)[1:]]


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Measure, and print a row for each size."""
    columns = [column for model in MODELS for column in (f"{model}:9.1%", "mean wait:11.2f", "most:9.2f")]
    table, rows = Table("chunk:8", *columns, title="efficiency, and waits in ns"), []
    for chunk_bytes in chosen.chunks:
        of_models: dict[str, Any] = {}
        for model, depth in MODELS.items():
            cube = Cube(chunk_bytes, chosen.header, depth)
            waits_ns = cube.waits_ns()
            mean_ns = statistics.mean(waits_ns)
            of_models[model] = {"efficiency": cube.efficiency(), "wait_ns": mean_ns, "most_wait_ns": max(waits_ns)}
        rows.append({"chunk_bytes": chunk_bytes, "header_bytes": chosen.header, **of_models})
        table.row(chunk_bytes, *(value for each in of_models.values() for value in each.values()))
    return {"rows": rows}
