"""The algorithms of ``ccl.yaml``: loaded by name, checked for a task, and chosen by name or by least cost."""

from collections.abc import Callable, Hashable
from functools import cached_property
from heapq import heappop, heappush
from typing import NamedTuple

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.cost import Cost, Estimate, estimate
from sipsim.chips.ahbm.collectives.launch import Prepared
from sipsim.chips.ahbm.collectives.queue_pairs import MAX_DIRECTIONS
from sipsim.chips.ahbm.collectives.rules import check_schedule_settings
from sipsim.chips.ahbm.collectives.settings import effective_ipcq, unknown_algorithm
from sipsim.chips.ahbm.collectives.wirings import most_directions
from sipsim.collectives.semantics import Task
from sipsim.config.schema import Resolved
from sipsim.core.errors import ConfigError
from sipsim.core.units import format_time_ps
from sipsim.fabric.sips import SipNetwork
from sipsim.topology.links import TOPOLOGIES

MOST_CHECKED = 1024
"""Tasks whose schedules a catalog remembers to have checked."""


class Catalog:
    """All entries of a config; each is loaded when it is first asked for. ``chosen``: what was found to cost least, by
    what was asked.

    ``left_out``: the entries that cannot be used, by name, each with why: ``auto`` and ``all`` go on without them.
    """

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._entries = resolved.ccl.algorithms
        self._loaded: dict[str, Algorithm] = {}
        self.chosen: dict[Hashable, Algorithm | None] = {}
        self.left_out: dict[str, str] = {}
        self._checked: dict[Hashable, tuple[str, str]] = {}

    def get(self, name: str, collective: str | None = None) -> Algorithm:
        """The algorithm of a name. ``collective``: what it is to run, for the message about an unknown name.

        Raises:
            ConfigError: for an unknown name, a module that cannot be loaded, or settings that a schedule cannot have.
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
        """The message about a name that no entry has. It lists the algorithms that run the collective, else all."""
        return unknown_algorithm(name, [each.name for each in self.of(collective or "")] or self._entries)

    @cached_property
    def _usable(self) -> list[Algorithm]:
        """Those that can be loaded, in the order of their names."""
        found = []
        for name in sorted(self._entries):
            try:
                found.append(self.get(name))
            except ConfigError as error:
                self.left_out[name] = str(error)
        return found

    @property
    def schedules(self) -> list[Algorithm]:
        """Those that run in any group, in the order of their names."""
        return [algorithm for algorithm in self._usable if algorithm.is_schedule]

    @property
    def wired(self) -> list[str]:
        """The names of all others, which are wired before a run."""
        return [algorithm.name for algorithm in self._usable if not algorithm.is_schedule]

    def of(self, collective: str) -> list[Algorithm]:
        """Those that run a collective."""
        return [algorithm for algorithm in self.schedules if collective in algorithm.collectives]

    def judged(self, *tasks: Task) -> list[tuple[Algorithm, str]]:
        """Those of the collective of some tasks, each with why it cannot run one of them; empty where it runs all.

        One with a schedule of one of them that cannot be carried out is left out.
        """
        found = []
        for algorithm in self.of(tasks[0].collective.name):
            try:
                found.append((algorithm, next(filter(None, (self.why_not(algorithm, task) for task in tasks)), "")))
            except ConfigError as error:
                self.left_out[algorithm.name] = str(error)
        return found

    def able(self, task: Task) -> list[Algorithm]:
        """Those that run a task."""
        return [algorithm for algorithm, why in self.judged(task) if not why]

    def why_not(self, algorithm: Algorithm, task: Task) -> str:
        """Why a schedule cannot run a task, in a few words; empty when it can.

        Under ``hw_strict`` a PE has registers for the queue pairs of one wiring at a time, that of its kernel.

        Raises:
            ConfigError: for one that cannot be carried out.
        """
        why = algorithm.why_not(task)
        if not why and algorithm.is_users:
            self._check(algorithm, task)
        if why or algorithm.wiring is None or not effective_ipcq(self._resolved, algorithm.name).hw_strict:
            return why
        directions = most_directions(algorithm.wiring(task.group))
        if directions <= MAX_DIRECTIONS:
            return ""
        return f"it has {directions} directions, and under hw_strict a PE has registers for {MAX_DIRECTIONS}"

    def made_of(self, algorithm: Algorithm, task: Task) -> str:
        """The start of a hash of a user's wiring and schedule of a task, which must be alike on all ranks; else empty.

        Raises:
            ConfigError: for one that cannot be carried out.
        """
        return self._check(algorithm, task) if algorithm.is_users else ""

    def _check(self, algorithm: Algorithm, task: Task) -> str:
        """Check a user's schedule of a task, once for each task; the tests hold those of this package. Its hash."""
        key = (algorithm.name, *task._replace(group=task.group.sips))  # type: ignore[arg-type]
        if key not in self._checked:
            try:
                checked = "", algorithm.check_task(task)
            except ConfigError as error:
                checked = str(error), ""
            if len(self._checked) >= MOST_CHECKED:
                self._checked.clear()
            self._checked[key] = checked
        wrong, made_of = self._checked[key]
        if wrong:
            raise ConfigError(wrong)
        return made_of


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


AUTO, ALL = "auto", "all"
"""What a user may say in place of an algorithm's name: the one that costs least, or all that suit."""


def select(catalog: Catalog, made: Prepared, configured: Algorithm, named: str = "") -> Algorithm:
    """The algorithm of a task. ``named``: by the call; empty: ``configured`` if it runs
    such collectives, else as with ``auto`` the one that costs least.

    Raises:
        ValueError: for one that cannot run it; lists those that can.
        ConfigError: for one named that cannot be loaded, or whose schedule cannot be carried out.
    """
    task = made.task
    collective = task.collective.name
    if not named and collective in configured.collectives:
        named = configured.name
    if named not in ("", AUTO):
        algorithm = catalog.get(named, collective)
        why = catalog.why_not(algorithm, task) if algorithm.is_schedule else "it is wired before the run, for all SIPs"
        if why:
            able = ", ".join(each.name for each in catalog.able(task)) or "none"
            raise ValueError(f"algorithm {named} cannot run this {collective}: {why}; those that can: {able}")
        return algorithm
    chosen = least(catalog, made)
    if chosen is None:
        raise ValueError(f"no algorithm of ccl.yaml runs {collective} in this group")
    return chosen


def able(catalog: Catalog, tasks: list[Task]) -> tuple[list[str], list[tuple[str, str]]]:
    """The algorithms that run all of these tasks of one collective; and those that do not, each with the reason."""
    judged = [(algorithm.name, why) for algorithm, why in catalog.judged(*tasks)]
    return [name for name, why in judged if not why], [each for each in judged if each[1]]


Groups = tuple[tuple[int, ...], ...]


def groups_of(text: str, system: SipNetwork) -> Groups:
    """The SIPs of each group that ``--group`` names, disjoint groups of one size; empty for the group of all.

    ``text``: ranks, or all rows, columns or halves, which then run at the same time.

    Raises:
        ConfigError: for ranks that do not exist, or rows and columns where SIPs stand in no grid.
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
        raise ConfigError(f"--group halves: {system.n_sips} SIPs have no equal halves; name the ranks of a group")
    return tuple(range(half)), tuple(range(half, system.n_sips))


SUBSETS: dict[str, Callable[[SipNetwork], Groups]] = {"rows": _rows, "columns": _columns, "halves": _halves}


def _grid(what: str, system: SipNetwork) -> tuple[int, int]:
    if TOPOLOGIES.get(system.topology).dimensions == 1:
        hint = "name ranks, such as 0,1, or halves"
        raise ConfigError(f"--group {what}: SIPs of topology {system.topology} stand in no grid; {hint}")
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
        raise ConfigError(f"--group {text}: a rank is named twice; name each once")
    return ranks
