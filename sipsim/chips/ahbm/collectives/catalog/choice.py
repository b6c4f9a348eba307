"""The algorithm that costs least for a task, and why, in words."""

from heapq import heappop, heappush
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.catalog.catalog import Catalog
from sipsim.chips.ahbm.collectives.cost.estimate import Cost, Estimate, estimate
from sipsim.chips.ahbm.collectives.launch.launch import Prepared
from sipsim.core.units import format_time_ps

MOST_KEPT = 1024
"""Choices that a catalog keeps."""
BOUNDS = Cost.formula_ps, Cost.own_ps, Cost.links_ps
HEADS = "algorithm", "estimate", "messages in a row", "busiest link busy"


class Choice(NamedTuple):
    """An algorithm with its estimate."""

    algorithm: Algorithm
    estimate: Estimate


def least(catalog: Catalog, made: Prepared) -> Algorithm | None:
    """The algorithm that costs least, the first by name of several; None if none runs the task.

    Looked at is always the one of the least bound; so one whose worker or whose busiest link alone takes longer than
    another in all is not estimated.
    """
    task = made.task
    group = task.group.sips
    key = task.collective.name, group, task.n_elem, task.itemsize, task.root, task.in_place, made.places, made.shards
    if key in catalog.chosen:
        return catalog.chosen[key]
    able = catalog.able(task)
    costs = [Cost(algorithm, made) for algorithm in able]
    bounds = [(0, number, 0) for number in range(len(able))]
    times_ps: list[tuple[int, int]] = []
    while bounds and (not times_ps or bounds[0][0] <= min(times_ps)[0]):
        bound_ps, number, known = heappop(bounds)
        if known == len(BOUNDS):
            times_ps.append((costs[number].estimate().time_ps, number))
        else:
            heappush(bounds, (max(bound_ps, BOUNDS[known](costs[number])), number, known + 1))
    best = able[min(times_ps)[1]] if times_ps else None
    while len(catalog.chosen) >= MOST_KEPT:
        del catalog.chosen[next(iter(catalog.chosen))]
    catalog.chosen[key] = best
    return best


def ranked(catalog: Catalog, made: Prepared) -> list[Choice]:
    """All algorithms that run a task, the one that costs least first."""
    choices = [Choice(each, estimate(each, made)) for each in catalog.able(made.task)]
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
