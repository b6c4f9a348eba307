"""The table on standard output, in the columns that readers of nccl-tests know. Its rows appear as they are known."""

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
from sipsim.chips.api.run_plan import Added
from sipsim.collectives.reduction import NO_OP
from sipsim.core.dtypes import DTYPES

HBM = "hbm_controller"
"""The kind of memory that has rows."""

MOST_LINES = 5
"""Below the rows, without ``-v`` or ``--explain``."""

_SPREAD = ("min", "median", "max")
"""Statistics of several iterations, in columns beside the mean."""


class Table:
    """The table of one run. ``write`` takes lines without their ends; ``verbose``: every line, and one a rank."""

    def __init__(self, run: Run, write: Callable[[str], None], verbose: bool = False) -> None:
        self._run = run
        self._write = write
        self._verbose = verbose
        self._has_head = False
        self._rows = 0
        self._spreads = _SPREAD if run.job.iters > 1 and run.job.script is None else ()
        self._names_algorithms = len({*chain(*run.job.algorithms)}) > 1 or run.job.is_auto

    def note(self, outcome: Outcome) -> None:
        """Write the rows of the collectives that every rank has completed by now.

        Those of a script come at the end: what it computed is compared then.
        """
        if self._run.job.script is None:
            plan, more = self._run.plan, outcome.finished_runs()[self._rows :]
            # Those of other groups may come in any order before the end.
            of_all = takewhile(lambda run: len(run.ranks) == plan.system.n_sips, more)
            self._write_rows([msgspec.to_builtins(run_of(each, plan)) for each in of_all])

    def finish(self, document: dict[str, Any]) -> None:
        """Write what is left of the whole text."""
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
            self._names_algorithms |= len({run["algorithm"] for run in runs}) > 1
            for line in _head(self._spreads, self._names_algorithms):
                self._write(f"#{line[1:]}".rstrip())
        for run in runs:
            self._write(_row(run, self._run.plan.system.n_sips, self._spreads, self._names_algorithms))
        self._rows += len(runs)


def render(document: dict[str, Any], run: Run, verbose: bool = False) -> str:
    """The whole text, every line ended."""
    lines: list[str] = []
    Table(run, lines.append, verbose).finish(document)
    return "\n".join(lines) + "\n"


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
    """How rows begin; empty where that is all the same."""
    parts, job = run.plan.resolved.components, run.job
    states = {each["state"] for each in runs}
    empty = [*(["TLBs empty"] if parts.pe_mmu else []), *(["HBM rows closed"] if parts.hbm.kind == HBM else [])]
    if not runs or not empty or (len(runs) == 1 and AS_LEFT in states):
        return ""
    if AS_LEFT in states:
        return "rows begin as the script left the machine (in torch.ahbm.row(name): as at time 0)"
    outages = ", outages at the times of the run" if WITH_OUTAGES in states else ""
    if job.warmup:
        return f"warm: after {job.warmup} iteration{'s' * (job.warmup > 1)} of its row (-w {job.warmup}){outages}"
    return f"cold: {', '.join(empty)}{' (-w 0)' if job.script is None else ''}{outages}"


def _brief(document: dict[str, Any], run: Run, launches: Sequence[str]) -> list[str]:
    """All lines but the last: algorithm, what bounds the run, launch; then what is worth knowing, as far as it fits."""
    first, *others = _about(document, run) or [""]
    lines = [
        *([first] if first else []),
        *where.brief(document, _start(document["runs"], run), _unshown(run)),
    ]
    checks = (*_unchecked(document, run), *_differing(document, run))
    known = [*where.unusual(document), *launches, *others, *checks, *where.engine_lines(document)]
    room = MOST_LINES - 1 - len(lines)
    if len(known) > room:
        left = len(known) - room
        known[room - 1 :] = [f"{known[room - 1]} ({left} more line{'s' * (left > 1)}: -v)"]
    return [*lines, *known]


def _notes(document: dict[str, Any], run: Run) -> list[str]:
    """All lines but those on launches, and the last."""
    return [
        *_about(document, run),
        *_differing(document, run),
        *where.notes(document, _start(document["runs"], run), _unshown(run)),
        *_unchecked(document, run),
    ]


def _unshown(run: Run) -> str:
    return kind_of(run.plan.resolved).unshown(run.plan)


def _about(document: dict[str, Any], run: Run) -> list[str]:
    """The chip kind's lines on the run: the algorithm first."""
    ran = {each["algorithm"] for each in document["runs"]}
    return kind_of(run.plan.resolved).notes(run.job, run.plan, ran)


def _differing(document: dict[str, Any], run: Run) -> Iterator[str]:
    plan, rows = run.plan, document["runs"]
    added = {
        Added(row["collective"], row["algorithm"], row["op"], DTYPES[row["dtype"]], row["count"] // plan.n_rows)
        for row in rows
        if row["op"] != NO_OP
    }
    if differing := sorted({each.algorithm for each in added if plan.rows_differ(each)}):
        which = f" with {', '.join(differing)}" if len({row["algorithm"] for row in rows}) > 1 else ""
        yield f"floating types: ranks may differ in the last bits{which}, each adds in its own order"


def _unchecked(document: dict[str, Any], run: Run) -> Iterator[str]:
    resolved = run.plan.resolved
    if not kind_of(resolved).verifies and document["status"] == "ok":
        chip = resolved.topology.system.chip
        yield f"nothing was performed again: chip {chip} has no second pass; its host program alone checks data"


def _end(document: dict[str, Any]) -> str:
    if document["digest"] is not None:
        return f"digest {document['digest']}"
    return f"{document['status']}: partial result, no digest"


MOST_LAUNCH_LINES = 10
Launch = dict[str, Any]


def launch_lines(launches: Sequence[Launch], ended: int, with_collectives: bool) -> Iterator[str]:
    """A line for each kind of launch; of those of collectives, which have rows, only where that is asked for.

    Equal launches of all ranks are one line. ``ended``: how many launches there were, with those that are not listed.
    """
    kinds: dict[tuple[str, str], list[Launch]] = {}
    for each in launches:
        if each["run"] is None or with_collectives:
            kinds.setdefault((each["name"], each["pes"]), []).append(each)
    for (name, pes), some in list(kinds.items())[:MOST_LAUNCH_LINES]:
        yield _line(name, pes, some)
    if len(kinds) > MOST_LAUNCH_LINES:
        yield f"{len(kinds) - MOST_LAUNCH_LINES} more kinds of launches (--json)"
    if ended > len(launches):
        yield f"{ended - len(launches)} more launches, which are not listed"


def _line(name: str, pes: str, some: Sequence[Launch]) -> str:
    """Name, PEs, how often on how many ranks, how long each, and what its kernels did."""
    times_ns = [each["end_ns"] - each["start_ns"] for each in some]
    ranks = sorted({each["rank"] for each in some})
    on = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    often = "" if len(some) == len(ranks) else f", {len(some)} times"
    when = _between(min(times_ns), max(times_ns))
    if len(some) == 1:
        when = f"{when} from {some[0]['start_ns'] / 1000:.3f} us on"
    return f"launch {name} on {on}{often} ({pes}): {when}{_around(some, times_ns)}{_busy(some, times_ns)}"


def _around(some: Sequence[Launch], times_ns: Sequence[float]) -> str:
    """The part in which no kernel of a launch runs: its way to the PEs, and that of the answers."""
    kernels_ns = sum((each["kernels_end_ns"] or 0) - (each["kernels_start_ns"] or 0) for each in some)
    around_ns = sum(times_ns) - kernels_ns
    return (
        f", {around_ns / 1000 / len(some):.3f} us of it before and after all its kernels" if around_ns > 0.0005 else ""
    )


def _between(least_ns: float, most_ns: float) -> str:
    least, most = f"{least_ns / 1000:.3f}", f"{most_ns / 1000:.3f}"
    return f"{least} us" if least == most else f"{least} to {most} us"


def _busy(some: Sequence[Launch], times_ns: Sequence[float]) -> str:
    whole_ns = sum(each["kernels"] * ns for each, ns in zip(some, times_ns, strict=True))
    busy_ns: dict[str, float] = {}
    for name, ns in (item for each in some for item in each["busy_ns"].items()):
        busy_ns[name] = busy_ns.get(name, 0) + ns
    largest = sorted(((name, ns) for name, ns in busy_ns.items() if ns), key=lambda item: (-item[1], item[0]))
    return "".join(f", {100 * ns / whole_ns:.1f} % {name}" for name, ns in largest) if whole_ns else ""
