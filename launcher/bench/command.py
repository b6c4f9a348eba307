"""Command ``ahbm-bench``: microbenchmarks on simulated chips, next to published figures of the hardware."""

import argparse
import importlib
import importlib.util
import io
import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench, Case, case_of
from launcher.bench.machine import ARCHITECTURES, LINKS, MOST_BYTES, MOST_CHANNELS, WORD, Machine
from launcher.bench.published import Published, default_files, read_published
from launcher.bench.report import ResultRow, best_channels, csv_text, picture, plots, tables
from launcher.commands import run_command, write_file
from launcher.isolation import STANDARD_OUTPUT
from launcher.options import ENGINES, USAGE_EXIT, Parser, ParserExit, Version, closing
from launcher.result.document import check_files
from sipsim import VERSION
from sipsim.core.registry import unknown_name

MOST_SAMPLES = 100_000
EXAMPLES = (
    "ahbm-bench eth-ping --sizes 16,1K --worker none",
    "ahbm-bench fabric-latency --hops 3 --command fused --samples 4",
    "ahbm-bench ccl --op all_reduce --topologies line,ring --chips 4,8 --total 64K",
)
DIRECTIONS, WORKERS = ("uni", "bi"), ("none", "ids", "flush")


def parse_bench(argv: list[str]) -> argparse.Namespace:
    """Parse the command line of ``ahbm-bench``. Attribute ``bench`` of the result is the bench's name.

    Raises:
        ParserExit: for ``--help``, ``--version`` and every mistake.
    """
    names = BENCHES.names()
    listing = "\n".join(f"  {name:<20} {BENCHES.get(name).about}" for name in names)
    if not argv:
        raise ParserExit(f"ahbm-bench: give a bench: {', '.join(names)}; see ahbm-bench --help", USAGE_EXIT)
    if argv[0] in ("-h", "--help"):
        end = closing("docs/bench.md", *EXAMPLES)
        raise ParserExit(
            f"usage: ahbm-bench BENCH [options]\n\n{listing}\n\nahbm-bench BENCH --help: its options\n\n{end}", 0
        )
    parser = Parser(prog="ahbm-bench", add_help=False, allow_abbrev=False)
    if argv[0] == "--version":
        parser.add_argument("--version", action=Version, nargs=0)
        parser.parse_args(argv)
    if argv[0] not in names:
        raise ParserExit(f"ahbm-bench: {unknown_name('bench', argv[0], names)}", USAGE_EXIT)
    return _parsed(argv[0], argv[1:])


def machine_of(chosen: argparse.Namespace) -> Machine:
    """Return the chips that the flags describe."""
    return Machine(
        chip=chosen.chip,
        link=chosen.link,
        settings=tuple(chosen.settings),
        engine=chosen.engine,
        samples=chosen.samples,
    )


def _parsed(name: str, argv: list[str]) -> argparse.Namespace:
    bench = BENCHES.get(name)
    end = closing("docs/bench.md", *EXAMPLES)
    parser = Parser(prog=f"ahbm-bench {name}", description=bench.about, allow_abbrev=False, closing=end)
    _add_chips(parser.add_argument_group("the chips"))
    group = parser.add_argument_group("the bench")
    _add_sweeps(group, bench)
    group.add_argument(
        "--samples",
        type=flag_types.IntRange(1, MOST_SAMPLES),
        metavar="N",
        help="samples per figure (default: as many as the published one has)",
    )
    bench.add_flags(group)
    _add_output(parser.add_argument_group("the output"))
    chosen = parser.parse_args(argv)
    problem = _problem(chosen)
    if problem:
        raise ParserExit(f"{parser.prog}: {problem}", USAGE_EXIT)
    chosen.bench = name
    if bench.sizes:
        chosen.sizes = sorted(set(chosen.sizes))
    return chosen


def _add_sweeps(group: "argparse._ArgumentGroup", bench: Bench[Any]) -> None:
    counts, sizes = flag_types.list_of(flag_types.IntRange(1, MOST_CHANNELS)), flag_types.list_of(_packet)
    sweeps: tuple[tuple[str, Any, tuple[int, ...], str, str], ...] = (
        ("--sizes", sizes, bench.sizes, "B[,B...]", "sizes of packets"),
        ("--channels", counts, bench.channels, "N[,N...]", "buffers, or packets in flight"),
    )
    for flag, kind, values, metavar, what in sweeps:
        if values:
            shown = ",".join(map(str, values))
            group.add_argument(flag, type=kind, default=list(values), metavar=metavar, help=f"{what} ({shown})")


def _add_chips(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--chip", choices=sorted(LINKS), default="wormhole", help="type of the chips (wormhole)")
    group.add_argument("--link", metavar="NAME", help="preset of the links between chips (default: the chip's)")
    group.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="KEY=VALUE", help="change one config value"
    )
    engines = [name for name in ("inproc", "local") if name in ENGINES.names()]
    group.add_argument(
        "--engine", choices=engines, default="inproc", help="inproc: one process for all; local: one per chip (inproc)"
    )


def _add_output(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--csv-in", type=Path, metavar="FILE", help="published figures (default: the project's)")
    group.add_argument("--json", type=flag_types.output, metavar="FILE", help="write all figures as JSON")
    group.add_argument("--csv", type=flag_types.output, metavar="FILE", help="write the table as CSV")
    group.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures as PNG, with matplotlib")
    group.add_argument("--version", action=Version, nargs=0, help="print the version")


def _packet(text: str) -> int:
    nbytes = flag_types.size(text)
    if nbytes % WORD or nbytes > MOST_BYTES:
        what = f"{text!r} must be a multiple of {WORD} bytes, the word of an Ethernet command, and at most {MOST_BYTES}"
        raise argparse.ArgumentTypeError(what)
    return nbytes


def _problem(chosen: argparse.Namespace) -> str:
    for flag, allowed in (("directions", DIRECTIONS), ("worker", WORKERS)):
        for name in getattr(chosen, flag, ()):
            if name not in allowed:
                return f"--{flag}: {unknown_name(flag, name, allowed)}"
    if chosen.plot == STANDARD_OUTPUT:
        return "--plot -: standard output has the tables; name a file"
    if chosen.plot is not None and importlib.util.find_spec("matplotlib") is None:
        return "--plot: matplotlib is not installed; install it, or use the printed plot"
    return ""


def main(argv: list[str] | None = None) -> int:
    """Run the command line. Return 0, or the exit code for a wrong argument or a failed run."""
    return run_command("ahbm-bench", lambda: _run(sys.argv[1:] if argv is None else argv))


def _run(argv: list[str]) -> None:
    chosen = parse_bench(argv)
    check_files({"--json": chosen.json, "--csv": chosen.csv, "--plot": chosen.plot}, {"--csv-in": chosen.csv_in})
    rows: list[ResultRow] = []
    try:
        for row in _rows(chosen):
            rows.append(row)  # noqa: PERF402 - a signal must leave the rows so far
    except KeyboardInterrupt:
        _show(chosen, rows, "interrupted")
        raise
    _show(chosen, rows, "ok")


def _rows(chosen: Namespace) -> Iterator[ResultRow]:
    by_case = _published_by_case(chosen)
    bench, machine = BENCHES.get(chosen.bench), machine_of(chosen)
    bench.check(chosen, machine)
    for case in bench.cases(chosen):
        for figure in bench.measure(case, machine):
            published = by_case.get(_key(case, figure.nbytes, figure.statistic, figure.metric))
            yield ResultRow(machine.architecture, case, figure, published)


def _published_by_case(chosen: Namespace) -> dict[tuple[object, ...], Published]:
    """Return the published rows of the chosen bench and chip, by :func:`_key`."""
    by_case: dict[tuple[object, ...], Published] = {}
    for row, bench, case in _published(chosen.csv_in):
        if (bench, row.architecture) == (chosen.bench, ARCHITECTURES[chosen.chip]):
            by_case.setdefault(_key(case, case.sizes[0], row.statistic, row.metric), row)
    return by_case


def _key(case: Case, nbytes: int, statistic: str, metric: str) -> tuple[object, ...]:
    return replace(case, sizes=()), nbytes, statistic, metric


def _published(file: Path | None) -> list[tuple[Published, str, Case]]:
    """Return the published rows of ``file`` that have a case, with bench and case; None selects the project's files.

    A line on standard error names rows that cannot be read.
    """
    rows: list[tuple[Published, str, Case]] = []
    for path in [file] if file else default_files():
        left_out: list[tuple[str, str]] = []
        for row in read_published(path, with_cases=True):
            try:
                if row.problem:
                    left_out.append((row.id, row.problem))
                elif row.case:
                    rows.append((row, *case_of(row.case)))
            except ValueError as error:
                left_out.append((row.id, str(error)))
        if left_out:
            more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
            what = f"row {left_out[0][0]!r} is left out{more}: {left_out[0][1]}; correct it"
            print(f"ahbm-bench: {path}: {what}", file=sys.stderr)
    return rows


def _show(chosen: Namespace, rows: list[ResultRow], status: str) -> None:
    """Print and write the figures. If ``status`` is ``interrupted``, only completed cases have figures."""
    if STANDARD_OUTPUT not in (chosen.json, chosen.csv):
        _print(chosen, rows, status)
    document: dict[str, Any] = {
        "version": VERSION,
        "bench": chosen.bench,
        "chip": chosen.chip,
        "status": status,
        "figures": [row.document() for row in rows],
    }
    write_file(chosen.json, json.dumps(document, indent=1) + "\n")
    write_file(chosen.csv, csv_text(rows))
    if chosen.plot is not None and rows:
        png = io.BytesIO()
        picture(rows, _pyplot()).savefig(png, format="png")
        write_file(chosen.plot, png.getvalue())


def _print(chosen: Namespace, rows: list[ResultRow], status: str) -> None:
    machine = machine_of(chosen)
    print(
        f"# ahbm-bench {VERSION}: {chosen.bench}, chip {chosen.chip}, link {machine.link_name}, engine {chosen.engine}"
    )
    print("\n".join(text for text in (tables(rows), best_channels(rows), plots(rows)) if text))
    if status != "ok":
        print(f"# {status}: partial result, of the completed cases")


def _pyplot() -> Any:
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    return importlib.import_module("matplotlib.pyplot")


if __name__ == "__main__":
    sys.exit(main())
