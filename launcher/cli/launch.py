"""``ahbm-launch``: from flags to a run, a table and an exit code. Each step is a module of its own."""

import os

# Before NumPy is imported: threads of its BLAS are unsafe in a process that forks, and their number must not change
# a result.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import signal  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402

from launcher.processes.limits import check_limits  # noqa: E402
from launcher.report import failure  # noqa: E402
from launcher.report.outcome import Outcome  # noqa: E402
from launcher.run import options, prepare, result, run_folder, table, validate  # noqa: E402
from launcher.run.listing import listing  # noqa: E402
from launcher.run.output import safe_output  # noqa: E402
from launcher.run.run import run  # noqa: E402
from sipsim.errors import ERROR_KINDS, ConfigError  # noqa: E402


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code of DESIGN section 8."""
    # Before and after the run a request for its state is ignored.
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
    # A resumed run changes to its own working folder.
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
        # Not exit code 1, which means wrong numbers.
        traceback.print_exc()
        print("ahbm-launch: internal: this is a bug in ahbm-launch", file=sys.stderr)
        return ERROR_KINDS["internal"]


def _run(chosen: options.Options, arguments: list[str]) -> int:
    if chosen.list:
        print(listing(chosen.list, prepare.resolve(chosen)))
        return 0
    if chosen.resume is not None:
        chosen = run_folder.resumed_options(chosen.resume, arguments, chosen)
    validate.check_flags(chosen)
    result.check_writable(chosen)
    prepared = prepare.prepare(chosen)
    validate.check_system(chosen, prepared.plan.system.n_sips)
    validate.faults_of(chosen, prepared.plan, prepared.job)
    if chosen.run_dir is not None:
        run_folder.check_new(chosen.run_dir)
    if chosen.dry_run:
        print(prepare.describe(prepared))
        return 0
    check_limits(chosen.engine, chosen.mail, prepared.plan)
    return run(prepared, chosen, arguments, lambda outcome: _report(outcome, prepared, chosen, arguments))


def _report(outcome: Outcome, prepared: prepare.Prepared, chosen: options.Options, arguments: list[str]) -> int:
    """Print and write the results; returns the exit code."""
    document = result.build(prepared, chosen, arguments, outcome)
    if not chosen.quiet:
        print(table.render(document, prepared, chosen.verbose), end="", flush=True)
    ends_ps = {rank: result.sim_end_ps for rank, result in outcome.ranks.items()} if outcome.status == "ok" else {}
    for line in [*validate.unfired_faults(chosen, ends_ps), *outcome.notices]:
        print(f"ahbm-launch: {line}", file=sys.stderr)
    for line in filter(None, [failure.block(outcome), *(f"ahbm-launch: {each}" for each in outcome.troubles)]):
        print(line, file=sys.stderr)
    try:
        result.write(chosen, document)
    except OSError as error:
        print(f"ahbm-launch: the result file cannot be written: {error}", file=sys.stderr)
        return outcome.exit_code or ERROR_KINDS["internal"]
    return outcome.exit_code or (ERROR_KINDS["internal"] if outcome.troubles else 0)


if __name__ == "__main__":
    sys.exit(main())
