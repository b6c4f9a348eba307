"""The table on standard output, in the columns that readers of nccl-tests know. Its rows appear as they are known."""

from collections.abc import Callable
from itertools import chain, takewhile
from typing import Any

from launcher.report.outcome import Outcome
from launcher.run.prepare import Prepared
from launcher.run.results import where
from launcher.run.results.launches import launch_lines
from launcher.run.results.result import run_of
from sipsim import VERSION
from sipsim.ccl.collectives.base import NO_OP
from sipsim.chips.base import kind_of
from sipsim.dtypes import DTYPES
from sipsim.plan.base import Added

_HEAD = f"{'size':>12} {'count':>12} {'type':>6} {'redop':>6} {'time':>12} {'algbw':>9} {'busbw':>9} {'#wrong':>7}"
_UNIT = f"{'(B)':>12} {'(elements)':>12} {'':>6} {'':>6} {'(us)':>12} {'(GB/s)':>9} {'(GB/s)':>9} {'':>7}"


class Table:
    """The table of one run. ``write`` takes lines without their ends; ``verbose`` adds a line a rank."""

    def __init__(self, prepared: Prepared, write: Callable[[str], None], verbose: bool = False) -> None:
        self._prepared = prepared
        self._write = write
        self._verbose = verbose
        self._has_head = False
        self._rows = 0
        self._names_algorithms = len({*chain(*prepared.job.algorithms)}) > 1 or prepared.job.is_auto

    def note(self, outcome: Outcome) -> None:
        """Write the rows of the collectives that every rank has completed by now.

        Those of a script come at the end: what it computed is compared then.
        """
        if self._prepared.job.script is None:
            plan, more = self._prepared.plan, outcome.finished_runs()[self._rows :]
            # Those of other groups may come in any order before the end.
            of_all = takewhile(lambda run: len(run.ranks) == plan.system.n_sips, more)
            self._write_rows([dict(run_of(run, plan)) for run in of_all])

    def finish(self, document: dict[str, Any]) -> None:
        """Write what is left of the whole text."""
        self._write_rows(document["runs"][self._rows :])
        for rank in document["ranks"] if self._verbose else ():
            self._write(_rank(rank))
        ended = sum(rank["launches"] for rank in document["ranks"])
        for line in launch_lines(document["launches"], ended, self._verbose):
            self._write(f"# {line}")
        for line in self._choices():
            self._write(f"# {line}")
        for note in _notes(document, self._prepared):
            self._write(note)

    def _choices(self) -> list[str]:
        plan, job = self._prepared.plan, self._prepared.job
        return kind_of(plan.resolved).choices(job, plan) if self._verbose or job.explain else []

    def _write_rows(self, runs: list[dict[str, Any]]) -> None:
        if not self._has_head:
            self._has_head = True
            self._names_algorithms |= len({run["algorithm"] for run in runs}) > 1
            about = f"{self._prepared.plan.system.describe()}, engine {self._prepared.engine}"
            self._write(f"# ahbm-launch {VERSION}: {about}")
            self._write(f"#{_HEAD[1:]}{'  algorithm' if self._names_algorithms else ''}")
            self._write(f"#{_UNIT[1:]}".rstrip())
        for run in runs:
            self._write(_row(run, self._prepared.plan.system.n_sips, self._names_algorithms))
        self._rows += len(runs)


def render(document: dict[str, Any], prepared: Prepared, verbose: bool = False) -> str:
    """The whole text, every line ended."""
    lines: list[str] = []
    Table(prepared, lines.append, verbose).finish(document)
    return "\n".join(lines) + "\n"


def _row(run: dict[str, Any], n_sips: int, names_algorithm: bool) -> str:
    wrong = str(run["wrong"]) if run["checked"] else "N/A"
    ranks = f"  ranks {', '.join(map(str, run['group']))}" if len(run["group"]) < n_sips else ""
    algorithm = f"  {run['algorithm']:<20}" if names_algorithm else ""
    return (
        f"{run['bytes']:>12} {run['count']:>12} {run['dtype']:>6} {run['op']:>6} {run['time_ns'] / 1000:>12.3f} "
        f"{run['algbw_GBps']:>9.3f} {run['busbw_GBps']:>9.3f} {wrong:>7}{algorithm}{ranks}"
    ).rstrip()


def _rank(rank: dict[str, Any]) -> str:
    return (
        f"# rank {rank['rank']}: pid {rank['pid']}, {rank['events']} events, {rank['grants']} grants, "
        f"{rank['packets_sent']} packets sent, {rank['cpu_s']:.3f} s CPU, {rank['peak_pss_mib']:.1f} MiB"
    )


def _notes(document: dict[str, Any], prepared: Prepared) -> list[str]:
    plan = prepared.plan
    ran = {run["algorithm"] for run in document["runs"]}
    is_wired = prepared.job.script is None or not ran or plan.resolved.ccl.defaults.algorithm in ran
    notes = [f"# {note}" for note in kind_of(plan.resolved).notes(prepared.job, plan) if is_wired]
    added = {
        Added(run["collective"], run["algorithm"], run["op"], DTYPES[run["dtype"]], run["count"] // plan.n_rows)
        for run in document["runs"]
        if run["op"] != NO_OP
    }
    if differing := sorted({each.algorithm for each in added if plan.rows_differ(each)}):
        which = f" with {', '.join(differing)}" if len(ran) > 1 else ""
        notes.append(f"# floating types: ranks may differ in the last bits{which}, each adds in its own order")
    notes += [f"# {line}".rstrip() for line in where.notes(document)]
    if document["digest"] is not None:
        notes.append(f"# digest {document['digest']}")
    else:
        notes.append(f"# {document['status']}: partial result, no digest")
    return notes
