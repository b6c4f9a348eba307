"""Programs of a chip, one after the other: a program starts when the kernels of those before it have ended.

Servers do not count, unless one runs on a processor that the program needs. The semaphores of a program are set when it
starts.
"""

from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from sipsim.chips.tensix.jitter import Jitter
from sipsim.chips.tensix.noc.floor_plan import Core
from sipsim.chips.tensix.programs.programs import KernelSpec, Program
from sipsim.core.engine import Engine
from sipsim.core.task import Task

Place = tuple[Core, int]
BEFORE = "the programs before its own"


class _Launch(NamedTuple):
    """A program that was enqueued, and its tasks by the place of their kernels."""

    program: Program
    tasks: dict[Place, Task]


class Launches:
    """``make(spec, ended)``: the task of a kernel, which calls ``ended`` at its end. ``set_word``: a semaphore.
    ``on_idle``: called when all kernels have ended. ``jitter``: of the starts of kernels, if any.
    """

    def __init__(
        self,
        engine: Engine,
        make: Callable[[KernelSpec, Callable[[], None]], Task],
        set_word: Callable[[Core, int, int], None],
        on_idle: Callable[[], None],
        jitter: Jitter | None = None,
    ) -> None:
        self._engine = engine
        self._make = make
        self._set_word = set_word
        self._on_idle = on_idle
        self._jitter = jitter
        self._queue: deque[_Launch] = deque()
        self._running: dict[Place, Task] = {}

    @property
    def is_idle(self) -> bool:
        """Whether all kernels have ended, servers aside."""
        return not self._queue and all(task.is_server for task in self._running.values())

    def tasks(self) -> list[Task]:
        """Of all kernels that have not ended."""
        return [*self._running.values(), *(task for launch in self._queue for task in launch.tasks.values())]

    def is_used(self, core: Core) -> bool:
        """Whether a kernel of a tile has not ended."""
        return any(place[0] == core for place in chain(self._running, *(launch.tasks for launch in self._queue)))

    def enqueue(self, program: Program) -> list[Task]:
        """Start a program, now or when it may; its tasks."""
        program.is_enqueued = True
        tasks = {}
        for spec in program.kernels:
            place = spec.core, spec.config.processor
            tasks[place] = self._make(spec, lambda place=place: self._ended(place))  # type: ignore[misc]
            tasks[place].waits_for = BEFORE
        self._queue.append(_Launch(program, tasks))
        self._start_next()
        return list(tasks.values())

    def _ended(self, place: Place) -> None:
        """The kernel at a place has ended: what follows comes as an event, as its task still runs."""
        del self._running[place]
        self._engine.at(self._engine.now_ps, self._start_next)

    def _start_next(self) -> None:
        while self._queue and self._may_start(self._queue[0]):
            program, tasks = self._queue.popleft()
            for (core, address), initial in program.semaphores.items():
                self._set_word(core, address, initial)
            self._running |= tasks
            for place, task in tasks.items():
                task.waits_for = None
                late_ps = 0 if self._jitter is None else self._jitter.start_delay_ps(*place)
                self._engine.at(self._engine.now_ps + late_ps, task.resume)
        if self.is_idle:
            self._on_idle()

    def _may_start(self, launch: _Launch) -> bool:
        is_free = not any(place in self._running for place in launch.tasks)
        return is_free and all(task.is_server for task in self._running.values())
