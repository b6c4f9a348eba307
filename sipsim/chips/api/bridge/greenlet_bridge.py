"""Host code inside the host task itself, which is a greenlet: a call is a call."""

from collections.abc import Callable

from sipsim.chips.api.bridge.base import Bridge, Params, Result
from sipsim.core.forks import refuse_child


class GreenletBridge(Bridge):
    """The host program is the body of the host task. One that is cut short is never resumed."""

    def body(self, program: Callable[[], None]) -> Callable[[], None]:
        return program

    def call(self, fn: Callable[Params, Result], *args: Params.args, **kwargs: Params.kwargs) -> Result:
        refuse_child()
        result = fn(*args, **kwargs)
        self.on_call_end()
        return result

    def close(self) -> None:
        pass
