"""The flags of ``ahbm-bench``: those of every bench, and which of them suit each other."""

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from launcher import flag_types
from launcher.bench.base import BENCHES, Bench
from launcher.bench.machine import LINKS, MOST_BYTES, MOST_CHANNELS, WORD, Machine
from launcher.engines import ENGINES
from launcher.isolation.destination import STANDARD_OUTPUT
from launcher.options.options import USAGE_EXIT, Parser, Usage, Version, closing
from sipsim.core.registry.registry import unknown_name

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
