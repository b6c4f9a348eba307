"""Published figures beside simulated ones: every row of a file that a bench simulates, and how far off it is.

Runs of cases in processes of their own: figures depend neither on their number nor on their order.
"""

import math
import multiprocessing
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from typing import NamedTuple

from launcher.bench.base import BENCHES, Case, Figure
from launcher.bench.machine import Machine
from launcher.bench.published import TO_REPRODUCE, Published
from sipsim.core.errors import AhbmError
from tenstorrent.rows import Request, first_line, request_of


class Job(NamedTuple):
    """A case of a bench on a kind of chip. ``settings``: as of ``--set``."""

    bench: str
    case: Case
    chip: str
    settings: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """What a job gave. ``error``: one line, "" if it has not failed; ``wall_s``: of the host, never of a figure."""

    figures: tuple[Figure, ...]
    error: str = ""
    wall_s: float = 0.0


def run_job(job: Job) -> Outcome:
    """Simulate a case; a failure is an outcome, too."""
    started_s = time.monotonic()
    try:
        machine = Machine(chip=job.chip, settings=job.settings)
        figures, error = tuple(BENCHES.get(job.bench).measure(job.case, machine)), ""
    except AhbmError as problem:
        figures, error = (), first_line(str(problem))
    except Exception as problem:  # A case that fails in whatever way must not end the others.
        figures, error = (), first_line(f"{type(problem).__name__}: {problem}")
    return Outcome(figures, error, time.monotonic() - started_s)


class Runner:
    """Runs jobs in ``processes`` processes; with one, in this process. It keeps outcomes: a job is run once.

    To be closed, or used as a context manager.
    """

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or os.cpu_count() or 1
        self._pool: ProcessPoolExecutor | None = None
        self._known: dict[Job, Outcome] = {}

    @property
    def runs(self) -> int:
        """Jobs that were run."""
        return len(self._known)

    def outcomes(self, jobs: Iterable[Job]) -> dict[Job, Outcome]:
        """The outcome of each job."""
        wanted = dict.fromkeys(jobs)
        new = sorted((job for job in wanted if job not in self._known), key=effort_of, reverse=True)
        if self.processes == 1:
            self._known.update((job, run_job(job)) for job in new)
        else:
            self._run(new)
        return {job: self._known[job] for job in wanted}

    def _run(self, jobs: list[Job]) -> None:
        """A process that dies takes down the pool and all that waits for it: those are run again, alone each."""
        pool = self._pool = self._pool or _pool(self.processes)
        lost = []
        try:
            futures = {job: pool.submit(run_job, job) for job in jobs}
        except BrokenExecutor:
            futures, lost = {}, jobs
        for job, future in futures.items():
            try:
                self._known[job] = future.result()
            except BrokenExecutor:
                lost.append(job)
        if lost:
            self.close()
        for job in lost:
            with _pool(1) as alone:
                try:
                    self._known[job] = alone.submit(run_job, job).result()
                except BrokenExecutor:
                    self._known[job] = Outcome((), "the process that ran it has ended")

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pool(processes: int) -> ProcessPoolExecutor:
    # Fresh processes: a fork would inherit what this one has imported and set, and its threads' locks.
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))


NEAR = 0.15
Settings = Mapping[str, tuple[str, ...]]
"""By chip, as of ``--set``."""


class Verdict(NamedTuple):
    """A published row; ``simulated`` and ``error`` (relative) are None where there is no figure. ``claimed``: by a
    bench; ``reason``: why there is no figure, where there is more to say than that nobody claims the row.
    """

    row: Published
    simulated: float | None
    claimed: bool = True
    reason: str = ""

    @property
    def error(self) -> float | None:
        """Simulated over published, less 1."""
        if self.simulated is None or not self.row.value:
            return None
        return self.simulated / self.row.value - 1

    @property
    def has_failed(self) -> bool:
        """Whether the run of the row's case has failed."""
        return self.claimed and self.simulated is None


class Summary(NamedTuple):
    """Of rows to be reproduced: how many, how many claimed, how many within ``NEAR``; over those with a figure, errors'
    median and RMS of their logarithms. None where there is no figure."""

    rows: int
    claimed: int
    near: int
    median: float | None
    log_rms: float | None


def validate(
    rows: Iterable[Published], settings: Settings | None = None, runner: Runner | None = None
) -> list[Verdict]:
    """Simulate all rows that are to be reproduced; a case that fails gives its rows a ``reason``. ``runner``: in this
    process, if not given."""
    wanted = list(rows)
    requests = [request_of(row) for row in wanted]
    jobs = _jobs(requests, settings or {})
    outcomes = (runner or Runner(1)).outcomes(jobs.values())
    return [
        _verdict(row, request, outcomes.get(jobs[run_of(request)]) if request.case else None)
        for row, request in zip(wanted, requests, strict=True)
    ]


def summary(verdicts: Sequence[Verdict]) -> Summary:
    """Of rows to be reproduced; one without a figure is not near."""
    counted = [verdict for verdict in verdicts if verdict.row.kind == TO_REPRODUCE]
    errors = sorted(abs(verdict.error) for verdict in counted if verdict.error is not None)
    logs = [math.log(verdict.error + 1) for verdict in counted if verdict.error is not None and verdict.error > -1]
    log_rms = math.sqrt(sum(each * each for each in logs) / len(logs)) if logs else None
    near, claimed = sum(error <= NEAR for error in errors), sum(verdict.claimed for verdict in counted)
    return Summary(len(counted), claimed, near, errors[len(errors) // 2] if errors else None, log_rms)


def run_of(request: Request) -> tuple[object, ...]:
    """Equal for rows that share a run."""
    return request.bench, request.chip, request.case


def effort_of(asked: Job | Request) -> float:
    """What the case takes, in the unit of its bench."""
    return BENCHES.get(asked.bench).effort(asked.case)


def _jobs(requests: Iterable[Request], settings: Settings) -> dict[tuple[object, ...], Job]:
    """The job of each run."""
    return {
        run_of(request): Job(request.bench, request.case, request.chip, settings.get(request.chip, ()))
        for request in requests
        if request.case is not None
    }


def _verdict(row: Published, request: Request, outcome: Outcome | None) -> Verdict:
    case = request.case
    if case is None or outcome is None:
        return Verdict(row, None, claimed=False, reason=request.reason)
    if outcome.error:
        return Verdict(row, None, reason=outcome.error)
    for figure in outcome.figures:
        if (figure.nbytes, figure.statistic, figure.metric) == (case.sizes[0], row.statistic, row.metric):
            return Verdict(row, figure.meant)
    return Verdict(row, None, claimed=False, reason=f"no figure of {row.statistic} in {row.metric}")
