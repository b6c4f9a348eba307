"""``ahbm-launch``: from flags to a run, a table and an exit code. Each step is a module of its own."""

import sys
import traceback
from functools import partial

from launcher.commands.command import with_safe_output
from launcher.commands.launch.listing import listing
from launcher.isolation.destination import absolute
from launcher.options import options
from launcher.predict.forecaster import dry_run
from launcher.result import document
from launcher.result.table import table
from launcher.run.prepare import prepare
from launcher.run.preparing import StoppedEarly
from launcher.run.run import checked, process_start_s, run_checked
from sipsim.core.errors import ERROR_KINDS, HOST_MEMORY, NO_MEMORY, ConfigError, error_text


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code of DESIGN section 8."""
    arguments = sys.argv[1:] if argv is None else argv
    return with_safe_output("ahbm-launch", lambda: _main(arguments))


def _main(arguments: list[str]) -> int:
    try:
        chosen = options.parse(arguments)
    except options.Usage as usage:
        print(usage.text, file=sys.stderr if usage.exit_code else sys.stdout)
        if usage.exit_code:
            document.write_refusal(options.json_file(arguments), arguments, usage.text.removeprefix("ahbm-launch: "))
        return usage.exit_code
    # A resumed run changes to its own working folder.
    json_file = absolute(chosen.json) if chosen.json is not None else None
    try:
        return _run(chosen, arguments)
    except ConfigError as error:
        print(f"ahbm-launch: {error}", file=sys.stderr)
        document.write_refusal(json_file, arguments, str(error), chosen)
        return error.exit_code
    except StoppedEarly as stopped:
        print(f"ahbm-launch: {stopped}", file=sys.stderr)
        document.write_refusal(json_file, arguments, str(stopped), chosen, stopped.reason)
        return ERROR_KINDS[stopped.reason]
    except MemoryError as error:
        text = f"{error_text(error)}; {NO_MEMORY}"
        print(f"ahbm-launch: {HOST_MEMORY}: {text}", file=sys.stderr)
        document.write_refusal(json_file, arguments, text, chosen, HOST_MEMORY)
        return ERROR_KINDS[HOST_MEMORY]
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
