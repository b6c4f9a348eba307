"""Prediction of a run of a built-in job before its start: simulated time, wall time on this host, and memory.

Times are extrapolated from short runs of the job, or are the estimates of the job's algorithms if these exist. Memory
is a sum of the terms in ``configs/estimates.yaml``.
"""

import os
import time
from pathlib import Path

import msgspec

from launcher.predict.short_run import NotPredictable, ShortRuns
from launcher.report.progress import Prediction
from launcher.supervise.run import Run
from sipsim.chips.api.chip import kind_of
from sipsim.config.load import default_dir
from sipsim.config.yaml import read_mapping

IN_ONE_PROCESS = "inproc"
HERE = ("local", IN_ONE_PROCESS)
"""The engines that run on this host only, whose speed short runs measure."""
BY_SHORT_RUNS = "short runs"
BY_ESTIMATE = "the estimate that auto compares, without launches"
FILE = "estimates.yaml"
MIB = 2**20


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of ``estimates.yaml``, which documents units and meanings."""

    grant_events: float
    verified: float
    process_ms: float
    sip_MiB: float
    process_MiB: float
    pair_MiB: float
    others_MiB: float
    tensor_copies: float
    check_copies: float
    second_pass_copies: float
    ring_MiB: float


def read_costs(path: Path | None = None) -> Costs:
    """Return the costs in the file ``path``, by default in ``configs/estimates.yaml``."""
    return msgspec.convert(read_mapping(path or default_dir() / FILE), Costs)


def predict(run: Run, started_s: float, loaded_mib: float, is_beside_run: bool = False) -> Prediction | None:
    """Return the prediction of a run; None if neither short runs nor estimates apply.

    ``started_s``: seconds since the start of the command; ``loaded_mib``: memory of the launcher in MiB.
    ``is_beside_run``: whether the run uses the host at the same time, so that short runs are measured in CPU time.
    """
    plan, job, costs, jobs = run.plan, run.job, read_costs(), kind_of(run.plan.resolved).jobs
    assert jobs is not None
    n_sips, in_process, is_here = plan.system.n_sips, run.options.engine == IN_ONE_PROCESS, run.options.engine in HERE
    at_a_time, iterations = 1 if in_process else min(n_sips, len(os.sched_getaffinity(0))), job.warmup + job.iters
    rows_s: tuple[float, ...] = ()
    if estimates_ps := jobs.estimates_ps(job, plan):
        source, rows_ps = BY_ESTIMATE, tuple(iterations * each for each in estimates_ps)
    else:
        runs = ShortRuns(time.process_time if is_beside_run else time.perf_counter)
        try:
            by_size = runs.by_size(run)
        except NotPredictable:
            return None
        rows, source = [by_size[n_elem] for n_elem in job.n_elems], BY_SHORT_RUNS
        times_ps = [row.time_ps + (iterations - 1) * (row.again_ps + row.gap_ps) for row in rows]
        gaps_ps = [row.gap_ps for row in rows[1:]] + [0]
        rows_ps = tuple(map(sum, zip(times_ps, gaps_ps, strict=True)))
        if is_here:
            grant_events = 0.0 if in_process else costs.grant_events
            iteration_s = n_sips * runs.event_s / at_a_time * iterations * (costs.verified if job.verify_data else 1.0)
            rows_s = tuple((row.events + row.grants * grant_events) * iteration_s for row in rows)
    return Prediction(
        source=source,
        rows_ps=rows_ps,
        rows_s=rows_s,
        startup_s=started_s + (0.0 if in_process else n_sips * costs.process_ms / 1000 / at_a_time),
        memory_MiB=_memory_mib(run, jobs.tensor_bytes(job, plan), in_process, loaded_mib, costs) if is_here else 0.0,
        processes=1 if in_process else n_sips + 3,
    )


def _memory_mib(run: Run, tensor_bytes: tuple[int, ...], in_process: bool, loaded_mib: float, costs: Costs) -> float:
    n_sips, largest_mib = run.plan.system.n_sips, max(tensor_bytes, default=0) / MIB
    # Tensors of earlier sizes stay allocated, up to some 256 MiB.
    kept_mib = sum(set(tensor_bytes)) / MIB
    data_mib = kept_mib + largest_mib * (costs.tensor_copies - 1)
    checked_mib = largest_mib * costs.check_copies if run.job.verify_data else 0.0
    sip_mib = (costs.sip_MiB if in_process else costs.process_MiB) + data_mib + costs.ring_MiB
    if run.job.verify_data:
        sip_mib += costs.second_pass_copies * (kept_mib + costs.ring_MiB)
    if in_process:
        return loaded_mib + n_sips * sip_mib + checked_mib
    return loaded_mib + costs.others_MiB + n_sips * (sip_mib + checked_mib) + n_sips**2 * costs.pair_MiB
