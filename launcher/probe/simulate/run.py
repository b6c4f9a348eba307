"""Simulates messages between the two PEs of a ``ProbePlan``, all SIPs in this process."""

import tempfile
import time
from functools import cached_property
from pathlib import Path

from broker.mail.inproc import InprocMail
from launcher.engines.inproc import InProcess
from launcher.report.progress.progress import Progress
from launcher.supervise.request import Request
from launcher.supervise.signals.signals import StopSignals
from sipsim.chips.ahbm import host
from sipsim.chips.ahbm.chip import AhbmChip
from sipsim.chips.ahbm.costs.probe.probe import ProbePlan, Ps
from sipsim.chips.ahbm.ipcq.messages.latch import IN_PLACE
from sipsim.chips.ahbm.memory.mmu.pe_mmu import TLB_MISS
from sipsim.chips.ahbm.sip.sip import Sip
from sipsim.core.errors import SimulationError
from sipsim.records.job import Job

SCRIPT = str(Path(host.__path__[0], "probe_script.py"))


class ProbeRun:
    """A run in which the plan's ``src`` sends messages of these sizes, one right after the other.

    The receiver waits already when the first is sent, and receives one after the other with ``tl.recv``.

    Raises:
        SimulationError: when the run fails.
    """

    def __init__(self, plan: ProbePlan, sizes: list[int]) -> None:
        self._plan = plan
        way = plan.way
        arguments = (",".join(map(str, sizes)), str(plan.rank_of[plan.src]), way.direction, way.reverse)
        job = Job(script=SCRIPT, script_args=arguments, verify=False, check_invariants=True)
        with tempfile.TemporaryDirectory() as folder, StopSignals(None) as signals:
            request = Request(plan, job, folder, time.monotonic(), Progress(quiet=True))
            self._ran = InProcess(request, signals, InprocMail(), keep_oplog=True)
            outcome = self._ran.run()
        if outcome.error is not None:
            raise SimulationError(outcome.error.message)

    @cached_property
    def received_ps(self) -> list[Ps]:
        """From the first ``tl.send`` to the return of each ``tl.recv`` and ``tl.release``."""
        ended_by = "ipcq.release" if self._plan.ipcq.latch == IN_PLACE else "ipcq.recv"
        sends, receives = (
            [record for record in self._sip(place.sip).oplog.records if record[0] == kind]
            for place, kind in ((self._plan.src, "ipcq.send"), (self._plan.dst, ended_by))
        )
        began_ps = int(sends[0][1]) - self._plan.issue_ps
        return [int(record[2]) - began_ps for record in receives]

    @cached_property
    def walked_ps(self) -> Ps:
        """For how long the sender waited for page walks, all before a send."""
        launches = self._chip(self._plan.src.sip).torch.kernels.records
        return sum(launch.busy_ps.get(TLB_MISS, 0) for launch in launches)

    def raw_ps(self, nbytes: int) -> Ps | None:
        """Time of a DMA write to the same slot, after the messages; None across SIPs, which a DMA does not reach.

        No kernel asks for it, so PE_CPU's issue is added.
        """
        src, dst = self._plan.src, self._plan.dst
        if src.sip != dst.sip:
            return None
        sip, ended = self._sip(src.sip), list[int]()
        ring = sip.pe(dst.cube, dst.pe).ipcq.queues[self._plan.way.reverse]
        began_ps = sip.engine.now_ps
        dma = sip.pe(src.cube, src.pe).dma
        dma.write(ring.my_rx_base_pa, bytes(nbytes), lambda: ended.append(sip.engine.now_ps))
        sip.engine.run_before(None, 10**6)
        return self._plan.issue_ps + ended[0] - began_ps

    def _sip(self, number: int) -> Sip:
        return self._chip(number).sip

    def _chip(self, number: int) -> AhbmChip:
        chip = self._ran.members[number].chip
        assert isinstance(chip, AhbmChip)
        return chip
