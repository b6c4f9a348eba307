"""Short runs of a job: simulations in this process, with few elements and perhaps on fewer SIPs.

Costs grow linearly with sizes above the longest message, and with the sides of the grid of SIPs. Therefore two short
runs predict larger runs. Simulated times, events and grants are the same on every host.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import NamedTuple

from msgspec import structs

from launcher.engines.inproc import InProcess
from launcher.supervise.run import Run
from launcher.supervise.signals import StopSignals
from sipsim.chips.api.chip import kind_of

Ps = int
MOST_EVENTS = 100_000
"""The most events of all short runs of a prediction together."""
MOST_ROWS = 256
"""The most cubes of a short run, over all SIPs. With more cubes, two short runs exceed ``MOST_EVENTS`` (some 3 s) even
with the fewest elements.
"""


class ShortRun(NamedTuple):
    """Costs of an iteration. ``time_ps``, ``again_ps``: duration of the first, and of a later iteration; ``gap_ps``:
    time between two iterations; ``events``, ``grants``: number per iteration, mean of all SIPs.
    """

    time_ps: Ps
    again_ps: Ps
    gap_ps: Ps
    events: int
    grants: int


class NotPredictable(Exception):
    """Short runs do not apply: too many events, a failed short run, fewer than two smaller grids, or a chip without a
    short size.
    """


class EventLimit(StopSignals):
    """Stop signal for short runs, set after ``most_events`` events of all short runs together."""

    def __init__(self, most_events: int = MOST_EVENTS) -> None:
        super().__init__(None)
        # These signals do not come from the system, so no loop polls for them.
        self._wakeup.close()
        self._wake.close()
        self._remaining = most_events
        self._calls = 0
        self._engine: InProcess | None = None

    def watch(self, engine: InProcess) -> None:
        """Also count the events of ``engine``, the engine of the next short run."""
        if self._engine is not None:
            self._remaining -= self._events
        self._engine = engine

    @property
    def _events(self) -> int:
        assert self._engine is not None
        return sum(member.session.engine.events for member in self._engine.members)

    def reason(self) -> str | None:
        # Called between any two messages. Counting visits all n SIPs, and is therefore done at every n-th call only.
        self._calls += 1
        if self._noted is None and self._engine and self._calls % len(self._engine.members) == 0:
            self._noted = "terminated" if self._events > self._remaining else None
        return self._noted


class ShortRuns:
    """Short runs of one prediction. ``events``: number of events of all short runs; ``event_s``: seconds per event in
    the last short run, measured by ``clock``.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time, most_events: int = MOST_EVENTS) -> None:
        self._clock = clock
        self._limit = EventLimit(most_events)
        self.event_s = 0.0
        self.events = 0

    def by_size(self, run: Run) -> dict[int, ShortRun]:
        """Return the costs of an iteration for each size of a job.

        Raises:
            NotPredictable: if short runs do not apply to the job.
        """
        plan, n_elems = run.plan, sorted(set(run.job.n_elems))
        if plan.system.n_sips * plan.n_rows > MOST_ROWS:
            smaller = [(part, self.by_size(less)) for part, less in _smaller(run)]
            if len(smaller) < 2:
                raise NotPredictable
            return {n: extended([(part, sizes[n]) for part, sizes in smaller], 1.0) for n in n_elems}
        jobs = kind_of(plan.resolved).jobs
        assert jobs is not None
        points: list[tuple[float, ShortRun]] = []
        least = jobs.short_elements(run.job, plan)
        if least is None:
            raise NotPredictable
        for n_elem in short_sizes(n_elems, least):
            points.append((n_elem, self._one(run, n_elem, points[0][1] if points else None)))
        return {n: extended(points, n) for n in n_elems}

    def _one(self, run: Run, n_elem: int, before: ShortRun | None) -> ShortRun:
        """Make a short run of one size. ``before``: earlier short run, the source of ``again_ps`` and ``gap_ps``."""
        job = run.job
        again = before is None and (job.warmup + job.iters) * len(job.n_elems) > 1
        job = structs.replace(job, n_elems=(n_elem,), iters=1 + again, warmup=0, records=(), verify_data=False)
        options = run.options.changed(max_sim_ps=None, explain_sync=False)
        began_s = self._clock()
        engine = InProcess(replace(run, options=options, job=job, scratch_dir=""), self._limit)
        self._limit.watch(engine)
        try:
            ranks = engine.run().ranks.values()
        finally:
            for member in engine.members:
                member.stop_tasks()
        if engine.outcome.error is not None:
            raise NotPredictable
        spans = [each.runs[0].spans_ps for each in ranks]
        of_iterations = [tuple(zip(*each, strict=True)) for each in zip(*spans, strict=True)]
        first, *later = [(min(starts), max(ends)) for starts, ends in of_iterations]
        time_ps, n_iterations = first[1] - first[0], 1 + len(later)
        events, grants = sum(each.events for each in ranks), sum(each.grants for each in ranks)
        self.events += events
        self.event_s = (self._clock() - began_s) / events
        gap_ps, again_ps = 0, time_ps
        if before is not None:
            gap_ps, again_ps = before.gap_ps, time_ps + before.again_ps - before.time_ps
        for start_ps, end_ps in later:
            gap_ps, again_ps = start_ps - first[1], end_ps - start_ps
        shares = len(ranks) * n_iterations
        return ShortRun(time_ps, again_ps, gap_ps, events // shares, grants // shares)


def short_sizes(n_elems: list[int], least: int) -> list[int]:
    """Return the sizes of short runs: the smallest and the largest size of a job. If the largest size exceeds
    ``2 * least``, the sizes are ``least``, ``2 * least``, and the job's smallest size if below ``least``.
    """
    smallest, largest = n_elems[0], n_elems[-1]
    if largest <= 2 * least:
        return sorted({smallest, largest})
    return sorted({min(smallest, least), least, 2 * least})


def extended(points: list[tuple[float, ShortRun]], at: float) -> ShortRun:
    """Return the costs at ``at``, piecewise linear through ``points`` (x, costs), extrapolated by the outer pieces."""
    (low, less), (high, more) = points[0], points[-1]
    for (a, of_a), (b, of_b) in pairwise(points):
        low, less, high, more = a, of_a, b, of_b
        if at <= b:
            break
    share = (at - low) / (high - low) if high > low else 0.0
    return ShortRun(*(max(round(x + (y - x) * share), 0) for x, y in zip(less, more, strict=True)))


def _smaller(run: Run) -> list[tuple[float, Run]]:
    """Return the run on up to two smaller grids of SIPs, with the ratio of new to old sides, the smaller grid first.

    The list has fewer entries if links differ from each other, or if fewer than two grids are small enough.
    """
    plan, resolved = run.plan, run.plan.resolved
    system = resolved.topology.system
    if system.sips.links or system.sips.custom_links or system.sips.outages:
        return []
    width, height = plan.system.shape
    smaller: list[tuple[float, Run]] = []
    for divisor in range(2, width):
        sides = [side // divisor for side in (width, height) if side > 1]
        is_part = all(side % divisor == 0 and side > divisor for side in (width, height) if side > 1)
        if not is_part or len(smaller) == 2 or prod(sides) * plan.n_rows > MOST_ROWS:
            continue
        shape = (sides[0], sides[1]) if len(sides) > 1 else None
        sips = structs.replace(system.sips, count=prod(sides), shape=shape)
        topology = structs.replace(resolved.topology, system=structs.replace(system, sips=sips))
        less = kind_of(resolved).plan(structs.replace(resolved, topology=topology))
        smaller.insert(0, (1 / divisor, replace(run, plan=less)))
    return smaller
