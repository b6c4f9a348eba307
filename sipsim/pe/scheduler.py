"""PE_SCHEDULER: takes the commands of a PE and hands each to the engine of its type."""

from collections.abc import Callable
from itertools import count
from typing import Any

from sipsim.pe.commands import Completion
from sipsim.pe.engines import ENGINES, CommandEngine, PeParts, SipParts


class _Takes(dict[type, Callable[[Any], Completion]]):
    """``take`` of the engines of one PE, by the type of the command; each engine is made at its first command."""

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        super().__init__()
        self._parts = sip, pe
        self._engines: dict[type[CommandEngine], CommandEngine] = {}

    def __missing__(self, command: type) -> Callable[[Any], Completion]:
        kind = ENGINES.get(command)
        if kind not in self._engines:
            self._engines[kind] = kind(*self._parts)
        take = self[command] = self._engines[kind].take
        return take


class Scheduler:
    """The commands of one PE over the life of its SIP. ``number_handle()``: the number of the next handle."""

    def __init__(self, sip: SipParts, pe: PeParts) -> None:
        self._takes = _Takes(sip, pe)
        self.number_handle = count().__next__

    def submit(self, command: Any) -> Completion:
        """Start a command now. Its completion has ended already if it takes no time.

        Raises:
            UnknownName: for a command that no engine takes.
            AhbmError: what its engine finds wrong with it.
        """
        return self._takes[type(command)](command)
