"""What a send/recv pair costs this machine: CPU time and SimPy events, one SIP, neighbouring cubes.

The first row is the one to watch: 4 KiB slots in TCM, data moved, op log on, checker off, ``sleep``, ``fast_path``, the
sender as far ahead as the ring lets it. The others change one thing each. In the same call, a bare SimPy ring with
credits says how fast the machine is just now.
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.tl.language import TL
from sipsim.chips.ahbm.tl.values import TensorHandle
from sipsim.core.dtypes import DTYPES

from ._pair import finish, plan, start
from .kit import Flag, Table, bare_simpy_s, cpu_s

FLAGS = {
    "messages": Flag(20_000, 1_000, "pairs a run"),
    "repeat": Flag(5, 1, "runs a row; the median counts"),
}
Kernel = Callable[[TL, int], None]


def stream_out(tl: TL, messages: int) -> None:
    """Send as fast as the ring lets it."""
    tile = TensorHandle(tl, np.arange(2048, dtype=np.float16), DTYPES["f16"])
    for _ in range(messages):
        tl.send("E", tile)


def stream_in(tl: TL, messages: int) -> None:
    """Receive as fast as they come."""
    for _ in range(messages):
        tl.recv("W", 2048, "f16")


def serve(tl: TL, messages: int) -> None:
    """Send, and wait for the answer; two pairs a turn."""
    tile = TensorHandle(tl, np.arange(2048, dtype=np.float16), DTYPES["f16"])
    for _ in range(messages // 2):
        tl.send("E", tile)
        tl.recv("E", 2048, "f16")


def answer(tl: TL, messages: int) -> None:
    """The other side of :func:`serve`."""
    for _ in range(messages // 2):
        tl.send("W", tl.recv("W", 2048, "f16"))


ROWS: list[tuple[str, dict[str, Any], Kernel, Kernel]] = [
    ("stream", {}, stream_out, stream_in),
    ("ping-pong", {}, serve, answer),
    ("stream, rings in HBM", {"defaults.buffer_kind": "hbm"}, stream_out, stream_in),
    ("stream, poll", {"defaults.backpressure": "poll"}, stream_out, stream_in),
    ("stream, fabric credits", {"defaults.credit_return_mode": "fabric"}, stream_out, stream_in),
    ("stream, piggyback", {"defaults.credit_return_mode": "piggyback"}, stream_out, stream_in),
    ("ping-pong, piggyback", {"defaults.credit_return_mode": "piggyback"}, serve, answer),
    ("stream, one slot", {"defaults.n_slots": 1}, stream_out, stream_in),
]


def measured(made: Plan, west: Kernel, east: Kernel, messages: int) -> tuple[float, float, float]:
    """Pairs a CPU second, SimPy events a pair, simulated nanoseconds a pair."""
    sip = start(made, partial(_run, west, messages), partial(_run, east, messages))
    took_s, _ = cpu_s(lambda: finish(sip))
    return messages / took_s, sip.engine.events / messages, sip.engine.now_ps / messages / 1000


def _run(kernel: Kernel, messages: int, tl: TL) -> None:
    kernel(tl, messages)


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """The rows, and the bare ring of all their runs."""
    rows: list[dict[str, Any]] = []
    bare: list[float] = []
    table = Table("what:<25", "pairs/CPU s:12,.0f", "events/pair:12.2f", "ns/pair:9.2f", "of bare SimPy:14.0%")
    for name, settings, west, east in ROWS:
        made, runs, ratios = plan(settings), [], []
        for _ in range(chosen.repeat):
            bare.append(chosen.messages / bare_simpy_s(chosen.messages))
            runs.append(measured(made, west, east, chosen.messages))
            ratios.append(runs[-1][0] / bare[-1])
        pairs, (_, events, ns) = statistics.median(run[0] for run in runs), runs[0]
        row = {"what": name, "pairs_per_cpu_s": pairs, "events_per_pair": events, "ns_per_pair": ns}
        rows.append({**row, "of_bare": statistics.median(ratios)})
        table.row(*rows[-1].values())
    table.row("bare SimPy credit ring", statistics.median(bare), None, None, None)
    first = {key: rows[0][key] for key in ("pairs_per_cpu_s", "events_per_pair")}
    return {**first, "bare_simpy_per_cpu_s": statistics.median(bare), "rows": rows}
