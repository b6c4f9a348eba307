"""``ahbm-launch``: from flags to a run, a table and an exit code. Each step is a module of its own."""

import signal
import sys
import traceback
from functools import partial

from launcher.cli.command import with_safe_output
from launcher.report.destination import absolute
from launcher.run import options, prepare
from launcher.run.listing import listing
from launcher.run.predict import dry_run
from launcher.run.results import result, table
from launcher.run.run import checked, process_start_s, run_checked
from sipsim.errors import ERROR_KINDS, ConfigError


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code of DESIGN section 8."""
    # Before and after the run a request for its state is ignored.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    arguments = sys.argv[1:] if argv is None else argv
    return with_safe_output("ahbm-launch", lambda: _main(arguments))


def _main(arguments: list[str]) -> int:
    try:
        chosen = options.parse(arguments)
    except options.Usage as usage:
        print(usage.text, file=sys.stderr if usage.exit_code else sys.stdout)
        if usage.exit_code:
            result.write_refusal(options.json_file(arguments), arguments, usage.text.removeprefix("ahbm-launch: "))
        return usage.exit_code
    # A resumed run changes to its own working folder.
    json_file = absolute(chosen.json) if chosen.json is not None else None
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
    prepared, chosen = checked(chosen, arguments)
    started_s = process_start_s()
    if chosen.dry_run:
        print(prepare.describe(prepared))
        print(dry_run.expectation(prepared, chosen.max_sim_ps, started_s))
        return 0
    if chosen.quiet or chosen.to_standard_output:
        return run_checked(prepared, chosen, arguments, started_s).exit_code
    rows = table.Table(prepared, partial(print, flush=True), chosen.verbose)
    return run_checked(prepared, chosen, arguments, started_s, rows.finish, rows.note).exit_code


if __name__ == "__main__":
    sys.exit(main())
