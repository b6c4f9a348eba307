"""Host calls of a script. Each one that ends counts as progress, however long it took."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast


class HostCalls:
    """The callback at the end of a host call; one for each SIP."""

    def __init__(self) -> None:
        self.on_end: Callable[[], None] = lambda: None


Method = TypeVar("Method", bound=Callable[..., Any])


def host_call(method: Method) -> Method:
    """A method that calls ``calls.on_end`` of its object when it has ended."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        self.calls.on_end()
        return result

    return cast(Method, call)
