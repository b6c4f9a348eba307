"""Host calls: what a script asks of the simulated machine. Each one that ends is progress, however long it took."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast


class HostCalls:
    """Whoever wants to know that a host call has ended; one for each SIP."""

    def __init__(self) -> None:
        self.on_end: Callable[[], None] = lambda: None


Method = TypeVar("Method", bound=Callable[..., Any])


def host_call(method: Method) -> Method:
    """A method whose end is told to ``calls.on_end`` of its object."""

    @wraps(method)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = method(self, *args, **kwargs)
        self.calls.on_end()
        return answer

    return cast(Method, told)
