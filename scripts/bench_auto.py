#!/usr/bin/env python3
"""How good the algorithms are that ``auto`` chooses: a grid of collectives, systems and sizes, all algorithms timed.

For each case the time of the algorithm that ``auto`` chose is set against the best of all. The claim: within 15 % of
the best in 90 % of the cases. SIPs are of 2x2 cubes, so that the grid ends in some 15 minutes on two cores; ``--quick``
takes a part of it. Cases run in processes of their own, in an order that does not matter.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benches.rows import group_collectives, rows

SMALL = ("--engine", "inproc", "--no-verify-data", "--set", "sip.cube_mesh={w: 2, h: 2}", "-w", "1")
SYSTEMS = (
    ("--sips", "2"),
    ("--sips", "4"),
    ("--sips", "4", "--topology", "torus_2d"),
    ("--sips", "6", "--topology", "torus_2d", "--shape", "3x2"),
    ("--sips", "4", "--topology", "mesh_2d_no_wrap", "--shape", "4x1"),
    ("--sips", "5"),
    ("--sips", "6", "--topology", "mesh_2d_no_wrap", "--shape", "2x3"),
    ("--sips", "8"),
)
SIZES = ("1K", "8K", "48K", "256K", "768K")
NEAR, SHARE = 1.15, 0.9


class Case(NamedTuple):
    """A collective on a system with a size, and the times of all algorithms in ns. ``chosen``: by ``auto``."""

    system: str
    collective: str
    nbytes: int
    times_ns: dict[str, float]
    chosen: str

    @property
    def best(self) -> str:
        return min(self.times_ns, key=lambda name: (self.times_ns[name], name))

    @property
    def ratio(self) -> float:
        return self.times_ns[self.chosen] / self.times_ns[self.best]


def cases(system: tuple[str, ...], collective: str, sizes: tuple[str, ...]) -> list[Case]:
    """A case for each size."""
    flags = (*system, "--collective", collective, "--bytes", ",".join(sizes), *SMALL)
    every, chosen = (rows("bench_auto", [*flags, "--algorithm", name]) for name in ("all", "auto"))
    found = []
    for own in chosen:
        times_ns = {row["algorithm"]: row["time_ns"] for row in every if row["bytes"] == own["bytes"]}
        found.append(Case(" ".join(system), collective, own["bytes"], times_ns, own["algorithm"]))
    return found


def line(case: Case) -> str:
    """Of the table; a mark at the end where the choice is not near the best."""
    chosen_us, best_us = case.times_ns[case.chosen] / 1000, case.times_ns[case.best] / 1000
    return (
        f"{case.system:<46} {case.collective:<15} {case.nbytes:>8} {case.chosen:>20} {chosen_us:>9.3f} "
        f"{case.best:>20} {best_us:>9.3f} {case.ratio:>6.2f}{'' if case.ratio <= NEAR else ' *'}"
    )


def main() -> int:
    """Run the grid; 1 if the claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a part of the grid, in some two minutes")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times")
    chosen = parser.parse_args()
    systems, sizes = ((SYSTEMS[1], SYSTEMS[3], SYSTEMS[5]), SIZES[:4]) if chosen.quick else (SYSTEMS, SIZES)
    asked = [(system, collective) for system in systems for collective in group_collectives()]
    found: list[Case] = []
    print(f"{'system':<46} {'collective':<15} {'bytes':>8} {'auto':>20} {'us':>9} {'best':>20} {'us':>9} {'ratio':>6}")
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for some in pool.map(lambda each: cases(*each, sizes), asked):
            found += some
            for case in some:
                print(line(case), flush=True)
            if chosen.json is not None:
                chosen.json.write_text(json.dumps([case._asdict() for case in found], indent=1) + "\n")
    near = [case for case in found if case.ratio <= NEAR]
    share = len(near) / len(found)
    mean = sum(case.ratio for case in found) / len(found)
    print(f"{len(near)} of {len(found)} cases within 15 % of the best ({share:.1%}); mean ratio {mean:.3f}")
    return 0 if share >= SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
