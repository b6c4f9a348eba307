"""Carries out a prepared run: private folder, engine, check of a script's results, clean-up."""

import gc
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable

from launcher.engines import ENGINES
from launcher.processes.fork_server import free_folder
from launcher.processes.oom import kills_since, oom_kills
from launcher.report.outcome import Outcome
from launcher.report.progress import Progress
from launcher.report.recorded_io import check_recorded_io
from launcher.report.trace import write_trace
from launcher.run.options import Options
from launcher.run.prepare import Prepared
from launcher.run.run_folder import RunFolder
from launcher.run.validate import faults_of
from launcher.supervise.logs import prepare_log_dir, write_error_files
from launcher.supervise.request import Request
from launcher.supervise.signals import StopSignals
from sipsim.errors import ConfigError
from sipsim.faults.plan import FaultPlan

LONGEST_SOCKET_PATH = 107
LONGEST_SOCKET_NAME = "/broker.launcher"
OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""With Python's default of 700, garbage collection takes 15 % of a run's time and frees a few MiB."""


def run(prepared: Prepared, options: Options, argv: list[str], report: Callable[[Outcome], int]) -> int:
    """Run it; failures are in the outcome, and only requested files are left behind.

    ``report`` reports the outcome and returns the exit code. A kept run ends only then, so that it can be resumed if
    the launcher is killed before.

    Raises:
        ConfigError: before anything has started, when a requested folder cannot be used.
    """
    started_s = process_start_s()
    faults = faults_of(options, prepared.plan, prepared.job)
    kept = _kept(prepared, options, argv)
    if kept is not None:
        faults = FaultPlan.of(faults).resumed(kept.n_resumed).texts()
    if any(spec.startswith("random") for spec in options.faults):
        print(f"ahbm-launch: faults drawn: {', '.join(faults) or 'none'}", file=sys.stderr)
    try:
        if options.log_dir is not None:
            prepare_log_dir(options.log_dir, prepared.plan.system.n_sips)
    except ConfigError:
        if kept is not None:
            kept.abandon()
        raise
    status = "failed"
    try:
        outcome = _run(prepared, options, faults, started_s)
        outcome.total_s = time.monotonic() - started_s
        folders = [options.log_dir, kept.folder if kept is not None else None]
        write_error_files(outcome, [folder for folder in folders if folder is not None])
        code = report(outcome)
        status = outcome.status
    finally:
        if kept is not None:
            kept.close(status)
    return code


def _kept(prepared: Prepared, options: Options, argv: list[str]) -> RunFolder | None:
    if options.resume is not None:
        return RunFolder.resume(options.resume, prepared)
    return RunFolder.begin(options.run_dir, argv, prepared) if options.run_dir is not None else None


def _run(prepared: Prepared, options: Options, faults: tuple[str, ...], started_s: float) -> Outcome:
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    progress = Progress(options.quiet)
    killed = oom_kills()
    with StopSignals(options.timeout_s) as signals:
        scratch_dir = _private_folder()
        if prepared.engine == "inproc":
            # Without a fork server, which would make and remove it.
            os.mkdir(scratch_dir, 0o700)
        try:
            request = _request(prepared, options, faults, started_s, scratch_dir, progress)
            outcome = ENGINES.get(prepared.engine)(request, signals)
            if request.job.record_io:
                check_recorded_io(outcome, prepared.plan, scratch_dir)
        finally:
            progress.close()
            trouble = write_trace(scratch_dir, options.trace_ccl) if options.trace_ccl else ""
            shutil.rmtree(scratch_dir, ignore_errors=True)
    if trouble:
        outcome.troubles.append(trouble)
    outcome.note_wrong()
    outcome.note_unread(request.job.check_invariants)
    outcome.oom_kills = kills_since(killed, oom_kills())
    outcome.host = socket.gethostname()
    return outcome


def _request(
    prepared: Prepared,
    options: Options,
    faults: tuple[str, ...],
    started_s: float,
    scratch_dir: str,
    progress: Progress,
) -> Request:
    return Request(prepared.plan, prepared.job, scratch_dir, started_s, progress, options.changed(faults=faults))


def process_start_s() -> float:
    """When this process started, on the monotonic clock, including the start of the interpreter; else now.

    psutil derives it from the boot time, which Linux gives in whole seconds.
    """
    try:
        with open("/proc/self/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        age_s = 0.0
    return time.monotonic() - age_s


def _private_folder() -> str:
    try:
        folder = free_folder("ahbm-")
    except OSError as error:
        raise ConfigError(f"no temporary folder can be made: {error}; set TMPDIR to one that can") from None
    if len(folder) > LONGEST_SOCKET_PATH - len(LONGEST_SOCKET_NAME):
        raise ConfigError(f"{folder}: too long for socket names; set TMPDIR to a shorter path")
    return folder
