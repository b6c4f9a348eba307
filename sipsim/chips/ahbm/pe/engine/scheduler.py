"""PE_SCHEDULER: takes the commands of a PE and hands each to the engine of its type.

PE_CPU issues each command first (:mod:`sipsim.chips.ahbm.pe.cpu`), and its engine's queue must have a place for it
(:mod:`sipsim.chips.ahbm.pe.engine.queues`). Where neither costs anything, a command starts in the step in which its
kernel gives it.
"""

from collections.abc import Callable
from typing import Any

from sipsim.chips.ahbm.ipcq.messages.latch import IN_PLACE
from sipsim.chips.ahbm.pe.commands import Completion, IpcqRecv
from sipsim.chips.ahbm.pe.engine.engines import ENGINES, CommandEngine, PeParts, SipParts
from sipsim.chips.ahbm.pe.engine.queues import EngineQueue
from sipsim.chips.ahbm.pe.tcm.room import KernelRoom


class _Engines(dict[type, CommandEngine]):
    """The engines of one PE, by the type of the command; each is made at its first command."""

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__()
        self._parts = sip, pe
        self._depth = sip.plan.resolved.components.pe_scheduler.queue_depth
        self._of_kind: dict[type[CommandEngine], CommandEngine] = {}
        self._queues: dict[str, EngineQueue] = {}

    def __missing__(self, command: type) -> CommandEngine:
        kind = ENGINES.get(command)
        if kind not in self._of_kind:
            engine = self._of_kind[kind] = kind(*self._parts)
            engine.queue = self._queue(kind.queue_name)
        found = self[command] = self._of_kind[kind]
        return found

    def _queue(self, name: str) -> EngineQueue | None:
        if not name or self._depth is None:
            return None
        return self._queues.setdefault(name, EngineQueue(name, self._depth))


class _Takes(dict[type, Callable[[Any], Completion]]):
    """``take`` of the engines, by the type of the command."""

    def __init__(self, engines: _Engines) -> None:
        super().__init__()
        self._engines = engines

    def __missing__(self, command: type) -> Callable[[Any], Completion]:
        take = self[command] = self._engines[command].take
        return take


class Scheduler:
    """The commands of one PE.

    ``submit(command)`` hands a command to its engine; its completion has ended already if it takes no time. It blocks
    the kernel that gives it while the engine's queue is full. It raises ``UnknownName`` for a command that no engine
    takes, and ``AhbmError`` for what its engine finds wrong with it.
    """

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        self._pe = pe
        self._engines = _Engines(sip, pe)
        self._takes = _Takes(self._engines)
        self._is_in_place = sip.plan.ipcq.latch == IN_PLACE
        has_queues = sip.plan.resolved.components.pe_scheduler.queue_depth is not None
        is_free = pe.cpu.is_free_of_cost and not has_queues and pe.room is None
        self.submit: Callable[[Any], Completion] = self._take if is_free else self._issue

    def _take(self, command: Any) -> Completion:
        return self._takes[type(command)](command)

    def _issue(self, command: Any) -> Completion:
        task, engine = self._pe.task, self._engines[type(command)]
        if self._pe.room is not None:
            self._take_room(self._pe.room, command)
        if task is not None and task.is_current:
            engine.issue(task)
        return engine.take(command)

    def _take_room(self, room: KernelRoom, command: Any) -> None:
        """Room for the result of a command; a message that is used in place needs none."""
        nbytes = getattr(command, "result_bytes", 0)
        stays_in_slot = self._is_in_place and isinstance(command, IpcqRecv) and command.copy_to is None
        if nbytes and not stays_in_slot:
            command.result.room = room.take(command.result.name, nbytes)
