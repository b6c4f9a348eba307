"""The algorithm that costs least for a task, and why, in words."""

from typing import NamedTuple

from sipsim.ccl.algorithm import Algorithm
from sipsim.ccl.cost.estimate import Estimate, estimate
from sipsim.ccl.groups.catalog import Catalog
from sipsim.ccl.groups.launch import Prepared
from sipsim.units import format_time_ps

MOST_KEPT = 1024
"""Choices that a catalog keeps."""
HEADS = "algorithm", "estimate", "messages in a row", "busiest link busy"


class Choice(NamedTuple):
    """An algorithm with its estimate."""

    algorithm: Algorithm
    estimate: Estimate


def least(catalog: Catalog, made: Prepared) -> Algorithm | None:
    """The algorithm that costs least, the first by name of several; None if none runs the task.

    One whose busiest link alone takes longer than another in all is not looked at any further.
    """
    task = made.task
    group = task.group.sips
    key = task.collective.name, group, task.n_elem, task.itemsize, task.root, task.in_place, made.places, made.shards
    if key in catalog.chosen:
        return catalog.chosen[key]
    best: Choice | None = None
    for algorithm in catalog.able(task):
        found = estimate(algorithm, made, None if best is None else best.estimate.time_ps)
        if found is not None and (best is None or found.time_ps < best.estimate.time_ps):
            best = Choice(algorithm, found)
    while len(catalog.chosen) >= MOST_KEPT:
        del catalog.chosen[next(iter(catalog.chosen))]
    catalog.chosen[key] = None if best is None else best.algorithm
    return catalog.chosen[key]


def ranked(catalog: Catalog, made: Prepared) -> list[Choice]:
    """All algorithms that run a task, the one that costs least first."""
    found = [(each, estimate(each, made)) for each in catalog.able(made.task)]
    choices = [Choice(algorithm, cost) for algorithm, cost in found if cost is not None]
    return sorted(choices, key=lambda choice: choice.estimate.time_ps)


def reason(choices: list[Choice]) -> list[str]:
    """Why the first one was chosen: what it waits for, and as a table the estimates of all, a line each."""
    best = choices[0]
    what = "the latency of its messages" if _is_latency(best.estimate) else "the bytes over its busiest link"
    rows = [HEADS, *(_row(each) for each in choices)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [f"{best.algorithm.name}, by {what}", *("  " + _aligned(row, widths) for row in rows)]


def _is_latency(cost: Estimate) -> bool:
    return 2 * cost.link_ps < cost.time_ps


def _row(choice: Choice) -> tuple[str, ...]:
    cost = choice.estimate
    return choice.algorithm.name, format_time_ps(cost.time_ps), str(cost.in_a_row), format_time_ps(cost.link_ps)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    )
