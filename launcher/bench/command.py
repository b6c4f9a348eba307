"""The command ``ahbm-bench``: microbenchmarks on simulated chips, beside published figures of the hardware."""

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
from launcher.bench.report import Line, best_channels, csv_text, picture, plots, tables
from launcher.commands import run_command, write_file
from launcher.isolation import STANDARD_OUTPUT
from launcher.options import ENGINES, USAGE_EXIT, Parser, Usage, Version, closing
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
    """The command line of ``ahbm-bench``; ``bench``: the name of the bench.

    Raises:
        Usage: for ``--help``, ``--version`` and every mistake.
    """
    names = BENCHES.names()
    listing = "\n".join(f"  {name:<20} {BENCHES.get(name).about}" for name in names)
    if not argv:
        raise Usage(f"ahbm-bench: which bench? {', '.join(names)}; see ahbm-bench --help", USAGE_EXIT)
    if argv[0] in ("-h", "--help"):
        end = closing("docs/bench.md", *EXAMPLES)
        raise Usage(
            f"usage: ahbm-bench BENCH [options]\n\n{listing}\n\nahbm-bench BENCH --help: its options\n\n{end}", 0
        )
    parser = Parser(prog="ahbm-bench", add_help=False, allow_abbrev=False)
    if argv[0] == "--version":
        parser.add_argument("--version", action=Version, nargs=0)
        parser.parse_args(argv)
    if argv[0] not in names:
        raise Usage(f"ahbm-bench: {unknown_name('bench', argv[0], names)}", USAGE_EXIT)
    return _parsed(argv[0], argv[1:])


def machine_of(chosen: argparse.Namespace) -> Machine:
    """The chips that the flags describe."""
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
        help="measured of each figure (as published)",
    )
    bench.add_flags(group)
    _add_output(parser.add_argument_group("the output"))
    chosen = parser.parse_args(argv)
    problem = _problem(chosen)
    if problem:
        raise Usage(f"{parser.prog}: {problem}", USAGE_EXIT)
    chosen.bench = name
    if bench.sizes:
        chosen.sizes = sorted(set(chosen.sizes))
    return chosen


def _add_sweeps(group: "argparse._ArgumentGroup", bench: Bench[Any]) -> None:
    counts, sizes = flag_types.list_of(flag_types.IntRange(1, MOST_CHANNELS)), flag_types.list_of(_packet)
    sweeps: tuple[tuple[str, Any, tuple[int, ...], str, str], ...] = (
        ("--sizes", sizes, bench.sizes, "B[,B...]", "of packets"),
        ("--channels", counts, bench.channels, "N[,N...]", "buffers, or packets at once"),
    )
    for flag, kind, values, metavar, what in sweeps:
        if values:
            shown = ",".join(map(str, values))
            group.add_argument(flag, type=kind, default=list(values), metavar=metavar, help=f"{what} ({shown})")


def _add_chips(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--chip", choices=sorted(LINKS), default="wormhole", help="their kind (wormhole)")
    group.add_argument("--link", metavar="NAME", help="preset of their links (the chip's own)")
    group.add_argument(
        "--set", action="append", default=[], dest="settings", metavar="KEY=VALUE", help="as of ahbm-launch"
    )
    engines = [name for name in ("inproc", "local") if name in ENGINES.names()]
    group.add_argument(
        "--engine", choices=engines, default="inproc", help="one process for all chips, or local: one each (inproc)"
    )


def _add_output(group: "argparse._ArgumentGroup") -> None:
    group.add_argument("--csv-in", type=Path, metavar="FILE", help="published figures (the project's)")
    group.add_argument("--json", type=flag_types.output, metavar="FILE", help="write all figures")
    group.add_argument("--csv", type=flag_types.output, metavar="FILE", help="write the table as CSV")
    group.add_argument("--plot", type=Path, metavar="FILE", help="draw as PNG, with matplotlib")
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
        return "--plot: matplotlib is not installed; install it, or use the plot that is printed"
    return ""


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
    known = _claimed(chosen)
    bench, machine = BENCHES.get(chosen.bench), machine_of(chosen)
    bench.check(chosen, machine)
    for case in bench.cases(chosen):
        for figure in bench.measure(case, machine):
            row = known.get(_key(case, figure.nbytes, figure.statistic, figure.metric))
            yield Line(machine.architecture, case, figure, row)


def _claimed(chosen: Namespace) -> dict[tuple[object, ...], Published]:
    """The published rows of the bench and the chip, by case without sizes, and figure."""
    known: dict[tuple[object, ...], Published] = {}
    for row, bench, case in _published(chosen.csv_in):
        if (bench, row.architecture) == (chosen.bench, ARCHITECTURES[chosen.chip]):
            known.setdefault(_key(case, case.sizes[0], row.statistic, row.metric), row)
    return known


def _key(case: Case, nbytes: int, statistic: str, metric: str) -> tuple[object, ...]:
    return replace(case, sizes=()), nbytes, statistic, metric


def _published(file: Path | None) -> list[tuple[Published, str, Case]]:
    """Published rows that have a case, each with its bench and case, of a file or of those that come with the project.

    Rows that cannot be read are named on standard error.
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
