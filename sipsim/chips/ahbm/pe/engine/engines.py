"""Engines of a PE that take commands: each type of command has one, found by that type.

What is new is one module: a command, an engine with ``@engine_for(...)`` that times it on the parts of its PE and
performs it, and the fields of its op log record (:func:`sipsim.records.oplog.oplog.record_kind`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

from sipsim.chips.ahbm.ipcq.invariants import InvariantChecker
from sipsim.chips.ahbm.ipcq.messages.latch import FETCH
from sipsim.chips.ahbm.ipcq.pe_ipcq.pe_ipcq import PeIpcq
from sipsim.chips.ahbm.memory.store.store import MemoryStore
from sipsim.chips.ahbm.pe.commands import Completion
from sipsim.chips.ahbm.pe.cpu import PeCpu
from sipsim.chips.ahbm.pe.dma import PeDma
from sipsim.chips.ahbm.pe.engine.queues import EngineQueue, Start
from sipsim.chips.ahbm.pe.engine.unit import Unit
from sipsim.chips.ahbm.pe.tcm.handles import Handle
from sipsim.chips.ahbm.pe.tcm.room import KernelRoom
from sipsim.config.schema.model import IpcqKnobs, Resolved
from sipsim.core.engine import Engine
from sipsim.core.errors import AhbmError
from sipsim.core.registry.registry import TypeRegistry
from sipsim.core.task import Task
from sipsim.records.recorder import Recorder
from sipsim.records.replay.feed import Feed


class PlanParts(Protocol):
    """Settings of the parts and of the queues."""

    ipcq: IpcqKnobs
    resolved: Resolved


class SipParts(Protocol):
    """What engines use of their SIP, number ``sip``. ``checker``: None without ``--check-invariants``."""

    sip: int
    engine: Engine
    memory: MemoryStore
    recorder: Recorder
    checker: InvariantChecker | None

    @property
    def plan(self) -> PlanParts: ...


class PeParts(Protocol):
    """What engines use of their PE. ``phase``: that of its kernel, empty for none. ``run``: the index of the collective
    that its kernel belongs to, among those of the SIP; None for another kernel.
    ``room``: for what the kernel holds, None where that takes none. ``units``: its engines, by their names.
    """

    cube: int
    pe: int
    phase: str
    run: int | None
    dma: PeDma
    ipcq: PeIpcq
    cpu: PeCpu
    room: KernelRoom | None
    task: Task | None
    units: Mapping[str, Unit]


class CommandEngine(ABC):
    """An engine of one PE; it is made at the first command of one of its types.

    ``starts_later``: ``take`` may be called before a command starts, which is at its completion's ``start_ps``.
    ``queue_name``: that of its queue; classes with one name share it. Empty: its commands enter none. ``queue``: None
    without queues (``sipsim.chips.ahbm.pe.engine.queues``).
    """

    starts_later: ClassVar[bool] = False
    queue_name: ClassVar[str] = ""
    queue: EngineQueue | None = None

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        self._sip = sip
        self._pe = pe
        self._engine = sip.engine
        self._recorder = sip.recorder
        self._log = sip.recorder.log
        self._feed = sip.recorder.feed
        self._name = f"cube{pe.cube}.pe{pe.pe}"
        self._waited_ps = sip.recorder.waited_ps[self._name]

    @abstractmethod
    def take(self, command: Any) -> Completion:
        """Start a command; its completion ends when it has been performed, which may be at once."""

    def issue(self, task: Task) -> None:
        """PE_CPU issues the next command of its kernel, which runs, and the kernel waits for a place in the queue."""
        cpu = self._pe.cpu
        cpu.issue(task)
        if not self.starts_later:
            cpu.catch_up(task)
        if self.queue is not None:
            self.queue.admit(task)

    def _delay_ps(self, completion: Completion) -> int:
        """How long it takes until PE_CPU has issued a command."""
        return max(completion.start_ps - self._engine.now_ps, 0)

    def _enter(self, completion: Completion, start: Start) -> None:
        """Start a command in its turn: now, or when those before it in the queue have ended."""
        if self.queue is None:
            start(completion)
        else:
            self.queue.enter(completion, start)

    def _begin(self, command: Any) -> Completion:
        """The completion of a command that starts now, or when PE_CPU has issued it."""
        return Completion(command, self.now_on_cpu_ps(), self._cause())

    def _claim(self, completion: Completion, *operands: Handle) -> None:
        """A command is the first to name some operands that stand for their slots: it reads these, and frees them."""
        for operand in operands:
            if operand.in_slot is not None:
                completion.reads = (*completion.reads, operand.in_slot)
                operand.in_slot.handle = ""
                operand.in_slot = None
                if self._pe.room is not None:
                    operand.room = self._pe.room.take(operand.name, operand.nbytes)

    def _was_read(self, completion: Completion, cause: int) -> None:
        """A command has read all its slots."""
        reads, completion.reads = completion.reads, ()
        for slot in reads:
            self._pe.ipcq.slots.release(slot, cause)

    def now_on_cpu_ps(self) -> int:
        """When PE_CPU has issued what its kernel gave it: the kernel's own time."""
        now_ps, free_ps = self._engine.now_ps, self._pe.cpu.free_ps
        return free_ps if free_ps > now_ps else now_ps

    def _cause(self) -> int:
        """The span that released a command that starts now: what released the kernel that gives it."""
        task = self._pe.task
        return 0 if task is None else task.span

    def tell(self, feed: Feed, command: Any) -> None:
        """Tell the second pass what a command has made, just before its record: the values of its ``result``, if it has
        one. An engine that writes a memory tells what is there (:mod:`sipsim.records.replay.rules`).
        """
        result = getattr(command, "result", None)
        if isinstance(result, Handle):
            feed.result(result)

    def _end(self, completion: Completion, kind: str, *fields: object) -> None:
        """Record a command that has been performed, as a span and in the op log, and end it."""
        now_ps, start_ps = self._engine.now_ps, completion.start_ps
        if self.queue is not None and self._sip.checker is not None:
            self.queue.check_end(completion)
        span = self._recorder.span(self._name, kind, start_ps, now_ps, completion.cause, completion.value, *fields)
        if self._feed is not None:
            if self.queue is not None:
                self._feed.taken(self.queue.served(start_ps, now_ps))
            self.tell(self._feed, completion.command)
        self._log(kind, start_ps, now_ps, self._pe.cube, self._pe.pe, *fields)
        if completion.reads:
            self._was_read(completion, span)
        # The kernel goes on below: nothing here may still refer to a handle that it drops.
        completion.command = None
        task = completion.waiter
        if task is not None and start_ps == task.since_ps:
            # The kernel has waited since its start: the span is that of the kernel's time, too.
            task.span, task.since_ps = span, now_ps
            self._waited_ps[kind] += now_ps - start_ps
            completion.end()
        else:
            self._release(completion, span, kind, now_ps)

    def _release(self, completion: Completion, span: int, name: str, now_ps: int) -> None:
        """End a command by a span, which also ends the wait of its kernel."""
        task = completion.waiter
        if task is not None and task.since_ps <= now_ps:
            task.span = self._recorder.wait(self._name, name, task.since_ps, now_ps, span, task.span)
            task.since_ps = now_ps
        completion.end()

    def _operands(self, command: Any) -> tuple[Handle, ...]:
        """The handles whose values a command reads."""
        handles: tuple[Handle, ...] = command.handles
        return handles

    def _fetch(self, completion: Completion, then: Callable[[Completion], None]) -> None:
        """Bring operands that are still in a slot in HBM or SRAM to the PE, one after the other, and then ...

        The completion's value lists what was fetched: (address, bytes).
        """
        for at, handle in enumerate(self._operands(completion.command)):
            if handle.slot_pa is not None:
                fetched = partial(self._fetched, completion, at, then)
                self._pe.dma.read(handle.slot_pa, handle.nbytes, fetched, delay_ps=self._delay_ps(completion))
                return
            del handle  # the command may end below, and the kernel go on and drop it
        then(completion)

    def _fetched(self, completion: Completion, at: int, then: Callable[[Completion], None], _data: bytes) -> None:
        handle = self._operands(completion.command)[at]
        # Without `latch` the slot may hold a later message by now: the receive has kept the values.
        fetched = handle.slot_pa, handle.nbytes
        completion.value = (*(completion.value or ()), fetched)
        handle.slot_pa = None
        del handle
        self._fetched_slot(completion, fetched[0])
        try:
            self._fetch(completion, then)
        except AhbmError as error:
            completion.fail(error)

    def _fetched_slot(self, completion: Completion, slot_pa: int | None) -> None:
        """A slot in HBM or SRAM is free when its bytes are in the PE, whatever the command does with them."""
        for slot in [each for each in completion.reads if each.slot_pa == slot_pa]:
            completion.reads = tuple(each for each in completion.reads if each is not slot)
            name, facts = self._pe.ipcq.name, completion.value
            now_ps = self._engine.now_ps
            read = self._recorder.span(name, FETCH, completion.start_ps, now_ps, completion.cause, *facts)
            self._pe.ipcq.slots.release(slot, read)


ENGINES: TypeRegistry[type[CommandEngine]] = TypeRegistry(
    "command",
    "sipsim.chips.ahbm.pe.math.const",
    "sipsim.chips.ahbm.pe.math.delay",
    "sipsim.chips.ahbm.pe.dma_engine",
    "sipsim.chips.ahbm.ipcq.engine",
    "sipsim.chips.ahbm.pe.math.math",
    "sipsim.chips.ahbm.pe.math.view",
    "sipsim.chips.ahbm.gemm.engine.composite",
    "sipsim.chips.ahbm.gemm.engine.replay",
)
EngineType = TypeVar("EngineType", bound=type[CommandEngine])


def engine_for(*commands: type) -> Callable[[EngineType], EngineType]:
    """Class decorator: the engine that takes these commands."""

    def add(engine: EngineType) -> EngineType:
        for command in commands:
            ENGINES.register(command)(engine)
        return engine

    return add
