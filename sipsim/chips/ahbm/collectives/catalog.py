"""Catalog of the algorithms of ``ccl.yaml``: loading, checks for a task, and choice by name or by lowest cost."""

from collections.abc import Callable, Hashable
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.cost import Cost, Estimate, estimate
from sipsim.chips.ahbm.collectives.launch import PlannedCall
from sipsim.chips.ahbm.collectives.rules import check_schedule_settings
from sipsim.chips.ahbm.collectives.settings import effective_ipcq, unknown_algorithm
from sipsim.chips.ahbm.collectives.wirings import most_directions
from sipsim.chips.ahbm.hardware import MAX_DIRECTIONS
from sipsim.collectives.semantics import Task
from sipsim.config.schema import Resolved
from sipsim.core.errors import ConfigError
from sipsim.core.units import format_time_ps
from sipsim.fabric.sips import SipNetwork
from sipsim.topology.links import TOPOLOGIES

MOST_CHECKED = 1024
"""Tasks whose check results a catalog caches."""


class Catalog:
    """Algorithm entries of a config; each is loaded at its first use. ``chosen``: cached results of :func:`cheapest`.

    ``rejected``: the reasons why entries cannot be used, by name; ``auto`` and ``all`` skip these entries.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._entries = resolved.ccl.algorithms
        self._loaded: dict[str, Algorithm] = {}
        self.chosen: dict[Hashable, Algorithm | None] = {}
        self.rejected: dict[str, str] = {}
        self._checked: dict[Hashable, tuple[str, str]] = {}

    def get(self, name: str, collective: str | None = None) -> Algorithm:
        """Return the algorithm of a name. ``collective``: the collective to run, for the message about unknown names.

        Raises:
            ConfigError: unknown name, a module that cannot be loaded, or settings that a schedule cannot have.
        """
        if name not in self._entries:
            raise ConfigError(self.unknown(name, collective))
        if name not in self._loaded:
            algorithm = Algorithm(name, self._entries[name])
            if algorithm.is_schedule:
                check_schedule_settings(self._resolved, name)
            self._loaded[name] = algorithm
        return self._loaded[name]

    def unknown(self, name: str, collective: str | None) -> str:
        """Return the error message for an unknown name: it lists the algorithms of ``collective``, or all if None."""
        return unknown_algorithm(name, [each.name for each in self.of(collective or "")] or self._entries)

    @cached_property
    def _usable(self) -> list[Algorithm]:
        """The algorithms that can be loaded, sorted by name."""
        found = []
        for name in sorted(self._entries):
            try:
                found.append(self.get(name))
            except ConfigError as error:
                self.rejected[name] = str(error)
        return found

    @property
    def schedules(self) -> list[Algorithm]:
        """The schedules, which run in any group, sorted by name."""
        return [algorithm for algorithm in self._usable if algorithm.is_schedule]

    @property
    def wired(self) -> list[str]:
        """The names of the algorithms that are wired before a run, sorted."""
        return [algorithm.name for algorithm in self._usable if not algorithm.is_schedule]

    def of(self, collective: str) -> list[Algorithm]:
        """Return the schedules that run a collective."""
        return [algorithm for algorithm in self.schedules if collective in algorithm.collectives]

    def refusals(self, *tasks: Task) -> list[tuple[Algorithm, str]]:
        """Return the schedules of the tasks' collective, each with the reason why it refuses a task, or with "".

        A schedule that fails its check for a task is put into ``rejected`` instead.
        """
        found = []
        for algorithm in self.of(tasks[0].collective.name):
            try:
                found.append((algorithm, next(filter(None, (self.why_not(algorithm, task) for task in tasks)), "")))
            except ConfigError as error:
                self.rejected[algorithm.name] = str(error)
        return found

    def able(self, task: Task) -> list[Algorithm]:
        """Return the schedules that can run a task."""
        return [algorithm for algorithm, refusal in self.refusals(task) if not refusal]

    def why_not(self, algorithm: Algorithm, task: Task) -> str:
        """Return a short reason why a schedule cannot run a task; empty if it can.

        Under ``hw_strict``, the wiring must fit the registers of a PE, which hold one kernel's queue pairs at a time.

        Raises:
            ConfigError: the schedule failed its check.
        """
        refusal = algorithm.why_not(task)
        if not refusal and algorithm.is_users:
            self._check(algorithm, task)
        if refusal or algorithm.wiring is None or not effective_ipcq(self._resolved, algorithm.name).hw_strict:
            return refusal
        directions = most_directions(algorithm.wiring(task.group))
        if directions <= MAX_DIRECTIONS:
            return ""
        return f"a rank has {directions} directions, and under hw_strict a PE has registers for {MAX_DIRECTIONS}"

    def made_of(self, algorithm: Algorithm, task: Task) -> str:
        """Return the hash of a user's wiring and schedule, which must be equal on all ranks; "" for built-in schedules.

        Raises:
            ConfigError: the schedule failed its check.
        """
        return self._check(algorithm, task) if algorithm.is_users else ""

    def _check(self, algorithm: Algorithm, task: Task) -> str:
        """Check a user's schedule for a task, once per task, and return its hash; "" for built-in, tested schedules."""
        key = (algorithm.name, *task._replace(group=task.group.sips))  # type: ignore[arg-type]
        if key not in self._checked:
            try:
                checked = "", algorithm.check_task(task)
            except ConfigError as error:
                checked = str(error), ""
            if len(self._checked) >= MOST_CHECKED:
                self._checked.clear()
            self._checked[key] = checked
        error_message, digest = self._checked[key]
        if error_message:
            raise ConfigError(error_message)
        return digest


CACHE_SIZE = 1024
"""Choices that a catalog caches."""
BOUNDS = Cost.formula_ps, Cost.worker_ps, Cost.links_ps
HEADS = "algorithm", "estimate", "messages in a row", "busiest link busy"


class Candidate(NamedTuple):
    """An algorithm and its cost estimate."""

    algorithm: Algorithm
    estimate: Estimate


def cheapest(catalog: Catalog, made: PlannedCall) -> Algorithm | None:
    """Return the algorithm with the lowest estimated time, of equals the first by name; None if no algorithm can run.

    Branch and bound: always refine the candidate with the lowest bound. So an algorithm whose worker or busiest link
    alone takes longer than the total time of another algorithm is never estimated.
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
        bound_ps, number, n_bounds = heappop(bounds)
        if n_bounds == len(BOUNDS):
            times_ps.append((costs[number].estimate().time_ps, number))
        else:
            heappush(bounds, (max(bound_ps, BOUNDS[n_bounds](costs[number])), number, n_bounds + 1))
    best = able[min(times_ps)[1]] if times_ps else None
    while len(catalog.chosen) >= CACHE_SIZE:
        del catalog.chosen[next(iter(catalog.chosen))]
    catalog.chosen[key] = best
    return best


def ranked(catalog: Catalog, made: PlannedCall) -> list[Candidate]:
    """Return all algorithms that run a task with their estimates, the cheapest first."""
    choices = [Candidate(each, estimate(each, made)) for each in catalog.able(made.task)]
    return sorted(choices, key=lambda choice: choice.estimate.time_ps)


def reason(choices: list[Candidate]) -> list[str]:
    """Return lines that explain the choice of the first candidate: its main cost, and a table of all estimates."""
    best = choices[0]
    what = "the latency of its messages" if _is_latency(best.estimate) else "the bytes over its busiest link"
    rows = [HEADS, *(_row(each) for each in choices)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [f"{best.algorithm.name}, by {what}", *("  " + _aligned(row, widths) for row in rows)]


def _is_latency(cost: Estimate) -> bool:
    return 2 * cost.link_ps < cost.time_ps


def _row(choice: Candidate) -> tuple[str, ...]:
    cost = choice.estimate
    return choice.algorithm.name, format_time_ps(cost.time_ps), str(cost.in_a_row), format_time_ps(cost.link_ps)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(
        [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
    )


AUTO, ALL = "auto", "all"
"""Values that replace an algorithm's name: the cheapest algorithm, or all that run the collective."""


def select(catalog: Catalog, made: PlannedCall, configured: Algorithm, named: str = "") -> Algorithm:
    """Return the algorithm for a task: the algorithm ``named`` by the call. If ``named`` is empty: ``configured`` if
    this algorithm runs the collective, otherwise the cheapest algorithm, as for ``auto``.

    Raises:
        ValueError: the named algorithm cannot run the task (the message lists able algorithms), or no algorithm can.
        ConfigError: the named algorithm cannot be loaded, or its schedule failed the check.
    """
    task = made.task
    collective = task.collective.name
    if not named and collective in configured.collectives:
        named = configured.name
    if named not in ("", AUTO):
        algorithm = catalog.get(named, collective)
        refusal = (
            catalog.why_not(algorithm, task) if algorithm.is_schedule else "it is wired before the run, for all SIPs"
        )
        if refusal:
            able = ", ".join(each.name for each in catalog.able(task)) or "none"
            raise ValueError(f"algorithm {named} cannot run this {collective}: {refusal}; algorithms that can: {able}")
        return algorithm
    chosen = cheapest(catalog, made)
    if chosen is None:
        raise ValueError(f"no algorithm of ccl.yaml runs {collective} in this group; add an algorithm that does")
    return chosen


def able(catalog: Catalog, tasks: list[Task]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the names of algorithms that run all tasks (of one collective), and (name, reason) of all others."""
    refusals = [(algorithm.name, refusal) for algorithm, refusal in catalog.refusals(*tasks)]
    return [name for name, refusal in refusals if not refusal], [each for each in refusals if each[1]]


Groups = tuple[tuple[int, ...], ...]


def groups_of(text: str, system: SipNetwork) -> Groups:
    """Return the SIPs of each group of ``--group``: disjoint groups of equal size; empty for the group of all SIPs.

    ``text``: ranks, or ``rows``, ``columns`` or ``halves``; these groups run concurrently.

    Raises:
        ConfigError: a rank does not exist, or rows or columns are given and the SIPs form no grid.
    """
    if not text:
        return ()
    return SUBSETS[text](system) if text in SUBSETS else (_ranks(text, system.n_sips),)


def _rows(system: SipNetwork) -> Groups:
    width, height = _grid("rows", system)
    return tuple(tuple(range(row * width, (row + 1) * width)) for row in range(height))


def _columns(system: SipNetwork) -> Groups:
    width, height = _grid("columns", system)
    return tuple(tuple(range(column, width * height, width)) for column in range(width))


def _halves(system: SipNetwork) -> Groups:
    half, odd = divmod(system.n_sips, 2)
    if odd:
        raise ConfigError(f"--group halves: {system.n_sips} SIPs have no equal halves; list the ranks of a group")
    return tuple(range(half)), tuple(range(half, system.n_sips))


SUBSETS: dict[str, Callable[[SipNetwork], Groups]] = {"rows": _rows, "columns": _columns, "halves": _halves}


def _grid(what: str, system: SipNetwork) -> tuple[int, int]:
    if TOPOLOGIES.get(system.topology).dimensions == 1:
        hint = "name ranks, such as 0,1, or halves"
        raise ConfigError(f"--group {what}: SIPs of topology {system.topology} form no grid; {hint}")
    return system.shape


def _ranks(text: str, n_sips: int) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ConfigError(f"--group {text}: must be ranks, such as 0,1, or {', '.join(SUBSETS)}")
    ranks = tuple(map(int, parts))
    for rank in ranks:
        if rank >= n_sips:
            raise ConfigError(f"--group {text}: there is no SIP {rank}; ranks are 0 to {n_sips - 1}")
    if len(set(ranks)) < len(ranks):
        raise ConfigError(f"--group {text}: a rank is named twice; name each rank once")
    return ranks
