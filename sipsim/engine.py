"""The event queue of one SIP: SimPy stepped up to a horizon, with callback events at absolute times.

Not a second kernel: SimPy keeps the queue and its order. Hot paths use one :class:`Callback` an event
instead of a SimPy process (DESIGN section 3). Canonical order: what arrives over a link at t comes before
every local event of t, in the order in which it was scheduled.
"""

from collections.abc import Callable

import simpy
from simpy.core import Infinity
from simpy.events import Event, EventPriority

ARRIVAL = EventPriority(-1)
LOCAL = EventPriority(1)

Ps = int


class Callback(Event):
    """An event that calls one function when its time comes. Cheaper than a ``Timeout`` in a process."""

    def __init__(self, env: simpy.Environment, action: Callable[[], None]) -> None:
        self.env = env
        self._action = action
        self.callbacks = [self._call]
        self._ok = True
        self._value = None
        self._defused = False

    def _call(self, _event: Event) -> None:
        self._action()


class Engine:
    """Simulated time of one SIP, in integer picoseconds from 0."""

    def __init__(self) -> None:
        self.env = simpy.Environment(initial_time=0)
        self.events = 0

    @property
    def now_ps(self) -> Ps:
        """The current simulated time."""
        return int(self.env.now)

    def at(self, time_ps: Ps, action: Callable[[], None], priority: EventPriority = LOCAL) -> None:
        """Call ``action`` at ``time_ps``, which must not be in the past."""
        delay = time_ps - self.env.now
        if delay < 0:
            raise ValueError(f"an event at {time_ps} ps cannot be scheduled at {self.env.now} ps")
        self.env.schedule(Callback(self.env, action), priority, delay)

    def next_ps(self) -> Ps | None:
        """When the next local event happens, or None when there is none."""
        time = self.env.peek()
        return None if time == Infinity else int(time)

    def run_before(self, horizon_ps: Ps | None, most_events: int) -> bool:
        """Step while the next event is before ``horizon_ps`` (None: for ever); whether ``most_events`` were enough.

        ``env.run(until=...)`` is not used: in SimPy 4.1.2 it leaves its stop event in the queue, and
        ``peek`` then answers that time for ever (DESIGN section 3; ``test_engine`` keeps the trap visible).
        """
        env = self.env
        limit = Infinity if horizon_ps is None else horizon_ps
        peek, step = env.peek, env.step
        for done in range(most_events):
            if peek() >= limit:
                self.events += done
                return True
            step()
        self.events += most_events
        return bool(peek() >= limit)
