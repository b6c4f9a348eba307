"""A simulation of its own beside the engine's: what happens on edges, in the order of (time, start of the transfer)."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Ps = int
Event = tuple[Ps, int, int, Callable[..., None], Any]
"""(time, start number, count, action, its argument)."""


class Agenda:
    """What is to happen, carried out up to a time when somebody looks; nothing is undone.

    ``_until_ps``: how far it may be carried out now. ``_clock_ps``: the time of what happens.
    """

    def __init__(self) -> None:
        self._agenda: list[Event] = []
        self._pushed = 0
        self._until_ps: Ps = 0
        self._clock_ps: Ps = 0

    def _push(self, time_ps: Ps, seq: int, action: Callable[..., None], argument: Any) -> None:
        self._pushed += 1
        heappush(self._agenda, (time_ps, seq, self._pushed, action, argument))

    def _advance(self, until_ps: Ps) -> None:
        """Carry out what happens up to a time."""
        agenda = self._agenda
        self._until_ps = until_ps
        while agenda and agenda[0][0] <= until_ps:
            self._clock_ps, _, _, action, argument = heappop(agenda)
            action(argument)
        self._clock_ps = until_ps
