"""Several SIPs in this process with a given wiring and kernels; no host script, no algorithm. Not a test."""

from collections.abc import Callable

from hardware import WiredPlan
from runs import Undisturbed

from launcher.engines.inproc import InProcess
from launcher.options import Options
from launcher.supervise.run import Run
from sipsim.chips.ahbm.sip import Sip
from sipsim.chips.ahbm.tl.language import TL, run_kernel
from sipsim.node.sip_node import SipNode
from sipsim.records.job import Job

Kernel = Callable[[TL], None]


def run_sips(plan: WiredPlan, start: Callable[[SipNode], None], mail_seed: int = 0) -> InProcess:
    """Run all SIPs of a plan to the end, checked, with shuffled mail and a second pass; ``start`` starts the kernels of
    one at time 0.
    """
    job = Job(check_invariants=True, records=("records",))
    engine = InProcess(Run(Options(mail=f"shuffled:{mail_seed}"), plan, job), Undisturbed())
    for member in engine.members:
        member.start_program = lambda member=member: start(member)  # type: ignore[method-assign,misc]
    engine.run()
    return engine


def check_second_passes(engine: InProcess) -> int:
    """All records of all SIPs were performed again, and nothing differs, messages included; how many there were."""
    verdicts = [member.chip.sip.verdict() for member in engine.members]
    for member, verdict in zip(engine.members, verdicts, strict=True):
        assert verdict is not None
        assert (verdict.difference, verdict.races, verdict.stopped) == (None, 0, "")
        assert verdict.records == len(member.chip.sip.oplog.records)
    return sum(verdict.records for verdict in verdicts if verdict is not None)


def spawn(sip: Sip, cube: int, pe: int, kernel: Kernel) -> None:
    """Start a kernel on a PE. Addresses in it are physical."""
    part = sip.pe(cube, pe)
    tl = TL(part, lambda address, _nbytes: address)
    sip.spawn(part, lambda: run_kernel(kernel, (), tl))


def pause(sip: Sip, cube: int, pe: int, time_ps: int) -> None:
    """Called in a PE's kernel: do nothing for so long."""
    task = sip.pe(cube, pe).task
    assert task is not None
    sip.engine.at(sip.engine.now_ps + time_ps, task.resume)
    task.wait("a pause")
