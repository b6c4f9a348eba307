"""Processes of a machine's parts: SimPy generators that count as waiting, are named in reports, and can be stopped."""

import inspect
from collections.abc import Callable, Generator
from reprlib import repr as short_repr
from types import FrameType, TracebackType
from typing import Any

import greenlet
import simpy
from simpy.events import Event

from sipsim.core.errors import ProcessMisuse, pass_on_halt
from sipsim.core.task import Task, TaskFailed

Steps = Generator[Event, Any, Any]
"""Generator of a process: it yields SimPy events."""


class Transfer(Event):
    """End of a transfer: the last byte has arrived."""

    def end(self, _head_ps: int, _tail_ps: int) -> None:
        """Succeed now, when the last byte arrives."""
        self.succeed()


class PartProcess(Task):
    """SimPy process of a part, as a task. ``owner``: the part, such as ``part my_lab.noise``; it and ``name`` name the
    process. ``process``: the SimPy event of its end. ``is_server``: a background process.

    SimPy runs this object in place of the generator. ``on_end(self)`` is called when the generator has ended.
    """

    def __init__(
        self,
        env: simpy.Environment,
        generator: Steps,
        owner: str,
        name: str,
        is_background: bool,
        on_end: Callable[["PartProcess"], None],
    ) -> None:
        if not inspect.isgenerator(generator):
            raise ProcessMisuse(
                f"{owner}: {short_repr(generator)} is no process; must be a generator, a call with yield"
            )
        self.__name__ = name or generator.__name__
        super().__init__(f"process {self.__name__} of {owner}", _nothing, greenlet.getcurrent())
        del self._greenlet  # SimPy runs the generator; the greenlet refers to this object
        self.owner = owner
        self.is_server = is_background
        self._env = env
        self._generator = generator
        self._on_end = on_end
        self.process: Any = simpy.Process(env, self)  # type: ignore[arg-type]
        self.process.callbacks.append(self._end)

    def send(self, value: Any) -> Event:
        """Resume the generator with the value of the event that it waited for."""
        self.waits_for = None
        return self._checked(self._generator.send(value))

    def throw(self, error: BaseException) -> Event:
        """Resume the generator with the exception of an event that failed, or an interrupt."""
        self.waits_for = None
        return self._checked(self._generator.throw(error))

    def _checked(self, event: Any) -> Event:
        if isinstance(event, Event) and event.env is self._env:
            self.waits_for = f"a {type(event).__name__} event"
            return event
        what = f"a process yielded {short_repr(event)}; must be an event of its env, such as env.timeout(1000) for 1 ns"
        error, frame = ProcessMisuse(what), self._innermost()
        if frame is not None:
            # The user's line is then in the traceback, although its frame does not raise.
            error.__traceback__ = TracebackType(None, frame, frame.f_lasti, frame.f_lineno)
        raise error

    @property
    def is_current(self) -> bool:
        return self._env.active_process is self.process

    @property
    def frame(self) -> FrameType | None:
        is_suspended = inspect.getgeneratorstate(self._generator) == inspect.GEN_SUSPENDED
        return self._innermost() if is_suspended else None

    def _innermost(self) -> FrameType | None:
        """Return the frame that yields: that of the generator, or of one to which it delegates by ``yield from``."""
        inner: Any = self._generator
        while inspect.isgenerator(inner.gi_yieldfrom):
            inner = inner.gi_yieldfrom
        frame: FrameType | None = inner.gi_frame
        return frame

    def stop(self) -> None:
        """End the process where it waits; its events call it no more.

        Raises:
            TaskFailed: if its cleanup code raises.
        """
        self.ended, target = True, self.process.target
        if target is not None and target.callbacks is not None and self.process._resume in target.callbacks:
            target.callbacks.remove(self.process._resume)
        env: Any = self._env
        env._active_proc = self.process  # whose cleanup code may schedule events
        try:
            self._generator.close()
        except BaseException as error:
            raise self._failure(error) from error
        finally:
            env._active_proc = None

    def _end(self, process: Event) -> None:
        self.ended, self.process = True, None  # break the reference cycle
        self._on_end(self)
        if not process.ok:
            error: Any = process.value
            raise self._failure(error) from error

    def _failure(self, error: BaseException) -> TaskFailed:
        pass_on_halt(error)
        return TaskFailed(self.name, shows_line=True)


def _nothing() -> None:
    """Stand in for the body of a task: SimPy runs the generator."""
