"""What a PE's costs change: each run with the cost off and on, and where polling begins to lose. ``--json FILE``.

Two neighbouring cubes of one SIP, simulated times only. The crossing is that of ``sipsim/ipcq/backpressure.py``; the
table below it has waits of one length, and the mean over the interval between two looks in which they end.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench_ipcq import plan

from sipsim.errors import TcmFull
from sipsim.ipcq.backpressure import Backpressure, backpressure_of
from sipsim.sip.sip import Sip
from sipsim.task import TaskFailed
from sipsim.tl.language import TL, run_kernel
from sipsim.topology.address import PhysAddr
from sipsim.units import ps_to_ns

MIB = 2**20
ISSUE = {"pe_cpu.issue_ns": 15}
LOOP = {
    "pe_cpu.wakeup_ns": 30,
    "pe_cpu.poll_ns": 5,
    "defaults.poll_interval_ns": 10,
    "defaults.poll_interval_max_ns": 55,
}
MANY_SLOTS = {"defaults.n_slots": 1024, "defaults.slot_size": 1024}
HBM_RING = {"defaults.buffer_kind": "hbm"}
Kernel = Callable[[TL], object]


class Bench:
    """Kernels on PE 0 of cubes 0 and 1, with some settings."""

    def __init__(self, folder: str, settings: dict[str, Any]) -> None:
        self.plan = plan(folder, settings)
        self.sip = Sip(0, self.plan, lambda _dst, _batch: None, keep_oplog=True, check_invariants=True)

    def run(self, *kernels: Kernel) -> None:
        for cube, kernel in enumerate(kernels):
            pe = self.sip.pe(cube, 0)
            tl = TL(self.sip, pe, lambda address, _nbytes: address)
            self.sip.spawn(pe, partial(run_kernel, kernel, (), tl))
        self.sip.engine.run_before(None, 10**7)

    def ends_ns(self, kind: str) -> list[float]:
        """When the commands of a kind ended."""
        return [record[2] / 1000 for record in self.sip.oplog.records if record[0] == kind]


def hbm(cube: int) -> int:
    """The first byte of the HBM of PE 0 of a cube."""
    return PhysAddr(0, cube, 0, "hbm", 0).encode()


def thousand_sends(tl: TL) -> None:
    """Messages of 1 KiB, one right after the other."""
    for _ in range(1000):
        tl.send("E", src_addr=PhysAddr(0, 0, 0, "tcm", 0).encode(), shape=256, dtype="f32")


def nothing(tl: TL) -> None:
    """A cube that takes no part."""


def sends(folder: str, settings: dict[str, Any]) -> str:
    bench = Bench(folder, {**MANY_SLOTS, **settings})
    bench.run(thousand_sends, nothing)
    return f"{bench.ends_ns('ipcq.send')[-1]:,.0f} ns"


def one_send(tl: TL) -> None:
    """A message of 4 KiB."""
    tl.send("E", src_addr=PhysAddr(0, 0, 0, "tcm", 0).encode(), shape=1024, dtype="f32")


def posted_and_stored(tl: TL) -> None:
    """A receive that is posted long before its values are used."""
    future = tl.recv_async("W", 1024, "f32")
    tl.store(hbm(1) + MIB, tl.wait(future))


def credit(folder: str, settings: dict[str, Any]) -> str:
    """When the slot's credit is back, after the message was there."""
    bench, seen = Bench(folder, settings), []
    sender, arrive = bench.sip.pe(0, 0).ipcq, bench.sip.pe(1, 0).ipcq.arrive
    real = sender.credit
    sender.credit = lambda each: (seen.append(bench.sip.engine.now_ps), real(each))  # type: ignore
    bench.sip.pe(1, 0).ipcq.arrive = lambda each: (seen.append(bench.sip.engine.now_ps), arrive(each))  # type: ignore
    bench.run(one_send, posted_and_stored)
    return f"{(seen[1] - seen[0]) / 1000:,.1f} ns"


def holds_192_mib(tl: TL) -> None:
    """Far more than the 16 MiB of a TCM."""
    _held = [tl.load(hbm(0), MIB // 4, "f32") for _ in range(192)]


def held(folder: str, settings: dict[str, Any]) -> str:
    bench = Bench(folder, settings)
    try:
        bench.run(holds_192_mib, nothing)
    except TaskFailed as failure:
        if isinstance(failure.__cause__, TcmFull):
            return f"TcmFull at handle {len(bench.ends_ns('dma_read'))}"
        raise
    return f"{len(bench.ends_ns('dma_read'))} MiB held"


RUNS: list[tuple[str, Callable[[str, dict[str, Any]], str], dict[str, Any], dict[str, Any]]] = [
    ("1,000 sends of 1 KiB: the last one leaves", sends, {}, ISSUE),
    ("the same, a queue of 16 sends", sends, {}, {**ISSUE, "pe_scheduler.queue_depth": 16}),
    ("recv_async, ring in TCM: credit back (copy)", credit, {}, {"defaults.latch": "copy"}),
    ("recv_async, ring in TCM: credit back (in_place)", credit, {}, {"defaults.latch": "in_place"}),
    ("recv_async, ring in HBM: credit back (copy)", credit, HBM_RING, {**HBM_RING, "defaults.latch": "copy"}),
    ("recv_async, ring in HBM: credit back (in_place)", credit, HBM_RING, {**HBM_RING, "defaults.latch": "in_place"}),
    ("192 loads of 1 MiB, all held", held, {}, {"tcm_layout.handles_take_room": True}),
]
WAITS_NS = (5, 25, 50, 69, 71, 110, 149, 190, 400, 1000)


def mean_delay_ns(poll: Backpressure, wait_ns: int) -> float:
    """Of events that are evenly spread over the interval between two looks in which a wait ends."""
    look_ps, wait_ps, start_ps = poll.look_ps, wait_ns * 1000, 0
    while (stop_ps := poll.seen_ps(0, start_ps + 1) - look_ps) < wait_ps:
        start_ps = stop_ps
    waits = [start_ps + (2 * step + 1) * (stop_ps - start_ps) // 200 for step in range(100)]
    return ps_to_ns(sum(poll.seen_ps(0, wait) - wait for wait in waits) / len(waits))


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [{"run": name, "off": run(folder, off), "on": run(folder, on)} for name, run, off, on in RUNS]
        loop = plan(folder, {**LOOP, "defaults.backpressure": "poll"})
    print(f"{'run':<52}{'off':>16}{'on':>24}")
    for row in rows:
        print(f"{row['run']:<52}{row['off']:>16}{row['on']:>24}")
    poll = backpressure_of(loop.ipcq, loop.resolved.components.pe_cpu)
    crossing = poll.crossing_ps(LOOP["pe_cpu.wakeup_ns"] * 1000)
    crossing_ns = None if crossing is None else crossing / 1000
    print(f"\npoll beats sleep for waits of up to {crossing_ns:g} ns, and loses in the mean for longer ones")
    print(f"{'wait (ns)':>10}{'poll, one wait (ns)':>22}{'poll, mean (ns)':>18}{'sleep (ns)':>12}")
    waits = []
    for wait_ns in WAITS_NS:
        one, mean = (poll.seen_ps(0, wait_ns * 1000) - wait_ns * 1000) / 1000, mean_delay_ns(poll, wait_ns)
        waits.append({"wait_ns": wait_ns, "poll_ns": one, "poll_mean_ns": mean, "sleep_ns": LOOP["pe_cpu.wakeup_ns"]})
        print(f"{wait_ns:>10}{one:>22.1f}{mean:>18.1f}{LOOP['pe_cpu.wakeup_ns']:>12}")
    if args.json:
        Path(args.json).write_text(json.dumps({"runs": rows, "crossing_ns": crossing_ns, "waits": waits}, indent=1))


if __name__ == "__main__":
    main()
