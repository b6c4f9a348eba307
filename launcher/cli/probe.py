"""``ahbm-probe``: one transfer, its route and latency, term by term, and the simulated time."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.mail.inproc import InprocMail
from launcher.engines.inproc import InProcess
from launcher.report.destination import STANDARD_OUTPUT, opened
from launcher.report.progress import Progress
from launcher.run import options
from launcher.run.prepare import resolve
from launcher.run.probe_fields import ProbeDocument, TermRow, TransferSum
from launcher.supervise.request import Request
from launcher.supervise.signals import StopSignals
from sipsim import VERSION, host
from sipsim.chips.ahbm import Ahbm, AhbmChip
from sipsim.chips.base import kind_of
from sipsim.errors import AhbmError, ConfigError, SimulationError
from sipsim.plan.job import Job
from sipsim.plan.probe import Probe, ProbePlan, Term
from sipsim.sip.sip import Sip
from sipsim.topology.address import PePlace

SCRIPT = str(Path(host.__path__[0], "probe_script.py"))
ELEMENT_BYTES = 2


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns 0, or 2 with one line for a mistake."""
    try:
        chosen = options.parse_probe(sys.argv[1:] if argv is None else argv)
        document = probe(chosen)
        if chosen.json is not None:
            with opened(chosen.json) as file:
                file.write(json.dumps(document, indent=1) + "\n")
    except options.Usage as usage:
        print(usage.text, file=sys.stderr if usage.exit_code else sys.stdout)
        return usage.exit_code
    except AhbmError as error:
        print(f"ahbm-probe: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"ahbm-probe: {error}", file=sys.stderr)
        return ConfigError.exit_code
    if chosen.json != STANDARD_OUTPUT:
        print(_render(document))
    return 0


def probe(chosen: argparse.Namespace) -> ProbeDocument:
    """Both sums, their terms, and the simulated time of each.

    Raises:
        ConfigError: for invalid PEs, sizes or settings.
    """
    if chosen.bytes % ELEMENT_BYTES:
        raise ConfigError(f"--bytes {chosen.bytes}: must be a multiple of {ELEMENT_BYTES}, the size of an element")
    resolved = resolve(chosen)
    if not isinstance(kind_of(resolved), Ahbm):
        raise ConfigError(
            f"system.chip = {resolved.topology.system.chip}: ahbm-probe sends between PEs of chip ahbm only"
        )
    plan = ProbePlan(resolved, PePlace(*chosen.src), PePlace(*chosen.dst))
    costs = Probe(plan, chosen.bytes)
    raw, pair = costs.raw(), costs.pair()
    ran = _run(plan, chosen.bytes)
    knobs = plan.ipcq
    return {
        "version": VERSION,
        "from": list(chosen.src),
        "to": list(chosen.dst),
        "bytes": chosen.bytes,
        "buffer_kind": knobs.buffer_kind,
        "credit_return_mode": knobs.credit_return_mode,
        "hw_strict": knobs.hw_strict,
        "system": plan.system.describe(),
        "raw_dma": _sum(raw, _run_raw(ran, plan, chosen.bytes)),
        "pair": _sum(pair, _run_pair(ran, plan)),
        "overhead_ps": _total(pair) - _total(raw),
    }


def _run(plan: ProbePlan, nbytes: int) -> InProcess:
    """One message, all SIPs in this process."""
    sender = plan.rank_of[plan.src]
    arguments = (str(nbytes), str(sender), plan.direction, plan.reverse)
    job = Job(script=SCRIPT, script_args=arguments, verify=False, check_invariants=True)
    with tempfile.TemporaryDirectory() as folder, StopSignals(None) as signals:
        request = Request(plan, job, folder, time.monotonic(), Progress(quiet=True))
        ran = InProcess(request, signals, InprocMail(), keep_oplog=True)
        outcome = ran.run()
    if outcome.error is not None:
        raise SimulationError(outcome.error.message)
    return ran


def _run_pair(ran: InProcess, plan: ProbePlan) -> int:
    """Time from the send to the return of recv."""
    return _end_of(ran, plan.dst, "ipcq.recv") - _end_of(ran, plan.src, "ipcq.send")


def _end_of(ran: InProcess, place: PePlace, kind: str) -> int:
    records = _sip(ran, place.sip).oplog.records
    return next(int(record[2]) for record in records if record[0] == kind)


def _sip(ran: InProcess, number: int) -> Sip:
    chip = ran.members[number].chip
    assert isinstance(chip, AhbmChip)
    return chip.sip


def _run_raw(ran: InProcess, plan: ProbePlan, nbytes: int) -> int | None:
    """Time of a DMA write to the same slot, after the message; None across SIPs, which a DMA does not reach."""
    if plan.src.sip != plan.dst.sip:
        return None
    sip, ended = _sip(ran, plan.src.sip), list[int]()
    ring = sip.pe(plan.dst.cube, plan.dst.pe).ipcq.queues[plan.reverse]
    began_ps = sip.engine.now_ps
    dma = sip.pe(plan.src.cube, plan.src.pe).dma
    dma.write(ring.my_rx_base_pa, bytes(nbytes), lambda: ended.append(sip.engine.now_ps))
    sip.engine.run_before(None, 10**6)
    return ended[0] - began_ps


def _sum(terms: list[Term], simulated_ps: int | None) -> TransferSum:
    listed: list[TermRow] = [{"part": term.part, "what": term.what, "ps": term.ps} for term in terms]
    return {"terms": listed, "sum_ps": _total(terms), "simulated_ps": simulated_ps}


def _total(terms: list[Term]) -> int:
    return sum(term.ps for term in terms)


def _render(document: Mapping[str, Any]) -> str:
    src, dst = (".".join(map(str, document[end])) for end in ("from", "to"))
    lines = [
        f"# ahbm-probe {document['version']}: {document['bytes']} B from PE {src} to PE {dst} (SIP, cube, PE)",
        f"# {document['system']}; rings in {document['buffer_kind']}, credits by {document['credit_return_mode']}",
    ]
    titles = {"raw_dma": "raw DMA, a write and its acknowledgement", "pair": "tl.send to tl.recv's return"}
    for key, title in titles.items():
        lines += ["", f"{title:<74}{'ns':>12}", *_sum_lines(document[key])]
    if document["credit_return_mode"] != "fast_path":
        lines.append(f"  with {document['credit_return_mode']} recv does not wait until the credit has arrived")
    return "\n".join([*lines, "", _line("send/recv pair less raw DMA", document["overhead_ps"])])


def _sum_lines(result: Mapping[str, Any]) -> list[str]:
    lines, part = [], ""
    for term in result["terms"]:
        lines.append(_line(f"  {term['part'] if term['part'] != part else '':<17}{term['what']}", term["ps"]))
        part = term["part"]
    parts = dict.fromkeys(term["part"] for term in result["terms"])
    lines += [_line(f"  of which {part}", sum(t["ps"] for t in result["terms"] if t["part"] == part)) for part in parts]
    lines.append(_line("  sum", result["sum_ps"]))
    if result["simulated_ps"] is None:
        return [*lines, "  not simulated: a DMA write stays on its SIP"]
    return [*lines, _line("  simulated", result["simulated_ps"])]


def _line(what: str, ps: int) -> str:
    return f"{what:<74}{ps / 1000:>12.3f}"


if __name__ == "__main__":
    sys.exit(main())
