"""The bridge between host code and the simulation: it starts the host program and carries all of its calls.

Host code may run anywhere, but only the host task, which belongs to the simulation's loop, can wait in simulated time.
A bridge brings each call of the host API to that task and its result or exception back. The simulation stands while
host code runs, so no result depends on where it runs.
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
    """One rank's way to run its host program.

    ``on_call_end`` is called on the simulation's side when a call has returned: that is progress, however long it took.
    """

    def __init__(self) -> None:
        self.on_call_end: Callable[[], None] = lambda: None

    @abstractmethod
    def body(self, program: Callable[[], None]) -> Callable[[], None]:
        """The host task's body: it runs the host program to its end, and raises what the program raises."""

    @abstractmethod
    def call(self, fn: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        """Called by host code, and by what runs in the simulation: the result of ``fn``, or the exception it raises.

        ``fn`` runs in the host task if host code calls this. It may wait in simulated time, and may use ``call``.
        """

    def host_frame(self, task_frame: FrameType | None) -> FrameType | None:
        """Where host code is: by default in the host task, of which ``task_frame`` is the innermost frame."""
        return task_frame

    @abstractmethod
    def close(self) -> None:
        """The run is over, perhaps before its program: leave nothing behind. From the simulation's loop.

        It may be closed again.
        """


def host_call(method: Method) -> Method:
    """A method of the host API: it runs by way of its object's ``bridge``."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.bridge.call(method, self, *args, **kwargs)

    return cast(Method, call)


class GreenletBridge(Bridge):
    """The host program is the body of the host task itself, a greenlet: a call is a call.

    A program that is cut short is never resumed.
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
