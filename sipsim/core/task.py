"""Code that blocks in simulated time: a greenlet that gives up the thread while it waits.

Kernels and host scripts run as tasks. The simulation loop is every task's parent, so an exception in a task
surfaces there. A task is resumed by the part that it waits for, inside that part's event: no event is spent on
the switch itself.
"""

import inspect
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import greenlet

from sipsim.core.errors import pass_on_halt
from sipsim.core.forks import PROCESS, end_child, refuse_child

NOT_PLAIN = "must be a plain function, without yield or async: called, it would not run"


def makes_generator(function: Callable[..., Any]) -> bool:
    """Whether a call would only make a generator or coroutine, without running it."""
    return any(
        makes(function)
        for makes in (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)
    )


def why_not_called(function: Callable[..., Any], count: int) -> str:
    """Why a function of a user cannot be called with ``count`` values; empty when it can."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return f"{getattr(function, '__name__', 'it')}{signature} cannot take {count} values"
    return ""


class TaskFailed(RuntimeError):
    """An exception in a task's code, which is ``__cause__``. ``place`` names the task.

    ``on_pe``: (cube, PE) of a kernel, else (-1, -1).
    """

    def __init__(self, place: str, on_pe: tuple[int, int] = (-1, -1)) -> None:
        super().__init__(f"{place} failed")
        self.place = place
        self.on_pe = on_pe


class Task:
    """One run of ``body``. ``waits_for`` describes what it is blocked on, None while it runs or after its end.

    ``is_server``: it serves others as long as the run goes on. It never counts as waiting, and never has to end.
    ``span``: the number of the span whose end, at ``since_ps``, released it last (``sipsim.records.recorder``).
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
        """Where it gave up the thread; None while it runs, before its start and after its end."""
        found: FrameType | None = self._greenlet.gr_frame
        return found

    def resume(self, value: Any = None) -> None:
        """Run the task until it waits again; from the simulation loop only."""
        self.waits_for = None
        self._greenlet.switch(value)

    def wait(self, what: object) -> Any:
        """Give up the thread until :meth:`resume`, and return its value; from the task itself only."""
        if PROCESS.is_child:
            refuse_child()
        self.waits_for = what
        return self._loop.switch()

    def stop(self) -> None:
        """End a task that waits, when nothing will resume it; from the simulation loop only.

        The collector sees no frame of a greenlet: what such a task holds would never be freed.
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
                # :meth:`stop`, or the end of the process.
                raise
            raise TaskFailed(self.name, self.on_pe) from error
        finally:
            self.ended = True


class MakeTask(Protocol):
    """Makes a task, as ``Task`` does."""

    def __call__(
        self, name: str, body: Callable[[], Any], loop: greenlet.greenlet, on_pe: tuple[int, int] = ...
    ) -> Task: ...


def _nothing() -> None:
    """In place of a body that runs or has run: what it refers to is freed at its end."""
