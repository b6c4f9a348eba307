"""What a halved cost would change: which costs, with which setting, and the time that the graph then gives.

A cost in ns is halved, a bandwidth or a clock is doubled. Each span takes its price on the changed machine, and polls
see an event when its PE_CPU looks; what sharing an edge added changes as the edge's bandwidth does; waits in memories,
the rest of a duration and the order of all events stay as they were.
"""

from typing import Any, NamedTuple

import msgspec
import numpy as np

from sipsim.chips.ahbm.costs.prices import Prices, Ps, sum_ps
from sipsim.chips.ahbm.ipcq.backpressure import backpressure_of
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.config.schema import IpcqKnobs, Resolved
from sipsim.insight.explain.costs import Cost, Costs
from sipsim.insight.explain.graph import Graph, Key, Times
from sipsim.records.explanation import Step

TIME, RATE, WIRE, CLOCK = "_ns", "_GBps", "ns_per_mm", "_GHz"
LEAST_SHARE = 100
INSIDE, LINKS, ALL = "all bandwidths inside SIPs", "all bandwidths of links", "all bandwidths"


class Scenario(NamedTuple):
    """A change: config keys and their new values."""

    name: str
    values: tuple[tuple[str, float], ...]

    def settings(self) -> tuple[str, ...]:
        """The flags ``--set`` that make it."""
        return tuple(f"{key}={value:.12g}" for key, value in self.values)


def scenarios(resolved: Resolved, steps: list[Step]) -> list[Scenario]:
    """One for each cost of at least 1 % of the path, and some for bandwidths, which bound each other.

    These are all inside SIPs; and, where links take at least 1 % of the path, those of links, and all of both.
    A bandwidth that only ever is one of several equal ones changes nothing by itself.
    """
    alone: dict[str, Ps] = {}
    inside: set[str] = set()
    of_links: dict[str, Ps] = {}
    for keys, ps in ((part.keys, part.ps) for step in steps for part in step.parts):
        costs = [key for key in keys if _better(resolved, key) is not None]
        if len(costs) == 1:
            alone[costs[0]] = alone.get(costs[0], 0) + ps
        inside.update(filter(_is_rate_inside, keys))
        for key in filter(_is_rate_of_link, keys):
            of_links[key] = of_links.get(key, 0) + ps
    total_ps = sum(part.ps for step in steps for part in step.parts)
    alone_and_large, links = (
        {key for key, ps in found.items() if ps * LEAST_SHARE >= total_ps} for found in (alone, of_links)
    )
    together = [(INSIDE, inside)] if not links else [(INSIDE, inside), (LINKS, links), (ALL, inside | links)]
    found = [(key, {key}) for key in sorted(alone_and_large)]
    found += [(name, keys) for name, keys in together if len(keys) > 1 and keys not in (each for _, each in found)]
    return [Scenario(name, _doubled_or_halved(resolved, keys)) for name, keys in found]


def _doubled_or_halved(resolved: Resolved, keys: set[str]) -> tuple[tuple[str, float], ...]:
    every = ((key, _better(resolved, key)) for key in sorted(keys))
    return tuple((key, better) for key, better in every if better is not None)


def changed(resolved: Resolved, scenario: Scenario) -> Resolved:
    """The config with the scenario's values."""
    plain = msgspec.to_builtins(resolved)
    for key, value in scenario.values:
        *path, name = _path(key)
        section = plain
        for each in path:
            section = section[each]
        section[name] = value
    return msgspec.convert(plain, Resolved)


def saved_ps(
    resolved: Resolved,
    knobs: IpcqKnobs,
    some: list[Scenario],
    graph: Graph,
    costs: Costs,
    last: list[Key],
    since_ps: Ps,
) -> list[Ps]:
    """How much earlier the last of the spans ``last`` would end, for each scenario."""
    if not some:
        return []
    systems = [changed(resolved, each) for each in some]
    backpressures = [backpressure_of(knobs, each.components.pe_cpu) for each in systems]
    durations = _Durations(costs, [Prices(AhbmSystem(each, knobs), knobs) for each in systems])
    times: dict[Key, Times] = {}
    end_ps = max(graph.span(key).end_ps for key in last)
    for rank, span in graph.between(since_ps, end_ps):
        if not span.is_wait and span.end_ps > span.start_ps:
            times[rank, span.number] = durations.of(costs.of(rank, span))
    return [int(end_ps - each) for each in graph.ends(last, since_ps, times, backpressures)]


class _Durations:
    """What spans take on each of the changed machines."""

    def __init__(self, costs: Costs, changed: list[Prices]) -> None:
        self._base = costs.prices
        self._changed = changed
        self._of_work: dict[int, Times] = {}
        self._ratios: dict[Any, Any] = {}

    def of(self, cost: Cost) -> Times:
        total = self._of_work.get(id(cost.work))
        if total is None:
            each = [sum(sum_ps(call.price(one)) for call in cost.work.calls) for one in self._changed]
            total = self._of_work[id(cost.work)] = np.array(each, np.int64)
        rest_ps = cost.rest_ps + sum(ps for _, ps in cost.waits)
        if rest_ps:
            total = total + rest_ps
        for rank, src, dst, memory, _, delay_ps in cost.excess:
            edge = rank, src, dst, memory
            ratio = self._ratios.get(edge)
            if ratio is None:
                drains = [one.edge_ps(*edge) for one in self._changed]
                ratio = self._ratios[edge] = np.array(drains) / self._base.edge_ps(*edge)
            total = total + (ratio * delay_ps).astype(np.int64)
        return total


def _is_rate_inside(key: str) -> bool:
    return key.endswith(RATE) and not key.startswith(("links.", "pe_math."))


def _is_rate_of_link(key: str) -> bool:
    return key.endswith(RATE) and key.startswith("links.")


def _path(key: str) -> list[str]:
    parts = key.split(".")
    return ["links", *parts] if parts[0] == "links" else ["components", *parts]


def _better(resolved: Resolved, key: str) -> float | None:
    value: Any = msgspec.to_builtins(resolved)
    for each in _path(key):
        value = value.get(each) if isinstance(value, dict) else None
    if isinstance(value, int | float) and value and key.endswith((RATE, TIME, WIRE, CLOCK)):
        return value * 2 if key.endswith((RATE, CLOCK)) else value / 2
    return None
