"""Command ``ahbm-launch``: executes the run that the flags describe and prints the table, or prints a ``--list``."""

import sys
import traceback
from collections.abc import Callable
from functools import partial

from launcher import options
from launcher.commands import with_safe_output
from launcher.isolation import absolute
from launcher.predict import forecaster
from launcher.result import document, table
from launcher.result.document import RunOutcome
from launcher.run import prepare
from launcher.run.folder import resumed_options
from launcher.run.preparing import StoppedEarly
from launcher.run.run import checked, process_start_s, run_checked
from launcher.spawn import MainScript
from sipsim.chips.ahbm.collectives.catalog import Catalog
from sipsim.chips.ahbm.collectives.neighbours import TABLES
from sipsim.chips.api.chip import CHIPS
from sipsim.collectives.semantics import COLLECTIVES, INTERCUBE
from sipsim.config.load import variants
from sipsim.config.schema import Resolved
from sipsim.core.errors import ERROR_KINDS, HOST_MEMORY, NO_MEMORY, ConfigError, error_text
from sipsim.node.script import calls_spawn
from sipsim.topology.links import TOPOLOGIES


def _topologies(_: Resolved) -> list[str]:
    return [f"{name:<20} {(TOPOLOGIES.get(name).build.__doc__ or '').splitlines()[0]}" for name in TOPOLOGIES.names()]


def _chips(_: Resolved) -> list[str]:
    return [f"{name:<20} {CHIPS.get(name).about}" for name in CHIPS.names()]


def _links(resolved: Resolved) -> list[str]:
    return [f"{name:<20} {preset.kind}: {preset.source}" for name, preset in sorted(resolved.links.links.items())]


def _collectives(_: Resolved) -> list[str]:
    return [f"{name:<20} {COLLECTIVES.get(name).about}" for name in COLLECTIVES.names()]


def _tables(_: Resolved) -> list[str]:
    return [f"{name:<20} {(TABLES.get(name).build.__doc__ or '').splitlines()[0]}" for name in TABLES.names()]


def _algorithms(resolved: Resolved) -> list[str]:
    catalog = Catalog(resolved)
    head = f"{'name':<26} {'ranks identical':<16} collectives; source"
    return [head, *(_algorithm(catalog, name) for name in sorted(resolved.ccl.algorithms))]


def _algorithm(catalog: Catalog, name: str) -> str:
    """Return the line for an algorithm in ``--list``, or a line with the error if the algorithm cannot be loaded."""
    try:
        found = catalog.get(name)
    except ConfigError as error:
        return f"{name:<26} {error}"
    identical = {True: "yes", False: "no", None: "see reference"}[found.rank_identical]
    collectives = ", ".join(found.collectives) or INTERCUBE
    return f"{name:<26} {identical:<16} {collectives}; {found.about or found.entry.module}"


def _variants(_: Resolved) -> list[str]:
    return [f"{name:<20} {path.read_text().splitlines()[0].lstrip('# ')}" for name, path in variants().items()]


def _engines(_: Resolved) -> list[str]:
    return [
        f"{name:<20} {(options.ENGINES.get(name).__doc__ or '').splitlines()[0]}" for name in options.ENGINES.names()
    ]


def _fields(_: Resolved) -> list[str]:
    from launcher.result.page import page

    return [page()]


LISTS: dict[str, Callable[[Resolved], list[str]]] = {
    "chips": _chips,
    "topologies": _topologies,
    "links": _links,
    "collectives": _collectives,
    "algorithms": _algorithms,
    "tables": _tables,
    "variants": _variants,
    "engines": _engines,
    "fields": _fields,
}
"""The lists of ``--list``: available names, from registries and the config, and the fields of result files."""


def listing(what: str, resolved: Resolved) -> str:
    """Return the text that ``--list`` prints for ``what``, a key of ``LISTS``."""
    return "\n".join(LISTS[what](resolved))


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code (``docs/faults.md``)."""
    arguments = sys.argv[1:] if argv is None else argv
    return with_safe_output("ahbm-launch", lambda: _main(arguments))


def _main(arguments: list[str]) -> int:
    try:
        chosen = options.parse(arguments)
    except options.ParserExit as usage:
        print(usage.text, file=sys.stderr if usage.exit_code else sys.stdout)
        if usage.exit_code:
            document.write_refusal(options.json_file(arguments), arguments, usage.text.removeprefix("ahbm-launch: "))
        return usage.exit_code
    # A resumed run changes to the working folder of the original run.
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
        # Exit code 1 means wrong numbers.
        traceback.print_exc()
        print("ahbm-launch: internal: this is a bug in ahbm-launch; report the traceback", file=sys.stderr)
        return ERROR_KINDS["internal"]


def _run(chosen: options.Options, arguments: list[str]) -> int:
    if chosen.list:
        print(listing(chosen.list, prepare.resolve(chosen)))
        return 0
    with_script = chosen if chosen.resume is None else resumed_options(chosen.resume, arguments, chosen)
    if with_script.as_module:
        # Adds the working folder to the import path.
        prepare.resolve(with_script)
    if with_script.script is None or not calls_spawn(with_script.script, with_script.as_module):
        return _launch(chosen, arguments).exit_code
    n_sips = prepare.resolve(with_script).topology.system.sips.count
    return MainScript(with_script, lambda call: _launch(chosen.changed(spawn=call), arguments), n_sips).run()


def _launch(chosen: options.Options, arguments: list[str]) -> RunOutcome:
    run = checked(chosen, arguments)
    chosen = run.options
    started_s = process_start_s()
    if chosen.dry_run:
        print(prepare.describe(run))
        print(forecaster.expectation(run, started_s))
        return RunOutcome(document={"status": "ok", "error": None}, exit_code=0)
    if chosen.quiet or chosen.to_standard_output:
        return run_checked(run, arguments, started_s)
    rows = table.Table(run, partial(print, flush=True), chosen.verbose)
    return run_checked(run, arguments, started_s, rows.finish, rows.note)


if __name__ == "__main__":
    sys.exit(main())
