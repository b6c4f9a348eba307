"""Programs of kernels, made by a host script, and the queue in which a chip launches programs one after another."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from sipsim.chips.tensix.durations import Durations, KernelTimes, Operation, ProgramTimes
from sipsim.chips.tensix.jitter import Jitter
from sipsim.chips.tensix.memory import ATOMIC_BYTES
from sipsim.chips.tensix.noc import Core
from sipsim.core.engine import Engine
from sipsim.core.errors import KernelMisuse
from sipsim.core.task import Task

SEMAPHORE_BYTES = 16


class DataMovementConfig(NamedTuple):
    """Configuration of a worker tile's kernel that moves data: the processor, and the NoC for commands."""

    processor: int = 0
    noc: int = 0


class ComputeConfig(NamedTuple):
    """Configuration of a worker tile's kernel that computes, and so does not use the data movement processors."""

    noc: int = 0
    processor: int = -1


class EthernetConfig(NamedTuple):
    """Configuration of an Ethernet core's kernel: the NoC for commands."""

    noc: int = 0
    processor: int = 0


Config = DataMovementConfig | ComputeConfig | EthernetConfig


class KernelSpec(NamedTuple):
    """Kernel of a program: ``kernel(*args, dataflow)`` runs on ``core``. ``is_server``: the kernel need not end."""

    kernel: Callable[..., Any]
    core: Core
    config: Config
    args: tuple[Any, ...]
    is_server: bool


@dataclass
class Program:
    """Kernels of one chip that start together, and initial values of semaphores, which are set before the start.

    ``operation``: the operation to which the program belongs; None for a program that a script makes.
    """

    kernels: list[KernelSpec] = field(default_factory=list)
    semaphores: dict[tuple[Core, int], int] = field(default_factory=dict)
    is_enqueued: bool = False
    operation: Operation | None = None

    def add(self, spec: KernelSpec) -> None:
        """Add a kernel.

        Raises:
            KernelMisuse: if the processor already has a kernel, or the program was already enqueued.
        """
        if self.is_enqueued:
            what = f"kernel {spec.kernel.__name__} was added after its program was enqueued"
            raise KernelMisuse(f"{what}; add the kernel earlier, or to another program")
        place = spec.core, spec.config.processor
        if any((each.core, each.config.processor) == place for each in self.kernels):
            raise KernelMisuse(f"processor {spec.config.processor} of tile {spec.core} takes one kernel per program")
        self.kernels.append(spec)

    def add_semaphore(self, core: Core, first: int, end: int, initial: int) -> int:
        """Allocate a semaphore of a tile at an address from ``first`` on and before ``end``.

        Raises:
            KernelMisuse: if all semaphores are in use.
        """
        index = sum(1 for each, address in self.semaphores if each == core and first <= address < end)
        address = first + index * SEMAPHORE_BYTES
        if address + SEMAPHORE_BYTES > end:
            raise KernelMisuse(f"tile {core}: a program has at most {index} semaphores per tile; create fewer")
        self.semaphores[core, address] = initial % 2 ** (8 * ATOMIC_BYTES)
        return address


Place = tuple[Core, int]
BEFORE = "the programs before its own"


class _Launch(NamedTuple):
    """Enqueued program, with the kernels' tasks by tile and processor, and its durations."""

    program: Program
    times: ProgramTimes
    tasks: dict[Place, Task]


class Launches:
    """Queue of the programs of a chip: a program sets its semaphores and starts when the kernels of earlier programs
    have ended.

    A program waits for a server only if a kernel needs the server's processor. ``make(spec, ended)``: makes the task of
    a kernel, which calls ``ended`` with its times at its end. ``set_word``: sets a semaphore. ``on_idle``: called when
    all kernels except servers have ended. ``durations``: the durations of kernels and programs. ``jitter``: random
    delays of kernel starts, or None.
    """

    def __init__(
        self,
        engine: Engine,
        make: Callable[[KernelSpec, Callable[[KernelTimes], None]], Task],
        set_word: Callable[[Core, int, int], None],
        on_idle: Callable[[], None],
        durations: Durations,
        jitter: Jitter | None = None,
    ) -> None:
        self._engine = engine
        self._make = make
        self._set_word = set_word
        self._on_idle = on_idle
        self._durations = durations
        self._jitter = jitter
        self._queue: deque[_Launch] = deque()
        self._running: dict[Place, Task] = {}
        self._awaited: list[tuple[Sequence[Task], Callable[[], None]]] = []

    @property
    def is_idle(self) -> bool:
        """Whether all kernels except servers have ended."""
        return not self._queue and all(task.is_server for task in self._running.values())

    def tasks(self) -> list[Task]:
        """Return the tasks of all kernels that have not ended."""
        return [*self._running.values(), *(task for launch in self._queue for task in launch.tasks.values())]

    def is_used(self, core: Core) -> bool:
        """Whether a kernel of a tile has not ended."""
        return any(place[0] == core for place in chain(self._running, *(launch.tasks for launch in self._queue)))

    def enqueue(self, program: Program) -> list[Task]:
        """Enqueue a program, which starts now or when earlier kernels have ended. Return the kernels' tasks."""
        program.is_enqueued = True
        operation = program.operation or Operation()
        operation.unfinished += 1
        kernels = tuple(spec.kernel.__name__ for spec in program.kernels if not spec.is_server)
        times = ProgramTimes(operation, kernels)
        tasks = {}
        for spec in program.kernels:
            place = spec.core, spec.config.processor
            tasks[place] = self._make(spec, partial(self._ended, place, times, spec.is_server))
            tasks[place].waits_for = BEFORE
        self._queue.append(_Launch(program, times, tasks))
        self._start_next()
        return list(tasks.values())

    def when_ended(self, tasks: Sequence[Task], call: Callable[[], None]) -> None:
        """Call a function once, when all tasks have ended."""
        self._awaited.append((tasks, call))
        self._engine.at(self._engine.now_ps, self._call_awaiting)

    def _call_awaiting(self) -> None:
        ready = [each for each in self._awaited if all(task.ended for task in each[0])]
        for each in ready:
            self._awaited.remove(each)
            each[1]()

    def _ended(self, place: Place, times: ProgramTimes, is_server: bool, kernel: KernelTimes) -> None:
        """Remove the ended kernel of a tile's processor. An event starts the next program, as the task still runs."""
        del self._running[place]
        self._durations.kernel_ended(times, kernel, is_server)
        self._engine.at(self._engine.now_ps, self._start_next)

    def _start_next(self) -> None:
        while self._queue and self._may_start(self._queue[0]):
            program, times, tasks = self._queue.popleft()
            for (core, address), initial in program.semaphores.items():
                self._set_word(core, address, initial)
            self._running |= tasks
            self._durations.started(times)
            for place, task in tasks.items():
                task.waits_for = None
                late_ps = 0 if self._jitter is None else self._jitter.start_delay_ps(*place)
                self._engine.at(self._engine.now_ps + late_ps, task.resume)
        self._call_awaiting()
        if self.is_idle:
            self._on_idle()

    def _may_start(self, launch: _Launch) -> bool:
        is_free = not any(place in self._running for place in launch.tasks)
        return is_free and all(task.is_server for task in self._running.values())
