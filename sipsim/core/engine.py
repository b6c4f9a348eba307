"""The event queue of one SIP: SimPy stepped up to a horizon, with callback events at absolute times.

SimPy provides the queue and its order. Hot paths use one :class:`Callback` per event instead of a SimPy process.
Canonical order: packets that arrive over a link at t are handled before all local events of t; events of one kind and
time run in the order in which they were scheduled.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy
from simpy.core import Infinity
from simpy.events import Event, EventPriority

ARRIVAL = EventPriority(-1)
LOCAL = EventPriority(1)
AFTER = EventPriority(2)
"""Priority of events that run after all other events at the same time."""

Ps = int


class Callback(list[Callable[[], None] | None]):
    """Event that calls one function, the only element of the list. Cheaper than a ``Timeout`` in a process.

    Only :meth:`Timeline.run_before` can run it. No queued SimPy event has ``callbacks`` = None, so that marks it.
    """

    __slots__ = ()
    callbacks = None

    def cancel(self) -> None:
        """Cancel the call. The entry stays in the queue until its time, but no longer counts as an event."""
        self[0] = None


class Timeline(simpy.Environment):
    """SimPy's queue, run up to a time in one loop: ``schedule`` and ``step`` with fewer calls per event."""

    def at(self, time_ps: Ps, action: Callable[[], None], priority: EventPriority = LOCAL) -> Callback:
        """Schedule a call of ``action`` at ``time_ps``; raise ``ValueError`` if that is in the past."""
        if time_ps < self._now:
            raise ValueError(f"an event at {time_ps} ps cannot be scheduled at {self._now} ps")
        callback, queue = Callback((action,)), self._queue
        heappush(queue, (time_ps, priority, next(self._eid), callback))  # type: ignore[misc]
        return callback

    def next_ps(self) -> Ps | None:
        """The time in ps of the next event; None if the queue is empty."""
        queue: Any = self._queue
        while queue and queue[0][3].callbacks is None and queue[0][3][0] is None:
            heappop(queue)
        return queue[0][0] if queue else None

    def run_before(self, limit_ps: float, most_events: int, clock: "Engine") -> int:
        """Run at most ``most_events`` events before ``limit_ps``; return their number. Sets ``clock.now_ps`` for each.

        ``env.run(until=...)`` is not used: in SimPy 4.1.2 ``run`` leaves its stop event in the queue, and ``peek`` then
        returns the time of that event.
        """
        queue, done = self._queue, 0
        while done < most_events:
            if not queue or queue[0][0] >= limit_ps:
                return done
            now_ps, _, _, event = heappop(queue)
            callbacks: Any = event.callbacks
            if callbacks is None:
                action = event[0]  # type: ignore[index]
                if action is None:
                    continue
                self._now = clock.now_ps = now_ps  # type: ignore[assignment]
                done += 1
                action()
                continue
            self._now = clock.now_ps = now_ps  # type: ignore[assignment]
            done += 1
            event.callbacks = None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
        return done


def _is_cancelled(event: Event | Callback) -> bool:
    return isinstance(event, Callback) and event[0] is None


class Engine:
    """The event engine of one SIP. ``now_ps``: simulated time in integer ps from 0, set only by :meth:`run_before`."""

    def __init__(self) -> None:
        self.env = Timeline(initial_time=0)
        self.at = self.env.at  # not a method: saves one call per event
        self.next_ps = self.env.next_ps
        self.now_ps: Ps = 0
        self.events = 0

    def last_local_ps(self) -> Ps | None:
        """The time in ps of the last queued event that is no packet's arrival, or None. O(n): visits all events."""
        queue: Any = self.env._queue
        times = (at_ps for at_ps, priority, _, event in queue if priority != ARRIVAL and not _is_cancelled(event))
        return max(times, default=None)

    @property
    def arrivals(self) -> int:
        """The number of queued events that are arrivals of packets. O(n): visits all events."""
        return sum(priority == ARRIVAL for _, priority, _, _ in self.env._queue)

    def run_before(self, horizon_ps: Ps | None, most_events: int) -> bool:
        """Run at most ``most_events`` events before ``horizon_ps``, which may be None; return whether all have run."""
        limit = Infinity if horizon_ps is None else horizon_ps
        done = self.env.run_before(limit, most_events, self)
        self.events += done
        next_ps = self.next_ps()
        return next_ps is None or next_ps >= limit
