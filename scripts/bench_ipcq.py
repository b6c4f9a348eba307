"""What a send/recv pair costs this machine: CPU time and SimPy events, one SIP, neighbouring cubes. ``--json FILE``.

The first row is the one to watch: 4 KiB slots in TCM, data moved, op log on, checker off, ``sleep``, ``fast_path``, the
sender as far ahead as the ring lets it. The others change one thing each. In the same call, a bare SimPy ring with
credits (a Container, a Store and two timeouts a message; no fabric, no data) says how fast the machine is just now.
"""

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import simpy

from sipsim.chips.load import load
from sipsim.config.override import Override
from sipsim.dtypes import DTYPES
from sipsim.plan.plan import Plan
from sipsim.sip.sip import Sip
from sipsim.tl.language import TL
from sipsim.tl.values import TensorHandle

PAIR = """
def neighbors(rank, world_size, neighbor_map):
    return [{"E": 1}, {"W": 0}][rank]

def kernel_args(world_size, n_elem):
    return ()

def kernel(tl):
    pass

TOPO_NAME_TO_KIND = {"ring_1d": 0}
"""
ONE_SIP = {"system.sips.count": 1, "sip.cube_mesh": {"w": 2, "h": 1}}
Kernel = Callable[[TL, int], None]


def plan(folder: str, settings: dict[str, Any]) -> Plan:
    """Two neighbouring cubes, joined E to W."""
    module = Path(folder, "pair.py")
    module.write_text(PAIR)
    pair = {"algorithms.pair": {"module": str(module), "topology": "none"}, "defaults.algorithm": "pair"}
    everything = {**ONE_SIP, **pair, **settings}
    # Without the costs that a default config has: the figures are those of the queues alone.
    return Plan(load(overrides=[Override(path, value, path) for path, value in everything.items()], variant="adr"))


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


def measure(made: Plan, west: Kernel, east: Kernel, messages: int) -> tuple[float, float, float]:
    """Pairs a CPU second, SimPy events a pair, simulated nanoseconds a pair."""
    sip = Sip(0, made, lambda _dst, _parcel: None)
    for cube, kernel in ((0, west), (1, east)):
        pe = sip.pe(cube, 0)
        tl = TL(sip, pe, lambda address, _nbytes: address)
        sip.spawn(pe, lambda kernel=kernel, tl=tl: kernel(tl, messages))  # type: ignore[misc]
    gc.collect()
    began = time.process_time()
    sip.engine.run_before(None, 10**9)
    took = time.process_time() - began
    assert not sip.waiting(), "the kernels have not ended"
    return messages / took, sip.engine.events / messages, sip.engine.now_ps / messages / 1000


def bare_ring(messages: int) -> float:
    """Messages a CPU second of a credit ring in plain SimPy."""
    env = simpy.Environment()
    free, slots = simpy.Container(env, 8, 8), simpy.Store(env)

    def sender() -> Iterator[Any]:
        for number in range(messages):
            yield free.get(1)
            yield env.timeout(64)
            yield slots.put(number)

    def receiver() -> Iterator[Any]:
        for _ in range(messages):
            yield slots.get()
            yield env.timeout(16)
            yield free.put(1)

    env.process(sender())
    env.process(receiver())
    began = time.process_time()
    env.run()
    return messages / (time.process_time() - began)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=20_000, help="pairs a run (20000)")
    parser.add_argument("--repeat", type=int, default=5, help="runs a row; the median counts (5)")
    parser.add_argument("--json", type=Path, help="write the rows")
    chosen = parser.parse_args()
    gc.set_threshold(20_000)  # as the launcher does
    rows: list[dict[str, Any]] = []
    bare: list[float] = []
    print(f"{'':<26}{'pairs/CPU s':>13}{'events/pair':>13}{'ns/pair':>10}{'of bare SimPy':>15}")
    with tempfile.TemporaryDirectory() as folder:
        for name, settings, west, east in ROWS:
            made, runs, bare_now = plan(folder, settings), [], []
            for _ in range(chosen.repeat):
                bare_now.append(bare_ring(chosen.messages))
                runs.append(measure(made, west, east, chosen.messages))
            pairs, (_, events, ns) = statistics.median(run[0] for run in runs), runs[0]
            ratio = statistics.median(run[0] / floor for run, floor in zip(runs, bare_now, strict=True))
            bare += bare_now
            rows.append(
                {"what": name, "pairs_per_cpu_s": pairs, "events_per_pair": events, "ns_per_pair": ns, "of_bare": ratio}
            )
            print(f"{name:<26}{pairs:>13,.0f}{events:>13.2f}{ns:>10.2f}{ratio:>14.0%}")
    floor_pairs = statistics.median(bare)
    print(f"{'bare SimPy credit ring':<26}{floor_pairs:>13,.0f}")
    if chosen.json:
        first = {key: rows[0][key] for key in ("pairs_per_cpu_s", "events_per_pair")}
        document = {**first, "bare_simpy_per_cpu_s": floor_pairs, "rows": rows}
        chosen.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
