"""What a PE's costs change: each run with the cost off and on, and where polling begins to lose.

Two neighbouring cubes of one SIP, simulated times only. The crossing is that of
``sipsim/chips/ahbm/ipcq/backpressure.py``; the table below it has waits of one length, and the mean over the interval
between two looks in which they end.
"""

import argparse
from collections.abc import Callable
from typing import Any

from sipsim.chips.ahbm.address import PhysAddr
from sipsim.chips.ahbm.ipcq.backpressure import Backpressure, backpressure_of
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.ahbm.tl.language import TL
from sipsim.core.errors import TcmFull
from sipsim.core.task import TaskFailed
from sipsim.core.units import ps_to_ns

from ._pair import Kernel, finish, plan, start
from .kit import Flag, Table

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
FLAGS = {"runs": Flag(7, 4, "only the first runs")}


def started(settings: dict[str, Any], *kernels: Kernel) -> Sip:
    """A SIP with an op log, whose rules are checked."""
    return start(plan(settings), *kernels, keep_oplog=True, check_invariants=True)


def ends_ns(sip: Sip, kind: str) -> list[float]:
    """When the commands of a kind ended."""
    return [record[2] / 1000 for record in sip.oplog.records if record[0] == kind]


def hbm(cube: int) -> int:
    """The first byte of the HBM of PE 0 of a cube."""
    return PhysAddr(0, cube, 0, "hbm", 0).encode()


def thousand_sends(tl: TL) -> None:
    """Messages of 1 KiB, one right after the other."""
    for _ in range(1000):
        tl.send("E", src_addr=PhysAddr(0, 0, 0, "tcm", 0).encode(), shape=256, dtype="f32")


def nothing(tl: TL) -> None:
    """A cube that takes no part."""


def sends(settings: dict[str, Any]) -> str:
    """When the last send has ended."""
    sip = started({**MANY_SLOTS, **settings}, thousand_sends, nothing)
    finish(sip)
    return f"{ends_ns(sip, 'ipcq.send')[-1]:,.0f} ns"


def one_send(tl: TL) -> None:
    """A message of 4 KiB."""
    tl.send("E", src_addr=PhysAddr(0, 0, 0, "tcm", 0).encode(), shape=1024, dtype="f32")


def posted_and_stored(tl: TL) -> None:
    """A receive that is posted long before its values are used."""
    future = tl.recv_async("W", 1024, "f32")
    tl.store(hbm(1) + MIB, tl.wait(future))


def credit(settings: dict[str, Any]) -> str:
    """When the slot's credit is back, after the message was there."""
    sip, seen = started(settings, one_send, posted_and_stored), []
    sender, receiver = sip.pe(0, 0).ipcq, sip.pe(1, 0).ipcq

    def seen_by(method: Callable[[Any], object]) -> Callable[[Any], object]:
        return lambda each: (seen.append(sip.engine.now_ps), method(each))

    sender.credit, receiver.arrive = seen_by(sender.credit), seen_by(receiver.arrive)  # type: ignore[method-assign]
    finish(sip)
    return f"{(seen[1] - seen[0]) / 1000:,.1f} ns"


def holds_192_mib(tl: TL) -> None:
    """Far more than the 16 MiB of a TCM."""
    _held = [tl.load(hbm(0), MIB // 4, "f32") for _ in range(192)]


def held(settings: dict[str, Any]) -> str:
    """How many handles have room."""
    sip = started(settings, holds_192_mib, nothing)
    try:
        finish(sip)
    except TaskFailed as failure:
        if isinstance(failure.__cause__, TcmFull):
            return f"TcmFull at handle {len(ends_ns(sip, 'dma_read'))}"
        raise
    return f"{len(ends_ns(sip, 'dma_read'))} MiB held"


RUNS: list[tuple[str, Callable[[dict[str, Any]], str], dict[str, Any], dict[str, Any]]] = [
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
    poll_ps, wait_ps, start_ps = poll.poll_ps, wait_ns * 1000, 0
    while (stop_ps := poll.seen_ps(0, start_ps + 1) - poll_ps) < wait_ps:
        start_ps = stop_ps
    waits = [start_ps + (2 * step + 1) * (stop_ps - start_ps) // 200 for step in range(100)]
    return ps_to_ns(sum(poll.seen_ps(0, wait) - wait for wait in waits) / len(waits))


def measure(chosen: argparse.Namespace) -> dict[str, Any]:
    """Both tables."""
    table, rows = Table("run:<51", "off:>16", "on:>24"), []
    for name, run, off, on in RUNS[: chosen.runs]:
        rows.append({"run": name, "off": run(off), "on": run(on)})
        table.row(*rows[-1].values())
    loop, sleep_ns = plan({**LOOP, "defaults.backpressure": "poll"}), LOOP["pe_cpu.wakeup_ns"]
    poll = backpressure_of(loop.ipcq, loop.resolved.components.pe_cpu)
    crossing = poll.crossing_ps(sleep_ns * 1000)
    crossing_ns = None if crossing is None else crossing / 1000
    title = f"\npoll beats sleep for waits of up to {crossing_ns:g} ns, and loses in the mean for longer ones"
    table, waits = Table("wait (ns):10", "poll, one wait:16.1f", "poll, mean:12.1f", "sleep:8", title=title), []
    for wait_ns in WAITS_NS:
        one, mean = (poll.seen_ps(0, wait_ns * 1000) - wait_ns * 1000) / 1000, mean_delay_ns(poll, wait_ns)
        waits.append({"wait_ns": wait_ns, "poll_ns": one, "poll_mean_ns": mean, "sleep_ns": sleep_ns})
        table.row(*waits[-1].values())
    return {"runs": rows, "crossing_ns": crossing_ns, "waits": waits}
