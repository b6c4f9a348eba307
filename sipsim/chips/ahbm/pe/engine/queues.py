"""The queue of an engine: the commands that it has taken and not ended, in order, and what may start next.

With ``pe_scheduler.queue_depth`` every engine has one of that many places. A command takes a place when PE_CPU hands it
over and gives it back at its end; while all are taken, the kernel is blocked. The engine executes one command at a
time, in order, so none overtakes another. Engines that share a queue are one engine: PE_DMA's loads and stores.

A send ends for its kernel when its message leaves, so its place is counted by arithmetic: PE_DMA passes messages on one
after the other at its bandwidth, once it has their bytes, which may be fetched from another memory; the place is free
when the last byte has passed. What the fabric holds back beyond that is not counted: it is bounded by the slots of the
peers' rings.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from sipsim.chips.ahbm.pe.commands import Completion
from sipsim.core.engine import Engine
from sipsim.core.errors import AhbmError, InvariantViolation
from sipsim.core.task import Task

Ps = int
Start = Callable[[Completion], None]


class EngineQueue:
    """The commands of one engine, called ``name``; ``depth`` of them at most."""

    def __init__(self, name: str, depth: int) -> None:
        self.name = name
        self._depth = depth
        self._commands: deque[Completion] = deque()
        self._served_ps: Ps = 0

    def served(self, start_ps: Ps, end_ps: Ps) -> Ps:
        """When the engine took a command, which began at ``start_ps`` and ends now: not before the last one's end.

        One that failed counts as none: the command behind it may be said to be taken too early.
        """
        taken_ps, self._served_ps = max(start_ps, self._served_ps), end_ps
        return taken_ps

    def admit(self, task: Task) -> None:
        """Block the kernel until there is a place."""
        while len(self._commands) >= self._depth:
            self._commands[0].wait_for_end(task)
            self._forget_ended()

    def enter(self, completion: Completion, start: Start) -> None:
        """Start a command now, or when the one before it has ended. One that cannot start ends with its error."""
        if self._commands:
            self._forget_ended()
        before = self._commands[-1] if self._commands else None
        self._commands.append(completion)
        if before is None:
            _start_or_fail(start, completion)
        else:
            before.then = partial(_start_or_fail, start, completion)

    def check_end(self, completion: Completion) -> None:
        """Check that a command, which ends now, overtakes none.

        Raises:
            InvariantViolation: when one before it has not ended.
        """
        self._forget_ended()
        first = self._commands[0] if self._commands else None
        if first is not completion:
            raise InvariantViolation(
                f"engine {self.name}: a {type(completion.command).__name__} overtakes the command before it"
            )

    def _forget_ended(self) -> None:
        while self._commands and self._commands[0].ended:
            self._commands.popleft()


def _start_or_fail(start: Start, completion: Completion) -> None:
    try:
        start(completion)
    except AhbmError as error:
        completion.fail(error)


class SendPlaces:
    """The places of PE_DMA's queue of sends: when each message that was sent has passed PE_DMA.

    Messages pass in the order of their sends. When one passes is not known while it, or one before it, is fetched.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._passed_ps: deque[Ps] = deque()
        self._last_ps: Ps = 0
        self._unknown = 0
        self._waiter: Callable[[], None] | None = None

    def free_ps(self, now_ps: Ps) -> Ps | None:
        """When there is a place, now or later; None while that is not known."""
        passed = self._passed_ps
        while passed and passed[0] <= now_ps:
            passed.popleft()
        last = len(passed) + self._unknown - self._depth
        if last < 0:
            return now_ps
        return passed[last] if last < len(passed) else None

    def wait(self, task: Task, engine: Engine, what: str) -> None:
        """Block the kernel until more is known."""
        self._waiter = partial(self._resume, task, engine)
        task.wait(what)

    def add(self) -> None:
        """A message is sent."""
        self._unknown += 1

    def passes(self, passed_ps: Ps, drain_ps: Ps) -> None:
        """The next message, alone, has passed PE_DMA then; behind another, ``drain_ps`` after that at the soonest."""
        self._unknown -= 1
        self._last_ps = max(passed_ps, self._last_ps + drain_ps)
        self._passed_ps.append(self._last_ps)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter()

    def _resume(self, task: Task, engine: Engine) -> None:
        """Not before the message, which is just leaving, has left."""
        engine.at(engine.now_ps, task.resume)
