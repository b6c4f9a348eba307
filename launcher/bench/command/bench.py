"""``ahbm-bench`` runs microbenchmarks on simulated chips, and shows what was published of the hardware beside."""

import importlib
import io
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher.bench.base import BENCHES, Case, request_of
from launcher.bench.command.options import machine_of, parse_bench
from launcher.bench.published import Published, default_files, read_published
from launcher.bench.report import Line, best_channels, csv_text, picture, plots, tables
from launcher.commands.command import run_command, write_file
from launcher.isolation.destination import STANDARD_OUTPUT
from launcher.result.document import check_files
from sipsim import VERSION


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns 0, or the exit code of a mistake or of a run that fails."""
    return run_command("ahbm-bench", lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(argv: list[str]) -> None:
    chosen = parse_bench(argv)
    check_files({"--json": chosen.json, "--csv": chosen.csv, "--plot": chosen.plot}, {"--csv-in": chosen.csv_in})
    lines: list[Line] = []
    try:
        for line in _lines(chosen):
            lines.append(line)  # noqa: PERF402 - what is there when a signal comes
    except KeyboardInterrupt:
        _show(chosen, lines, "interrupted")
        raise
    _show(chosen, lines, "ok")


def _lines(chosen: Namespace) -> Iterator[Line]:
    rows = _published(chosen.csv_in)
    bench, machine = BENCHES.get(chosen.bench), machine_of(chosen)
    bench.check(chosen, machine)
    known = _claimed(chosen, rows)
    for case in bench.cases(chosen):
        for figure in bench.measure(case, machine):
            row = known.get(_key(case, figure.nbytes, figure.statistic, figure.metric))
            yield Line(machine.architecture, case, figure, row)


def _claimed(chosen: Namespace, rows: list[Published]) -> dict[tuple[object, ...], Published]:
    """The rows that the bench claims for the chip, by case without sizes, and figure."""
    known: dict[tuple[object, ...], Published] = {}
    for row in rows:
        request = request_of(row)
        if (request.bench, request.chip) == (chosen.bench, chosen.chip) and request.claim is not None:
            claim = request.claim
            known.setdefault(_key(claim.case, claim.nbytes, claim.statistic, row.metric), row)
    return known


def _key(case: Case, nbytes: int, statistic: str, metric: str) -> tuple[object, ...]:
    return replace(case, sizes=()), nbytes, statistic, metric


def _published(file: Path | None) -> list[Published]:
    """Published figures of a file, or of those that come with the project; rows that cannot be read are named."""
    rows: list[Published] = []
    for path in [file] if file else default_files():
        found = read_published(path)
        left_out = [row for row in found if row.problem]
        if left_out:
            more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
            what = f"row {left_out[0].id!r} is left out{more}: {left_out[0].problem}; correct it"
            print(f"ahbm-bench: {path}: {what}", file=sys.stderr)
        rows += found
    return rows


def _show(chosen: Namespace, lines: list[Line], status: str) -> None:
    """Print and write figures: all of them, or with a ``status`` of ``interrupted`` those of the cases that ended."""
    if STANDARD_OUTPUT not in (chosen.json, chosen.csv):
        _print(chosen, lines, status)
    document: dict[str, Any] = {
        "version": VERSION,
        "bench": chosen.bench,
        "chip": chosen.chip,
        "status": status,
        "figures": [line.document() for line in lines],
    }
    write_file(chosen.json, json.dumps(document, indent=1) + "\n")
    write_file(chosen.csv, csv_text(lines))
    if chosen.plot is not None and lines:
        drawn = io.BytesIO()
        picture(lines, _pyplot()).savefig(drawn, format="png")
        write_file(chosen.plot, drawn.getvalue())


def _print(chosen: Namespace, lines: list[Line], status: str) -> None:
    machine = machine_of(chosen)
    print(
        f"# ahbm-bench {VERSION}: {chosen.bench}, chip {chosen.chip}, link {machine.link_name}, engine {chosen.engine}"
    )
    print("\n".join(text for text in (tables(lines), best_channels(lines), plots(lines)) if text))
    if status != "ok":
        print(f"# {status}: partial result, of the cases that have ended")


def _pyplot() -> Any:
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


if __name__ == "__main__":
    sys.exit(main())
