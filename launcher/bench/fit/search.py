"""Coordinate search: one value after the other, with few evaluations.

First each value is doubled or halved for as long as that costs less, which takes three evaluations if it stays; then
a golden section between half and twice of what was found. Both are on a logarithmic axis. Nothing is drawn at random.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from launcher.bench.fit.parameters import Parameter

STEP = 2.0
GOLDEN = (3 - math.sqrt(5)) / 2
Values = dict[str, float]
Cost = Callable[[str, Values, float], float]
"""Of values, over all that the named one can move; at or above the limit, anything that is not below it."""


class Point(NamedTuple):
    """A value and its cost."""

    value: float
    cost: float


def searched(start: Values, parameters: Sequence[Parameter], cost: Cost, probes: int, sweeps: int = 1) -> Values:
    """The values that were found, from ``start`` on. ``probes``: of the golden section, for each parameter. ``sweeps``:
    how often all are doubled or halved, one after the other; what the first ones became depends on the last ones.
    """
    values = dict(start)
    for parameter in [*parameters] * sweeps:
        values[parameter.name] = _bracketed(parameter, values, cost).value
    for parameter in parameters:
        values[parameter.name] = _refined(parameter, values, cost, probes).value
    return values


def _bracketed(parameter: Parameter, values: Values, cost: Cost) -> Point:
    start = best = _point(parameter, values, values[parameter.name], cost, math.inf)
    for factor in (1 / STEP, STEP):
        while True:
            tried = _bounded(parameter, best.value * factor)
            point = best if tried == best.value else _point(parameter, values, tried, cost, best.cost)
            if point.cost >= best.cost:
                break
            best = point
        if best != start:
            break
    return best


def _refined(parameter: Parameter, values: Values, cost: Cost, probes: int) -> Point:
    best = _point(parameter, values, values[parameter.name], cost, math.inf)
    least, most = (_bounded(parameter, best.value * factor) for factor in (1 / STEP, STEP))
    for _ in range(probes):
        end = most if math.log(most / best.value) >= math.log(best.value / least) else least
        tried = parameter.rounded(best.value * (end / best.value) ** GOLDEN)
        if tried in (best.value, end):
            break
        point = _point(parameter, values, tried, cost, best.cost)
        inner, outer = (best, point) if point.cost >= best.cost else (point, best)
        if inner is point:
            least, most = (outer.value, most) if end == most else (least, outer.value)
        else:
            least, most = (least, outer.value) if end == most else (outer.value, most)
        best = inner
    return best


def _bounded(parameter: Parameter, value: float) -> float:
    return min(max(parameter.rounded(value), parameter.least), parameter.most)


def _point(parameter: Parameter, values: Values, value: float, cost: Cost, limit: float) -> Point:
    return Point(value, cost(parameter.name, {**values, parameter.name: value}, limit))
