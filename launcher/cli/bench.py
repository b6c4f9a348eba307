"""``ahbm-bench`` runs microbenchmarks on simulated chips, and shows what was published of the hardware beside."""

import importlib
import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from launcher.bench.base import BENCHES
from launcher.bench.options import machine_of, parse_bench
from launcher.bench.published import Published, default_files, read_published, row_of
from launcher.bench.report import Line, best_channels, csv_text, picture, plots, tables
from launcher.report.destination import STANDARD_OUTPUT, opened
from launcher.run import options
from launcher.run.output import safe_output
from launcher.run.results.result import check_files
from sipsim import VERSION
from sipsim.errors import ERROR_KINDS, AhbmError, ConfigError


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns 0, or the exit code of a mistake or of a run that fails."""
    with safe_output() as out:
        code = _main(sys.argv[1:] if argv is None else argv)
        out.flush()
        if out.trouble:
            print(f"ahbm-bench: standard output cannot be written: {out.trouble}", file=sys.stderr)
            return code or ERROR_KINDS["internal"]
        return code


def _main(argv: list[str]) -> int:
    try:
        chosen = parse_bench(argv)
        check_files({"--json": chosen.json, "--csv": chosen.csv})
        _show(chosen, _lines(chosen))
    except options.Usage as usage:
        print(usage.text, file=sys.stderr if usage.exit_code else sys.stdout)
        return usage.exit_code
    except AhbmError as error:
        print(f"ahbm-bench: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"ahbm-bench: {error}", file=sys.stderr)
        return ConfigError.exit_code
    return 0


def _lines(chosen: Namespace) -> list[Line]:
    rows = _published(chosen.csv_in)
    bench, machine = BENCHES.get(chosen.bench), machine_of(chosen)
    figures = [figure for case in bench.cases(chosen) for figure in bench.measure(case, chosen.sizes, machine)]
    name = machine.architecture
    return [Line(name, figure, row_of(figure, name, rows)) for figure in figures]


def _published(file: Path | None) -> list[Published]:
    return [row for path in ([file] if file else default_files()) for row in read_published(path)]


def _show(chosen: Namespace, lines: list[Line]) -> None:
    if chosen.plot is not None:
        picture(lines, _pyplot()).savefig(chosen.plot)
    document: dict[str, Any] = {
        "version": VERSION,
        "bench": chosen.bench,
        "chip": chosen.chip,
        "figures": [line.document() for line in lines],
    }
    _write(chosen.json, json.dumps(document, indent=1) + "\n")
    _write(chosen.csv, csv_text(lines))
    if STANDARD_OUTPUT in (chosen.json, chosen.csv):
        return
    machine = machine_of(chosen)
    print(
        f"# ahbm-bench {VERSION}: {chosen.bench}, chip {chosen.chip}, link {machine.link_name}, engine {chosen.engine}"
    )
    print("\n".join(text for text in (tables(lines), best_channels(lines), plots(lines)) if text))


def _pyplot() -> Any:
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        with opened(path) as file:
            file.write(text)


if __name__ == "__main__":
    sys.exit(main())
