"""Sensitivity analysis: which config changes to try, and the time that the graph of spans predicts for each.

A cost in ns is halved, a bandwidth or a clock is doubled. Each span takes its price on the changed machine, and a poll
detects an event at its next poll time. Delays from sharing an edge scale with the edge's bandwidth. Waits in memories,
the rest of each duration and the order of all events do not change.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from sipsim.chips.ahbm.costs.prices import Prices, Ps, sum_ps
from sipsim.chips.ahbm.ipcq.backpressure import backpressure_of
from sipsim.chips.ahbm.plan import Plan
from sipsim.chips.ahbm.system import AhbmSystem
from sipsim.config.schema import Resolved
from sipsim.insight.explain.costs import Costs, Edge, SpanWork
from sipsim.insight.explain.graph import Graph, Key, Times
from sipsim.records.explanation import PathStep, WhatIf
from sipsim.records.recorder import Span

TIME, RATE, WIRE, CLOCK = "_ns", "_GBps", "ns_per_mm", "_GHz"
LEAST_PERCENT = 1
INSIDE, LINKS, ALL = "all bandwidths inside SIPs", "all bandwidths of links", "all bandwidths"
Change = dict[str, float]
"""Config keys and their new values."""


def savings(
    plan: Plan, steps: Sequence[PathStep], graph: Graph, costs: Costs, last: list[Key], since_ps: Ps
) -> tuple[WhatIf, ...]:
    """Return by how much each change would move the latest end of the spans ``last``, the largest saving first."""
    changes = changes_for(plan.resolved, steps)
    machines = Machines(plan, costs, list(changes.values()))
    ends_ps = graph.ends(last, since_ps, machines.durations, machines.backpressures).tolist() if changes else []
    end_ps = max(graph.span(key).end_ps for key in last)
    found = [
        WhatIf(name, tuple(f"{key}={value:.12g}" for key, value in change.items()), end_ps - each)
        for (name, change), each in zip(changes.items(), ends_ps, strict=True)
    ]
    return tuple(sorted(found, key=lambda each: (-each.saved_ps, each.name)))


def changes_for(resolved: Resolved, steps: Sequence[PathStep]) -> dict[str, Change]:
    """Return the changes to try: one for each cost of at least 1 % of the path, and some of many bandwidths.

    One of these is of all bandwidths inside SIPs, as they bound each other; if links take at least 1 % of the path,
    another is of all links, and a third of both together. A bandwidth that is always one of several equal bounds is
    not tried alone, as it would change nothing.
    """
    alone: dict[str, Ps] = defaultdict(int)
    inside: set[str] = set()
    on_links: dict[str, Ps] = defaultdict(int)
    improved: dict[str, float] = {}
    parts = [part for step in steps for part in step.parts]
    config = msgspec.to_builtins(resolved)
    for key in {key for part in parts for key in part.keys}:
        section, name = _place(config, key)
        value = section.get(name)
        if isinstance(value, int | float) and value and key.endswith((RATE, TIME, WIRE, CLOCK)):
            improved[key] = value * 2 if key.endswith((RATE, CLOCK)) else value / 2
    for part in parts:
        tried = [key for key in part.keys if key in improved]
        if len(tried) == 1:
            alone[tried[0]] += part.ps
        for key in tried:
            if key.endswith(RATE) and key.startswith("links."):
                on_links[key] += part.ps
            elif key.endswith(RATE) and not key.startswith("pe_math."):
                inside.add(key)
    path_ps = sum(part.ps for part in parts)
    singles, links = ({key for key in each if each[key] * 100 >= LEAST_PERCENT * path_ps} for each in (alone, on_links))
    together = [(INSIDE, inside)] if not links else [(INSIDE, inside), (LINKS, links), (ALL, inside | links)]
    found = {key: {key} for key in sorted(singles)}
    for name, keys in together:
        if len(keys) > 1 and keys not in found.values():
            found[name] = keys
    return {name: {key: improved[key] for key in sorted(keys)} for name, keys in found.items()}


def changed(resolved: Resolved, change: Change) -> Resolved:
    """Return a copy of the config with the new values of ``change``."""
    config = msgspec.to_builtins(resolved)
    for key, value in change.items():
        section, name = _place(config, key)
        section[name] = value
    return msgspec.convert(config, Resolved)


def _place(config: Any, key: str) -> tuple[dict[str, Any], str]:
    """Return the config section of a key, empty if absent, and the name of the key in that section."""
    *path, name = key.split(".")
    for each in ("links" if path[:1] == ["links"] else "components", *path):
        config = config.get(each) if isinstance(config, dict) else None
    return config if isinstance(config, dict) else {}, name


class Machines:
    """The changed machines, one per config change, and the durations of spans on them."""

    def __init__(self, plan: Plan, costs: Costs, changes: list[Change]) -> None:
        knobs = plan.ipcq
        systems = [AhbmSystem(changed(plan.resolved, each), knobs) for each in changes]
        self.backpressures = [backpressure_of(knobs, each.resolved.components.pe_cpu) for each in systems]
        self._costs = costs
        self.prices = [Prices(each, knobs) for each in systems]
        self._changes = changes
        self._by_work: dict[int, Times] = {}
        self._ratios: dict[Edge, Any] = {}

    def durations(self, rank: int, span: Span) -> Times:
        """Return the duration of a span on each changed machine, in ps."""
        work, delays, rest_ps = self._costs.of(rank, span)
        total = self._by_work.get(id(work))
        if total is None:
            total = self._by_work[id(work)] = self.work_ps(work)
        for _, edge, delay_ps in delays:
            if edge is None:
                rest_ps += delay_ps
            else:
                ratio = self._ratios.get(edge)
                if ratio is None:
                    drains = np.array([prices.edge_ps(*edge) for prices in self.prices])
                    ratio = self._ratios[edge] = drains / self._costs.prices.edge_ps(*edge)
                total = total + (ratio * delay_ps).astype(np.int64)
        return total + rest_ps if rest_ps else total

    def work_ps(self, work: SpanWork) -> Times:
        """Return the time of work on each changed machine, in ps. Changes only reduce times, so work without a term of
        a changed key takes as long as before. Limitation: storing a frame after a link counts as the link's time.
        """
        keys = {key for term in work.terms for key in term.keys}
        found = [
            work.sum_ps if keys.isdisjoint(change) else sum([sum_ps(call.price(prices)) for call in work.calls])
            for prices, change in zip(self.prices, self._changes, strict=True)
        ]
        return np.array(found, np.int64)
