"""Table on standard output, with the columns of nccl-tests. A row is printed when all ranks completed the row."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any

import msgspec

from launcher.report.outcome import Outcome
from launcher.result import notes as where
from launcher.result.document import run_of
from launcher.result.fields import AS_LEFT, WITH_OUTAGES
from launcher.supervise.run import Run
from sipsim import VERSION
from sipsim.chips.api.chip import kind_of
from sipsim.chips.api.run_plan import RowReduction
from sipsim.collectives.reduction import NO_OP
from sipsim.records.report import PROGRAM

HBM = "hbm_controller"
"""The kind of HBM model that includes DRAM rows."""

MOST_LINES = 5
"""The most lines below the table, without ``-v`` or ``--explain``."""

_SPREAD = ("min", "median", "max")
"""Statistics over iterations, in columns next to the mean."""


class Table:
    """Table of one run. ``write`` prints a line without line end; ``verbose``: print all lines, and one per rank."""

    def __init__(self, run: Run, write: Callable[[str], None], verbose: bool = False) -> None:
        self._run = run
        self._write = write
        self._verbose = verbose
        self._has_head = False
        self._rows = 0
        self._spreads = _SPREAD if run.job.iters > 1 and run.job.script is None else ()
        self._names_algorithms = len({*chain(*run.job.algorithms)}) > 1 or run.job.is_auto

    def note(self, outcome: Outcome) -> None:
        """Write the rows of the collectives that every rank has completed so far.

        The rows of a script are written at the end of the run, after the comparison of results.
        """
        if self._run.job.script is None:
            plan, more = self._run.plan, outcome.finished_runs()[self._rows :]
            # Before the end, collectives of smaller groups may be completed in any order.
            of_all = takewhile(lambda run: len(run.ranks) == plan.system.n_sips, more)
            self._write_rows([msgspec.to_builtins(run_of(each, plan)) for each in of_all])

    def finish(self, document: dict[str, Any]) -> None:
        """Write the remaining rows and the lines below the table."""
        self._write_rows(document["runs"][self._rows :])
        for rank in document["ranks"] if self._verbose else ():
            self._write(_rank(rank))
        ended = sum(rank["launches"] for rank in document["ranks"])
        launches = list(launch_lines(document["launches"], ended, self._verbose))
        if self._verbose or self._run.options.explain:
            lines = [*launches, *self._choices(), *_notes(document, self._run)]
        else:
            lines = _brief(document, self._run, launches)
        for line in [*lines, _end(document)]:
            self._write(f"# {line}".rstrip())

    def _choices(self) -> list[str]:
        plan, job = self._run.plan, self._run.job
        jobs = kind_of(plan.resolved).jobs
        return jobs.choices(job, plan) if jobs else []

    def _write_rows(self, runs: list[dict[str, Any]]) -> None:
        if not self._has_head:
            self._has_head = True
            about = f"{self._run.plan.system.describe()}, engine {self._run.options.engine}"
            self._write(f"# ahbm-launch {VERSION}: {about}")
        if runs and not self._rows:
            several = len({run["algorithm"] for run in runs}) > 1
            self._names_algorithms |= several or any(run["collective"] == PROGRAM for run in runs)
            for line in _head(self._spreads, self._names_algorithms):
                self._write(f"#{line[1:]}".rstrip())
        for run in runs:
            self._write(_row(run, self._run.plan.system.n_sips, self._spreads, self._names_algorithms))
        self._rows += len(runs)


def _head(spreads: Sequence[str], names_algorithm: bool) -> tuple[str, str]:
    times, units = "".join(f" {name:>12}" for name in ("time", *spreads)), f" {'(us)':>12}" * (1 + len(spreads))
    last = f"{'#wrong':>7}{'  algorithm' if names_algorithm else ''}"
    return (
        f"{'size':>12} {'count':>12} {'type':>6} {'redop':>6}{times} {'algbw':>9} {'busbw':>9} {last}",
        f"{'(B)':>12} {'(elements)':>12} {'':>6} {'':>6}{units} {'(GB/s)':>9} {'(GB/s)':>9} {'':>7}",
    )


def _row(run: dict[str, Any], n_sips: int, spreads: Sequence[str], names_algorithm: bool) -> str:
    wrong = str(run["wrong"]) if run["checked"] else "N/A"
    ranks = f"  ranks {', '.join(map(str, run['group']))}" if len(run["group"]) < n_sips else ""
    algorithm = f"  {run['algorithm']:<20}" if names_algorithm else ""
    row = f"  row {run['row']}" if run["row"] else ""
    times_ns = [run["time_ns"], *(run[f"time_{name}_ns"] for name in spreads)]
    times = "".join(f" {time_ns / 1000:>12.3f}" for time_ns in times_ns)
    return (
        f"{run['bytes']:>12} {run['count']:>12} {run['dtype']:>6} {run['op']:>6}{times} "
        f"{run['algbw_GBps']:>9.3f} {run['busbw_GBps']:>9.3f} {wrong:>7}{algorithm}{ranks}{row}"
    ).rstrip()


def _rank(rank: dict[str, Any]) -> str:
    return (
        f"# rank {rank['rank']}: pid {rank['pid']}, {rank['events']} events, {rank['grants']} grants, "
        f"{rank['packets_sent']} packets sent, {rank['cpu_s']:.3f} s CPU, {rank['peak_pss_mib']:.1f} MiB"
    )


def _start(runs: list[dict[str, Any]], run: Run) -> str:
    """Return a text about the machine's state at the start of rows; empty if the state has no effect on times."""
    parts, job = run.plan.resolved.components, run.job
    states = {each["state"] for each in runs}
    empty = [*(["TLBs empty"] if parts.pe_mmu else []), *(["HBM rows closed"] if parts.hbm.kind == HBM else [])]
    if not runs or not empty or run.plan.n_cubes is None or (len(runs) == 1 and AS_LEFT in states):
        return ""
    if AS_LEFT in states:
        return "rows begin as the script left the machine (in torch.ahbm.row(name): as at time 0)"
    outages = ", outages at the times of the run" if WITH_OUTAGES in states else ""
    if job.warmup:
        return f"warm: after {job.warmup} iteration{'s' * (job.warmup > 1)} of its row (-w {job.warmup}){outages}"
    return f"cold: {', '.join(empty)}{' (-w 0)' if job.script is None else ''}{outages}"


def _brief(document: dict[str, Any], run: Run, launches: Sequence[str]) -> list[str]:
    """Return the short form without the last line: algorithm, busiest parts, launch; others up to ``MOST_LINES``."""
    first, *others = _about(document, run) or [""]
    lines = [
        *([first] if first else []),
        *where.brief(document, _start(document["runs"], run), _unshown(run)),
    ]
    checks = (*_unchecked(document, run), *_differing(document, run))
    further = [*where.unusual(document), *launches, *others, *checks, *where.engine_lines(document)]
    limit = MOST_LINES - 1 - len(lines)
    if len(further) > limit:
        more = len(further) - limit
        further[limit - 1 :] = [f"{further[limit - 1]} ({more} more line{'s' * (more > 1)}: -v)"]
    return [*lines, *further]


def _notes(document: dict[str, Any], run: Run) -> list[str]:
    """Return the lines of the long form, except lines about launches and the last line."""
    return [
        *_about(document, run),
        *_differing(document, run),
        *where.notes(document, _start(document["runs"], run), _unshown(run)),
        *_unchecked(document, run),
    ]


def _unshown(run: Run) -> str:
    return kind_of(run.plan.resolved).unshown(run.plan)


def _about(document: dict[str, Any], run: Run) -> list[str]:
    """Return lines about the run that the chip kind provides; the first line names the algorithm."""
    ran = {each["algorithm"] for each in document["runs"]}
    return kind_of(run.plan.resolved).notes(run.job, run.plan, ran)


def _differing(document: dict[str, Any], run: Run) -> Iterator[str]:
    plan, rows = run.plan, document["runs"]
    added = {
        RowReduction(row["collective"], row["algorithm"], row["op"], row["dtype"], row["count"] // plan.n_rows)
        for row in rows
        if row["op"] != NO_OP
    }
    if differing := sorted({each.algorithm for each in added if plan.rows_differ(each)}):
        which = f" with {', '.join(differing)}" if len({row["algorithm"] for row in rows}) > 1 else ""
        yield f"floating types: results of ranks may differ in the last bits{which}: the order of additions differs"


def _unchecked(document: dict[str, Any], run: Run) -> Iterator[str]:
    resolved = run.plan.resolved
    if not kind_of(resolved).verifies and document["status"] == "ok":
        chip = resolved.topology.system.chip
        yield f"chip {chip} has no second pass: only the host program checks data"


def _end(document: dict[str, Any]) -> str:
    if document["digest"] is not None:
        return f"digest {document['digest']}"
    return f"{document['status']}: partial result, no digest"


MOST_LAUNCH_LINES = 10
Launch = dict[str, Any]


def launch_lines(launches: Sequence[Launch], ended: int, with_collectives: bool) -> Iterator[str]:
    """Yield a line for each kind of launch: launches of one name on the same PEs, on all ranks.

    ``ended``: the number of all launches, of which ``launches`` may contain only a part. ``with_collectives``: also
    list launches of collectives, which have rows.
    """
    kinds: dict[tuple[str, str], list[Launch]] = {}
    for each in launches:
        if each["run"] is None or with_collectives:
            kinds.setdefault((each["name"], each["pes"]), []).append(each)
    for (name, pes), equal in list(kinds.items())[:MOST_LAUNCH_LINES]:
        yield _line(name, pes, equal)
    if len(kinds) > MOST_LAUNCH_LINES:
        yield f"{len(kinds) - MOST_LAUNCH_LINES} more kinds of launches (--json)"
    if ended > len(launches):
        yield f"{ended - len(launches)} more launches, which are not listed"


def _line(name: str, pes: str, equal: Sequence[Launch]) -> str:
    """Return the line about launches of one kind: name, ranks, number, PEs, duration, and commands of the kernels."""
    times_ns = [each["end_ns"] - each["start_ns"] for each in equal]
    ranks = sorted({each["rank"] for each in equal})
    on = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    often = "" if len(equal) == len(ranks) else f", {len(equal)} times"
    when = _between(min(times_ns), max(times_ns))
    if len(equal) == 1:
        when = f"{when} from {equal[0]['start_ns'] / 1000:.3f} us on"
    return f"launch {name} on {on}{often} ({pes}): {when}{_overhead(equal, times_ns)}{_busy(equal, times_ns)}"


def _overhead(equal: Sequence[Launch], times_ns: Sequence[float]) -> str:
    """Return text with the mean time of a launch during which no kernel runs; empty if this time is 0."""
    kernels_ns = sum((each["kernels_end_ns"] or 0) - (each["kernels_start_ns"] or 0) for each in equal)
    mean_us = (sum(times_ns) - kernels_ns) / 1000 / len(equal)
    return f", {mean_us:.3f} us of which before and after all kernels" if mean_us * len(equal) > 5e-7 else ""


def _between(least_ns: float, most_ns: float) -> str:
    least, most = f"{least_ns / 1000:.3f}", f"{most_ns / 1000:.3f}"
    return f"{least} us" if least == most else f"{least} to {most} us"


def _busy(equal: Sequence[Launch], times_ns: Sequence[float]) -> str:
    whole_ns = sum(each["kernels"] * ns for each, ns in zip(equal, times_ns, strict=True))
    busy_ns: dict[str, float] = {}
    for name, ns in (item for each in equal for item in each["busy_ns"].items()):
        busy_ns[name] = busy_ns.get(name, 0) + ns
    largest = sorted(((name, ns) for name, ns in busy_ns.items() if ns), key=lambda item: (-item[1], item[0]))
    return "".join(f", {100 * ns / whole_ns:.1f} % {name}" for name, ns in largest) if whole_ns else ""
