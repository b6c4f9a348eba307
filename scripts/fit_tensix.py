#!/usr/bin/env python3
"""Fits the costs of a kind of chip and its link to published figures, and prints them.

The cost of values is a robust loss of logarithms of simulated over published: of small errors their square, of great
ones their size, so that a row which the model cannot meet does not pull. Rows that are published with 5 %, or as a
range of that width, count four times as much as the others; a row whose case fails counts as ten times too great.
Bandwidth of raw links from 2 KiB on in one direction is left out while it searches: the line rate alone sets it. One
parameter after the other is moved by its step as long as that helps; when none does, all steps are halved. Nothing is
fitted per row or size.

``--holdout K``: the tests, by name, go to K folds in turn; each fold is judged with values that were fitted to the
others.
"""

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from launcher.bench.benches.fabric_bandwidth import FabricBandwidth
from launcher.bench.benches.fabric_latency import FabricLatency
from launcher.bench.machine import LINKS
from launcher.bench.mechanisms import RAW_LINKS
from launcher.bench.published import Published, default_files, read_published
from launcher.bench.runner import Runner
from launcher.bench.tables import percent
from launcher.bench.validation import CHIPS, NEAR, Verdict, request_of, run_of, validate
from launcher.run import arguments

LINK, CHIP = "links.tenstorrent_100g.params", "system.chip_params"
COSTS = f"{CHIP}.fabric.costs"
FABRIC = (*FabricBandwidth.families, *FabricLatency.families)
TIGHT = ("~5%", "530-620")
LINE_RATE_BYTES = 2048
FAILED = math.log(10)
BATCH = 16
"""Runs, of which all are done before a try can end."""


class Parameter(NamedTuple):
    """``families``: those that it has an effect on; all if there are none."""

    name: str
    chip: str
    key: str
    start: float
    step: float
    families: tuple[str, ...] = ()

    def setting(self, value: float) -> str:
        """As of ``--set``; what is whole is written so, for keys that take nothing else."""
        return f"{self.key}={int(value) if float(value).is_integer() else value}"


PARAMETERS = (
    Parameter("latency_ns", "wormhole", f"{LINK}.latency_ns", 422.0, 6.0),
    Parameter("copy_GBps", "wormhole", f"{CHIP}.ethernet.copy_GBps", 14.5, 1.0),
    Parameter("eth_command_ns", "wormhole", f"{CHIP}.risc.eth_command_ns", 20.0, 3.0),
    Parameter("noc_command_ns", "wormhole", f"{CHIP}.risc.noc_command_ns", 45.0, 3.0),
    Parameter("timer_ns", "wormhole", f"{CHIP}.risc.timer_ns", 40.0, 3.0, RAW_LINKS),
    Parameter("sender_visit_ns", "wormhole", f"{CHIP}.data_mover.sender_visit_ns", 27.0, 4.0, RAW_LINKS),
    Parameter("round_ns", "wormhole", f"{COSTS}.round_ns", 120.0, 10.0, FABRIC),
    Parameter("send_ns", "wormhole", f"{COSTS}.send_ns", 20.0, 5.0, FABRIC),
    Parameter("sent_ns", "wormhole", f"{COSTS}.sent_ns", 30.0, 5.0, FABRIC),
    Parameter("forward_ns", "wormhole", f"{COSTS}.forward_ns", 35.0, 5.0, FABRIC),
    Parameter("stored_bytes", "wormhole", f"{CHIP}.fabric.copy_bytes", 512.0, 128.0, FABRIC),
    Parameter("receiver_visit_ns", "wormhole", f"{CHIP}.data_mover.receiver_visit_ns", 0.0, 2.0, RAW_LINKS),
)
"""All that can be fitted, a line each."""
Values = dict[str, float]
Losses = dict[str, float]
"""By row."""


def weight(row: Published) -> float:
    """How much a row counts."""
    return 4.0 if row.tolerance in TIGHT else 1.0


def is_searched(row: Published) -> bool:
    """Whether a bench claims a row, and it says anything about the costs."""
    is_one_way = row.family in RAW_LINKS and row.metric == "GB/s" and "bi_dir" not in row.test
    return request_of(row).claim is not None and not (is_one_way and (row.nbytes or 0) >= LINE_RATE_BYTES)


def loss(verdict: Verdict) -> float:
    """Of a row: the square of small logarithms, and twice the size of great ones in units of ``NEAR``."""
    error = verdict.error
    log = FAILED if error is None or error <= -1 else math.log(error + 1)
    return weight(verdict.row) * 2 * NEAR**2 * (math.sqrt(1 + (log / NEAR) ** 2) - 1)


class Search:
    """The best values so far of the parameters of a chip, over rows of that chip."""

    def __init__(self, parameters: Sequence[Parameter], rows: Iterable[Published], runner: Runner) -> None:
        self._parameters = {each.name: each for each in parameters}
        self._rows = list(rows)
        self._runner = runner
        self._losses: Losses = {}

    def verdicts(self, values: Values, rows: Iterable[Published]) -> list[Verdict]:
        """The rows, simulated with these values."""
        chips = {each.chip for each in self._parameters.values()}
        settings = {
            chip: tuple(self._parameters[name].setting(value) for name, value in values.items()) for chip in chips
        }
        return validate(rows, settings, self._runner)

    def fit(self, values: Values, rounds: int) -> tuple[Values, float]:
        """The values that were found from these on, and their cost."""
        self._losses = {each.row.id: loss(each) for each in self.verdicts(values, self._rows)}
        steps = {name: self._parameters[name].step for name in values}
        for _ in range(rounds):
            has_moved = False
            for name in values:
                for sign in (1, -1):
                    while (moved := self._moved(values, name, sign * steps[name])) is not None:
                        values, has_moved = moved, True
                        print(f"{sum(self._losses.values()):.4f} {json.dumps(values)}", flush=True)
            if not has_moved:
                steps = {name: step / 2 for name, step in steps.items()}
        return values, sum(self._losses.values())

    def _moved(self, values: Values, name: str, step: float) -> Values | None:
        """The values with one moved, if that costs less; rows that it has no effect on keep their losses."""
        tried = {**values, name: round(values[name] + step, 3)}
        families = self._parameters[name].families
        rows = [row for row in self._rows if not families or row.family in families]
        losses = self._cheaper(tried, rows) if tried[name] >= 0 and rows else None
        if losses is None:
            return None
        self._losses.update(losses)
        return tried

    def _cheaper(self, tried: Values, rows: list[Published]) -> Losses | None:
        """The losses of rows, if they are less than before. The worst runs come first, so that a bad try ends early."""
        runs: dict[object, list[Published]] = {}
        for row in rows:
            runs.setdefault(run_of(request_of(row)), []).append(row)
        worst = sorted(runs.values(), key=lambda run: -max(self._losses[row.id] for row in run))
        before, found = sum(self._losses[row.id] for row in rows), Losses()
        for first in range(0, len(worst), BATCH):
            batch = [row for run in worst[first : first + BATCH] for row in run]
            found.update((each.row.id, loss(each)) for each in self.verdicts(tried, batch))
            if sum(found.values()) >= before:
                return None
        return found


def folds(rows: Sequence[Published], count: int) -> list[list[Published]]:
    """The rows in ``count`` folds; all rows of a test are in one, and tests go to folds in order of name."""
    tests = sorted({row.test for row in rows})
    return [[row for row in rows if tests.index(row.test) % count == fold] for fold in range(count)]


def hold_out(parameters: Sequence[Parameter], start: Values, chosen: argparse.Namespace, rows: list[Published],
             runner: Runner) -> list[Verdict]:  # fmt: skip
    """The verdicts on all rows, each with values that were fitted to the tests of the other folds."""
    verdicts = []
    for number, fold in enumerate(folds(rows, chosen.holdout), 1):
        search = Search(parameters, [row for row in rows if row not in fold and is_searched(row)], runner)
        values, _ = search.fit(start, chosen.rounds)
        judged = search.verdicts(values, fold)
        near = sum(each.error is not None and abs(each.error) <= NEAR for each in judged)
        print(f"fold {number}: {near} of {len(judged)} rows within {percent(NEAR)}, {json.dumps(values)}", flush=True)
        verdicts += judged
    return verdicts


def flags() -> argparse.ArgumentParser:
    """The command line."""
    names = {"type": lambda text: text.split(","), "metavar": "NAME[,NAME...]"}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chip", choices=sorted(LINKS), default="wormhole", help="whose parameters (wormhole)")
    parser.add_argument("--family", **names, help="rows of these families alone")
    parser.add_argument("--parameters", **names, help="these alone")
    parser.add_argument("--rounds", type=arguments.IntRange(0), default=4, help="over all parameters (4)")
    parser.add_argument("--start", type=json.loads, default={}, help="values to start from, as JSON")
    parser.add_argument("--holdout", type=arguments.IntRange(2), metavar="K", help="judge tests left out, in K folds")
    parser.add_argument("--jobs", type=arguments.IntRange(1), metavar="N", help="processes; one a core, if not given")
    return parser


def main() -> None:
    chosen = flags().parse_args()
    parameters = [
        each
        for each in PARAMETERS
        if each.chip == chosen.chip and (not chosen.parameters or each.name in chosen.parameters)
    ]
    start = {each.name: each.start for each in parameters}
    unknown = [name for name in [*(chosen.parameters or ()), *chosen.start] if name not in start]
    if unknown:
        raise SystemExit(f"fit_tensix.py: no parameter {unknown[0]!r} of {chosen.chip}: {', '.join(start)}")
    start.update(chosen.start)
    rows = [
        row
        for path in default_files()
        for row in read_published(path)
        if CHIPS.get(row.architecture) == chosen.chip and (not chosen.family or row.family in chosen.family)
    ]
    rows = [row for row in rows if request_of(row).claim is not None]
    with Runner(chosen.jobs) as runner:
        if chosen.holdout:
            verdicts = hold_out(parameters, start, chosen, rows, runner)
            near = sum(each.error is not None and abs(each.error) <= NEAR for each in verdicts)
            print(f"held out: {near} of {len(verdicts)} rows within {percent(NEAR)}")
        else:
            values, best = Search(parameters, filter(is_searched, rows), runner).fit(start, chosen.rounds)
            print(f"{best:.4f} {json.dumps(values)}")


if __name__ == "__main__":
    main()
