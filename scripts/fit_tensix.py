#!/usr/bin/env python3
"""Fits the costs of chip ``wormhole`` and its link to published figures of raw links, and prints them.

Least squares on logarithms of simulated over published, over the rows of kind ``output`` that a bench knows. Rows that
are published with 5 %, or as a range of that width, count four times as much as the others. Bandwidth from
2 KiB on in one direction is left out while it searches: the line rate alone sets it. One parameter after the other
is moved by its step as long as that helps; when none does, all steps are halved. Nothing is fitted per row or size.
"""

import argparse
import json
import math

from launcher.bench.published import TO_REPRODUCE, Published, default_files, read_published
from launcher.bench.validation import Verdict, validate

LINK, CHIP = "links.tenstorrent_100g.params", "system.chip_params"
KEYS = {
    "latency_ns": f"{LINK}.latency_ns",
    "copy_GBps": f"{CHIP}.ethernet.copy_GBps",
    "eth_command_ns": f"{CHIP}.risc.eth_command_ns",
    "noc_command_ns": f"{CHIP}.risc.noc_command_ns",
    "timer_ns": f"{CHIP}.risc.timer_ns",
    "sender_visit_ns": f"{CHIP}.data_mover.sender_visit_ns",
    "receiver_visit_ns": f"{CHIP}.data_mover.receiver_visit_ns",
}
STARTS = (422.0, 14.5, 20.0, 45.0, 40.0, 27.0, 0.0)
STEPS = (6.0, 1.0, 3.0, 3.0, 3.0, 4.0, 2.0)
TIGHT = ("~5%", "530-620")
LINE_RATE_BYTES = 2048
Values = dict[str, float]


def weight(row: Published) -> float:
    """How much a row counts."""
    return 4.0 if row.tolerance in TIGHT else 1.0


def is_searched(row: Published) -> bool:
    """Whether a row says anything about the costs."""
    is_line_rate = row.metric == "GB/s" and "bi_dir" not in row.test and (row.nbytes or 0) >= LINE_RATE_BYTES
    return row.kind == TO_REPRODUCE and not is_line_rate


def cost(values: Values, rows: list[Published]) -> tuple[float, list[Verdict]]:
    """The weighted sum of squares, and the rows."""
    settings = tuple(f"{KEYS[name]}={value}" for name, value in values.items())
    verdicts = validate(rows, {"wormhole": settings})
    logs = [(weight(each.row), math.log(each.error + 1)) for each in verdicts if each.error is not None]
    return sum(factor * log * log for factor, log in logs), verdicts


def fit(start: Values, steps: Values, rows: list[Published], rounds: int) -> tuple[Values, float]:
    """The values that were found, and their cost."""
    values, steps = dict(start), dict(steps)
    best, _ = cost(values, rows)
    for _ in range(rounds):
        has_moved = False
        for name in values:
            for sign in (1, -1):
                while True:
                    tried = {**values, name: round(values[name] + sign * steps[name], 2)}
                    found = cost(tried, rows)[0] if tried[name] >= 0 else math.inf
                    if found >= best:
                        break
                    values, best, has_moved = tried, found, True
                    print(f"{best:.4f} {json.dumps(values)}", flush=True)
        if not has_moved:
            steps = {name: step / 2 for name, step in steps.items()}
    return values, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4, help="over all parameters (4)")
    parser.add_argument("--start", type=json.loads, default={}, help="values to start from, as JSON")
    chosen = parser.parse_args()
    rows = [row for path in default_files() for row in read_published(path) if is_searched(row)]
    start = {**dict(zip(KEYS, STARTS, strict=True)), **chosen.start}
    values, best = fit(start, dict(zip(KEYS, STEPS, strict=True)), rows, chosen.rounds)
    print(f"{best:.4f} {json.dumps(values)}")


if __name__ == "__main__":
    main()
