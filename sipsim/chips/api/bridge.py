"""Bridge between host code and the simulation: starts the host program and forwards all its calls.

Host code may run in any thread or process, but only the host task, which belongs to the simulation's loop, can wait in
simulated time. A bridge forwards each call of the host API to this task and returns its result or exception. The
simulation is paused while host code runs, so no result depends on where host code runs.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar, cast

from sipsim.core.forks import refuse_child

Params = ParamSpec("Params")
Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Any])


class Bridge(ABC):
    """Runs the host program of one rank.

    ``on_call_end`` is called on the simulation's side when a call has returned; such a return counts as progress.
    """

    def __init__(self) -> None:
        self.on_call_end: Callable[[], None] = lambda: None

    @abstractmethod
    def body(self, program: Callable[[], None]) -> Callable[[], None]:
        """Return the host task's body, which runs the host program to its end and raises the program's exceptions."""

    @abstractmethod
    def call(self, fn: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Return the result of ``fn`` or raise its exception. Host code and code in the simulation may call this.

        If host code calls, ``fn`` runs in the host task. ``fn`` may wait in simulated time and use ``call``.
        """

    def host_frame(self, task_frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame of host code: by default ``task_frame``, the host task's innermost frame."""
        return task_frame

    @abstractmethod
    def close(self) -> None:
        """Release all resources at the end of the run, even if the host program has not ended. Idempotent.

        Called from the simulation's loop.
        """


def host_call(method: Method) -> Method:
    """Decorate a method of the host API so that it runs through its object's ``bridge``."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.bridge.call(method, self, *args, **kwargs)

    return cast(Method, call)


class GreenletBridge(Bridge):
    """Bridge whose host program is the body of the host task, a greenlet; a call of the host API is a plain call.

    A program that has not ended when the run ends is never resumed.
    """

    def body(self, program: Callable[[], None]) -> Callable[[], None]:
        return program

    def call(self, fn: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        refuse_child()
        result = fn(*args, **kwargs)
        self.on_call_end()
        return result

    def close(self) -> None:
        pass
