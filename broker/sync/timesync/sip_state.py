"""The synchronisation state of one SIP, and its bounds: ``N`` of its next event, ``X`` of its next sending.

Their proof is in ``broker.sync.timesync.timesync``.
"""

from collections import deque

from broker.channels.delays import NEVER_PS
from broker.wire import Grant, Report

Ps = int


class SipSyncState:
    """The broker's state of one SIP, written by ``TimeSync`` alone. Times are ``NEVER_PS`` for never."""

    __slots__ = (
        "announced",
        "blocker",
        "earliest",
        "flight",
        "granted_ps",
        "held_ps",
        "history",
        "logged_ps",
        "next_ps",
        "now_ps",
        "promise_ps",
        "reaction_ps",
        "reported",
        "running",
        "sent",
        "taken",
        "waiting",
    )

    def __init__(self, reaction_ps: Ps = 0) -> None:
        self.reaction_ps = reaction_ps
        self.reported = False
        self.running = False
        self.now_ps: Ps = 0
        self.granted_ps: Ps | None = 0
        self.next_ps: Ps = NEVER_PS
        self.held_ps: Ps = NEVER_PS
        self.promise_ps: Ps | None = None
        self.waiting = 0
        self.blocker = -1
        # All packets that this SIP sends before this time are in its log, and counted in ``sent``.
        self.logged_ps: Ps = 0
        self.sent: dict[int, int] = {}
        # Per destination, the least arrival of all packets counted in ``sent``.
        self.earliest: dict[int, Ps] = {}
        self.taken: dict[int, int] = {}
        # Per source, packets that the sender has reported: a grant must require them where they exceed ``taken``.
        self.announced: dict[int, int] = {}
        # Per source, (cumulative count, least arrival) of every report not yet covered by ``taken``.
        self.flight: dict[int, deque[tuple[int, Ps]]] = {}
        self.history: deque[Report | Grant] = deque(maxlen=8)

    def flight_ps(self) -> Ps:
        earliest = NEVER_PS
        for records in self.flight.values():
            for _, arrival in records:
                if arrival < earliest:
                    earliest = arrival
        return earliest

    def next_event_bound_ps(self) -> Ps:
        """``N``: held packets are included in ``next_ps``."""
        if not self.flight:
            return self.next_ps
        return min(self.next_ps, self.flight_ps())

    def next_send_bound_ps(self) -> Ps:
        """``X``: the promise, or a reaction to an arrival that is held or in flight; never before ``N``."""
        event, promise = self.next_event_bound_ps(), self.promise_ps
        if promise is None or event == NEVER_PS:
            return event if event > self.logged_ps else self.logged_ps
        arrival = min(self.held_ps, self.flight_ps()) if self.flight else self.held_ps
        reaction = arrival + self.reaction_ps
        bound = promise if promise < reaction else reaction
        if bound < self.logged_ps:
            bound = self.logged_ps
        return bound if bound > event else event

    def forget_covered(self, source: int) -> None:
        records = self.flight.get(source)
        if records is None:
            return
        taken = self.taken.get(source, 0)
        while records and records[0][0] <= taken:
            records.popleft()
        if not records:
            del self.flight[source]
