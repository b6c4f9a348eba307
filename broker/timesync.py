"""How far each SIP may run: conservative synchronisation by least delays (DESIGN section 4). Pure: no clock, no socket.

``N[i]`` is a lower bound on the next thing SIP i will do: what it reported, or what it was granted on
while it runs, lowered in both cases by the least arrival of any packet on its way to it. Nothing can
reach j before ``horizon[j] = min over k of (X[k] + D[k][j])``, where ``X[k]`` is ``N[k]`` unless k promised to
send nothing before a later time. A SIP is granted when ``N[j] < horizon[j]``; otherwise the broker is silent.

The facts are ``Report`` messages, the commands ``Grant`` messages or ``Quiet``, which says that nothing
can happen any more.
"""

from collections import deque
from typing import NamedTuple

from broker.paths import LeastDelays
from broker.wire import MAX_PS, Channel, Grant, Report

Ps = int


class ProtocolError(RuntimeError):
    """A report that contradicts an earlier one; carries the last facts of that SIP."""


class Quiet(NamedTuple):
    """Nobody runs, nobody has anything to do, nothing is on its way. ``waiting`` = kernels and scripts by rank."""

    waiting: tuple[int, ...]


class Bound(NamedTuple):
    """Why a horizon is what it is: SIP ``by`` may act at ``acts_ps`` and ``chain`` leads from it in ``delay_ps``."""

    by: int
    acts_ps: Ps
    delay_ps: Ps
    chain: list[str]


def least(*times: Ps | None) -> Ps | None:
    """The earliest of some times, where None is never."""
    known = [t for t in times if t is not None]
    return min(known) if known else None


class _Member:
    """What the broker knows of one SIP. Only ``TimeSync`` writes it."""

    __slots__ = (
        "flight",
        "held_ps",
        "history",
        "next_ps",
        "promise_ps",
        "reported",
        "running",
        "sent",
        "taken",
        "waiting",
    )

    def __init__(self) -> None:
        self.reported = False
        self.running = False
        self.next_ps: Ps | None = None
        self.held_ps: Ps | None = None
        self.promise_ps: Ps | None = None
        self.waiting = 0
        self.sent: dict[int, int] = {}
        self.taken: dict[int, int] = {}
        # Per source, (cumulative count, least arrival) of every report not yet covered by ``taken``.
        self.flight: dict[int, deque[tuple[int, Ps]]] = {}
        self.history: deque[Report | Grant] = deque(maxlen=8)

    def flight_ps(self) -> Ps | None:
        return least(*(arrival for records in self.flight.values() for _, arrival in records))

    def acts_ps(self) -> Ps | None:
        """``N``: held packets were counted into ``next_ps`` when the report came."""
        return least(self.next_ps, self.flight_ps())

    def sends_ps(self) -> Ps | None:
        """``X``: with a promise, only what has arrived or will arrive can make it send earlier; never before ``N``."""
        acts = self.acts_ps()
        if self.promise_ps is None or acts is None:
            return acts
        sends = least(self.promise_ps, self.held_ps, self.flight_ps())
        return acts if sends is None else max(acts, sends)

    def forget_covered(self, source: int) -> None:
        records = self.flight.get(source)
        while records and records[0][0] <= self.taken.get(source, 0):
            records.popleft()


class TimeSync:
    """Facts in by :meth:`report`, commands out. One door for all state."""

    def __init__(self, size: int, channels: list[Channel]) -> None:
        self.delays = LeastDelays(size, channels)
        self._members = [_Member() for _ in range(size)]
        self.reports = 0
        self.grants = 0
        self.windows = 0
        self.window_ps_sum = 0

    def report(self, rank: int, report: Report) -> list[tuple[int, Grant]] | Quiet:
        """Take one SIP's report; answer with the grants that it makes possible, or that all is quiet.

        Raises:
            ProtocolError: when the report cannot follow what this SIP said before.
        """
        self._must_exist(rank, *(dst for dst, _, _ in report.sent), *(source for source, _ in report.taken))
        member = self._members[rank]
        if member.reported and not member.running:
            raise ProtocolError(f"SIP {rank} reported without a grant; last facts: {list(member.history)}")
        member.history.append(report)
        self._note_sent(rank, member, report)
        self._note_taken(rank, member, report)
        member.reported, member.running = True, False
        member.next_ps = least(report.next_ps, report.held_ps)
        member.held_ps, member.promise_ps = report.held_ps, report.promise_ps
        member.waiting = report.waiting
        self.reports += 1
        return self._decide()

    def horizon_ps(self, rank: int) -> Ps | None:
        """Nothing can reach ``rank`` before this; None when nothing can reach it at all."""
        return least(*(bound.acts_ps + bound.delay_ps for bound in self._bounds(rank)))

    def bound(self, rank: int) -> Bound | None:
        """Which SIP and which chain of channels bounds the horizon of ``rank``; the lowest rank when several do."""
        return min(self._bounds(rank), key=lambda b: (b.acts_ps + b.delay_ps, b.by), default=None)

    def acts_ps(self, rank: int) -> Ps | None:
        """``N`` of one SIP."""
        return self._members[rank].acts_ps()

    def is_running(self, rank: int) -> bool:
        """Whether ``rank`` was granted and has not reported since."""
        return self._members[rank].running

    def _must_exist(self, *ranks: int) -> None:
        strangers = [rank for rank in ranks if not 0 <= rank < len(self._members)]
        if strangers:
            raise ProtocolError(f"a report by or about {strangers[0]}, where SIPs are 0 to {len(self._members) - 1}")

    def _note_sent(self, rank: int, member: _Member, report: Report) -> None:
        for dst, count, arrival in report.sent:
            if count <= member.sent.get(dst, 0):
                raise ProtocolError(f"SIP {rank} counts {count} packets to {dst} after {member.sent[dst]}")
            member.sent[dst] = count
            receiver = self._members[dst]
            receiver.flight.setdefault(rank, deque()).append((count, arrival))
            receiver.forget_covered(rank)

    def _note_taken(self, rank: int, member: _Member, report: Report) -> None:
        for source, count in report.taken:
            if count < member.taken.get(source, 0):
                raise ProtocolError(f"SIP {rank} took {count} packets of {source} after {member.taken[source]}")
            member.taken[source] = count
            member.forget_covered(source)

    def _decide(self) -> list[tuple[int, Grant]] | Quiet:
        members = self._members
        if not all(m.reported for m in members):
            return []
        acts = [m.acts_ps() for m in members]
        if not any(m.running for m in members) and all(a is None for a in acts):
            return Quiet(tuple(m.waiting for m in members))
        sends = [m.sends_ps() for m in members]
        granted = []
        for rank, member in enumerate(members):
            start = acts[rank]
            if member.running or start is None:
                continue
            horizon = self._horizon(rank, sends)
            if horizon is None or start < horizon:
                granted.append((rank, self._grant(rank, start, horizon)))
        return granted

    def _horizon(self, rank: int, sends: list[Ps | None]) -> Ps | None:
        rows = self.delays.rows
        reach = least(*(s + d for k, s in enumerate(sends) if s is not None and (d := rows[k][rank]) is not None))
        # No time after MAX_PS can be told, so a bound beyond it bounds nothing.
        return None if reach is None or reach > MAX_PS else reach

    def _bounds(self, rank: int) -> list[Bound]:
        bounds = []
        for by, member in enumerate(self._members):
            acts, delay = member.sends_ps(), self.delays.get(by, rank)
            if acts is not None and delay is not None:
                bounds.append(Bound(by, acts, delay, self.delays.chain(by, rank)))
        return bounds

    def _grant(self, rank: int, start: Ps, horizon: Ps | None) -> Grant:
        member = self._members[rank]
        need = tuple(
            (source, sent)
            for source, other in enumerate(self._members)
            if (sent := other.sent.get(rank, 0)) > member.taken.get(source, 0)
        )
        grant = Grant(horizon, need)
        member.running, member.next_ps = True, start
        member.history.append(grant)
        self.grants += 1
        if horizon is not None:
            self.windows += 1
            self.window_ps_sum += horizon - start
        return grant
