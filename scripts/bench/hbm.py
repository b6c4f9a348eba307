"""The HBM controller against a cycle-level DRAM model: bandwidth and latency of one 64 bit channel.

The figures to reach are those of Ramulator 2.1's latency-throughput test: a stream of reads at an offered rate, and
beside it a probe that reads at random addresses, the next one when the last is back. Where the controller's queue is
full the stream waits, and its later requests with it. The probe's latency contains the controller's fixed front end.

With refresh the test was run at the same settings as without, and its figures are given at the rate that the stream
then had: 21.1 GB/s became 20.6, 41.6 became 39.4, 48.8 became 45.8. So these rows have two targets, rate and latency.

What is not predicted but taken from the same measurement: the front end's 48 ns from the two unloaded latencies, and
the length of the test's queues from the rates with refresh. The stream's pattern is an assumption, chosen by its fit:
banks change rows one after the other. With all banks at once (the test's default) the probe is 27 to 91 % late near
saturation, as rows are opened in the order of arrival here; with a sequential stream all rows fit but HBM4 at 60.9 GB/s
(14 % late). If 45.8 GB/s is read as the rate that is offered with refresh, the probe takes 127 ns of 161, 21 % too few.

Random numbers are seeded, so every run prints the same.
"""

import argparse
import random
import statistics
from typing import Any, NamedTuple

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.memory.hbm import HbmController
from sipsim.chips.ahbm.memory.presets import BURST_BYTES, PSEUDO_CHANNELS, presets
from sipsim.config.schema import MemoryCost
from sipsim.core.engine import Engine
from sipsim.core.units import PS_PER_NS, ns_to_ps, ps_to_ns
from sipsim.fabric.channels import Arbitration
from sipsim.fabric.flows import FlowFabric, Train
from sipsim.fabric.graph import Done, Node

from .kit import Flag, Table

GIB = 1 << 30
REQUEST_BYTES = 32
"""A burst, which is a request of the test."""
STREAM_COLUMNS = 8
READ_QUEUE = 216
"""Requests that the test's queues hold in all. Inferred from the test's own rates: a refresh stops the stream for tRP +
tRFC + tRCD = 386 ns of 3900, and what the stream does not lose of that (it loses 2.4, 5.3 and 6.1 %) is in the queues:
194, 234 and 223 requests, 216 in the mean. A parameter of this test alone, the same in all rows."""
UNTIL_PS = 100_000 * PS_PER_NS
WARM_PS = 10_000 * PS_PER_NS
WITHIN = 0.10


class Target(NamedTuple):
    """Offered GB/s, None for as much as the channel takes; and what to reach: the stream's GB/s, and the latency."""

    preset: str
    refresh: str
    offered_GBps: float | None
    stream_GBps: float
    latency_ns: float | None = None


TARGETS = (
    Target("hbm3_6400", "none", None, 51.07),
    Target("hbm3_6400", "all_bank", None, 46.8),
    *(Target("hbm3_6400", "none", rate, rate, ns) for rate, ns in ((0.7, 99), (21.1, 103), (41.6, 108), (48.8, 116))),
    Target("hbm3_6400", "all_bank", 21.1, 20.6, 113),
    Target("hbm3_6400", "all_bank", 41.6, 39.4, 123),
    Target("hbm3_6400", "all_bank", 48.8, 45.8, 161),
    Target("hbm4_8000", "none", None, 64.0),
    Target("hbm4_8000", "all_bank", None, 55.5),
    *(Target("hbm4_8000", "none", rate, rate, ns) for rate, ns in ((0.7, 94), (26.3, 98), (51.9, 101), (60.9, 102))),
)
FLAGS = {"targets": Flag(len(TARGETS), 2, "only the first targets")}


class Measured(NamedTuple):
    """Bandwidth of the stream in GB/s, and latency of the probe in ns, from request to last byte."""

    stream_GBps: float
    probe_ns: float


def channel(preset: str, refresh: str, engine: Engine) -> HbmController:
    """A slice of one channel. The test's mapping has no hash; the front end is added to the latencies."""
    params = {"preset": preset, "channels": 1, "refresh": refresh, "address_hash": "none", "front_end_ns": 0}
    times = {"overhead_ns": 0, "bandwidth_GBps": 64, "read_latency_ns": 0, "write_latency_ns": 20}
    return HbmController(MemoryCost(**times, kind="hbm_controller", params=params), engine, Node("hbm", 0, 0))


def stream_address(preset: str, number: int) -> int:
    """Of request ``number``, as the test has it: all banks in turn, then the next column, after eight the next row.
    Banks change rows one after the other (``stagger_stream_rows``)."""
    device = presets()[preset]
    line_bytes = device.groups * PSEUDO_CHANNELS * BURST_BYTES
    number, in_line = divmod(number, line_bytes // REQUEST_BYTES)
    number, bank = divmod(number, device.banks_per_group)
    row, column = divmod(number + bank, STREAM_COLUMNS)
    in_row = device.row_bytes // BURST_BYTES
    return (((row * device.banks_per_group + bank) * in_row + column) * line_bytes + in_line * REQUEST_BYTES) % GIB


def measured(preset: str, refresh: str, offered_GBps: float | None) -> Measured:
    """The stream at a rate and the probe; without a rate as fast as the queue allows, and no probe."""
    engine, draw = Engine(), random.Random(1)
    port, fabric = channel(preset, refresh, engine), FlowFabric(engine, Arbitration(REQUEST_BYTES, (1,)))
    streams, probe = [fabric.train(number) for number in range(PSEUDO_CHANNELS)], fabric.train("probe")
    interval_ps = 1 if offered_GBps is None else REQUEST_BYTES * 1000 / offered_GBps
    due_ps, started, under_way, is_full, sent = 0.0, 0, 0, False, 0
    latencies: list[int] = []

    def read(train: Train, address: int, done: Done) -> None:
        route, first_ps, span_ps = port.reading(Block(address, 1, REQUEST_BYTES, REQUEST_BYTES))
        fabric.start(train, route, REQUEST_BYTES, done, None, first_ps + span_ps, span_ps)

    def request() -> None:
        nonlocal due_ps, started, under_way, is_full, sent
        is_full = under_way >= READ_QUEUE
        if is_full or engine.now_ps >= UNTIL_PS:
            return
        at = stream_address(preset, started)
        read(streams[at // (presets()[preset].groups * BURST_BYTES) % PSEUDO_CHANNELS], at, answered)
        started, under_way, sent = started + 1, under_way + 1, sent + (engine.now_ps >= WARM_PS)
        due_ps = max(due_ps, engine.now_ps) + interval_ps
        engine.at(int(due_ps), request)

    def answered(_head_ps: int, _tail_ps: int) -> None:
        nonlocal under_way
        under_way -= 1
        if is_full:
            request()

    def ask(since_ps: int) -> None:
        if since_ps >= WARM_PS:
            latencies.append(engine.now_ps - since_ps + ns_to_ps(presets()[preset].front_end_ns))
        if engine.now_ps < UNTIL_PS:
            begin_ps, at = engine.now_ps, draw.randrange(GIB // REQUEST_BYTES) * REQUEST_BYTES
            read(probe, at, lambda _head_ps, _tail_ps: ask(begin_ps))

    request()
    if offered_GBps is not None:
        ask(-1)
    engine.run_before(None, 10**9)
    stream_GBps = sent * REQUEST_BYTES * 1000 / (UNTIL_PS - WARM_PS)
    return Measured(stream_GBps, ps_to_ns(statistics.fmean(latencies)) if latencies else 0)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Each target with what was measured and by how much it differs, in the stream's rate and in the latency."""
    stream, probe = ("target:9.2f", "stream:9.2f", "error:7.1%"), ("target:9.0f", "probe:9.1f", "error:7.1%")
    heads = "preset:<10", "refresh:<8", "offered:8.1f", *stream, *probe
    table, rows = Table(*heads, title="the stream in GB/s, the latency of the probe in ns"), []
    for target in TARGETS[: chosen.targets]:
        got = measured(target.preset, target.refresh, target.offered_GBps)
        stream_error = got.stream_GBps / target.stream_GBps - 1
        latency_error = None if target.latency_ns is None else got.probe_ns / target.latency_ns - 1
        errors = {"stream_error": stream_error, "latency_error": latency_error}
        rows.append({"target": target._asdict(), "measured": got._asdict(), **errors})
        probe_ns = None if target.latency_ns is None else got.probe_ns
        table.row(*target[:4], got.stream_GBps, stream_error, target.latency_ns, probe_ns, latency_error)
    for name in dict.fromkeys(target.preset for target in TARGETS[: chosen.targets]):
        print(f"# {name}: front end {presets()[name].front_end_ns:g} ns of each latency")
    return {"rows": rows}


def holds(document: dict[str, Any]) -> bool:
    """No figure is further from its target than 10 %."""
    return all(abs(row[key] or 0) <= WITHIN for row in document["rows"] for key in ("stream_error", "latency_error"))
