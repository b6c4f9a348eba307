"""The table on standard output, in the columns that readers of nccl-tests know."""

from typing import Any

from launcher.run.prepare import Prepared
from sipsim.ccl.collectives.base import NO_OP
from sipsim.dtypes import DTYPES

_HEAD = f"{'size':>12} {'count':>12} {'type':>6} {'redop':>6} {'time':>12} {'algbw':>9} {'busbw':>9} {'#wrong':>7}"
_UNIT = f"{'(B)':>12} {'(elements)':>12} {'':>6} {'':>6} {'(us)':>12} {'(GB/s)':>9} {'(GB/s)':>9} {'':>7}"


def render(document: dict[str, Any], prepared: Prepared, verbose: bool = False) -> str:
    """The whole text, every line ended; ``verbose`` adds a line a rank."""
    system = prepared.plan.system
    lines = [
        f"# ahbm-launch {document['version']}: {system.describe()}, engine {document['engine']}",
        f"#{_HEAD[1:]}",
        f"#{_UNIT[1:]}".rstrip(),
        *(_row(run) for run in document["runs"]),
        *(_rank(rank) for rank in document["ranks"] if verbose),
        *_notes(document, prepared),
    ]
    return "\n".join(lines) + "\n"


def _row(run: dict[str, Any]) -> str:
    wrong = str(run["wrong"]) if run["checked"] else "N/A"
    return (
        f"{run['bytes']:>12} {run['count']:>12} {run['dtype']:>6} {run['op']:>6} {run['time_ns'] / 1000:>12.3f} "
        f"{run['algbw_GBps']:>9.3f} {run['busbw_GBps']:>9.3f} {wrong:>7}"
    )


def _rank(rank: dict[str, Any]) -> str:
    return (
        f"# rank {rank['rank']}: pid {rank['pid']}, {rank['events']} events, {rank['grants']} grants, "
        f"{rank['packets_sent']} packets sent, {rank['cpu_s']:.3f} s CPU, {rank['peak_pss_mib']:.1f} MiB"
    )


def _notes(document: dict[str, Any], prepared: Prepared) -> list[str]:
    notes = [f"# {note}" for note in prepared.plan.notes()]
    plan = prepared.plan
    added = {(run["dtype"], run["count"] // plan.n_rows) for run in document["runs"] if run["op"] != NO_OP}
    if any(plan.rows_differ(DTYPES[dtype], n_elem) for dtype, n_elem in added):
        notes.append("# floating types: ranks may differ in the last bits, each adds in its own order")
    if document["digest"] is not None:
        notes.append(f"# digest {document['digest']}")
    else:
        notes.append(f"# {document['status']}: partial result, no digest")
    return notes
