"""Explanation of a run for ``--explain``: critical path and possible changes by the chip kind; reruns with changes."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from broker.wire import BadFrame
from launcher.options import FLAGS, Options
from launcher.report.outcome import Outcome
from launcher.result.document import iterations_of
from launcher.run.prepare import prepare
from launcher.supervise.run import Run
from sipsim.chips.api.chip import kind_of
from sipsim.core.errors import AhbmError, ConfigError
from sipsim.records.artifacts import rank_folder
from sipsim.records.explanation import MeasuredRow, WhatIf

Rerun = Callable[[Run], Outcome]
LeftS = Callable[[], float | None]
USUAL_RERUNS = 2


def check_explain(run: Run) -> None:
    """Check that ``--explain`` and ``--explain-reruns`` are possible for this run.

    Raises:
        ConfigError: one line with the reason and what to do.
    """
    options = run.options
    if not options.explain:
        if options.explain_reruns is not None:
            raise ConfigError(
                f"--explain-reruns {options.explain_reruns}: has no effect without --explain; add --explain"
            )
        return
    if (options.quiet or options.to_standard_output) and options.json is None:
        quiet = "-q" if options.quiet else f"{options.to_standard_output[0]} -"
        raise ConfigError(
            f"--explain: {quiet} hides the table and the explanation below it; add --json FILE, or leave {quiet} out"
        )
    if not kind_of(run.plan.system.resolved).explainer:
        chip = run.plan.system.resolved.topology.system.chip
        raise ConfigError(f"--explain: chip {chip} does not explain its runs; leave --explain out")
    if any(run.plan.system.outages):
        raise ConfigError("--explain: does not support outages of links; leave --explain or the outages out")


def note_explanations(outcome: Outcome, run: Run) -> None:
    """Add the explanation of each row, or of a run without rows, to the outcome of a successful run.

    If the records of ranks cannot be read, a line is added to ``outcome.troubles``.
    """
    if outcome.error is not None or not outcome.complete:
        outcome.notices.append("--explain: the run is incomplete, so it is not explained")
        return
    rows = [
        MeasuredRow(iterations_of(each.records), dict(zip(each.ranks, each.runs, strict=True)))
        for each in outcome.finished_runs()
    ] or [MeasuredRow([(0, _end_ps(outcome))], {})]
    folders = [Path(rank_folder(run.scratch_dir, rank)) for rank in sorted(outcome.ranks)]
    kind = kind_of(run.plan.system.resolved)
    try:
        with _without_collections():
            outcome.explanations = import_module(kind.explainer).explain(run.plan, folders, rows)
    except (OSError, BadFrame) as error:
        outcome.troubles.append(f"--explain: the records of the ranks cannot be read: {error}; run again")


@contextmanager
def _without_collections() -> Iterator[None]:
    """Disable the garbage collector in the body of the ``with``: histories are large and have no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def run_again(outcome: Outcome, options: Options, rerun: Rerun, left_s: LeftS) -> None:
    """Rerun with each change that saves most on the critical path; record how much time each saves in the last row.

    ``left_s()`` returns the seconds until ``--timeout``; None without a limit. If a signal stops a rerun, the
    signal is stored in ``outcome``, whose results stay.
    """
    explanation = outcome.explanations[-1] if outcome.explanations else None
    if explanation is None:
        return
    before_ps = _last_time_ps(outcome)
    for change in explanation.what_if[: _reruns(options)]:
        seconds = left_s()
        if seconds is not None and seconds <= 0:
            outcome.notices.append("--explain: --timeout leaves no time for more reruns; give a longer --timeout")
            return
        if change.saved_ps > 0:
            other = _run_with(change, options.changed(timeout_s=seconds), rerun)
            if other is None or other.error is not None:
                outcome.signal = outcome.signal or (other.signal if other is not None else 0)
                return
            change.rerun_saved_ps = before_ps - _last_time_ps(other)


def _reruns(options: Options) -> int:
    """Return the number of reruns; 0 by default for a script, since scripts may have side effects."""
    if options.explain_reruns is not None:
        return options.explain_reruns
    return USUAL_RERUNS if options.script is None else 0


def _last_time_ps(outcome: Outcome) -> int:
    """Return the longest iteration of the last row, which is the explained row, or the end of a run without rows."""
    runs = outcome.finished_runs()
    return max(end_ps - start_ps for start_ps, end_ps in iterations_of(runs[-1].records)) if runs else _end_ps(outcome)


def _end_ps(outcome: Outcome) -> int:
    return max(rank.sim_end_ps for rank in outcome.ranks.values())


def _run_with(change: WhatIf, options: Options, rerun: Rerun) -> Outcome | None:
    """Rerun with a change, without output and files; print why a rerun failed; None if a check refuses the run."""
    changed = options.changed(
        **{name: getattr(Options, name) for name, flag in FLAGS.items() if flag.alone},
        settings=(*options.settings, *change.settings),
        explain=False,
        explain_sync=False,
        verify_data=False,
        quiet=True,
        tee=() if options.engine != "inproc" else None,
        progress=False,
        max_sim_ps=None,
        faults=(),
    )
    what = f"ahbm-launch: --explain: the rerun with {change.name} changed"
    try:
        outcome = rerun(prepare(changed))
    except (ConfigError, AhbmError) as error:
        print(f"{what} is not possible: {error}", file=sys.stderr)
        return None
    if outcome.error is not None:
        print(f"{what} failed: {outcome.error.message}", file=sys.stderr)
    return outcome
