"""Host program of a SIP: its task, which waits in simulated time for the chip."""

from collections.abc import Callable

import greenlet

from sipsim.chips.api.bridge import Bridge, GreenletBridge
from sipsim.core.engine import Engine
from sipsim.core.task import MakeTask, Task
from sipsim.records.dump import HOST_SCRIPT

Ps = int


class HostProgram:
    """Host program of a SIP, created in the loop of the SIP's tasks. ``bridge`` runs host code; None selects a
    :class:`GreenletBridge`. ``start_ps``: start of the program. ``on_start(task)`` is called before the program runs,
    ``on_end()`` when it has ended without an exception.
    """

    def __init__(self, bridge: Bridge | None, make_task: MakeTask, engine: Engine, start_ps: Ps = 0) -> None:
        self.bridge = bridge or GreenletBridge()
        self.loop = greenlet.getcurrent()
        self.task: Task | None = None
        self.on_start: Callable[[Task], None] = lambda _task: None
        self.on_end: Callable[[], None] = lambda: None
        self._make_task = make_task
        self._engine = engine
        self._start_ps = start_ps

    @property
    def tasks(self) -> list[Task]:
        """List with the program's task; empty before :meth:`start`."""
        return [] if self.task is None else [self.task]

    def start(self, program: Callable[[], None]) -> None:
        """Start ``program`` at ``start_ps``, or now if that is 0; the task counts as waiting until the program ends."""
        body = self.bridge.body(program)

        def run() -> None:
            body()
            self.on_end()

        self.task = self._make_task(HOST_SCRIPT, run, self.loop)
        self.on_start(self.task)
        if self._start_ps:
            self._engine.at(self._start_ps, self.task.resume)
        else:
            self.task.resume()

    def wait(self, what: object) -> None:
        """Block the program, which calls this method, until :meth:`resume` is called with the same object."""
        assert self.task is not None
        self.task.wait(what)

    def resume(self, what: object) -> None:
        """Resume the program if the program waits for ``what``."""
        if self.task is not None and self.task.waits_for is what:
            self.task.resume()
