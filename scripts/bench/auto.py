"""How good the algorithms are that ``auto`` chooses: a grid of collectives, systems and sizes, all algorithms timed.

For each case the time of the algorithm that ``auto`` chose is set against the best of all. The claim: within 15 % of
the best in 90 % of the cases. SIPs are of 2x2 cubes, so that the grid ends in some 15 minutes on two cores. Cases run
in processes of their own, in an order that does not matter.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sipsim.collectives.semantics import COLLECTIVES

from .kit import Flag, Table, launch

SMALL = ("--engine", "inproc", "--no-verify-data", "--set", "sip.cube_mesh={w: 2, h: 2}", "-w", "1")
SYSTEMS = (
    "--sips 2",
    "--sips 4",
    "--sips 4 --topology torus_2d",
    "--sips 6 --topology torus_2d --shape 3x2",
    "--sips 4 --topology mesh_2d_no_wrap --shape 4x1",
    "--sips 5",
    "--sips 6 --topology mesh_2d_no_wrap --shape 2x3",
    "--sips 8",
)
NEAR, SHARE = 1.15, 0.9
GROUP_COLLECTIVES = tuple(name for name in COLLECTIVES.names() if not COLLECTIVES.get(name).per_cube)
"""Those of the registry that schedules run."""
FLAGS = {
    "sizes": Flag(("1K", "8K", "48K", "256K", "768K"), ("8K",), "sizes of the grid"),
    "collective": Flag(GROUP_COLLECTIVES, ("all_reduce",), "collectives of the grid", GROUP_COLLECTIVES),
    "systems": Flag(len(SYSTEMS), 2, "only the first systems"),
    "jobs": Flag(2, 2, "runs at a time"),
}


def best_of(times_ns: dict[str, float]) -> str:
    """The algorithm with the least time."""
    return min(times_ns, key=lambda name: (times_ns[name], name))


def ratio_of(case: dict[str, Any]) -> float:
    """Of the time of the algorithm that was chosen to the best."""
    times_ns: dict[str, float] = case["times_ns"]
    return times_ns[case["chosen"]] / times_ns[best_of(times_ns)]


def cases(system: str, collective: str, sizes: tuple[str, ...]) -> list[dict[str, Any]]:
    """A case for each size: the times of all algorithms in ns, and which of them ``auto`` chose."""
    flags = (*system.split(), "--collective", collective, "--bytes", ",".join(sizes), *SMALL)
    every, chosen = (launch(*flags, "--algorithm", name)["runs"] for name in ("all", "auto"))
    found = []
    for own in chosen:
        times_ns = {row["algorithm"]: row["time_ns"] for row in every if row["bytes"] == own["bytes"]}
        about = {"system": system, "collective": collective, "nbytes": own["bytes"]}
        found.append({**about, "times_ns": times_ns, "chosen": own["algorithm"]})
    return found


def measure(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the grid; a mark at the end of a line where the choice is not near the best."""
    asked = [(system, name) for system in SYSTEMS[: chosen.systems] for name in chosen.collective]
    found: list[dict[str, Any]] = []
    table = Table("system:<47", "collective:<15", "bytes:8", "auto:>20", "us:9.3f", "best:>20", "us:9.3f", "ratio:6.2f")
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for some in pool.map(lambda each: cases(*each, chosen.sizes), asked):
            found += some
            for case in some:
                times_ns, best, ratio = case["times_ns"], best_of(case["times_ns"]), ratio_of(case)
                own_us, best_us = times_ns[case["chosen"]] / 1000, times_ns[best] / 1000
                cells = (case["system"], case["collective"], case["nbytes"], case["chosen"], own_us, best, best_us)
                table.row(*cells, ratio, more="" if ratio <= NEAR else " *")
    ratios = [ratio_of(case) for case in found]
    share = near_share(found)
    print(f"{share:.1%} of {len(found)} cases within 15 % of the best; mean ratio {sum(ratios) / len(found):.3f}")
    return found


def near_share(found: list[dict[str, Any]]) -> float:
    """The part of the cases where the choice is near the best."""
    return sum(ratio_of(case) <= NEAR for case in found) / len(found)


def holds(document: list[dict[str, Any]]) -> bool:
    """The claim."""
    return near_share(document) >= SHARE
