"""Result document of a run, schema 1, with digest and config differences; check and output of the result files.

``ahbm-launch --list fields`` lists the keys.
"""

import contextlib
import csv
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from launcher.isolation import STANDARD_OUTPUT, absolute, opened
from launcher.options import ALGORITHM, Options
from launcher.report.checks import entry_of
from launcher.report.failure import error_of
from launcher.report.outcome import INTERRUPTIONS, ErrorFacts, FinishedRun, Outcome
from launcher.result.fields import (
    AS_LEFT,
    ROW_START,
    WITH_OUTAGES,
    ChannelCost,
    LaunchRow,
    LinkCsvRow,
    ResultDocument,
    RunEntry,
    RunRow,
    SyncTotals,
    WallTimes,
    WholeRun,
)
from launcher.result.usage import row_usage
from launcher.supervise.run import Run
from sipsim.chips.api.chip import StackBound, kind_of
from sipsim.chips.api.run_plan import RunPlan
from sipsim.chips.config import load
from sipsim.config.schema import Resolved
from sipsim.config.yaml import parse_text
from sipsim.core.errors import ConfigError
from sipsim.core.fields import columns_of
from sipsim.core.files import READABLE, Folder, Unsafe, check_link
from sipsim.core.units import ps_to_ns
from sipsim.records.report import RankRow, RunRecord, Usage
from sipsim.topology.links import grid_text

SEPARATOR = ";"
_PLAIN = re.compile(r"[\w./-]+", re.ASCII)


def settings_of(resolved: Resolved) -> str:
    """Return the differences of a config from the defaults: ``key=value`` in the syntax of ``--set``, joined by ``;``.

    Two rows have the same config if and only if these texts are equal, whether flags, files or a variant changed keys.
    Keys are in the order of the config files. The algorithm is left out, since each row names the algorithm.
    """
    with resolved.reads.apart():
        files, defaults = _plain(resolved), _defaults()
    changed = (each for name, values in files.items() for each in _changed(values, defaults[name], ""))
    return SEPARATOR.join(f"{key}={value}" for key, value in changed if key != ALGORITHM)


@cache
def _defaults() -> dict[str, Any]:
    return dict(_plain(load(variant="")))


def _plain(value: Any) -> Any:
    """Return a config section as a mapping of all keys; whole floats become integers, so that 1.0 and 1 look equal."""
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _changed(value: Any, default: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield key path and text of each value below ``key`` that differs from the default. Parameters that only the
    default kind of a component has are left out if the component is of another kind.
    """
    if value == default:
        return
    if isinstance(value, dict) and isinstance(default, dict) and not any("." in each for each in value):
        for name, inner in value.items():
            yield from _changed(inner, default.get(name), f"{key}.{name}" if key else name)
    else:
        yield key, _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and parse_text(value) == value:
        return value
    return json.dumps(value, separators=(",", ":")).replace(SEPARATOR, f"\\u{ord(SEPARATOR):04x}")


Document = dict[str, Any]
RUN_COLUMNS, LINK_COLUMNS = columns_of(RunRow), columns_of(LinkCsvRow)
"""The columns of ``--csv`` and the keys of each of the document's ``runs``."""


@dataclass(frozen=True, kw_only=True)
class RunOutcome:
    """Outcome of a run. ``document``: the content of ``--json``. ``exit_code``: exit code of ``ahbm-launch``.

    ``signal``: the signal that stopped the run; 0 if none did. ``output``: for runs from Python, the last MiB of the
    text that ``ahbm-launch`` prints besides the table: output of ranks, warnings, the failure with traceback or report.
    ``detail``: further lines of the failure, such as a traceback.
    """

    document: Document
    exit_code: int
    signal: int = 0
    output: str = ""
    detail: str = ""

    @property
    def status(self) -> str:
        """The status of the run: ``ok``, ``failed`` or ``interrupted``."""
        return str(self.document["status"])

    @property
    def error(self) -> Document | None:
        """The failure: ``kind``, ``rank``, ``message`` and further keys; None if the run has not failed."""
        found: Document | None = self.document["error"]
        return found

    @property
    def digest(self) -> str | None:
        """SHA-256 of the system and the simulated results; None unless every rank ran to its end."""
        found: str | None = self.document["digest"]
        return found

    @property
    def runs(self) -> list[Document]:
        """The completed collectives, with ``bytes``, ``time_ns``, ``busbw_GBps``, ``wrong`` and further keys."""
        found: list[Document] = self.document["runs"]
        return found

    @property
    def ranks(self) -> list[Document]:
        """The results of the ranks, with ``sim_end_ps``, ``tensor_sha256``, ``bytes_sent`` and further keys."""
        found: list[Document] = self.document["ranks"]
        return found


def build(run: Run, argv: list[str], outcome: Outcome) -> Document:
    """Return the result document of a run as plain data, the content of ``--json``."""
    system, sync = run.plan.system, outcome.sync
    document = ResultDocument(
        argv=argv,
        seed=run.options.seed,
        digest=digest(run, outcome),
        config=msgspec.to_builtins(system.resolved),
        engine=run.options.engine,
        mail=run.options.named_mail,
        sips=system.n_sips,
        topology=system.topology,
        shape=system.shape_text,
        link=system.link_text,
        cubes=run.plan.n_cubes,
        runs=runs_of(outcome, run.plan),
        whole_run=_whole_run(outcome, run.plan),
        explain=outcome.explanations,
        launches=list(_launches(outcome)),
        ranks=[_rank(outcome, rank) for rank in sorted(outcome.ranks)],
        second_pass=entry_of(outcome),
        no_effect=outcome.without_effect,
        sync=SyncTotals(
            reports=sync.reports if sync else 0,
            grants=sync.grants if sync else 0,
            mean_window_ps=sync.window_ps_sum // sync.windows if sync and sync.windows else 0,
            costliest_channels=[ChannelCost(name, ns / 1e9) for name, ns in _costliest_channels(outcome)],
        ),
        wall_s=WallTimes(
            total=round(outcome.total_s, 4),
            startup=round(outcome.startup_s, 4),
            simulate=round(outcome.simulate_s, 4),
        ),
        status=outcome.status,
        error=cast(ErrorFacts | None, error_of(outcome)),
    )
    plain: Document = msgspec.to_builtins(document)
    return plain


def _costliest_channels(outcome: Outcome) -> tuple[tuple[str, int], ...]:
    """Return name and host time in ns of the channels whose waits cost most, from the broker's last message."""
    return outcome.last_sync.channels if outcome.last_sync else ()


def digest(run: Run, outcome: Outcome) -> str | None:
    """Return the SHA-256 of the system and the simulated results; None unless every rank ran to its end."""
    if not outcome.complete or outcome.cut_short:
        return None
    parts = [run.plan.canonical_text()]
    for rank in sorted(outcome.ranks):
        result = outcome.ranks[rank]
        parts.append(f"{rank} {result.tensor_sha256} {result.oplog_sha256} {result.sim_end_ps}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def runs_of(outcome: Outcome, plan: RunPlan) -> list[RunEntry]:
    """Return an entry for each collective that all ranks of the collective's group have completed."""
    by_rank = _usage(outcome)
    return [run_of(run, plan, _usage_of(run, by_rank)) for run in outcome.finished_runs()]


def _usage_of(run: FinishedRun, by_rank: Sequence[Sequence[Usage]]) -> list[Usage]:
    """Return the counters of each rank of a collective; empty if there are no counters per row."""
    if not by_rank:
        return []
    counted = [by_rank[rank][number : number + 1] for rank, number in zip(run.ranks, run.runs, strict=True)]
    return [used[0] for used in counted] if all(used and used[0].iterations for used in counted) else []


def _whole_run(outcome: Outcome, plan: RunPlan) -> WholeRun | None:
    """Return the machine usage of the whole run if there are no counters per row; None if the chip has no counters."""
    by_rank = _usage(outcome)
    if not by_rank or any(len(each) != 1 or each[0].iterations for each in by_rank):
        return None
    of_ranks = [each[0] for each in by_rank]
    time_ps = max(each.until_ps for each in of_ranks)
    usage = row_usage(of_ranks, time_ps, bound=_stack_bound(plan))
    return WholeRun(ps_to_ns(time_ps), time_ps, **asdict(usage))


def _usage(outcome: Outcome) -> list[tuple[Usage, ...]]:
    used = [outcome.ranks[rank].usage for rank in sorted(outcome.ranks)] if outcome.complete else []
    return used if all(used) else []


def iterations_of(of_ranks: Sequence[RunRecord]) -> list[tuple[int, int]]:
    """Return the first start and the last end over all ranks, in ps, for each timed iteration of a collective. The
    time between start and end includes the launch.
    """
    by_iteration = zip(*(record.spans_ps for record in of_ranks), strict=False)
    return [(min(start for start, _ in spans), max(end for _, end in spans)) for spans in by_iteration]


def mean_time_ps(iterations: Sequence[tuple[int, int]]) -> float:
    """Return the time of a row in ps: the mean duration of its iterations, which are (start, end) in ps."""
    return sum(end - start for start, end in iterations) / len(iterations)


def mean_launch_ps(of_ranks: Sequence[RunRecord], iterations: Sequence[tuple[int, int]]) -> float:
    """Return the mean time in ps of an iteration before the first kernel starts and after the last kernel ends."""
    total_ps = 0
    by_iteration = zip(*(record.kernels_ps for record in of_ranks), strict=False)
    for (start_ps, end_ps), spans_ps in zip(iterations, by_iteration, strict=False):
        ran = [kernels_ps for kernels_ps in spans_ps if kernels_ps is not None]
        if ran:
            total_ps += end_ps - start_ps - (max(last for _, last in ran) - min(first for first, _ in ran))
    return total_ps / len(iterations)


def run_of(run: FinishedRun, plan: RunPlan, used: Sequence[Usage] = ()) -> RunEntry:
    """Return the entry of one collective, from the records and counters of its ranks.

    ``used``: counters of each rank; if empty, the counters in the records.
    """
    of_ranks = run.records
    first, system = of_ranks[0], plan.system
    iterations = iterations_of(of_ranks)
    time_ps, times_ps = mean_time_ps(iterations), [end - start for start, end in iterations]
    used = used or [record.usage for record in of_ranks if record.usage is not None]
    is_counted = len(used) == len(of_ranks)
    algbw = first.nbytes * 1000 / time_ps if time_ps else 0.0
    return RunEntry(
        sips=system.n_sips,
        topology=system.topology,
        shape=system.shape_text,
        link=system.link_text,
        cubes=plan.n_cubes,
        settings=settings_of(system.resolved),
        row=first.row or None,
        state=_state(first, plan),
        collective=first.collective,
        algorithm=first.algorithm,
        dtype=first.dtype,
        op=first.op,
        count=first.count,
        bytes=first.nbytes,
        iters=len(first.spans_ps),
        time_ns=ps_to_ns(time_ps),
        time_ps=round(time_ps),
        time_min_ns=ps_to_ns(min(times_ps)),
        time_median_ns=ps_to_ns(median(times_ps)),
        time_max_ns=ps_to_ns(max(times_ps)),
        launch_ns=ps_to_ns(mean_launch_ps(of_ranks, iterations)),
        algbw_GBps=algbw,
        busbw_GBps=algbw * first.busbw[0] / first.busbw[1],
        wrong=sum(r.wrong or 0 for r in of_ranks),
        checked=all(r.wrong is not None for r in of_ranks),
        group=list(run.ranks),
        **(asdict(row_usage(used, time_ps, run.ranks, _stack_bound(plan))) if is_counted else {}),
    )


def _stack_bound(plan: RunPlan) -> Callable[[int], StackBound | None]:
    return partial(kind_of(plan.resolved).stack_bound, plan)


def _state(record: RunRecord, plan: RunPlan) -> str:
    if record.row is None:
        return AS_LEFT
    return WITH_OUTAGES if plan.system.resolved.topology.system.sips.outages else ROW_START


def _launches(outcome: Outcome) -> Iterator[LaunchRow]:
    rows = {
        rank_and_run: index
        for index, run in enumerate(outcome.finished_runs())
        for rank_and_run in zip(run.ranks, run.runs, strict=True)
    }
    of_ranks = ((rank, launch) for rank in sorted(outcome.ranks) for launch in outcome.ranks[rank].launch_records)
    for rank, launch in of_ranks:
        yield LaunchRow(
            name=launch.name,
            rank=rank,
            run=None if launch.run is None else rows.get((rank, launch.run)),
            start_ns=ps_to_ns(launch.start_ps),
            end_ns=ps_to_ns(launch.end_ps),
            target_start_ns=None if launch.target_ps is None else ps_to_ns(launch.target_ps),
            kernels_start_ns=launch.kernels_ps and ps_to_ns(launch.kernels_ps[0]),
            kernels_end_ns=launch.kernels_ps and ps_to_ns(launch.kernels_ps[1]),
            late_by_ns=ps_to_ns(launch.late_ps),
            pes=launch.pes,
            kernels=launch.kernels,
            busy_ns={name: ps_to_ns(ps) for name, ps in launch.busy_ps.items()},
        )


def _rank(outcome: Outcome, rank: int) -> RankRow:
    result = msgspec.structs.replace(outcome.ranks[rank], restarts=outcome.incarnations.get(rank, 0))
    return msgspec.convert(result, RankRow, from_attributes=True)


def check_writable(options: Options) -> None:
    """Check before the run that the output files can be written.

    Raises:
        ConfigError: one line with the flag and the file.
    """
    check_files(options.files, options.inputs)


def check_files(files: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Check that each flag's file can be written, and that no file is one of ``inputs``, which the run reads.

    Raises:
        ConfigError: one line with the flag and the file.
    """
    flag_of: dict[Path, str] = {}
    read = [(flag, path) for flag, path in inputs.items() if path is not None]
    for flag, path in files.items():
        if path is None:
            continue
        other = flag_of.setdefault(absolute(path), flag)
        if other != flag:
            raise ConfigError(f"{flag} {path}: is also the file of {other}; name another file")
        if path == STANDARD_OUTPUT:
            continue
        for input_flag, input_path in read:
            if _is_same(path, input_path):
                raise ConfigError(f"{flag} {path}: would overwrite the file of {input_flag}; name another file")
        folder = path.parent
        try:
            if path.is_symlink():
                check_link(path)
            exists = path.exists()
        except Unsafe as error:
            raise ConfigError(f"{flag} {path}: {error.strerror}; name a file of your own") from None
        except OSError as error:
            raise ConfigError(f"{flag} {path}: cannot be written: {error.strerror}; name another file") from None
        if path.is_dir() or not folder.is_dir() or not os.access(path if exists else folder, os.W_OK):
            raise ConfigError(f"{flag} {path}: cannot be written; name a file in a folder that exists")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def write(options: Options, document: Document) -> None:
    """Write the files of ``--json``, ``--csv`` and ``--csv-links``, if these flags are given."""
    if options.json is not None:
        _replace(options.json, json.dumps(document, indent=1) + "\n")
    if options.csv is not None:
        _write_csv(options.csv, RUN_COLUMNS, document["runs"])
    if options.csv_links is not None:
        _write_csv(options.csv_links, LINK_COLUMNS, _link_rows(document))


def write_refusal(
    path: Path | None, argv: list[str], message: str, options: Options | None = None, kind: str = ConfigError.kind
) -> None:
    """Write the result file of a run that was refused, or stopped before its beginning, if possible.

    ``options``: None if the command line is invalid. ``kind``: kind of failure. If the command line names the file
    twice, nothing is written, since the file may also be an input.
    """
    values = (word.partition("=")[2] if word.startswith("--") and "=" in word else word for word in argv)
    if path is None or os.path.isdir(path) or sum(_is_same(path, Path(value)) for value in values) > 1:
        return
    status = "interrupted" if kind in INTERRUPTIONS else "failed"
    document = ResultDocument(argv=argv, status=status, error={"kind": kind, "rank": None, "message": message})
    if options is not None:
        document.seed, document.engine, document.mail = options.seed, options.engine, options.named_mail
        document.sips, document.topology, document.link = options.sips, options.topology, options.link
        document.shape = grid_text(options.shape) if options.shape else None
    # The refusal has been printed already.
    with contextlib.suppress(OSError):
        _replace(path, json.dumps(msgspec.to_builtins(document), indent=1) + "\n")


def _replace(path: Path, text: str) -> None:
    """Write a regular file atomically; write directly to any other file, such as ``/dev/stdout``."""
    if path == STANDARD_OUTPUT or (path.exists() and not path.is_file()):
        with opened(path) as file:
            file.write(text)
        return
    with Folder(path.parent, is_checked=False) as folder:
        folder.write(path.name, text.encode(), READABLE)


def _link_rows(document: Document) -> list[Document]:
    """Return a CSV row for each link of each table row, or of the whole run if there are no counters per row."""
    whole = document["whole_run"]
    rows = document["runs"] if whole is None else [{**document, **whole}]
    return [{**row, **link} for row in rows for link in row["links"] or ()]


def _write_csv(path: Path, columns: Sequence[str], rows: list[Document]) -> None:
    with opened(path) as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows({**row, "group": " ".join(map(str, row.get("group", ())))} for row in rows)
