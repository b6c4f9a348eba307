"""Engines of a PE that take commands: each type of command has one, found by that type.

What is new is one module: a command, an engine with ``@engine_for(...)`` that times it on the parts of its PE and
performs it, and the fields of its op log record (:func:`sipsim.record.oplog.record_kind`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from sipsim.config.model import IpcqKnobs, Resolved
from sipsim.engine import Engine
from sipsim.errors import AhbmError
from sipsim.ipcq.pe_ipcq import PeIpcq
from sipsim.memory.store import MemoryStore
from sipsim.pe.commands import Completion
from sipsim.pe.dma import PeDma
from sipsim.pe.handles import Handle
from sipsim.record.oplog import OpLog
from sipsim.record.trace import TraceLine
from sipsim.registry import Registry


class PlanParts(Protocol):
    """Settings of the parts and of the queues."""

    ipcq: IpcqKnobs
    resolved: Resolved


class SipParts(Protocol):
    """What engines use of their SIP, number ``sip``."""

    sip: int
    engine: Engine
    memory: MemoryStore
    oplog: OpLog
    tracer: Callable[[TraceLine], None] | None

    @property
    def plan(self) -> PlanParts: ...


class PeParts(Protocol):
    """What engines use of their PE."""

    cube: int
    pe: int
    dma: PeDma
    ipcq: PeIpcq


class CommandEngine(ABC):
    """An engine of one PE; it is made at the first command of one of its types."""

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        self._sip = sip
        self._pe = pe
        self._engine = sip.engine
        self._append = sip.oplog.append

    @abstractmethod
    def take(self, command: Any) -> Completion:
        """Start a command; its completion ends when it has been performed, which may be at once."""

    def _end(self, completion: Completion, kind: str, *fields: object) -> None:
        """Record a command that has been performed, and end it."""
        self._append(kind, completion.start_ps, self._engine.now_ps, self._pe.cube, self._pe.pe, *fields)
        completion.end()

    def _fetch(self, completion: Completion, handles: tuple[Handle, ...], then: Callable[[Completion], None]) -> None:
        """Bring values that are still in a slot in HBM or SRAM to the PE, one handle after the other, and then ..."""
        for handle in handles:
            if handle.slot_pa is not None:
                fetched = partial(self._fetched, completion, handle, handles, then)
                self._pe.dma.read(handle.slot_pa, handle.nbytes, fetched)
                return
        then(completion)

    def _fetched(
        self,
        completion: Completion,
        handle: Handle,
        handles: tuple[Handle, ...],
        then: Callable[[Completion], None],
        _data: bytes,
    ) -> None:
        # The values were latched when the receive took them: the slot may hold a later message by now.
        handle.slot_pa = None
        try:
            self._fetch(completion, handles, then)
        except AhbmError as error:
            completion.fail(error)


ENGINES: Registry[type[CommandEngine]] = Registry("command", __package__)
EngineType = TypeVar("EngineType", bound=type[CommandEngine])


def engine_for(*commands: type) -> Callable[[EngineType], EngineType]:
    """Class decorator: the engine that takes these commands."""

    def add(engine: EngineType) -> EngineType:
        for command in commands:
            ENGINES.register(command.__name__)(engine)
        return engine

    return add
