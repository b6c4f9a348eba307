"""Run from options to outcome: checks, private folder, engine, check of a script's results, clean-up, result files.

``ahbm-launch`` and ``launcher.api`` share this module. It prints events of the run on standard error.
"""

import gc
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import replace
from functools import partial

from launcher.options import ENGINES, Options
from launcher.predict.forecaster import Forecaster
from launcher.processes.fork_server import free_folder
from launcher.processes.this_host import check_limits, kills_since, oom_kills
from launcher.report import failure
from launcher.report.checks import check_recorded_io, note_verdicts
from launcher.report.files import write_logs
from launcher.report.outcome import Outcome, RunError
from launcher.report.progress import Progress
from launcher.result import document as result
from launcher.result.document import Document, RunOutcome
from launcher.run import folder as run_folder
from launcher.run.effects import note_effects
from launcher.run.explain import check_explain, note_explanations, run_again
from launcher.run.folder import RunFolder
from launcher.run.prepare import (
    check_flags,
    check_system,
    check_verification,
    faults_of,
    prepare,
    unfired_faults,
    unverified,
    users_error,
)
from launcher.run.preparing import Unfinished, limited, preparing
from launcher.supervise.logs import prepare_log_dir, write_error_files
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from sipsim.chips.api.chip import kind_of
from sipsim.core.errors import ERROR_KINDS, ConfigError, pass_on_halt
from sipsim.node.faults import FaultPlan

LONGEST_SOCKET_PATH = 107
LONGEST_SOCKET_NAME = "/broker.launcher"
OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""With Python's default of 700, garbage collection takes 15 % of a run's time and frees a few MiB."""
OBJECTS_WITH_EXPLAIN = 300_000
"""Larger, since the records of ``--explain`` stay until the end: more collections would double the recording time."""


def checked(options: Options, argv: list[str]) -> Run:
    """Return the run of ``options`` after all checks; with ``--resume``, the resumed run. No process is started.

    Raises:
        ConfigError: if a check finds that the run cannot start.
        StoppedEarly: after a signal, or after ``--timeout``.
    """
    with preparing(options, options.timeout_s):
        try:
            return _checked(options, argv)
        except ConfigError:
            raise
        except BaseException as error:
            pass_on_halt(error)
            raise users_error(error) or error from None


def _checked(options: Options, argv: list[str]) -> Run:
    if options.resume is not None:
        options = run_folder.resumed_options(options.resume, argv, options).changed(spawn=options.spawn)
    check_flags(options)
    result.check_writable(options)
    run = prepare(options)
    check_system(options, run.plan.system.n_sips)
    check_explain(run)
    check_verification(options, argv, run.plan.resolved)
    faults_of(run)
    if options.run_dir is not None:
        run_folder.check_new(options.run_dir)
    for line in kind_of(run.plan.resolved).cautions(run.plan):
        print(f"ahbm-launch: {line}", file=sys.stderr)
    return run


def run_checked(
    run: Run,
    argv: list[str],
    started_s: float,
    show: Callable[[Document], None] = lambda _document: None,
    on_record: Callable[[Outcome], None] = lambda _outcome: None,
) -> RunOutcome:
    """Execute the result of :func:`checked`; return failures in the outcome, and write only requested files.

    ``on_record`` is called whenever a rank has completed a collective. ``show`` is called with the document before
    messages are printed and files are written. The folder of ``--run-dir`` gets the final status last, so that the run
    can be resumed if the launcher is killed earlier. ``started_s``: start of the command on the monotonic clock.

    Raises:
        ConfigError: before any process starts, if this host lacks resources, or a folder cannot be used.
    """
    options = run.options
    check_limits(options.engine, options.mail, run.plan)
    faults = faults_of(run)
    saved = _run_folder(run, argv)
    if saved is not None:
        faults = FaultPlan.of(faults).resumed(saved.n_resumed).texts()
    if any(spec.startswith("random") for spec in options.faults):
        print(f"ahbm-launch: faults drawn: {', '.join(faults) or 'none'}", file=sys.stderr)
    try:
        if options.log_dir is not None:
            prepare_log_dir(options.log_dir, run.plan.system.n_sips)
    except ConfigError:
        if saved is not None:
            saved.abandon()
        raise
    status = "failed"
    try:
        outcome = _outcome(replace(run, options=options.changed(faults=faults), started_s=started_s), on_record)
        outcome.total_s = time.monotonic() - started_s
        if options.explain:
            deadline_s = None if options.timeout_s is None else started_s + options.timeout_s
            run_again(outcome, options, _again, partial(_left_s, deadline_s))
        folders = [options.log_dir, saved.folder if saved is not None else None]
        write_error_files(outcome, [folder for folder in folders if folder is not None])
        document = result.build(run, argv, outcome)
        _show(show, document, outcome, options)
        _print_messages(outcome, options)
        code = _write(outcome, options, document)
        status = outcome.status
    finally:
        if saved is not None:
            saved.close(status)
    detail = "" if outcome.error is None else outcome.error.detail
    return RunOutcome(document=document, exit_code=code, signal=outcome.signal, detail=detail)


def _show(show: Callable[[Document], None], document: Document, outcome: Outcome, options: Options) -> None:
    """Show the table, with a time limit: the table calls an algorithm's ``reference``, which is user code."""
    try:
        with StopSignals(None) as signals, limited(signals, options):
            show(document)
        outcome.signal = outcome.signal or signals.signum
    except Unfinished as stopped:
        outcome.troubles.append(f"the table is incomplete: {stopped}")


def _print_messages(outcome: Outcome, options: Options) -> None:
    ends_ps = {rank: ended.sim_end_ps for rank, ended in outcome.ranks.items()} if outcome.status == "ok" else {}
    for line in [*unfired_faults(options, ends_ps), *outcome.notices]:
        print(f"ahbm-launch: {line}", file=sys.stderr)
    block = failure.block(outcome, options.log_dir)
    for line in filter(None, [block, *(f"ahbm-launch: {each}" for each in outcome.troubles)]):
        print(line, file=sys.stderr)


def _write(outcome: Outcome, options: Options, document: Document) -> int:
    """Write the requested files; return the exit code."""
    try:
        result.write(options, document)
    except OSError as error:
        print(f"ahbm-launch: the result file cannot be written: {error}", file=sys.stderr)
        return outcome.exit_code or ERROR_KINDS["internal"]
    # A signal that stopped a rerun of --explain does not change this run's result.
    stopped = 128 + outcome.signal if outcome.signal else 0
    return outcome.exit_code or (ERROR_KINDS["internal"] if outcome.troubles else stopped)


def _run_folder(run: Run, argv: list[str]) -> RunFolder | None:
    options = run.options
    if options.resume is not None:
        return RunFolder.resume(options.resume, run)
    return RunFolder.begin(options.run_dir, argv, run) if options.run_dir is not None else None


def _outcome(run: Run, on_record: Callable[[Outcome], None]) -> Outcome:
    """Execute the run by its engine, check the data, and return the outcome. Random faults must be drawn already."""
    options = run.options
    gc.set_threshold(OBJECTS_WITH_EXPLAIN if options.explain else OBJECTS_BETWEEN_COLLECTIONS)
    predictor = partial(Forecaster, run, run.started_s) if run.job.script is None else None
    progress = Progress(options.quiet, options.progress, options.max_sim_ps, on_record, predictor)
    killed = oom_kills()
    with StopSignals(options.timeout_s) as signals:
        scratch_dir = _private_folder()
        if options.engine == "inproc":
            # Without a fork server, which would create the folder.
            os.mkdir(scratch_dir, 0o700)
        run = replace(run, scratch_dir=scratch_dir, progress=progress)
        try:
            if options.explain_sync:
                print(*run.plan.sync_notes(), sep="\n", file=sys.stderr)
            with _apart_from_output(options):
                outcome: Outcome = ENGINES.get(options.engine)(run, signals)
            if "data" in run.job.records:
                try:
                    with limited(signals, options):
                        check_recorded_io(outcome, run.plan, scratch_dir)
                except Unfinished as stopped:
                    outcome.fail(RunError(stopped.reason or "hung", None, f"the data check stopped: {stopped}"))
            if options.explain:
                note_explanations(outcome, run)
        finally:
            progress.close()
            troubles = write_logs(scratch_dir, options)
            shutil.rmtree(scratch_dir, ignore_errors=True)
    outcome.troubles += troubles
    note_verdicts(outcome)
    outcome.notices += unverified(options, run.plan.resolved)
    note_effects(run, outcome)
    outcome.note_wrong()
    outcome.note_unread(run.job.check_invariants)
    outcome.oom_kills = kills_since(killed, oom_kills())
    outcome.host = socket.gethostname()
    outcome.signal = signals.signum
    return outcome


def _left_s(deadline_s: float | None) -> float | None:
    return None if deadline_s is None else deadline_s - time.monotonic()


def _again(run: Run) -> Outcome:
    return _outcome(replace(run, started_s=time.monotonic()), lambda _outcome: None)


def _apart_from_output(options: Options) -> AbstractContextManager[object]:
    """Redirect the prints of a script in this process to standard error if a result file is standard output."""
    is_shared = options.engine == "inproc" and options.to_standard_output
    return redirect_stdout(sys.stderr) if is_shared else nullcontext()


def process_start_s() -> float:
    """Return the start time of this process on the monotonic clock, or the present time if the kernel gives none.

    psutil is too coarse: it uses the boot time, which Linux gives in whole seconds.
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
        raise ConfigError(f"no temporary folder can be created: {error}; set TMPDIR to a writable folder") from None
    if len(folder) > LONGEST_SOCKET_PATH - len(LONGEST_SOCKET_NAME):
        raise ConfigError(f"{folder}: the path is too long for socket names; set TMPDIR to a shorter path")
    return folder
