"""What the broker knows of one SIP, and the bounds that follow: ``N`` of what it does next, ``X`` of what it sends.

Their proof is in ``broker.sync.timesync``, which is the only one to write here.
"""

from collections import deque

from broker.sync.delays import NEVER_PS
from broker.wire import Grant, Report

Ps = int


class SipSyncState:
    """What the broker knows of one SIP. Only ``TimeSync`` writes it. Times here are ``NEVER_PS`` for never."""

    __slots__ = (
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
        "told",
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
        # Everything that this SIP sends before it is in its log, counted here as sent.
        self.logged_ps: Ps = 0
        self.sent: dict[int, int] = {}
        # Per destination, the least arrival of all packets counted in ``sent``.
        self.earliest: dict[int, Ps] = {}
        self.taken: dict[int, int] = {}
        # Per source, packets that a sender has told of: what a grant must ask for where it exceeds ``taken``.
        self.told: dict[int, int] = {}
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
        """``N``: held packets were counted into ``next_ps`` when the report came."""
        if not self.flight:
            return self.next_ps
        return min(self.next_ps, self.flight_ps())

    def next_send_bound_ps(self) -> Ps:
        """``X``: what it told of by itself, or a reaction to what has arrived or will arrive; never before ``N``."""
        acts, promise = self.next_event_bound_ps(), self.promise_ps
        if promise is None or acts == NEVER_PS:
            return acts if acts > self.logged_ps else self.logged_ps
        arrives = min(self.held_ps, self.flight_ps()) if self.flight else self.held_ps
        caused = arrives + self.reaction_ps
        sends = promise if promise < caused else caused
        if sends < self.logged_ps:
            sends = self.logged_ps
        return sends if sends > acts else acts

    def forget_covered(self, source: int) -> None:
        records = self.flight.get(source)
        if records is None:
            return
        taken = self.taken.get(source, 0)
        while records and records[0][0] <= taken:
            records.popleft()
        if not records:
            del self.flight[source]
