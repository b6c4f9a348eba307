"""A prepared run from start to end: a private folder, an engine, the check of a script's results, the clean-up."""

import gc
import os
import shutil
import tempfile
import time

import msgspec

from launcher.attention import Attention
from launcher.engines import ENGINES
from launcher.engines.base import Request
from launcher.evidence import check_evidence
from launcher.options import Options
from launcher.outcome import Outcome
from launcher.prepare import Prepared
from launcher.progress import Progress
from launcher.trace import write_trace
from sipsim.errors import ConfigError

LONGEST_SOCKET_PATH = 107
LONGEST_SOCKET_NAME = "/broker.launcher"
OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""Python's own 700 make the collector look for garbage in 15 % of a run's time; what it finds is a few MiB."""


def run(prepared: Prepared, options: Options) -> Outcome:
    """Run it; whatever happens is in the outcome, and nothing is left behind."""
    started_s = process_start_s()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    progress = Progress(options.quiet)
    with Attention(options.timeout_s) as attention:
        run_dir = _private_folder()
        try:
            job = msgspec.structs.replace(prepared.job, trace_dir=run_dir if options.trace_ccl else "")
            if job.script is not None and job.verify:
                job = msgspec.structs.replace(job, evidence_dir=run_dir)
            request = Request(
                prepared.plan,
                job,
                run_dir,
                started_s,
                progress,
                options.mail,
                options.explain_sync,
                hosts=options.hosts,
                bind=options.bind or "",
                max_restarts=options.max_restarts,
                join_timeout_s=options.join_timeout_s,
                progress_timeout_s=options.progress_timeout_s,
                deadlines=options.deadlines,
                tee=options.tee,
            )
            outcome = ENGINES.get(prepared.engine)(request, attention)
            if job.evidence_dir:
                check_evidence(outcome, prepared.plan, job.evidence_dir)
        finally:
            progress.close()
            if options.trace_ccl:
                write_trace(run_dir, options.trace_ccl)
            shutil.rmtree(run_dir, ignore_errors=True)
    outcome.note_wrong()
    outcome.total_s = time.monotonic() - started_s
    return outcome


def process_start_s() -> float:
    """When this process started, on the monotonic clock, interpreter start included; now, where that is not told."""
    try:
        with open("/proc/self/stat", "rb") as stat:
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        age_s = 0.0
    return time.monotonic() - age_s


def _private_folder() -> str:
    try:
        folder = tempfile.mkdtemp(prefix="ahbm-")
    except OSError as error:
        raise ConfigError(f"no temporary folder can be made: {error}; set TMPDIR to one that can") from None
    if len(folder) > LONGEST_SOCKET_PATH - len(LONGEST_SOCKET_NAME):
        os.rmdir(folder)
        raise ConfigError(f"{folder}: too long for socket names; set TMPDIR to a shorter path")
    return folder
