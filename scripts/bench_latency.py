#!/usr/bin/env python3
"""Calls with few bytes against the least time of any algorithm (``sipsim/ccl/bounds/latency.py``).

For each system and collective the best of all algorithms, and by how much it is above the bound. HBM is not refreshed
here (``hbm.params.refresh``): a refresh that meets a load adds up to 0.35 us to the one algorithm that it happens to.
Iterations before the timed ones fill the TLB. The bound has no cost of a second message that a PE sends or combines.
"""

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benches.rows import group_collectives, rows

from launcher.run.options import parse
from launcher.run.prepare import prepare
from sipsim.ccl.bounds.latency import LatencyBound, latency_bound
from sipsim.ccl.collectives.base import COLLECTIVES
from sipsim.ccl.collectives.group import GroupCollective
from sipsim.ccl.cost.commands import Commands
from sipsim.ccl.settings import effective_ipcq
from sipsim.host.group_request import tasks_of
from sipsim.plan.plan import Plan
from sipsim.units import PS_PER_NS, ps_to_ns

SYSTEMS = (
    ("--sips", "2"),
    ("--sips", "4"),
    ("--sips", "8"),
    ("--sips", "4", "--topology", "torus_2d"),
    ("--sips", "6", "--topology", "torus_2d", "--shape", "3x2"),
    ("--sips", "4", "--topology", "mesh_2d_no_wrap", "--shape", "4x1"),
)
FLAGS = ("--engine", "inproc", "--no-verify-data", "--bytes", "64", "-w", "2", "--set", "hbm.params.refresh=none")
NEAR = 1.2


class Case(NamedTuple):
    """``bound_ns`` and its terms; ``times_ns`` of all algorithms, without the launch."""

    system: str
    collective: str
    bound_ns: float
    terms: dict[str, float]
    times_ns: dict[str, float]

    @property
    def best(self) -> str:
        return min(self.times_ns, key=lambda name: (self.times_ns[name], name))

    @property
    def ratio(self) -> float:
        return self.times_ns[self.best] / self.bound_ns


def bound_of(flags: list[str]) -> LatencyBound:
    """Of the call of a run."""
    prepared = prepare(parse(flags))
    collective = COLLECTIVES.get(prepared.job.collective)
    assert isinstance(collective, GroupCollective)
    plan, job = prepared.plan, prepared.job
    assert isinstance(plan, Plan)
    (((first, *_),), ((name, *_),)) = tasks_of(job, collective, plan), job.algorithms
    bound = latency_bound(first.task, first.places[0], Commands(plan.system, effective_ipcq(plan.resolved, name)))
    assert bound is not None
    return bound


def main() -> int:
    """Run the table; 1 if an all-reduce is not near its bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collective", action="append", help="one of them; more than once for more (all)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs at a time (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times")
    chosen = parser.parse_args()
    names = chosen.collective or group_collectives()
    asked = [(system, name) for name in names for system in SYSTEMS]
    flags = [[*system, "--collective", name, *FLAGS, "--algorithm", "all"] for system, name in asked]
    bounds = [bound_of(each) for each in flags]
    found = []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        every = pool.map(partial(rows, "bench_latency"), flags)
        for (system, name), bound, runs in zip(asked, bounds, every, strict=True):
            times = {run["algorithm"]: ps_to_ns(PS_PER_NS * (run["time_ns"] - run["launch_ns"])) for run in runs}
            terms = {term: ps_to_ns(ps) for term, ps in bound._asdict().items() if term != "ranks"}
            found.append(Case(" ".join(system), name, ps_to_ns(bound.ps), terms, times))
    print(f"{'collective':<15} {'system':<44} {'bound ns':>9} {'way':>7} {'best':>20} {'ns':>9} {'ratio':>6}")
    for case in found:
        print(
            f"{case.collective:<15} {case.system:<44} {case.bound_ns:>9.1f} {case.terms['way']:>7.1f} {case.best:>20} "
            f"{case.times_ns[case.best]:>9.1f} {case.ratio:>6.2f}"
        )
    near = [case for case in found if case.ratio <= NEAR]
    print(f"{len(near)} of {len(found)} cases within 20 % of the bound")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([case._asdict() for case in found], indent=1) + "\n")
    return 0 if all(case in near for case in found if case.collective == "all_reduce") else 1


if __name__ == "__main__":
    sys.exit(main())
