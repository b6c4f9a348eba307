"""Calls with few bytes against the least time of any algorithm (``scripts/bench/_lower_bounds.py``).

For each system and collective the best of all algorithms, and by how much it is above the bound. HBM is not refreshed
here (``hbm.params.refresh``): a refresh that meets a load adds up to 0.35 us to the one algorithm that it happens to.
Iterations before the timed ones fill the TLB. The bound has no cost of a second message that a PE sends or combines.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from launcher.options import parse
from launcher.run.prepare import prepare
from sipsim.chips.ahbm.collectives.cost import CommandTimes
from sipsim.chips.ahbm.collectives.settings import effective_ipcq
from sipsim.chips.ahbm.host.builtin_job import tasks_of
from sipsim.chips.ahbm.plan import Plan
from sipsim.collectives.semantics import COLLECTIVES
from sipsim.core.units import PS_PER_NS, ps_to_ns

from ._lower_bounds import LatencyBound, latency_bound
from .auto import GROUP_COLLECTIVES, best_of
from .kit import Flag, Table, launch

SYSTEMS = (
    "--sips 2",
    "--sips 4",
    "--sips 8",
    "--sips 4 --topology torus_2d",
    "--sips 6 --topology torus_2d --shape 3x2",
    "--sips 4 --topology mesh_2d_no_wrap --shape 4x1",
)
RUN = ("--engine", "inproc", "--no-verify-data", "--bytes", "64", "-w", "2", "--set", "hbm.params.refresh=none")
NEAR = 1.2
FLAGS = {
    "collective": Flag(GROUP_COLLECTIVES, ("all_reduce",), "which collectives", GROUP_COLLECTIVES),
    "systems": Flag(len(SYSTEMS), 2, "only the first systems"),
    "jobs": Flag(2, 2, "runs at a time"),
}


def bound_of(flags: list[str]) -> LatencyBound:
    """Of the call of a run."""
    prepared = prepare(parse(flags))
    collective = COLLECTIVES.get(prepared.job.collective)
    plan, job = prepared.plan, prepared.job
    assert isinstance(plan, Plan)
    (((first, *_),), ((name, *_),)) = tasks_of(job, collective, plan), job.algorithms
    bound = latency_bound(first.task, first.places[0], CommandTimes(plan.system, effective_ipcq(plan.resolved, name)))
    assert bound is not None
    return bound


def ratio_of(case: dict[str, Any]) -> float:
    """Of the best time to the bound."""
    return float(case["times_ns"][best_of(case["times_ns"])] / case["bound_ns"])


def measure(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """A case for each collective and system: the bound, its terms, and all algorithms' times without the launch."""
    asked = [(system, name) for name in chosen.collective for system in SYSTEMS[: chosen.systems]]
    flags = [[*system.split(), "--collective", name, *RUN, "--algorithm", "all"] for system, name in asked]
    bounds = [bound_of(each) for each in flags]
    found = []
    table = Table("collective:<15", "system:<47", "bound ns:9.1f", "way:7.1f", "best:>20", "ns:9.1f", "ratio:6.2f")
    with ThreadPoolExecutor(chosen.jobs) as pool:
        documents = pool.map(lambda each: launch(*each), flags)
        for (system, name), bound, document in zip(asked, bounds, documents, strict=True):
            runs, bound_ns = document["runs"], ps_to_ns(bound.ps)
            times = {run["algorithm"]: ps_to_ns(PS_PER_NS * (run["time_ns"] - run["launch_ns"])) for run in runs}
            terms = {term: ps_to_ns(ps) for term, ps in bound._asdict().items() if term != "ranks"}
            case = {"system": system, "collective": name, "bound_ns": bound_ns, "terms": terms, "times_ns": times}
            best = best_of(times)
            table.row(name, system, bound_ns, terms["way"], best, times[best], ratio_of(case))
            found.append(case)
    print(f"{sum(ratio_of(case) <= NEAR for case in found)} of {len(found)} cases within 20 % of the bound")
    return found


def holds(document: list[dict[str, Any]]) -> bool:
    """All-reduces are near their bound."""
    return all(ratio_of(case) <= NEAR for case in document if case["collective"] == "all_reduce")
