"""Tasks: code that blocks in simulated time, as a greenlet that yields to the simulation loop while it waits.

Kernels and host scripts run as tasks. The simulation loop is the parent greenlet of every task, so an exception in a
task propagates to the loop. The component that a task waits for resumes it inside the component's event; the switch
itself needs no event.
"""

import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import greenlet

from sipsim.core.errors import pass_on_halt
from sipsim.core.forks import PROCESS, end_child, refuse_child

NOT_PLAIN = "must be a plain function, without yield or async, so that a call runs it"


def makes_generator(function: Callable[..., Any]) -> bool:
    """Whether a call of ``function`` would only make a generator or coroutine, without running its code."""
    return any(
        makes(function)
        for makes in (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    )


def reason_not_callable(function: Callable[..., Any], count: int) -> str:
    """Return why a user's function cannot be called with ``count`` positional arguments; "" if it can."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return f"{getattr(function, '__name__', 'function')}{signature} cannot take {count} values"
    return ""


class TaskFailed(RuntimeError):
    """Error for a task whose code has raised ``__cause__``. ``place`` names the task.

    ``on_pe``: (cube, PE) of a kernel, else (-1, -1). ``shows_line``: the message names the line that raised.
    """

    def __init__(self, place: str, on_pe: tuple[int, int] = (-1, -1), shows_line: bool = False) -> None:
        super().__init__(f"{place} failed")
        self.place = place
        self.on_pe = on_pe
        self.shows_line = shows_line


class Task:
    """Execution of ``body`` as a greenlet. ``waits_for``: what the task waits for; None if the task does not wait.

    ``is_server``: the task serves other tasks for the whole run, never counts as waiting, and need not end.
    ``span``: number of the span whose end, at ``since_ps``, last resumed the task (``sipsim.records.recorder``).
    """

    is_server = False
    span = 0
    since_ps = 0

    def __init__(
        self, name: str, body: Callable[[], Any], loop: greenlet.greenlet, on_pe: tuple[int, int] = (-1, -1)
    ) -> None:
        self.name = name
        self.on_pe = on_pe
        self.waits_for: object | None = None
        self.ended = False
        self._body = body
        self._loop = loop
        self._greenlet = greenlet.greenlet(self._run, parent=loop)

    @property
    def is_current(self) -> bool:
        """Whether this task's code is running."""
        return greenlet.getcurrent() is self._greenlet

    @property
    def frame(self) -> FrameType | None:
        """The frame in which the task waits; None if the task runs, has not started or has ended."""
        frame: FrameType | None = self._greenlet.gr_frame
        return frame

    def resume(self, value: Any = None) -> None:
        """Run the task until the task waits again. Call this method from the simulation loop only."""
        self.waits_for = None
        self._greenlet.switch(value)

    def wait(self, what: object) -> Any:
        """Block until :meth:`resume`, and return the value passed to it. Call this from the task itself only."""
        if PROCESS.is_child:
            refuse_child()
        self.waits_for = what
        return self._loop.switch()

    def stop(self) -> None:
        """End a waiting task that will not be resumed. Call this method from the simulation loop only.

        Without this call, objects in the task's frames are never freed: the garbage collector does not see greenlets.
        """
        self._greenlet.throw()

    def _run(self, _value: Any) -> None:
        body, self._body = self._body, _nothing
        try:
            body()
            if PROCESS.is_child:
                end_child(None)
        except BaseException as error:
            if PROCESS.is_child:
                end_child(error)
            pass_on_halt(error)
            if issubclass(type(error), greenlet.GreenletExit) and self.waits_for is not None:
                # Raised by :meth:`stop` or at the end of the process; not a failure.
                raise
            raise TaskFailed(self.name, self.on_pe) from error
        finally:
            self.ended = True


class MakeTask(Protocol):
    """The signature of a factory of tasks, such as the class ``Task``."""

    def __call__(
        self, name: str, body: Callable[[], Any], loop: greenlet.greenlet, on_pe: tuple[int, int] = ...
    ) -> Task: ...


def _nothing() -> None:
    """Replace the body of a running task, so that objects that only the body refers to are freed when it ends."""
