"""A processor of a tile: it runs one kernel as a task, spends time, and waits for words of its memory."""

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any

import greenlet

from sipsim.chips.tensix.memory import TileMemory
from sipsim.chips.tensix.noc import Core
from sipsim.chips.tensix.params import ChipParams
from sipsim.core.engine import Engine
from sipsim.core.task import MakeTask, Task
from sipsim.core.units import ns_to_ps

Ps = int
Looks = list[Callable[[], None]]


class Processor:
    """``name``: the kernel and its tile. ``noc``: the NoC of its commands. ``reads``, ``writes``: NoC commands of it
    that have not arrived; ``acked_ps``: when the last write that has arrived is acknowledged. ``flushed_ps``: when
    the bytes of all writes have left, as far as only this processor's are on their way out. ``unsent``: writes by
    transaction id whose bytes have not. ``owed_ps``: time of its instructions that passes with its next command or
    wait.
    """

    def __init__(self, name: str, core: Core, memory: TileMemory, engine: Engine, params: ChipParams, noc: int) -> None:
        self.name = name
        self.core = core
        self.memory = memory
        self.engine = engine
        self.noc = noc
        risc = params.risc
        self._risc = risc
        self.noc_command_ps = ns_to_ps(risc.noc_command_ns)
        self.poll_ps, self.l1_access_ps = ns_to_ps(risc.poll_ns), ns_to_ps(risc.l1_access_ns)
        self.owed_ps: Ps = 0
        self.reads = 0
        self.writes = 0
        self.acked_ps: Ps = 0
        self.flushed_ps: Ps = 0
        self.unsent: Counter[int] = Counter()
        self.on_arrival: Looks = []
        self.task: Task | None = None

    @cached_property
    def eth_command_ps(self) -> Ps:
        """The time, in ps, of an Ethernet command."""
        return ns_to_ps(self._risc.eth_command_ns)

    @cached_property
    def timer_ps(self) -> Ps:
        """The time, in ps, of a look at the timer."""
        return ns_to_ps(self._risc.timer_ns)

    def make(self, kernel: Callable[[], Any], loop: greenlet.greenlet, make_task: MakeTask, is_server: bool) -> Task:
        """The task of a kernel, which starts when it is resumed."""
        self.task = make_task(self.name, kernel, loop)
        self.task.is_server = is_server
        return self.task

    def spend(self, ps: Ps, what: object = "its own instructions") -> None:
        """Let ``ps`` of this processor's time pass, and what it owes."""
        if self.owed_ps:
            ps += self.owed_ps
            self.owed_ps = 0
        if ps:
            assert self.task is not None
            self.engine.at(self.engine.now_ps + ps, self.task.resume)
            self.task.wait(what)

    def spend_until(self, time_ps: Ps, what: object) -> None:
        """Let time pass up to ``time_ps``, if that is to come, and at least what it owes."""
        self.spend(max(time_ps - self.engine.now_ps - self.owed_ps, 0), what)

    def wait_until(self, is_so: Callable[[], bool], what: object, looks: Looks) -> int:
        """Look every ``poll_ps`` until ``is_so()``. Looks that find nothing cost no event: the one that will find it
        is computed when something changes, of which ``looks`` is told.

        Returns:
            The number of looks.
        """
        began_ps = self.engine.now_ps + self.owed_ps
        while True:
            if is_so():
                self.spend(self.poll_ps, what)
            else:
                self._sleep(is_so, what, looks)
            if is_so():
                return (self.engine.now_ps - began_ps) // self.poll_ps

    def _sleep(self, is_so: Callable[[], bool], what: object, looks: Looks) -> None:
        """Until the end of the look that finds it."""
        began_ps = self.engine.now_ps + self.owed_ps
        self.owed_ps = 0
        assert self.task is not None
        looks.append(_Sleep(self, is_so, looks, began_ps))
        self.task.wait(what)


class _Sleep:
    """A processor's wait that began then, which ``looks`` refer to until they have found it over. A function would
    refer to itself, to leave them.
    """

    __slots__ = ("_began_ps", "_is_so", "_looks", "_processor")

    def __init__(self, processor: Processor, is_so: Callable[[], bool], looks: Looks, began_ps: Ps) -> None:
        self._processor = processor
        self._is_so = is_so
        self._looks = looks
        self._began_ps = began_ps

    def __call__(self) -> None:
        """Test the condition after a change. If it holds, the processor goes on at the end of the poll that sees it."""
        if not self._is_so():
            return
        self._looks.remove(self)
        engine, task, poll_ps = self._processor.engine, self._processor.task, self._processor.poll_ps
        assert task is not None
        now_ps = engine.now_ps
        begin_ps = max(self._began_ps, now_ps + (self._began_ps - now_ps) % poll_ps)
        engine.at(begin_ps + poll_ps, task.resume)
