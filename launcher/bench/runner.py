"""Runs of cases in processes of their own: figures depend neither on their number nor on their order."""

import multiprocessing
import os
import time
from collections.abc import Iterable
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from typing import NamedTuple

from launcher.bench.base import BENCHES, Case, Figure, one_line
from launcher.bench.machine import Machine
from sipsim.core.errors import AhbmError


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
        figures, error = (), one_line(str(problem))
    except Exception as problem:  # A case that fails in whatever way must not end the others.
        figures, error = (), one_line(f"{type(problem).__name__}: {problem}")
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
        new = sorted((job for job in wanted if job not in self._known), key=_effort, reverse=True)
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


def _effort(job: Job) -> float:
    return BENCHES.get(job.bench).effort(job.case)


def _pool(processes: int) -> ProcessPoolExecutor:
    # Fresh processes: a fork would inherit what this one has imported and set, and its threads' locks.
    return ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
