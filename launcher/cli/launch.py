"""``ahbm-launch``: flags in, a run, a table and an exit code out. Each step is a module of its own."""

import os

# Before NumPy is imported: its BLAS would start threads, which a process that forks must not have, and whose
# number must not be able to change a result.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import signal  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402

from launcher.processes.limits import check_limits  # noqa: E402
from launcher.report import failure as report  # noqa: E402
from launcher.report.outcome import Outcome  # noqa: E402
from launcher.run import options, prepare, result, table  # noqa: E402
from launcher.run import run_record as rundir  # noqa: E402
from launcher.run import validate as suits  # noqa: E402
from launcher.run.listing import listing  # noqa: E402
from launcher.run.output import safe_output  # noqa: E402
from launcher.run.run import run  # noqa: E402
from sipsim.errors import ERROR_KINDS, ConfigError  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code of DESIGN section 8."""
    # A question that comes before or after the run has no answer, and must not end us.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    arguments = sys.argv[1:] if argv is None else argv
    with safe_output() as out:
        code = _main(arguments)
        out.flush()
        if out.trouble:
            print(f"ahbm-launch: standard output cannot be written: {out.trouble}", file=sys.stderr)
            return code or ERROR_KINDS["internal"]
        return code


def _main(arguments: list[str]) -> int:
    try:
        chosen = options.parse(arguments)
    except options.Usage as usage:
        print(usage.text, file=sys.stderr if usage.exit_code else sys.stdout)
        if usage.exit_code:
            result.write_refusal(options.json_file(arguments), arguments, usage.text.removeprefix("ahbm-launch: "))
        return usage.exit_code
    # A run that is gone on with moves to the folder in which it was begun.
    json_file = chosen.json.absolute() if chosen.json is not None else None
    try:
        return _run(chosen, arguments)
    except ConfigError as error:
        print(f"ahbm-launch: {error}", file=sys.stderr)
        result.write_refusal(json_file, arguments, str(error), chosen)
        return error.exit_code
    except KeyboardInterrupt:
        print("ahbm-launch: interrupted twice, stopped at once", file=sys.stderr)
        return ERROR_KINDS["interrupted"]
    except Exception:
        # Not exit code 1, which says that numbers were wrong.
        traceback.print_exc()
        print("ahbm-launch: internal: this is a bug in ahbm-launch", file=sys.stderr)
        return ERROR_KINDS["internal"]


def _run(chosen: options.Options, arguments: list[str]) -> int:
    if chosen.list:
        print(listing(chosen.list, prepare.resolve(chosen)))
        return 0
    if chosen.resume is not None:
        chosen = rundir.resumed_options(chosen.resume, arguments, chosen)
    suits.check_flags(chosen)
    result.check_writable(chosen)
    prepared = prepare.prepare(chosen)
    suits.check_system(chosen, prepared.plan.system.n_sips)
    suits.faults_of(chosen, prepared.plan, prepared.job)
    if chosen.run_dir is not None:
        rundir.check_new(chosen.run_dir)
    if chosen.dry_run:
        print(prepare.describe(prepared))
        return 0
    check_limits(chosen, prepared.plan)
    return run(prepared, chosen, arguments, lambda outcome: _tell(outcome, prepared, chosen, arguments))


def _tell(outcome: Outcome, prepared: prepare.Prepared, chosen: options.Options, arguments: list[str]) -> int:
    """Everything that the user is told at the end; the exit code."""
    document = result.build(prepared, chosen, arguments, outcome)
    if not chosen.quiet:
        print(table.render(document, prepared, chosen.verbose), end="", flush=True)
    ends_ps = {rank: told.sim_end_ps for rank, told in outcome.ranks.items()} if outcome.status == "ok" else {}
    for line in [*suits.unfired_faults(chosen, ends_ps), *outcome.notices]:
        print(f"ahbm-launch: {line}", file=sys.stderr)
    for line in filter(None, [report.block(outcome), *(f"ahbm-launch: {each}" for each in outcome.troubles)]):
        print(line, file=sys.stderr)
    try:
        result.write(chosen, document)
    except OSError as error:
        print(f"ahbm-launch: the result file cannot be written: {error}", file=sys.stderr)
        return outcome.exit_code or ERROR_KINDS["internal"]
    return outcome.exit_code or (ERROR_KINDS["internal"] if outcome.troubles else 0)


if __name__ == "__main__":
    sys.exit(main())
