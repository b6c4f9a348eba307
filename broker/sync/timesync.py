"""How far each SIP may run: conservative synchronisation by least delays (DESIGN section 4). Pure: no clock, no socket.

``N[i]`` is a lower bound on the next thing SIP i will do: what it reported, or what it was granted on
while it runs, lowered in both cases by the least arrival of any packet on its way to it. ``X[i] >= N[i]`` is a
lower bound on what it sends next. Nothing can reach j before ``horizon[j] = min over k of (X[k] + D[k][j])``. A SIP
is granted when ``N[j] < horizon[j]``; otherwise the broker is silent.

Two widenings let ``X`` and ``D`` be later than the plain ones.

* *Promise.* A SIP's report may say ``P``: by its local events alone, without another arrival, it sends nothing before.
* *Reaction.* ``R[i]``: from an arrival at i to a sending that it causes, at least so long (the way to the egress).

Both count a packet as *sent* at its arrival minus the least delay of the channels between the two SIPs.

Proof. Take the first packet that reaches j before the horizon, and follow causes back from it: it was sent by some
SIP m, because of m's local events alone as they stood at m's last report, or because an arrival at m made or released
something. In the first case it was sent at P[m] or later. In the second it was sent R[m] or more after that arrival.
The arrival was known to the broker (held by m, or counted by its sender and not yet taken) or it was not; if not, its
sender's report has not come, so its own cause is looked at in the same way, and the delays and reactions of all SIPs
on the chain add up. So ``X[k] = max(N[k], min(P[k], known arrivals at k + R[k]))`` at the chain's start and ``D`` with
``R`` of each SIP on the way, its ends left out (``DelayMatrix``), bound it. ``N`` is a bound by itself, so the greater
of the two is one. A SIP that runs works on what it had reported and on what its grant made it take; both are still in
its ``X``.

*Starting again.* A SIP whose process was started again stands where it stood at first: ``N`` is 0, and nobody is
granted until it has reported. What its predecessor had sent is forgotten, though receivers have taken it: the new one
makes the same packets again, counts them again and may lower a receiver's ``N`` for a while, which is safe. What was
sent to it is on its way to it once more. Its log may say that everything it sends before some time is in there: those
packets are counted as sent, so its first packet that is not was sent at that time or later, and ``X`` may say so.

What is recomputed on a report: ``N`` and ``X`` of the reporter and of the receivers it names. Every idle SIP has a
*blocker*, a SIP whose ``X + D`` was not past its ``N``; only those whose blocker moved, and the SIPs named, are looked
at again.

The facts are ``Report`` messages, the commands ``Grant`` messages or ``Quiescent``, which says that nothing
can happen any more.
"""

from collections import deque
from typing import NamedTuple

from broker.ids import MAX_PS, Channel
from broker.sync.colocation import ColocationPolicy
from broker.sync.delays import NEVER_PS, DelayMatrix
from broker.sync.sip_state import SipSyncState
from broker.sync.wait_stats import WaitStats
from broker.wire import Grant, Report

Ps = int


class ProtocolError(RuntimeError):
    """A report that contradicts an earlier one; carries the last facts of that SIP."""


class Quiescent(NamedTuple):
    """Nobody runs, nobody has anything to do, nothing is on its way. ``waiting`` = kernels and scripts by rank."""

    waiting: tuple[int, ...]


class Bound(NamedTuple):
    """What bounds a horizon: SIP ``by`` may send at ``next_send_bound_ps``, over ``chain`` in ``delay_ps``."""

    by: int
    next_send_bound_ps: Ps
    delay_ps: Ps
    chain: list[str]


def least(*times: Ps | None) -> Ps | None:
    """The earliest of some times, where None is never."""
    known = [t for t in times if t is not None]
    return min(known) if known else None


class TimeSync:
    """Facts in by :meth:`report`, commands out. One door for all state.

    ``reactions_ps``: ``R`` of every SIP; without it every R is 0.
    """

    def __init__(self, size: int, channels: list[Channel], reactions_ps: list[Ps] | None = None) -> None:
        reactions = reactions_ps or [0] * size
        self.delays = DelayMatrix(size, channels, reactions)
        self._members = [SipSyncState(reaction) for reaction in reactions]
        self._next_event_bounds = [NEVER_PS] * size
        self._next_send_bounds = [NEVER_PS] * size
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
            ProtocolError: when the report cannot follow what this SIP said before.
        """
        self._must_exist(rank)
        member = self._members[rank]
        if member.reported and not member.running:
            raise ProtocolError(f"SIP {rank} reported without a grant; last facts: {list(member.history)}")
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
        """The process of ``rank`` is gone, another one begins at time 0. Nobody is granted before it has reported.

        Answers who runs: their grants may count on packets of the old one that the new one cannot make before they
        have run, so they must give back grants that wait for packets.
        """
        gone = self._members[rank]
        self._running -= gone.running
        self._unreported += gone.reported
        fresh = self._members[rank] = SipSyncState(gone.reaction_ps)
        for other, member in enumerate(self._members):
            member.told.pop(rank, None)
            member.flight.pop(rank, None)
            if rank in member.sent:
                fresh.told[other] = member.sent[rank]
                fresh.flight[other] = deque([(member.sent[rank], member.earliest[rank])])
        self._changed = set(range(self.size))
        return [other for other, member in enumerate(self._members) if member.running]

    def note_logged(self, rank: int, logged: tuple[tuple[int, int, Ps], ...], logged_ps: Ps) -> None:
        """Before its first report: what its log holds, as in ``Join``.

        Raises:
            ProtocolError: when it has reported already, or logged packets to nobody.
        """
        member = self._members[rank]
        if member.reported:
            raise ProtocolError(f"SIP {rank} tells of its log after it has reported")
        member.logged_ps = logged_ps
        self._note_sent(rank, member, logged)

    def taken_of(self, rank: int) -> tuple[int, ...]:
        """By rank, how many packets of ``rank`` each SIP has told to have taken."""
        return tuple([member.taken.get(rank, 0) for member in self._members])

    def decide(self) -> list[tuple[int, Grant]] | Quiescent:
        """The grants that the reports since the last decision make possible, or that all is quiet.

        Reports that are here already are better noted all before one decision: its horizons lie further ahead.
        """
        changed, self._changed = self._changed, set()
        return self._decide(changed)

    @property
    def running(self) -> int:
        """How many SIPs run."""
        return self._running

    @property
    def size(self) -> int:
        """The number of SIPs."""
        return len(self._members)

    def horizon_ps(self, rank: int) -> Ps | None:
        """Nothing can reach ``rank`` before this; None when nothing can reach it at all."""
        horizon = self._horizon(rank)
        return None if horizon > MAX_PS else horizon

    def bound(self, rank: int) -> Bound | None:
        """Which SIP and which chain of channels bounds the horizon of ``rank``; the lowest rank when several do."""
        reach = [(self._next_send_bounds[k] + delay, k, delay) for k, delay in self.delays.into[rank]]
        total, by, delay = min(reach, default=(NEVER_PS, 0, 0))
        if total > MAX_PS:
            return None
        return Bound(by, total - delay, delay, self.delays.chain(by, rank))

    def next_event_bound_ps(self, rank: int) -> Ps | None:
        """``N`` of one SIP; None for never."""
        acts = self._next_event_bounds[rank]
        return None if acts == NEVER_PS else acts

    def is_running(self, rank: int) -> bool:
        """Whether ``rank`` was granted and has not reported since."""
        return self._members[rank].running

    def has_reported(self, rank: int) -> bool:
        """Whether the first report of ``rank`` has come."""
        return self._members[rank].reported

    def now_ps(self, rank: int) -> Ps:
        """The simulated time of the last report of ``rank``."""
        return self._members[rank].now_ps

    def granted_ps(self, rank: int) -> Ps | None:
        """The horizon of the last grant of ``rank``; 0 before the first one, None when nothing bounds it."""
        return self._members[rank].granted_ps

    def lacks(self, rank: int) -> tuple[tuple[int, int], ...]:
        """(source, packets) that senders have told of and ``rank`` has not told to have taken."""
        member = self._members[rank]
        missing = ((source, count - member.taken.get(source, 0)) for source, count in member.told.items())
        return tuple(sorted((source, count) for source, count in missing if count > 0))

    def waiting(self, rank: int) -> int:
        """Kernels and scripts that waited at the last report of ``rank``."""
        return self._members[rank].waiting

    def _must_exist(self, rank: int) -> None:
        if not 0 <= rank < len(self._members):
            raise ProtocolError(f"a report by or about {rank}, where SIPs are 0 to {self.size - 1}")

    def _note_sent(self, rank: int, member: SipSyncState, sent: tuple[tuple[int, int, Ps], ...]) -> None:
        for dst, count, arrival in sent:
            self._must_exist(dst)
            if count <= (before := member.sent.get(dst, 0)):
                raise ProtocolError(f"SIP {rank} counts {count} packets to {dst} after {before}")
            member.sent[dst] = count
            if arrival < member.earliest.get(dst, NEVER_PS):
                member.earliest[dst] = arrival
            receiver = self._members[dst]
            receiver.told[rank] = count
            receiver.flight.setdefault(rank, deque()).append((count, arrival))
            receiver.forget_covered(rank)
            self._changed.add(dst)

    def _note_taken(self, rank: int, member: SipSyncState, report: Report) -> None:
        for source, count in report.taken:
            self._must_exist(source)
            if count < member.taken.get(source, 0):
                raise ProtocolError(f"SIP {rank} took {count} packets of {source} after {member.taken[source]}")
            member.taken[source] = count
            member.forget_covered(source)

    def _decide(self, changed: set[int]) -> list[tuple[int, Grant]] | Quiescent:
        members, acts, sends = self._members, self._next_event_bounds, self._next_send_bounds
        for rank in changed:
            member = members[rank]
            acts[rank], sends[rank] = member.next_event_bound_ps(), member.next_send_bound_ps()
        if self._unreported:
            self._changed |= changed
            return []
        if not self._running and min(acts) == NEVER_PS:
            return Quiescent(tuple([m.waiting for m in members]))
        return [grant for rank in self._to_look_at(changed) if (grant := self._look_at(rank)) is not None]

    def _to_look_at(self, changed: set[int]) -> list[int]:
        """Idle SIPs for which something has changed, in order: they themselves, or what kept them from running."""
        return [
            rank
            for rank, member in enumerate(self._members)
            if not member.running and (rank in changed or member.blocker in changed)
        ]

    def _look_at(self, rank: int) -> tuple[int, Grant] | None:
        start = self._next_event_bounds[rank]
        if start == NEVER_PS:
            return None
        sends, horizon = self._next_send_bounds, NEVER_PS
        for by, delay in self.delays.into[rank]:
            reach = sends[by] + delay
            if reach <= start:
                self._note_blocker(rank, by)
                return None
            if reach < horizon:
                horizon = reach
        # No time after MAX_PS can be told, so a bound beyond it bounds nothing.
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
        need = tuple(sorted([(s, count) for s, count in member.told.items() if count > taken.get(s, 0)]))
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
