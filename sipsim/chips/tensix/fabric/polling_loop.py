"""Polling loop of a processor over channels, without a simulation event for a poll that finds nothing.

A poll takes ``poll_ps``, and each round of the loop takes ``round_ps`` more. A visit sees the state at the beginning of
the poll and calls :meth:`PollingLoop.end_visit` at the end. The time since the last visit determines the position of
the loop. A change that may make a channel ready calls :meth:`PollingLoop.wake`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from sipsim.core.engine import Engine

Ps = int
Channel = TypeVar("Channel")


class PollingLoop(Generic[Channel]):
    """Polling loop over ``channels``. ``ready(channel, begin_ps)`` returns the earliest time, at least ``begin_ps``, at
    which a visit finds work, or None if no such time is known. ``visit(channel, time_ps)`` makes a visit, of which the
    poll ends at ``time_ps``, and calls :meth:`end_visit` at once or later.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        poll_ps: Ps,
        round_ps: Ps,
        ready: Callable[[Channel, Ps], Ps | None],
        visit: Callable[[Channel, Ps], None],
        engine: Engine,
    ) -> None:
        self._channels = channels
        self._numbered = list(enumerate(channels))
        self._poll_ps = poll_ps
        self._round_ps = round_ps
        self._turn_ps = round_ps + len(channels) * poll_ps
        self._ready = ready
        self._visit_channel = visit
        self._engine = engine
        self._begin_ps: Ps = 0
        self._position = 0
        self._next: tuple[Ps, int] | None = None
        self._seq = 0
        self._is_visiting = False

    def wake(self) -> None:
        """Schedule the next visit anew, as a channel may have become ready."""
        if self._is_visiting:
            return
        visit = self._next_visit()
        if visit == self._next:
            return
        self._next = visit
        self._seq += 1
        if visit is not None:
            self._engine.at(visit[0], partial(self._visit, self._seq))

    def end_visit(self, time_ps: Ps) -> None:
        """Continue the loop after a visit that ends at ``time_ps``, now or later."""
        if self._position == len(self._channels):
            self._position = 0
            time_ps += self._round_ps
        self._begin_ps = time_ps
        self._is_visiting = False
        self.wake()

    def stop(self) -> None:
        """Stop the loop for good: no visit begins or continues."""
        self._next = None
        self._seq += 1
        self._is_visiting = True

    def _next_visit(self) -> tuple[Ps, int] | None:
        """Return the time and the channel of the loop's next visit that finds work."""
        poll_ps, turn_ps, now_ps, position = self._poll_ps, self._turn_ps, self._engine.now_ps, self._position
        first_ps = self._begin_ps - position * poll_ps
        best: tuple[Ps, int] | None = None
        for index, channel in self._numbered[position:] + self._numbered[:position]:
            visit_ps = first_ps + index * poll_ps
            if index < position:
                visit_ps += turn_ps
            ready_ps = self._ready(channel, visit_ps if visit_ps > now_ps else now_ps)
            if ready_ps is None:
                continue
            if ready_ps > visit_ps:
                visit_ps += -(-(ready_ps - visit_ps) // turn_ps) * turn_ps
                if best is None or (visit_ps, index) < best:
                    best = visit_ps, index
                continue
            # Channels are in the order of their polls, so no later channel is visited earlier.
            return (visit_ps, index) if best is None or (visit_ps, index) < best else best
        return best

    def _visit(self, seq: int) -> None:
        if seq != self._seq or self._next is None:
            return
        begin_ps, index = self._next
        self._next = None
        self._position = index + 1
        self._is_visiting = True
        self._visit_channel(self._channels[index], begin_ps + self._poll_ps)
