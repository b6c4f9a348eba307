"""The algorithms of ``ccl.yaml`` that are schedules, by name; each is loaded when it is first asked for."""

from collections.abc import Hashable
from functools import cached_property

from sipsim.ccl.algorithm import Algorithm
from sipsim.ccl.collectives.group import Task
from sipsim.ccl.groups.install import most_directions
from sipsim.ccl.install import MAX_DIRECTIONS
from sipsim.ccl.rules import setting_of_pe
from sipsim.ccl.settings import effective_ipcq
from sipsim.config.model import Resolved
from sipsim.errors import ConfigError
from sipsim.registry import unknown_name


class Catalog:
    """All entries of a config. ``chosen``: what was found to cost least, by what was asked."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._entries = resolved.ccl.algorithms
        self._loaded: dict[str, Algorithm] = {}
        self.chosen: dict[Hashable, Algorithm | None] = {}

    def get(self, name: str) -> Algorithm:
        """One of them.

        Raises:
            ConfigError: for an unknown name, a module that cannot be loaded, or settings that a schedule cannot have.
        """
        if name not in self._entries:
            raise ConfigError(unknown_name("algorithm", name, self._entries))
        if name not in self._loaded:
            algorithm = Algorithm(name, self._entries[name])
            if algorithm.is_schedule:
                problem = setting_of_pe(self._resolved, name)
                if problem:
                    raise ConfigError(problem.text)
            self._loaded[name] = algorithm
        return self._loaded[name]

    @cached_property
    def schedules(self) -> list[Algorithm]:
        """Those that run in any group, in the order of their names."""
        every = (self.get(name) for name in sorted(self._entries))
        return [algorithm for algorithm in every if algorithm.is_schedule]

    @cached_property
    def wired(self) -> list[str]:
        """The names of all others, which are wired before a run."""
        return [name for name in sorted(self._entries) if not self.get(name).is_schedule]

    def of(self, collective: str) -> list[Algorithm]:
        """Those that run a collective."""
        return [algorithm for algorithm in self.schedules if collective in algorithm.collectives]

    def judged(self, *tasks: Task) -> list[tuple[Algorithm, str]]:
        """Those of the collective of some tasks, each with why it cannot run one of them; empty where it runs all."""
        every = self.of(tasks[0].collective.name)
        return [(each, next(filter(None, (self.why_not(each, task) for task in tasks)), "")) for each in every]

    def able(self, task: Task) -> list[Algorithm]:
        """Those that run a task."""
        return [algorithm for algorithm, why in self.judged(task) if not why]

    def why_not(self, algorithm: Algorithm, task: Task) -> str:
        """Why a schedule cannot run a task, in a few words; empty when it can.

        Under ``hw_strict`` a PE has registers for the queue pairs of one wiring at a time, that of its kernel.
        """
        why = algorithm.why_not(task)
        if why or algorithm.wiring is None or not effective_ipcq(self._resolved, algorithm.name).hw_strict:
            return why
        directions = most_directions(algorithm.wiring(task.group))
        if directions <= MAX_DIRECTIONS:
            return ""
        return f"it has {directions} directions, and under hw_strict a PE has registers for {MAX_DIRECTIONS}"
