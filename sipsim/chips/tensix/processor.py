"""Processor of a tile, which runs one kernel as a task, spends simulated time, and waits for words of the tile's L1."""

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
INSTRUCTIONS, POLLS, NOC, QUEUE = "instructions", "polls", "noc", "transmit queue"
"""Kinds of a kernel's time: instructions, and waits for words of L1, for NoC commands, and for an Ethernet queue."""


class Processor:
    """Processor with one kernel. ``name``: names of kernel and tile. ``noc``: number of the NoC for all commands.
    ``reads``, ``writes``: numbers of NoC commands that have not arrived. ``acked_ps``: time at which the last arrived
    write is acknowledged. ``flushed_ps``: time at which the bytes of all writes have left on an otherwise idle NoC.
    ``unsent``: by transaction id, number of writes whose bytes have not left. ``owed_ps``: time that the next command
    or wait spends. ``used_ps``: the kernel's time so far and ``owed_ps``, by kind.
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
        self.used_ps: Counter[str] = Counter()

    @cached_property
    def eth_command_ps(self) -> Ps:
        """The time of an Ethernet command in ps."""
        return ns_to_ps(self._risc.eth_command_ns)

    @cached_property
    def routing_ps(self) -> Ps:
        """The time of a call of ``run_routing`` in ps."""
        return ns_to_ps(self._risc.run_routing_ns)

    @cached_property
    def timer_ps(self) -> Ps:
        """The time of a read of the timer in ps."""
        return ns_to_ps(self._risc.timer_ns)

    def make(self, kernel: Callable[[], Any], loop: greenlet.greenlet, make_task: MakeTask, is_server: bool) -> Task:
        """Make the task of a kernel. The kernel starts when the task is first resumed."""
        self.task = make_task(self.name, kernel, loop)
        self.task.is_server = is_server
        return self.task

    def owe(self, ps: Ps, kind: str = INSTRUCTIONS) -> None:
        """Add ``ps`` to ``owed_ps``. ``kind``: the kind of this time in ``used_ps``, whatever spends it."""
        self.owed_ps += ps
        self.used_ps[kind] += ps

    def spend(self, ps: Ps, what: object = "its own instructions", kind: str = INSTRUCTIONS) -> None:
        """Spend ``ps`` plus ``owed_ps`` of simulated time. ``kind``: the kind of ``ps`` in ``used_ps``."""
        if ps:
            self.used_ps[kind] += ps
        if self.owed_ps:
            ps += self.owed_ps
            self.owed_ps = 0
        if ps:
            assert self.task is not None
            self.engine.at(self.engine.now_ps + ps, self.task.resume)
            self.task.wait(what)

    def spend_until(self, time_ps: Ps, what: object, kind: str = INSTRUCTIONS) -> None:
        """Spend the time until ``time_ps``, but at least ``owed_ps``."""
        self.spend(max(time_ps - self.engine.now_ps - self.owed_ps, 0), what, kind)

    def wait_until(
        self, is_so: Callable[[], bool], what: object, looks: Looks, kind: str = POLLS, idle_ps: Ps = 0
    ) -> int:
        """Poll until ``is_so()`` is true: a poll takes ``poll_ps``, and ``idle_ps`` more if it finds nothing. Polls
        that find nothing need no simulation event: a change calls the callbacks in ``looks``, and the end of the next
        poll is computed then.

        Returns:
            The number of polls.
        """
        began_ps = self.engine.now_ps + self.owed_ps
        while True:
            if is_so():
                self.spend(self.poll_ps, what, kind)
            else:
                self._sleep(is_so, what, looks, kind, idle_ps)
            if is_so():
                return (self.engine.now_ps - began_ps + idle_ps) // (self.poll_ps + idle_ps)

    def _sleep(self, is_so: Callable[[], bool], what: object, looks: Looks, kind: str, idle_ps: Ps) -> None:
        """Wait until the end of the poll that finds the condition true. No poll begins before ``owed_ps`` is spent."""
        began_ps = self.engine.now_ps + self.owed_ps
        self.owed_ps = 0
        assert self.task is not None
        looks.append(_Sleep(self, is_so, looks, began_ps, self.poll_ps + idle_ps))
        self.task.wait(what)
        self.used_ps[kind] += self.engine.now_ps - began_ps


class _Sleep:
    """Wait of a processor since ``began_ps``, with a poll every ``period_ps``: a callback in the list ``looks`` until
    ``is_so()`` is true. The callback is an object instead of a function, so that the callback can remove itself from
    the list.
    """

    __slots__ = ("_began_ps", "_is_so", "_looks", "_period_ps", "_processor")

    def __init__(
        self, processor: Processor, is_so: Callable[[], bool], looks: Looks, began_ps: Ps, period_ps: Ps
    ) -> None:
        self._processor = processor
        self._is_so = is_so
        self._looks = looks
        self._began_ps = began_ps
        self._period_ps = period_ps

    def __call__(self) -> None:
        """Test ``is_so()`` after a change. If true, resume the processor when the poll that sees the change ends."""
        if not self._is_so():
            return
        self._looks.remove(self)
        engine, task, poll_ps = self._processor.engine, self._processor.task, self._processor.poll_ps
        assert task is not None
        now_ps = engine.now_ps
        begin_ps = max(self._began_ps, now_ps + (self._began_ps - now_ps) % self._period_ps)
        engine.at(begin_ps + poll_ps, task.resume)
