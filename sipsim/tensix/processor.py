"""A processor of a tile: it runs one kernel as a task, spends time, and waits for words of its memory."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import greenlet

from sipsim.engine import Engine
from sipsim.task import MakeTask, Task
from sipsim.tensix.floor_plan import Core
from sipsim.tensix.memory import TileMemory
from sipsim.tensix.params import ChipParams
from sipsim.units import ns_to_ps

Ps = int
Looks = list[Callable[[], None]]


class Processor:
    """``name``: the kernel and its tile. ``noc``: the NoC of its commands. ``reads``, ``writes``: NoC commands of it
    that have not arrived; ``acked_ps``: when the last write that has arrived is acknowledged. ``flushed_ps``: when
    the bytes of all writes have left, as far as only this processor's are on their way out. ``unsent``: writes by
    transaction id whose bytes have not.
    """

    def __init__(self, name: str, core: Core, memory: TileMemory, engine: Engine, params: ChipParams, noc: int) -> None:
        self.name = name
        self.core = core
        self.memory = memory
        self.engine = engine
        self.noc = noc
        risc = params.risc
        self.noc_command_ps, self.eth_command_ps = ns_to_ps(risc.noc_command_ns), ns_to_ps(risc.eth_command_ns)
        self.poll_ps, self.l1_access_ps = ns_to_ps(risc.poll_ns), ns_to_ps(risc.l1_access_ns)
        self.timer_ps = ns_to_ps(risc.timer_ns)
        self.reads = 0
        self.writes = 0
        self.acked_ps: Ps = 0
        self.flushed_ps: Ps = 0
        self.unsent: Counter[int] = Counter()
        self.on_arrival: Looks = []
        self.task: Task | None = None

    def start(self, kernel: Callable[[], Any], loop: greenlet.greenlet, make_task: MakeTask, is_server: bool) -> Task:
        """The task of a kernel, which starts now."""
        self.task = make_task(self.name, kernel, loop)
        self.task.is_server = is_server
        self.engine.at(self.engine.now_ps, self.task.resume)
        return self.task

    def spend(self, ps: Ps, what: object = "its own instructions") -> None:
        """Let ``ps`` of this processor's time pass."""
        if ps:
            assert self.task is not None
            self.engine.at(self.engine.now_ps + ps, self.task.resume)
            self.task.wait(what)

    def wait_until(self, is_so: Callable[[], bool], what: object, looks: Looks) -> None:
        """Look every ``poll_ps`` until ``is_so()``. Looks that find nothing cost no event: the one that will find it
        is computed when something changes, of which ``looks`` is told.
        """
        while True:
            if not is_so():
                self._sleep(is_so, what, looks)
            self.spend(self.poll_ps, what)
            if is_so():
                return

    def _sleep(self, is_so: Callable[[], bool], what: object, looks: Looks) -> None:
        engine, task, began_ps = self.engine, self.task, self.engine.now_ps
        assert task is not None

        def look() -> None:
            if is_so():
                looks.remove(look)
                late_ps = (began_ps - engine.now_ps) % self.poll_ps
                engine.at(engine.now_ps + late_ps, task.resume)

        looks.append(look)
        task.wait(what)
