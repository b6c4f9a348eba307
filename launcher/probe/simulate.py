"""Simulations, in this process, of messages between the two PEs of a ``ProbePlan``, and the bandwidth by size."""

import tempfile
import time
from functools import cached_property
from pathlib import Path
from typing import Any

from launcher.engines.inproc import InProcess
from launcher.options import Options
from launcher.result.fields import BoundRow, OneAfterAnother, OneMessage, SizePoint, SweepDocument
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from sipsim.chips.ahbm import host
from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.chip import AhbmChip
from sipsim.chips.ahbm.costs.prices import gbytes_per_s, sum_ps
from sipsim.chips.ahbm.costs.probe import Probe, ProbePlan, Ps
from sipsim.chips.ahbm.ipcq.credits import PIGGYBACK
from sipsim.chips.ahbm.ipcq.messages import IN_PLACE
from sipsim.chips.ahbm.memory.mmu import TLB_MISS
from sipsim.chips.ahbm.sip import Sip
from sipsim.core.errors import SimulationError
from sipsim.fabric.graph import Edge
from sipsim.records.job import Job

SCRIPT = str(Path(host.__path__[0], "probe_script.py"))


class ProbeRun:
    """Run in which the plan's ``src`` sends messages of ``sizes`` (in bytes) to ``dst`` back to back.

    The receiver waits before the first send, and receives one message after the other with ``tl.recv``.

    Raises:
        SimulationError: if the run fails.
    """

    def __init__(self, plan: ProbePlan, sizes: list[int]) -> None:
        self._plan = plan
        route = plan.neighbours
        arguments = (",".join(map(str, sizes)), str(plan.rank_of[plan.src]), route.direction, route.reverse)
        job = Job(script=SCRIPT, script_args=arguments, verify_data=False, check_invariants=True, records=("records",))
        with tempfile.TemporaryDirectory() as folder, StopSignals(None) as signals:
            run = Run(Options(), plan, job, folder, time.monotonic())
            self._ran = InProcess(run, signals)
            outcome = self._ran.run()
        if outcome.error is not None:
            raise SimulationError(outcome.error.message)

    @cached_property
    def received_ps(self) -> list[Ps]:
        """Time in ps, for each message, from the first ``tl.send`` until ``tl.recv`` (and ``tl.release``) returns."""
        ended_by = "ipcq.release" if self._plan.ipcq.latch == IN_PLACE else "ipcq.recv"
        sends, receives = (
            [record for record in self._sip(place.sip).oplog.records if record[0] == kind]
            for place, kind in ((self._plan.src, "ipcq.send"), (self._plan.dst, ended_by))
        )
        began_ps = int(sends[0][1]) - self._plan.issue_ps
        return [int(record[2]) - began_ps for record in receives]

    @cached_property
    def walked_ps(self) -> Ps:
        """The time in ps that the sender waited for page walks, all before a send."""
        launches = self._chip(self._plan.src.sip).torch.kernels.records
        return sum(launch.busy_ps.get(TLB_MISS, 0) for launch in launches)

    @cached_property
    def edge_bytes(self) -> int:
        """Bytes on all edges and links together, with their framing, without the ports of memories."""
        every = (self._sip(number).fabric.use() for number in range(self._plan.system.n_sips))
        return sum(use.nbytes for edges in every for edge, use in edges.items() if not edge.memory)

    def raw_ps(self, nbytes: int) -> Ps | None:
        """Return the time in ps of a DMA write to the same slot, after the messages; None if the PEs are on two SIPs.

        No kernel issues the write, so PE_CPU's issue time is added.
        """
        src, dst = self._plan.src, self._plan.dst
        if src.sip != dst.sip:
            return None
        sip, ended = self._sip(src.sip), list[int]()
        ring = sip.pe(dst.cube, dst.pe).ipcq.queues[self._plan.neighbours.reverse]
        began_ps = sip.engine.now_ps
        dma = sip.pe(src.cube, src.pe).dma
        dma.write(Block.piece(ring.my_rx_base_pa, nbytes), bytes(nbytes), lambda: ended.append(sip.engine.now_ps))
        sip.engine.run_before(None, 10**6)
        return self._plan.issue_ps + ended[0] - began_ps

    def _sip(self, number: int) -> Sip:
        return self._chip(number).sip

    def _chip(self, number: int) -> AhbmChip:
        chip = self._ran.members[number].chip
        assert isinstance(chip, AhbmChip)
        return chip


MOST_MESSAGES = 4096
"""The most messages into which a size of a sweep may be divided."""
MOST_SLOTS = 1024
"""The most slots of a ring that a simulation fills."""
MANY_BYTES = 2**30
"""The message size in bytes whose rate counts as the asymptotic rate."""


def sweep(plan: ProbePlan, sizes: list[int], **heading: Any) -> SweepDocument:
    """Return the document of simulated sizes, with Hockney's model ``t0 + n / r_inf`` and the bounds of both rates.

    A size up to ``slot_size`` is measured as one message and as back-to-back messages; a larger size is sent as
    messages of ``slot_size`` and a shorter last message. The rate of back-to-back messages is bounded by the longest
    time that each message occupies a resource: the drain of the slowest edge, the wait of ``tl.recv`` for a credit, or
    the round trip of a slot divided by the number of slots.

    ``sizes``: bytes, ascending. ``heading``: the document's other keys. Times are in ps, rates in GB/s.
    """
    slot_size = plan.ipcq.slot_size
    points = [_one_message(plan, size) if size <= slot_size else _many_messages(plan, size) for size in sizes]
    single = [point for point in points if point.messages == 1]
    document = SweepDocument(slot_size=slot_size, sizes=points, **heading)
    if single:
        document.one_message, document.one_after_another = _hockney(plan, single), _rate(plan, single[-1])
    return document


def _one_message(plan: ProbePlan, size: int) -> SizePoint:
    slots = min(plan.ipcq.n_slots, MOST_SLOTS)
    # The first round fills the ring; in the second round, credits of the first may meet; later rounds repeat.
    received_ps = ProbeRun(plan, [size] * (3 * slots)).received_ps
    interval_ps = (received_ps[-1] - received_ps[-1 - slots]) / slots
    point = _point(size, 1, ProbeRun(plan, [size]).received_ps[0])
    point.interval_ps, point.interval_GBps = interval_ps, _gbps(size, interval_ps)
    return point


def _many_messages(plan: ProbePlan, size: int) -> SizePoint:
    slot_size = plan.ipcq.slot_size
    full, rest = divmod(size, slot_size)
    messages = [slot_size] * full + [rest] * bool(rest)
    return _point(size, len(messages), ProbeRun(plan, messages).received_ps[-1])


def _point(size: int, messages: int, time_ps: Ps) -> SizePoint:
    return SizePoint(size, messages, time_ps, _gbps(size, time_ps))


def _hockney(plan: ProbePlan, points: list[SizePoint]) -> OneMessage:
    """Return the model of one message. ``off_ps``: the largest difference between a simulated size and the model."""
    probe = Probe(plan, points[0].bytes)
    t0_ps = points[0].time_ps - probe.drain_ps(points[0].bytes)
    r_inf = _gbps(MANY_BYTES, probe.drain_ps(MANY_BYTES))
    off_ps = max(abs(point.time_ps - t0_ps - probe.drain_ps(point.bytes)) for point in points)
    half_bytes = round(t0_ps * r_inf / 1000)
    return OneMessage(
        t0_ps=t0_ps,
        r_inf_GBps=r_inf,
        half_bytes=half_bytes,
        bounded_by=_slowest_edge(probe),
        off_ps=off_ps,
    )


def _slowest_edge(probe: Probe) -> str:
    """Return text with the edge that bounds the rate of one message, and the number of equally slow edges."""
    sip, edge = probe.drain(MANY_BYTES)
    needed_ps = edge.drain_ps(MANY_BYTES)
    alike = sum(each.drain_ps(MANY_BYTES) == needed_ps for _, route in probe.forward for each in route.edges) - 1
    others = f", and {alike} more edges that are as slow" if alike else ""
    return f"{_rate_of(edge, _gbps(MANY_BYTES, probe.drain_ps(MANY_BYTES)), probe.edge_name(sip, edge))}{others}"


def _rate_of(edge: Edge, useful: float, name: str) -> str:
    whole = gbytes_per_s(edge)
    framing = f", of which framing leaves {useful:g} GB/s" if useful < whole * (1 - 1e-6) else ""
    return f"{name}, {whole:g} GB/s{framing}"


def _rate(plan: ProbePlan, point: SizePoint) -> OneAfterAnother:
    """Return the rate of back-to-back messages and its bounds. ``off_ps``: time that the bounds do not explain."""
    assert isinstance(point.interval_ps, float)
    assert isinstance(point.interval_GBps, float)
    bounds = _bounds(plan, point.bytes)
    longest = max(bounds, key=lambda bound: bound.ps)
    return OneAfterAnother(
        bytes=point.bytes,
        interval_ps=point.interval_ps,
        GBps=point.interval_GBps,
        bounds=bounds,
        bounded_by=longest.what,
        off_ps=point.interval_ps - longest.ps,
    )


def _bounds(plan: ProbePlan, size: int) -> list[BoundRow]:
    probe, knobs = Probe(plan, size), plan.ipcq
    sip, edge = probe.drain(size)
    found = [
        BoundRow(f"the drain of {probe.edge_name(sip, edge)}", probe.drain_ps(size)),
        BoundRow(f"tl.recv, to the end of its wait for the credit ({probe.credit_mode})", sum_ps(probe.next_receive())),
    ]
    if knobs.n_slots <= MOST_SLOTS:
        waits_ps = plan.piggyback_wait_ps if probe.credit_mode == PIGGYBACK else 0
        round_ps = sum_ps(probe.arrival()) + waits_ps + sum_ps(probe.credit())
        what = f"the ring's {knobs.n_slots} slots: each is free again after a round trip"
        found.append(BoundRow(what, round_ps / knobs.n_slots))
    return found


def _gbps(nbytes: int, ps: float) -> float:
    return nbytes * 1000 / ps if ps else 0.0
