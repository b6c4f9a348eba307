"""PE_SCHEDULER: takes the commands of a PE and hands each to the engine of its type."""

from collections.abc import Callable
from typing import Any

from sipsim.pe.commands import Completion
from sipsim.pe.engines import ENGINES, CommandEngine, PeParts, SipParts


class Scheduler:
    """The commands of one PE over the life of its SIP."""

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        self._sip = sip
        self._pe = pe
        self._engines: dict[type[CommandEngine], CommandEngine] = {}
        self._takes: dict[type, Callable[[Any], Completion]] = {}
        self._handles = 0

    def submit(self, command: Any) -> Completion:
        """Start a command now. Its completion has ended already if it takes no time.

        Raises:
            UnknownName: for a command that no engine takes.
            AhbmError: what its engine finds wrong with it.
        """
        take = self._takes.get(type(command)) or self._engine_of(type(command))
        return take(command)

    def name_handle(self) -> str:
        """The name of the next handle."""
        self._handles += 1
        return f"h{self._handles - 1}"

    def _engine_of(self, command: type) -> Callable[[Any], Completion]:
        kind = ENGINES.get(command.__name__)
        if kind not in self._engines:
            self._engines[kind] = kind(self._sip, self._pe)
        take = self._takes[command] = self._engines[kind].take
        return take
