"""PE_SCHEDULER and the engines of a PE: the scheduler hands each command to the engine of its type.

PE_CPU issues each command first (:mod:`sipsim.chips.ahbm.pe.cpu`), and the engine's queue, if any, must have a free
slot. Without issue time and queues a command starts in the step in which its kernel submits it.

A new command is one module: the command, an engine with ``@engine_for(...)`` that times and performs it, and the fields
of its op-log record (:func:`sipsim.records.oplog.record_kind`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, ClassVar, NamedTuple, TypeVar

from sipsim.chips.ahbm.address import Block
from sipsim.chips.ahbm.ipcq.messages import FETCH, IN_PLACE
from sipsim.chips.ahbm.parts import PeParts, SipParts
from sipsim.chips.ahbm.pe.commands import Completion, IpcqRecv
from sipsim.chips.ahbm.pe.tcm import Handle, TcmBudget
from sipsim.core.engine import Engine
from sipsim.core.errors import AhbmError, InvariantViolation
from sipsim.core.registry import TypeRegistry
from sipsim.core.task import Task
from sipsim.records.replay import Values

Ps = int
Start = Callable[[Completion], None]
Issue = Callable[[Task], None]
Take = Callable[[Any], Completion]

Order = Callable[[Sequence[Completion], Completion], bool]
"""Function of the unfinished earlier commands and a command; returns whether the command may start."""


def one_at_a_time(before: Sequence[Completion], _completion: Completion) -> bool:
    """Return whether all earlier commands have ended."""
    return not before


class EngineQueue:
    """Queue of the engine ``name``: accepted commands that have not ended, in order, at most ``depth`` of them.

    With ``pe_scheduler.queue_depth`` every engine has a queue of that many slots. A command takes a slot when
    PE_CPU hands it over, and frees the slot when it and all earlier commands have ended; a full queue blocks the
    kernel. Commands start in order; ``may_start`` decides which commands wait for the end of earlier commands. The
    loads and stores of PE_DMA share one queue.
    """

    def __init__(self, name: str, depth: int, engine: Engine, may_start: Order) -> None:
        self.name = name
        self._depth = depth
        self._engine = engine
        self._may_start = may_start
        self._commands: deque[Completion] = deque()
        self._waiting: deque[tuple[Completion, Start]] = deque()

    def admit(self, task: Task) -> None:
        """Block the kernel until a slot is free."""
        while len(self._commands) >= self._depth:
            self._commands[0].wait_for_end(task)
            self._forget_ended()

    def enter(self, completion: Completion, start: Start) -> None:
        """Start a command now, or when the commands that it waits for have ended; a failed start ends the command."""
        self._commands.append(completion)
        self._waiting.append((completion, start))
        self._start_next()

    def check_end(self, completion: Completion) -> None:
        """Check that a command, which ends now, has overtaken no command that it must wait for.

        Raises:
            InvariantViolation: if the command has overtaken one.
        """
        if not self._may_start(self._before(completion), completion):
            raise InvariantViolation(
                f"engine {self.name}: a {type(completion.command).__name__} overtakes a command that it must wait for"
            )

    def _start_next(self) -> None:
        """Start the waiting commands that may start, in order."""
        self._forget_ended()
        while self._waiting:
            completion, start = self._waiting[0]
            if not self._may_start(self._before(completion), completion):
                return
            self._waiting.popleft()
            completion.taken_ps, completion.then = self._engine.now_ps, self._start_next
            try:
                start(completion)
            except AhbmError as error:
                completion.fail(error)

    def _before(self, completion: Completion) -> list[Completion]:
        """Return the earlier commands that have not ended."""
        return [each for each in takewhile(lambda each: each is not completion, self._commands) if not each.ended]

    def _forget_ended(self) -> None:
        while self._commands and self._commands[0].ended:
            self._commands.popleft()


class SendSlots:
    """Slots of PE_DMA's send queue: computes when each sent message has passed PE_DMA, without events.

    A send ends for its kernel when its message leaves, so its slot is tracked here. Messages pass in the order of their
    sends, one after the other at PE_DMA's bandwidth, once PE_DMA has their bytes, which may be fetched from another
    memory. A slot is free when the last byte has passed. This time is unknown while the message or an earlier one is
    being fetched. Backpressure of the fabric is not included: the slots of the peers' rings bound it.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._passed_ps: deque[Ps] = deque()
        self._last_ps: Ps = 0
        self._unknown = 0
        self._waiter: Callable[[], None] | None = None

    def free_ps(self, now_ps: Ps) -> Ps | None:
        """Return the time at which a slot is free, now or later; None while this time is unknown."""
        passed = self._passed_ps
        while passed and passed[0] <= now_ps:
            passed.popleft()
        last = len(passed) + self._unknown - self._depth
        if last < 0:
            return now_ps
        return passed[last] if last < len(passed) else None

    def wait(self, task: Task, engine: Engine, what: str) -> None:
        """Block the kernel until the time at which the next message passes is known."""
        self._waiter = partial(self._resume, task, engine)
        task.wait(what)

    def add(self) -> None:
        """Add a sent message, whose pass time is not known yet."""
        self._unknown += 1

    def passes(self, passed_ps: Ps, drain_ps: Ps) -> None:
        """Set the pass time of the next message: ``passed_ps``, but at least ``drain_ps`` after the previous one."""
        self._unknown -= 1
        self._last_ps = max(passed_ps, self._last_ps + drain_ps)
        self._passed_ps.append(self._last_ps)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter()

    def _resume(self, task: Task, engine: Engine) -> None:
        """Resume the kernel in a later event, after the message of the current step has left."""
        engine.at(engine.now_ps, task.resume)


MATH, GEMM, FETCH_STORE = "PE_MATH", "PE_GEMM", "PE_FETCH_STORE"


class Unit:
    """One engine of a PE as a FIFO server that does one piece of work at a time.

    The unit computes busy-until times without events, except :class:`TransferUnit`: the caller gets the start time and
    schedules the event of the end. Tiles of composite commands share the units of their PE; so do the commands of a
    kernel if engines have queues (ADR-0014). Without queues a command starts when it is issued: its time is counted,
    but it does not occupy the unit, so ``busy_ps`` may exceed the elapsed time.

    ``free_ps``: when all work so far is done. ``busy_ps``: total time of the work so far.
    """

    __slots__ = ("busy_ps", "free_ps", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.free_ps: Ps = 0
        self.busy_ps: Ps = 0

    def take(self, from_ps: Ps, ps: Ps) -> Ps:
        """Queue work that takes ``ps`` and starts at ``from_ps`` or later; return when it starts.

        Raises:
            InvariantViolation: for work of negative length.
        """
        if ps < 0:
            raise InvariantViolation(f"{self.name} got work of {ps} ps; work must take 0 ps or more")
        start_ps = self.free_ps if self.free_ps > from_ps else from_ps
        self.free_ps = start_ps + ps
        self.busy_ps += ps
        return start_ps

    def count(self, ps: Ps) -> None:
        """Add busy time of ``ps`` without occupying the unit."""
        self.busy_ps += ps


class TransferUnit(Unit):
    """Unit whose work has no known end when it begins, because other accesses share the TCM's ports. Work waits for the
    unit in FIFO order.
    """

    __slots__ = ("_is_busy", "_waiting")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._is_busy = False
        self._waiting: deque[Callable[[], None]] = deque()

    def when_free(self, begin: Callable[[], None]) -> None:
        """Call ``begin``, which starts a piece of work, when the unit is free, now or later."""
        if self._is_busy:
            self._waiting.append(begin)
        else:
            self._is_busy = True
            begin()

    def end(self, begin_ps: Ps, end_ps: Ps) -> None:
        """End the work that began at ``begin_ps``, and free the unit."""
        self.take(begin_ps, end_ps - begin_ps)
        self._is_busy = False

    def begin_next(self) -> None:
        """Begin the next waiting work, unless the unit is busy again."""
        if self._waiting and not self._is_busy:
            self.when_free(self._waiting.popleft())


class Units(NamedTuple):
    """Units of a PE that process data: PE_MATH, the array of PE_GEMM, PE_FETCH_STORE."""

    math: TransferUnit
    gemm: Unit
    fetch_store: TransferUnit

    @classmethod
    def idle(cls) -> "Units":
        """Return new, idle units."""
        return cls(TransferUnit(MATH), Unit(GEMM), TransferUnit(FETCH_STORE))


class CommandEngine:
    """Engine of one PE, built at the first command of one of its types.

    ``starts_later``: ``take`` may be called before the command starts, which is at its completion's ``start_ps``.
    ``queue_name``: name of the queue; classes with the same name share a queue, and an empty name means no queue.
    ``engine_queue``: the queue, None if engines have no queues.
    """

    starts_later: ClassVar[bool] = False
    queue_name: ClassVar[str] = ""
    engine_queue: EngineQueue | None = None

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        self._sip = sip
        self._pe = pe
        self._engine = sip.engine
        self._recorder = sip.recorder
        self._name = f"cube{pe.cube}.pe{pe.pe}"
        self._waited_ps = sip.recorder.waited_ps[self._name]

    def take(self, command: Any) -> Completion:
        """Start a command. Its completion ends when the command has been performed, perhaps at once."""
        raise NotImplementedError(f"{type(self).__name__} must define take() to start a {type(command).__name__}")

    def accepts(self, _command: type) -> tuple[Issue, Take]:
        """Return the issue and take functions of a command type: by default :meth:`issue` and :meth:`take`."""
        return self.issue, self.take

    @classmethod
    def order(cls, _sip: SipParts) -> Order:
        """Return the order in which the queue starts commands."""
        return one_at_a_time

    def issue(self, task: Task) -> None:
        """Issue the running kernel's next command on PE_CPU, and block the kernel until the queue has a free slot."""
        cpu = self._pe.cpu
        cpu.issue(task)
        if not self.starts_later:
            cpu.catch_up(task)
        if self.engine_queue is not None:
            self.engine_queue.admit(task)

    def _delay_ps(self, completion: Completion) -> int:
        """Return the time until PE_CPU has issued a command, in ps."""
        return max(completion.start_ps - self._engine.now_ps, 0)

    def _enter(self, completion: Completion, start: Start) -> None:
        """Start a command now, or when the earlier commands that it waits for have ended."""
        if self.engine_queue is None:
            start(completion)
        else:
            self.engine_queue.enter(completion, start)

    def _begin(self, command: Any) -> Completion:
        """Return the completion of a command that starts when PE_CPU has issued it."""
        return Completion(command, self._pe.cpu.issued_ps(), self._cause())

    def _claim(self, completion: Completion, *operands: Handle) -> None:
        """Make a command the reader of the slots that its operands refer to: it reads them and frees them."""
        for operand in operands:
            if operand.in_slot is not None:
                completion.reads = (*completion.reads, operand.in_slot)
                operand.in_slot.handle = ""
                operand.in_slot = None
                if self._pe.room is not None:
                    operand.room = self._pe.room.take(operand.name, operand.nbytes)

    def _free_slots(self, completion: Completion, cause: int, read_ps: Ps | None = None) -> None:
        """Free all slots that a command has read, at ``read_ps``, or now if ``read_ps`` is None."""
        reads, completion.reads = completion.reads, ()
        for slot in reads:
            self._pe.ipcq.release_slot(slot, cause, read_ps=read_ps)

    def _cause(self) -> int:
        """Return the last span of the running kernel, which causes the kernel's next command; 0 if no kernel runs."""
        task = self._pe.task
        return 0 if task is None else task.span

    def made(self, command: Any) -> Handle | Values | None:
        """Return the values that a command has made, for the second pass: its ``result``, if any. An engine that writes
        a memory returns the written bytes (:mod:`sipsim.records.replay`).
        """
        result = getattr(command, "result", None)
        return result if isinstance(result, Handle) else None

    def _end(self, completion: Completion, kind: str, *fields: object, work: tuple[Any, ...] = ()) -> None:
        """Record a performed command in the op log, with ``fields``, and as a span; then end it.

        ``work``: facts of the span that ``--explain`` computes times from, such as bytes, after the fetched slots.
        """
        now_ps, start_ps = self._engine.now_ps, completion.start_ps
        if self.engine_queue is not None and self._sip.checker is not None:
            self.engine_queue.check_end(completion)
        record, facts = (kind, start_ps, now_ps, self._pe.cube, self._pe.pe, *fields), (completion.value, *work)
        made = None if self._recorder.feed is None else self.made(completion.command)
        taken_ps = None if self.engine_queue is None else max(start_ps, completion.taken_ps)
        span = self._recorder.end_operation(self._name, kind, start_ps, completion.cause, facts, record, made, taken_ps)
        del made
        if completion.reads:
            self._free_slots(completion, span)
        # The kernel resumes below: no local may still refer to a handle that it drops.
        completion.command = None
        task = completion.waiter
        if task is not None and start_ps == task.since_ps:
            # The kernel has waited since the command's start, so the span is also a span of the kernel.
            task.span, task.since_ps = span, now_ps
            self._waited_ps[kind] += now_ps - start_ps
            completion.end()
        else:
            self._release(completion, span, kind, now_ps)

    def _release(self, completion: Completion, span: int, name: str, now_ps: int) -> None:
        """End a command by ``span``, and record the wait of its kernel that ends with it."""
        task = completion.waiter
        if task is not None and task.since_ps <= now_ps:
            task.span = self._recorder.wait(self._name, name, task.since_ps, now_ps, span, task.span)
            task.since_ps = now_ps
        completion.end()

    def _operands(self, command: Any) -> tuple[Handle, ...]:
        """Return the handles whose values a command reads."""
        handles: tuple[Handle, ...] = command.handles
        return handles

    def _fetch(self, completion: Completion, then: Callable[[Completion], None]) -> None:
        """Fetch operands that are still in a slot in HBM or SRAM, one after the other; then call ``then``.

        The completion's value lists the fetched slots as (address, bytes).
        """
        for index, handle in enumerate(self._operands(completion.command)):
            if handle.slot_pa is not None:
                fetched = partial(self._fetched, completion, index, handle.slot_pa, then)
                slot = Block.piece(handle.slot_pa, handle.nbytes)
                self._pe.dma.read(slot, fetched, self._delay_ps(completion), handle.tcm_pa)
                return
            del handle  # the command may end below, and the kernel may drop the handle
        then(completion)

    def _fetched(
        self, completion: Completion, index: int, slot_pa: int, then: Callable[[Completion], None], _data: bytes
    ) -> None:
        handle = self._operands(completion.command)[index]
        # The receive has set the values: without `latch` the slot may hold a later message by now. Another engine
        # may have fetched them at the same time.
        completion.value = (*(completion.value or ()), (slot_pa, handle.nbytes))
        handle.slot_pa = None
        del handle
        self._fetched_slot(completion, slot_pa)
        try:
            self._fetch(completion, then)
        except AhbmError as error:
            completion.fail(error)

    def _fetched_slot(self, completion: Completion, slot_pa: int) -> None:
        """Free a slot in HBM or SRAM, whose bytes are in the PE now, before the command ends."""
        for slot in [each for each in completion.reads if each.slot_pa == slot_pa]:
            completion.reads = tuple(each for each in completion.reads if each is not slot)
            name, facts = self._pe.ipcq.name, completion.value
            now_ps = self._engine.now_ps
            read = self._recorder.span(name, FETCH, completion.start_ps, now_ps, completion.cause, *facts)
            self._pe.ipcq.release_slot(slot, read)


ENGINES: TypeRegistry[type[CommandEngine]] = TypeRegistry(
    "command",
    "sipsim.chips.ahbm.pe.math",
    "sipsim.chips.ahbm.pe.dma",
    "sipsim.chips.ahbm.ipcq.pe_ipcq",
    "sipsim.chips.ahbm.gemm.engine",
)
EngineType = TypeVar("EngineType", bound=type[CommandEngine])


def engine_for(*commands: type) -> Callable[[EngineType], EngineType]:
    """Return a class decorator that registers an engine for these command types."""

    def add(engine: EngineType) -> EngineType:
        for command in commands:
            ENGINES.register(command)(engine)
        return engine

    return add


class Scheduler:
    """PE_SCHEDULER: dispatches the commands of one PE to its engines.

    ``submit(command)`` hands a command to its engine and returns its completion, which has already ended if the command
    takes no time. ``submit`` blocks the kernel while the engine's queue is full. It raises ``UnknownName`` if no engine
    takes the command, and ``AhbmError`` if its engine rejects it.
    """

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        self._sip = sip
        self._pe = pe
        self._depth = sip.plan.resolved.components.pe_scheduler.queue_depth
        self._engines: dict[type[CommandEngine], CommandEngine] = {type(part): part for part in (pe.dma, pe.ipcq)}
        self._queues: dict[str, EngineQueue] = {}
        self._accepted: dict[type, tuple[Issue, Take]] = {}
        self._is_in_place = sip.plan.ipcq.latch == IN_PLACE
        is_free = pe.cpu.is_free_of_cost and self._depth is None and pe.room is None
        self.submit: Take = self._take if is_free else self._issue

    def _take(self, command: Any) -> Completion:
        kind = type(command)
        _, take = self._accepted.get(kind) or self._accept(kind)
        return take(command)

    def _issue(self, command: Any) -> Completion:
        kind, task = type(command), self._pe.task
        issue, take = self._accepted.get(kind) or self._accept(kind)
        if self._pe.room is not None:
            self._reserve_tcm(self._pe.room, command)
        if task is not None and task.is_current:
            issue(task)
        return take(command)

    def _accept(self, command: type) -> tuple[Issue, Take]:
        """Return the issue and take functions of a command type; build its engine at the first command."""
        kind = ENGINES.get(command)
        engine = self._engines.get(kind)
        if engine is None:
            engine = self._engines[kind] = kind(self._sip, self._pe)
        if engine.engine_queue is None and kind.queue_name and self._depth is not None:
            engine.engine_queue = self._queue(kind, self._depth)
        accepted = self._accepted[command] = engine.accepts(command)
        return accepted

    def _queue(self, kind: type[CommandEngine], depth: int) -> EngineQueue:
        name = kind.queue_name
        if name not in self._queues:
            self._queues[name] = EngineQueue(name, depth, self._sip.engine, kind.order(self._sip))
        return self._queues[name]

    def _reserve_tcm(self, room: TcmBudget, command: Any) -> None:
        """Reserve TCM space for a command's result; a message that is used in place needs none."""
        nbytes = getattr(command, "result_bytes", 0)
        stays_in_slot = self._is_in_place and isinstance(command, IpcqRecv) and command.copy_to is None
        if nbytes and not stays_in_slot:
            command.result.room = room.take(command.result.name, nbytes)
