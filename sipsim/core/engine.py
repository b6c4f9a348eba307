"""The event queue of one SIP: SimPy stepped up to a horizon, with callback events at absolute times.

SimPy provides the queue and its order. Hot paths use one :class:`Callback` per event instead of a SimPy process.
Canonical order: packets that arrive over a link at t are handled before all local events of t; events of one kind and
time run in the order in which they were scheduled. SimPy's urgent events, the start of a process and an interrupt, are
a kind between the two.
"""

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from reprlib import repr as short_repr
from threading import get_ident
from typing import Any, NoReturn

import simpy
from simpy.core import Infinity
from simpy.events import NORMAL, URGENT, Event, EventPriority, Process, Timeout

from sipsim.core.errors import ProcessMisuse
from sipsim.core.processes import PartProcess, Steps

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
    """SimPy's queue, run up to a time in one loop: ``schedule`` and ``step`` with fewer calls per event.

    Parts wait by SimPy's events: timeouts, resources, stores, processes, conditions of these. Delays are ints of ps.
    ``processes``: the parts' processes that have not ended, in order of their starts; ``on_end()`` is called when one
    has ended. ``owner``: the part to which a process started now belongs; "" between parts.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self.processes: dict[PartProcess, None] = {}
        self.on_end: Callable[[], None] = lambda: None
        self.owner = ""
        self._thread = get_ident()

    def timeout(self, delay: Ps = 0, value: Any = None) -> Timeout:  # type: ignore[override]
        """Return an event in ``delay`` ps.

        Raises:
            ProcessMisuse: for a delay that is not an int, or negative.
        """
        _check_delay(delay)
        return Timeout(self, delay, value)

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: Ps = 0) -> None:  # type: ignore[override]
        """Schedule an event in ``delay`` ps, behind the events already scheduled for that time.

        Raises:
            ProcessMisuse: for a delay that is not an int, or negative, another priority than SimPy's own, or a call
                from another thread, which also ends the run.
        """
        if type(delay) is not int or delay < 0:
            _check_delay(delay)
        if priority not in (NORMAL, URGENT):
            raise ProcessMisuse(
                f"an event has priority {short_repr(priority)}; only SimPy's NORMAL and URGENT keep order"
            )
        if get_ident() != self._thread:
            what = "a thread triggers an event of the simulation"
            error = ProcessMisuse(f"{what}; its moment would depend on the host: use a process and env.timeout")
            self.at(self._now, partial(_raise, error))  # type: ignore[arg-type]
            raise error
        active: Any = self._active_proc
        if active is not None and getattr(active._generator, "is_server", False):
            event.is_background = True  # type: ignore[attr-defined]
        heappush(self._queue, (self._now + delay, priority, next(self._eid), event))

    def run(self, until: object = None) -> NoReturn:
        """Refuse to run events.

        Raises:
            ProcessMisuse: always.
        """
        raise ProcessMisuse("env.run and env.step were called; the run itself steps the events: yield an event instead")

    def step(self) -> NoReturn:
        """Refuse to run an event, as :meth:`run`."""
        self.run()

    def process(self, generator: Steps) -> Process:
        """Start a process. A process of a part, and the part itself, start one of that part; others a plain one."""
        parent = getattr(self._active_proc, "_generator", None)
        if isinstance(parent, PartProcess):
            return self.start(generator, parent.owner, is_background=bool(parent.is_server))
        return self.start(generator, self.owner) if self.owner else Process(self, generator)

    def start(self, generator: Steps, owner: str, name: str = "", is_background: bool = False) -> Process:
        """Start a process of the part ``owner`` now, behind the packets that arrive now; return the event of its end.

        A *background* process neither counts as waiting nor holds up the end of a run (:meth:`stop_background`).
        An exception in a process ends the run, as one in a kernel does.
        """
        made = PartProcess(self, generator, owner, name, is_background, self._ended)
        self.processes[made] = None
        process: Process = made.process
        return process

    def _ended(self, process: PartProcess) -> None:
        self.processes.pop(process, None)
        self.on_end()

    def stop_background(self) -> None:
        """Stop all background processes, in order of their starts, and drop the events that they have scheduled."""
        stopped = [each for each in self.processes if each.is_server]
        if not stopped:
            return
        for each in stopped:
            del self.processes[each]
            each.stop()
        queue, now_ps = self._queue, self._now
        # Events of now stay: a foreground process may wait for one. They do not move the clock.
        queue[:] = [entry for entry in queue if entry[0] == now_ps or not getattr(entry[3], "is_background", False)]
        heapify(queue)

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


def _check_delay(delay: object) -> None:
    if type(delay) is not int or delay < 0:
        what = f"a delay is {short_repr(delay)}, of type {type(delay).__name__}"
        raise ProcessMisuse(f"{what}; must be an int of picoseconds, 0 or more: see ns_to_ps in sipsim.core.units")


def _raise(error: ProcessMisuse) -> NoReturn:
    raise error


def _is_cancelled(event: Event | Callback) -> bool:
    return isinstance(event, Callback) and event[0] is None


class Engine:
    """The event engine of one SIP. ``now_ps``: simulated time in integer ps from 0, set only by :meth:`run_before`."""

    def __init__(self) -> None:
        self.env = Timeline()
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
