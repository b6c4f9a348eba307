#!/usr/bin/env python3
"""Fits the costs of the Tensix chips to published figures, and judges the fit on tests that it has not seen.

A fit (``scripts/tenstorrent/fit.py``) begins with neutral values, looks at a few cheap rows for each parameter and
moves one after the other. Nothing is fitted per row or size, and no file is changed.

``--holdout K``: whole tests are left out, a K-th of them at a time, and simulated with what the others ask for.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from tenstorrent import report as tables
from tenstorrent.compare import Runner, summary
from tenstorrent.fit import STARTS, Fit, Fold, Values, by_architecture, document, hold_out, in_file

from launcher import flag_types
from launcher.bench.machine import ARCHITECTURES, LINKS
from launcher.bench.published import Published, default_files, read_published
from sipsim.core.errors import ConfigError

PROBES = 3


def chosen_rows(chosen: argparse.Namespace) -> list[Published]:
    """The rows of the project's files that the flags ask for.

    Raises:
        ConfigError: for a family that no row has.
    """
    rows = [row for path in default_files() for row in read_published(path)]
    missing = [name for name in chosen.family if name not in {row.family for row in rows}]
    if missing:
        raise ConfigError(f"--family: no row has the family {missing[0]!r}")
    architectures = [ARCHITECTURES[chip] for chip in chosen.chip]
    return [
        row for row in rows if row.architecture in architectures and (not chosen.family or row.family in chosen.family)
    ]


def shown_values(values: Values) -> str:
    """A line a parameter: where it began, what was found, and what the chip's file has."""
    lines = [f"{'parameter':<52} {'neutral':>9} {'fitted':>9} {'file':>9}"]
    lines += [f"{name:<52} {STARTS[name]:>9g} {value:>9g} {in_file(name):>9g}" for name, value in values.items()]
    return "\n".join(lines)


def spent(found: Fit, started_s: float) -> str:
    """What a fit has cost."""
    return f"{found.evaluations} evaluations, {found.runs} runs; {time.monotonic() - started_s:.0f} s so far"


def held_out(chosen: argparse.Namespace, names: list[str], rows: list[Published], runner: Runner) -> dict[str, Any]:
    """Judge all folds, and print the result of each fold as soon as it is known."""
    started_s, found = time.monotonic(), list[Fold]()
    for number, fold in enumerate(hold_out(names, rows, chosen.holdout, runner, chosen.probes, chosen.sweeps), 1):
        found.append(fold)
        print(f"fold {number} of {chosen.holdout}: {len(fold.tests)} tests left out; {spent(fold.fit, started_s)}")
        print(shown_values(fold.fit.values))
        print(f"left out: {tables.line_of(summary(fold.verdicts))}\n", flush=True)
    for name, verdicts in by_architecture([each for fold in found for each in fold.verdicts]).items():
        print(f"held out, {name}: {tables.line_of(summary(verdicts))}")
    return document(found)


def fitted(chosen: argparse.Namespace, names: list[str], rows: list[Published], runner: Runner) -> dict[str, Any]:
    """Fit to all rows."""
    started_s, found = time.monotonic(), Fit(names, rows, runner).run(chosen.probes, chosen.sweeps)
    print(shown_values(found.values))
    print(spent(found, started_s))
    return found.document()


def flags() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chip", choices=sorted(LINKS), action="append", help="whose parameters and rows (all)")
    parser.add_argument(
        "--family", type=flag_types.names, default=(), metavar="NAME[,NAME...]", help="rows of these families alone"
    )
    parser.add_argument(
        "--holdout", type=flag_types.IntRange(2, 1000), metavar="K", help="judge tests left out, in K folds"
    )
    parser.add_argument(
        "--sweeps", type=flag_types.IntRange(1, 1000), default=1, metavar="N", help="of doubling and halving all (1)"
    )
    parser.add_argument(
        "--probes",
        type=flag_types.IntRange(0, 1000),
        default=PROBES,
        metavar="N",
        help=f"of a golden section ({PROBES})",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write values, and the held-out rows")
    parser.add_argument(
        "--jobs", type=flag_types.IntRange(1, 1024), metavar="N", help="processes; one a core, if not given"
    )
    return parser


def main() -> int:
    chosen = flags().parse_args()
    chosen.chip = [chip for chip in LINKS if not chosen.chip or chip in chosen.chip]
    try:
        rows = chosen_rows(chosen)
    except ConfigError as error:
        print(f"fit_tensix.py: {error}", file=sys.stderr)
        return error.exit_code
    names = [name for name in STARTS if name.split(":")[0] in chosen.chip]
    with Runner(chosen.jobs) as runner:
        result = (held_out if chosen.holdout else fitted)(chosen, names, rows, runner)
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
