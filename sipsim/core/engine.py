"""The event queue of one SIP: SimPy stepped up to a horizon, with callback events at absolute times.

SimPy keeps the queue and its order. Hot paths use one :class:`Callback` an event instead of a SimPy process
(DESIGN section 3). Canonical order: a packet that arrives over a link at t is handled before every local event of t,
and packets in the order in which they were scheduled.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy
from simpy.core import Infinity
from simpy.events import Event, EventPriority

ARRIVAL = EventPriority(-1)
LOCAL = EventPriority(1)

Ps = int


class Callback(Event):
    """An event that calls one function. Cheaper than a ``Timeout`` in a process.

    Only :meth:`Timeline.run_before` handles it: SimPy's events have a list of callbacks until they are processed.
    """

    callbacks = None  # type: ignore[assignment]

    def __init__(self, action: Callable[[], None]) -> None:
        self.action = action


class Timeline(simpy.Environment):
    """SimPy's queue, run up to a time in one loop: ``schedule`` and ``step`` with fewer calls an event."""

    def at(self, time_ps: Ps, action: Callable[[], None], priority: EventPriority = LOCAL) -> None:
        """Call ``action`` at ``time_ps``, which must not be in the past."""
        if time_ps < self._now:
            raise ValueError(f"an event at {time_ps} ps cannot be scheduled at {self._now} ps")
        heappush(self._queue, (time_ps, priority, next(self._eid), Callback(action)))

    def run_before(self, limit_ps: float, most_events: int, clock: "Engine") -> int:
        """Run events before ``limit_ps``, at most ``most_events``; returns their number. ``clock`` is told their times.

        ``env.run(until=...)`` is not used: in SimPy 4.1.2 it leaves its stop event in the queue, and
        ``peek`` then returns that time (DESIGN section 3).
        """
        queue = self._queue
        for done in range(most_events):
            if not queue or queue[0][0] >= limit_ps:
                return done
            now_ps, _, _, event = heappop(queue)
            self._now = clock.now_ps = now_ps  # type: ignore[assignment]
            callbacks: Any = event.callbacks
            if callbacks is None:
                event.action()  # type: ignore[attr-defined]
                continue
            event.callbacks = None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise event._value
        return most_events


class Engine:
    """Simulated time of one SIP, in integer picoseconds from 0. ``now_ps``: the current time, which only a run sets."""

    def __init__(self) -> None:
        self.env = Timeline(initial_time=0)
        self.at = self.env.at  # not a method: one call less an event
        self.now_ps: Ps = 0
        self.events = 0

    def next_ps(self) -> Ps | None:
        """The time of the next local event, or None."""
        queue = self.env._queue
        return queue[0][0] if queue else None  # type: ignore[return-value]

    def last_local_ps(self) -> Ps | None:
        """The time of the last event that is no arrival of a packet, or None. It looks at all events."""
        queue: Any = self.env._queue
        return max((time_ps for time_ps, priority, _, _ in queue if priority != ARRIVAL), default=None)

    @property
    def arrivals(self) -> int:
        """How many events are arrivals of packets. It looks at all events."""
        return sum(priority == ARRIVAL for _, priority, _, _ in self.env._queue)

    def run_before(self, horizon_ps: Ps | None, most_events: int) -> bool:
        """Run the events before ``horizon_ps`` (None: all); whether ``most_events`` were enough."""
        limit = Infinity if horizon_ps is None else horizon_ps
        done = self.env.run_before(limit, most_events, self)
        self.events += done
        return done < most_events or bool(self.env.peek() >= limit)
