"""Conservative synchronisation by least delays: how far each SIP may run. Pure: no clock, no socket.

``N[i]`` is a lower bound on the next event of SIP i: the next event in its last report, or the event it was granted
while it runs; in both cases lowered to the least arrival of any packet in flight to i. ``X[i] >= N[i]`` is a lower
bound on i's next sending. No packet reaches j before ``horizon[j] = min over k of (X[k] + D[k][j])``. A SIP is granted
when ``N[j] < horizon[j]``; otherwise the broker sends no message to j.

Two extensions allow later ``X`` and ``D``. Both count a packet as *sent* at its arrival minus the least delay of the
channels between the two SIPs.

* *Promise.* A SIP's report may carry ``P``: the SIP sends nothing before ``P`` unless a packet arrives.
* *Reaction.* ``R[i]``: the least time from an arrival at i to a sending that it causes (the route to the egress).

Proof. Suppose that a packet reaches j before the horizon. Take the first such packet and follow its causes. Some SIP m
sent the packet, either because of m's local events alone as of m's last report, or because an arrival at m caused or
released the sending. In the first case m sent it at P[m] or later. In the second, R[m] or more after that arrival.
Either the broker knew that arrival (held by m, or counted by its sender and not yet taken), or its sender's report has
not arrived; then the cause of that packet is followed in the same manner, and the delays and reactions of all SIPs on
the chain add up. So ``X[k] = max(N[k], min(P[k], known arrivals at k + R[k]))`` at the chain's start, and ``D`` with
``R`` of each SIP between its ends (``DelayMatrix``), bound the arrival at j. ``N`` and the ``min`` are both bounds, so
their maximum is one. A SIP that runs processes the events that it reported and the packets that its grant requires;
both are still in its ``X``.
"""

from collections import defaultdict, deque
from typing import NamedTuple

from broker.channels import NEVER_PS, DelayMatrix
from broker.colocation import ColocationPolicy
from broker.ids import MAX_PS, Channel
from broker.wire import Grant, Report

Ps = int


class SipSyncState:
    """The broker's state of one SIP, written by ``TimeSync`` alone. A time ``NEVER_PS`` means never."""

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
        """The bound ``N`` in ps: the next local event, held packet or packet in flight."""
        if not self.flight:
            return self.next_ps
        return min(self.next_ps, self.flight_ps())

    def next_send_bound_ps(self) -> Ps:
        """The bound ``X``: the promise, or a reaction to an arrival that is held or in flight; never before ``N``."""
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


Ns = int


class WaitStats:
    """Host time that each SIP waited for each other SIP, for ``--explain-sync``. No grant depends on these times.

    A SIP *waits* while another SIP's bound forbids its next event; the other SIP is its blocker (one of several, if
    several forbid it). A SIP without events and a SIP that runs do not wait. By rank: host time of the last change of
    state (``since_ns``) and of the last progress (``moved_ns``), and the costs.
    """

    def __init__(self, size: int) -> None:
        self.since_ns: list[Ns] = [0] * size
        self.moved_ns: list[Ns] = [0] * size
        self.run_ns: list[Ns] = [0] * size
        self.send_ns: list[Ns] = [0] * size
        self.cost_ns: defaultdict[tuple[int, int], Ns] = defaultdict(int)
        self._by = [-1] * size
        self._blocked_ns: list[Ns] = [0] * size

    def reported(self, rank: int, run_ns: Ns, send_ns: Ns, now_ns: Ns) -> None:
        """Note that ``rank`` has reached its horizon; add its host times of simulating and sending."""
        self.run_ns[rank] += run_ns
        self.send_ns[rank] += send_ns
        self.since_ns[rank] = self.moved_ns[rank] = now_ns

    def restarted(self, rank: int, now_ns: Ns) -> None:
        """Note that the process of ``rank`` was replaced; the costs so far stay."""
        self._charge(rank, now_ns)
        self._by[rank], self.since_ns[rank], self.moved_ns[rank] = -1, now_ns, now_ns

    def blocked(self, rank: int, by: int, now_ns: Ns) -> None:
        """Note that ``by`` blocks ``rank`` from ``now_ns`` on."""
        self._charge(rank, now_ns)
        self._by[rank], self._blocked_ns[rank] = by, now_ns

    def granted(self, rank: int, now_ns: Ns) -> None:
        """Note that ``rank`` runs from ``now_ns`` on."""
        self._charge(rank, now_ns)
        self._by[rank], self.since_ns[rank], self.moved_ns[rank] = -1, now_ns, now_ns

    def costliest_channels(self, delays: DelayMatrix, most: int, now_ns: Ns) -> list[tuple[str, Ns]]:
        """The ``most`` channels with the longest waits, as (name, ns); a wait counts for each channel of the chain."""
        for rank in range(len(self._by)):
            self._charge(rank, now_ns)
        by_channel: defaultdict[str, Ns] = defaultdict(int)
        for (by, rank), cost_ns in self.cost_ns.items():
            for name in delays.chain(by, rank):
                by_channel[name] += cost_ns
        return sorted(by_channel.items(), key=lambda entry: (-entry[1], entry[0]))[:most]

    def _charge(self, rank: int, now_ns: Ns) -> None:
        by = self._by[rank]
        if by >= 0:
            self.cost_ns[by, rank] += now_ns - self._blocked_ns[rank]
            self._blocked_ns[rank] = now_ns


class ProtocolError(RuntimeError):
    """Error: a message contradicts an earlier message. ``detail``: the last messages of the sender, or ""."""

    def __init__(self, text: str, detail: str = "") -> None:
        super().__init__(text)
        self.detail = detail


class Quiescent(NamedTuple):
    """No SIP runs or has an event, and nothing is in flight. ``waiting``: blocked kernels and scripts, by rank.

    ``at_limit``: events are left, all at or after the limit of simulated time.
    """

    waiting: tuple[int, ...]
    at_limit: bool = False


class Bound(NamedTuple):
    """The cause of a horizon: SIP ``by`` may send at ``next_send_bound_ps``; ``chain`` then takes ``delay_ps``."""

    by: int
    next_send_bound_ps: Ps
    delay_ps: Ps
    chain: list[str]


def least(*times: Ps | None) -> Ps | None:
    """Return the earliest of ``times``; None means never."""
    finite = [t for t in times if t is not None]
    return min(finite) if finite else None


class TimeSync:
    """Takes ``Report`` messages and returns ``Grant`` messages or ``Quiescent``; the only writer of all state.

    After a report, ``N`` and ``X`` of the sender and of the receivers in ``sent`` are recomputed. Every idle SIP has
    a *blocker*: a SIP whose ``X + D`` was not later than the idle SIP's ``N``. Only the recomputed SIPs, and the SIPs
    whose blocker is one of them, are examined again.

    ``reactions_ps``: ``R`` of every SIP, 0 by default. ``limit_ps``: no SIP runs an event at or after that time.
    """

    def __init__(
        self,
        size: int,
        channels: list[Channel],
        reactions_ps: list[Ps] | None = None,
        limit_ps: Ps | None = None,
    ) -> None:
        reactions = reactions_ps or [0] * size
        self.delays = DelayMatrix(size, channels, reactions)
        self._members = [SipSyncState(reaction) for reaction in reactions]
        self._next_event_bounds = [NEVER_PS] * size
        self._next_send_bounds = [NEVER_PS] * size
        self._limit_ps = NEVER_PS if limit_ps is None else limit_ps
        self._unreported = size
        self._running = 0
        self.colocate = False
        self.waits = WaitStats(size)
        self._colocation = ColocationPolicy()
        self._now_ns = 0
        self._changed: set[int] = set(range(size))
        self.reports = 0
        self.grants = 0
        self.windows = 0
        self.window_ps_sum = 0

    def report(self, rank: int, report: Report, now_ns: int = 0) -> list[tuple[int, Grant]] | Quiescent:
        """Take one SIP's report and decide: :meth:`note`, then :meth:`decide`."""
        self.note(rank, report, now_ns)
        return self.decide()

    def note(self, rank: int, report: Report, now_ns: int = 0) -> None:
        """Take one SIP's report. ``now_ns`` is host time, for :attr:`waits` alone.

        Raises:
            ProtocolError: when the report contradicts an earlier one.
        """
        self._must_exist(rank)
        member = self._members[rank]
        if member.reported and not member.running:
            raise ProtocolError(f"SIP {rank} reported without a grant", f"  last messages: {list(member.history)}")
        member.history.append(report)
        self._note_sent(rank, member, report.sent)
        self._note_taken(rank, member, report)
        if member.running:
            self.colocate = self._colocation.note(self._running, report.run_ns)
            self._running -= 1
        else:
            self._unreported -= 1
        member.reported, member.running = True, False
        member.held_ps = NEVER_PS if report.held_ps is None else report.held_ps
        member.next_ps = member.held_ps if report.next_ps is None else min(report.next_ps, member.held_ps)
        member.now_ps, member.promise_ps = report.now_ps, report.promise_ps
        member.waiting = report.waiting
        member.blocker = -1
        self.reports += 1
        self._now_ns = now_ns
        self.waits.reported(rank, report.run_ns, report.send_ns, now_ns)
        self._changed.add(rank)

    def restart(self, rank: int) -> list[int]:
        """Reset the state of ``rank``, whose process was replaced: the new process begins at time 0, so ``N`` is 0.

        No SIP is granted before the new process has reported. The counts of the old process's packets are discarded,
        though receivers have taken the packets: the new process makes the same packets and counts them again. This may
        lower a receiver's ``N`` for a while, which is safe. Packets that were sent to ``rank`` are in flight again.

        Returns the SIPs that run. Their grants may require packets of the old process that the new process cannot make
        before those SIPs have run, so grants that wait for packets must be revoked.
        """
        old = self._members[rank]
        self._running -= old.running
        self._unreported += old.reported
        fresh = self._members[rank] = SipSyncState(old.reaction_ps)
        for other, member in enumerate(self._members):
            member.announced.pop(rank, None)
            member.flight.pop(rank, None)
            if rank in member.sent:
                fresh.announced[other] = member.sent[rank]
                fresh.flight[other] = deque([(member.sent[rank], member.earliest[rank])])
        self._changed = set(range(self.size))
        return [other for other, member in enumerate(self._members) if member.running]

    def note_logged(self, rank: int, logged: tuple[tuple[int, int, Ps], ...], logged_ps: Ps) -> None:
        """Take the contents of the packet log of ``rank``, as in ``Join``, before the first report of ``rank``.

        The log contains all packets that the SIP sends before ``logged_ps``. The packets are counted as sent, so the
        first packet outside the log is sent at ``logged_ps`` or later, and ``X`` is at least ``logged_ps``.

        Raises:
            ProtocolError: when ``rank`` has reported already, or the log names a SIP that does not exist.
        """
        member = self._members[rank]
        if member.reported:
            raise ProtocolError(f"SIP {rank} sends the counts of its log after it has reported")
        member.logged_ps = logged_ps
        self._note_sent(rank, member, logged)

    def taken_of(self, rank: int) -> tuple[int, ...]:
        """The number of packets of ``rank`` that each SIP has reported as taken, by rank."""
        return tuple([member.taken.get(rank, 0) for member in self._members])

    def decide(self) -> list[tuple[int, Grant]] | Quiescent:
        """The grants that the reports since the last decision allow, or ``Quiescent``.

        First call :meth:`note` for all reports that have arrived: one decision for all reports gives later horizons.
        """
        changed, self._changed = self._changed, set()
        return self._decide(changed)

    def stop_at(self, limit_ps: Ps) -> None:
        """Grant no events at or after ``limit_ps`` from now on."""
        self._limit_ps = min(self._limit_ps, limit_ps)

    @property
    def running(self) -> int:
        """The number of SIPs that have a grant and have not reported since."""
        return self._running

    @property
    def size(self) -> int:
        """The number of SIPs."""
        return len(self._members)

    def horizon_ps(self, rank: int) -> Ps | None:
        """The time in ps before which no packet can reach ``rank``; None if no packet can ever reach ``rank``."""
        horizon = self._horizon(rank)
        return None if horizon > MAX_PS else horizon

    def bound(self, rank: int) -> Bound | None:
        """The SIP (of several, the lowest rank) and the chain of channels that bound the horizon of ``rank``."""
        arrivals = [(self._next_send_bounds[k] + delay, k, delay) for k, delay in self.delays.into[rank]]
        total, by, delay = min(arrivals, default=(NEVER_PS, 0, 0))
        if total > MAX_PS:
            return None
        return Bound(by, total - delay, delay, self.delays.chain(by, rank))

    def next_event_bound_ps(self, rank: int) -> Ps | None:
        """The bound ``N`` of one SIP in ps; None means never."""
        bound = self._next_event_bounds[rank]
        return None if bound == NEVER_PS else bound

    def is_running(self, rank: int) -> bool:
        """Whether ``rank`` was granted and has not reported since."""
        return self._members[rank].running

    def has_reported(self, rank: int) -> bool:
        """Whether the first report of ``rank`` has arrived."""
        return self._members[rank].reported

    def now_ps(self, rank: int) -> Ps:
        """The simulated time of the last report of ``rank``."""
        return self._members[rank].now_ps

    def granted_ps(self, rank: int) -> Ps | None:
        """The horizon of the last grant of ``rank``; 0 before the first grant, None when the horizon is unbounded."""
        return self._members[rank].granted_ps

    def lacks(self, rank: int) -> tuple[tuple[int, int], ...]:
        """The packets that senders have reported as sent and ``rank`` has not reported as taken: (source, count)."""
        member = self._members[rank]
        missing = ((source, count - member.taken.get(source, 0)) for source, count in member.announced.items())
        return tuple(sorted((source, count) for source, count in missing if count > 0))

    def waiting(self, rank: int) -> int:
        """The number of blocked kernels and scripts in the last report of ``rank``."""
        return self._members[rank].waiting

    def _must_exist(self, rank: int) -> None:
        if not 0 <= rank < len(self._members):
            raise ProtocolError(f"a report names SIP {rank}, but SIPs are 0 to {self.size - 1}")

    def _note_sent(self, rank: int, member: SipSyncState, sent: tuple[tuple[int, int, Ps], ...]) -> None:
        for dst, count, arrival in sent:
            self._must_exist(dst)
            if count <= (before := member.sent.get(dst, 0)):
                raise ProtocolError(f"SIP {rank} reported {count} packets sent to SIP {dst}; last report: {before}")
            member.sent[dst] = count
            if arrival < member.earliest.get(dst, NEVER_PS):
                member.earliest[dst] = arrival
            receiver = self._members[dst]
            receiver.announced[rank] = count
            receiver.flight.setdefault(rank, deque()).append((count, arrival))
            receiver.forget_covered(rank)
            self._changed.add(dst)

    def _note_taken(self, rank: int, member: SipSyncState, report: Report) -> None:
        for source, count in report.taken:
            self._must_exist(source)
            if count < (before := member.taken.get(source, 0)):
                raise ProtocolError(f"SIP {rank} reported {count} packets taken of SIP {source}; last report: {before}")
            member.taken[source] = count
            member.forget_covered(source)

    def _decide(self, changed: set[int]) -> list[tuple[int, Grant]] | Quiescent:
        members, events, sends = self._members, self._next_event_bounds, self._next_send_bounds
        for rank in changed:
            member = members[rank]
            events[rank], sends[rank] = member.next_event_bound_ps(), member.next_send_bound_ps()
        if self._unreported:
            self._changed |= changed
            return []
        if not self._running and (next_ps := min(events)) >= self._limit_ps:
            return Quiescent(tuple([m.waiting for m in members]), next_ps != NEVER_PS)
        return [grant for rank in self._to_examine(changed) if (grant := self._examine(rank)) is not None]

    def _to_examine(self, changed: set[int]) -> list[int]:
        """The idle SIPs, in order of rank, that have changed or whose blocker has changed."""
        return [
            rank
            for rank, member in enumerate(self._members)
            if not member.running and (rank in changed or member.blocker in changed)
        ]

    def _examine(self, rank: int) -> tuple[int, Grant] | None:
        start = self._next_event_bounds[rank]
        horizon = self._limit_ps
        if start >= horizon:
            return None
        sends = self._next_send_bounds
        for by, delay in self.delays.into[rank]:
            arrival = sends[by] + delay
            if arrival <= start:
                self._note_blocker(rank, by)
                return None
            if arrival < horizon:
                horizon = arrival
        # Times after MAX_PS cannot be encoded; a later horizon is sent as None, "unbounded".
        return rank, self._grant(rank, start, None if horizon > MAX_PS else horizon)

    def _note_blocker(self, rank: int, by: int) -> None:
        member = self._members[rank]
        if by != member.blocker:
            self.waits.blocked(rank, by, self._now_ns)
            member.blocker = by

    def _horizon(self, rank: int) -> Ps:
        sends = self._next_send_bounds
        return min([sends[by] + delay for by, delay in self.delays.into[rank]], default=NEVER_PS)

    def _grant(self, rank: int, start: Ps, horizon: Ps | None) -> Grant:
        member = self._members[rank]
        taken = member.taken
        need = tuple(sorted([(s, count) for s, count in member.announced.items() if count > taken.get(s, 0)]))
        grant = Grant(horizon, need, self.colocate)
        self.waits.granted(rank, self._now_ns)
        member.running, member.next_ps, member.blocker = True, start, -1
        member.granted_ps = horizon
        member.history.append(grant)
        self._running += 1
        self.grants += 1
        if horizon is not None:
            self.windows += 1
            self.window_ps_sum = min(self.window_ps_sum + horizon - start, MAX_PS)
        return grant
