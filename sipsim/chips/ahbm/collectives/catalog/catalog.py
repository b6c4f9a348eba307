"""The algorithms of ``ccl.yaml`` that are schedules, by name; each is loaded when it is first asked for."""

from collections.abc import Hashable
from functools import cached_property

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.queue_pairs import MAX_DIRECTIONS
from sipsim.chips.ahbm.collectives.rules import setting_of_pe
from sipsim.chips.ahbm.collectives.settings import effective_ipcq, unknown_algorithm
from sipsim.chips.ahbm.collectives.wirings.install import most_directions
from sipsim.collectives.semantics.group import Task
from sipsim.config.schema.model import Resolved
from sipsim.core.errors import ConfigError

MOST_CHECKED = 1024
"""Tasks whose schedules a catalog remembers to have checked."""


class Catalog:
    """All entries of a config. ``chosen``: what was found to cost least, by what was asked.

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
                problem = setting_of_pe(self._resolved, name)
                if problem:
                    raise ConfigError(problem.text)
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
