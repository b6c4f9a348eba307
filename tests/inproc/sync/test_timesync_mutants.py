"""Bugs planted into the synchronisation, one at a time: the random systems must catch every one of them.

It shows that ``test_timesync_property`` finds bugs. Each mutant is a small change of one real part. To print in how
many systems each is caught: ``PYTHONPATH=.:tests/inproc python tests/inproc/sync/test_timesync_mutants.py``.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from random_runs import Caught, PacedEngine, Parts, SyncClient, simulate
from random_systems import SYSTEMS, Outcome, System, first_difference, random_system, reference
from simpy.events import EventPriority

from broker.hub import Hub
from broker.ids import MAX_PS, Channel
from broker.mail.streams import LostPacket
from broker.sync.delays import NEVER_PS, DelayMatrix
from broker.sync.sip_state import SipSyncState
from broker.sync.timesync import Quiescent, TimeSync
from broker.wire import Grant, PacketBatch, Report
from sipsim.engine import ARRIVAL, LOCAL
from sipsim.errors import InvariantViolation
from sipsim.sync.session import Session

NAMED_FAILURES = (Caught, InvariantViolation, LostPacket)


# --- planted in the session -----------------------------------------------------------------------------------


class HeldLeftOut(Session):
    def report(self) -> Report:
        return replace(super().report(), held_ps=None)


class NeedNotAwaited(Session):
    def is_ready(self) -> bool:
        return self._grant is not None


class StreamPerChannel(Session):
    """A batch per channel; the counts of a pair are sums over its channels."""

    def _send_batch(self, dst: int) -> None:
        packets = self._outgoing.pop(dst).packets
        for lane in sorted({channel for channel, _, _ in packets}):
            self._send(dst, PacketBatch(self.rank, 0, tuple(packet for packet in packets if packet[0] == lane)))

    def take(self, parcel: PacketBatch) -> None:
        super().take(replace(parcel, first=self._in.counts.get(parcel.src, 0)))


class CountPerChannel(Session):
    """Awaits a pair's count on one of the pair's channels."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lanes: Counter[tuple[int, int]] = Counter()

    def take(self, parcel: PacketBatch) -> None:
        known = self._in.counts.get(parcel.src, 0) - parcel.first
        self._lanes.update((parcel.src, channel) for channel, _, _ in parcel.packets[known:])
        super().take(parcel)

    def is_ready(self) -> bool:
        most = {source: max((n for (s, _), n in self._lanes.items() if s == source), default=0) for source in range(8)}
        return self._grant is not None and all(most[source] >= count for source, count in self._grant.need)


class TiesByReceipt(Session):
    def take(self, parcel: PacketBatch) -> None:
        known = self._in.accept(parcel.src, parcel.first, len(parcel.packets))
        for index, (channel, arrival_ps, body) in enumerate(parcel.packets[known:], known):
            receipt = self.packets_taken + index - len(parcel.packets)
            heapq.heappush(self._held, (arrival_ps, receipt, channel, parcel.first + index, body))


class OverlapTakenAgain(Session):
    """A batch with any new packet is taken whole."""

    def take(self, parcel: PacketBatch) -> None:
        if self._in.accept(parcel.src, parcel.first, len(parcel.packets)) < len(parcel.packets):
            for index, (channel, arrival_ps, body) in enumerate(parcel.packets):
                heapq.heappush(self._held, (arrival_ps, parcel.src, channel, parcel.first + index, body))


class OverlapDropped(Session):
    """A batch with any duplicate is dropped whole."""

    def take(self, parcel: PacketBatch) -> None:
        if not self._in.accept(parcel.src, parcel.first, len(parcel.packets)):
            super().take(replace(parcel, first=parcel.first + len(parcel.packets), packets=()))
            for index, (channel, arrival_ps, body) in enumerate(parcel.packets):
                heapq.heappush(self._held, (arrival_ps, parcel.src, channel, parcel.first + index, body))


class SplitForgetsItsNumber(Session):
    """All batches of a window carry the number of its first packet."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._firsts: dict[int, int] = {}

    def report(self) -> Report:
        report = super().report()
        self._firsts.clear()
        return report

    def _send_batch(self, dst: int) -> None:
        self._outgoing[dst].first = self._firsts.setdefault(dst, self._outgoing[dst].first)
        super()._send_batch(dst)


class CountedLate(Session):
    """Packets that are unsent at a report are sent after it, and counted by the next one."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._leaving: dict[int, PacketBatch] = {}
        self._uncounted: dict[int, tuple[int, int, int]] = {}

    def report(self) -> Report:
        told, self._uncounted = self._uncounted, {}
        here, report = set(self._outgoing), super().report()
        sent = {dst: (dst, count, arrival) for dst, count, arrival in report.sent}
        for dst in here:
            self._uncounted[dst] = sent.pop(dst)
        for dst, (_, count, arrival) in told.items():
            newer = sent.get(dst, (dst, count, arrival))
            sent[dst] = dst, max(count, newer[1]), min(arrival, newer[2])
        return replace(report, sent=tuple(sent[dst] for dst in sorted(sent)))


class PromiseOfTheChannel(Session):
    """Forbids any packet to leave before the promise, on slow channels too, however late it arrives."""

    def emit(self, channel: int, arrival_ps: int, body: bytes) -> None:
        if arrival_ps < self._send_bound_ps + self._channels[channel].delay_ps:
            raise InvariantViolation("a slow channel was used before the promise")
        super().emit(channel, arrival_ps, body)


class InjectsAtTheHorizon(Session):
    def begin(self) -> None:
        assert self._grant is not None
        grant = self._grant
        if grant.horizon_ps is not None:
            self._grant = replace(grant, horizon_ps=grant.horizon_ps + 1)
        super().begin()
        self._grant = grant


class TakenMeansInjected(Session):
    """Reports per source the packets that it injected, in place of those that it took."""

    def report(self) -> Report:
        held = Counter(source for _, source, *_ in self._held)
        taken = tuple((source, count - held[source]) for source, count in sorted(self._in.counts.items()))
        return replace(super().report(), taken=taken)


class ArrivalAfterLocal(PacedEngine):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.at = self._local_first  # type: ignore[method-assign]

    def _local_first(self, time_ps: int, action: Callable[[], None], priority: EventPriority = LOCAL) -> None:
        self.env.at(time_ps, action, EventPriority(2) if priority == ARRIVAL else priority)


class RunsTheHorizon(PacedEngine):
    def run_before(self, horizon_ps: int | None, most_events: int) -> bool:
        return super().run_before(None if horizon_ps is None else horizon_ps + 1, most_events)


# --- planted in the loop around the session -------------------------------------------------------------------


class MailPerChannel(SyncClient):
    def mail_name(self, parcel: PacketBatch) -> int:
        return parcel.src + 1000 * (parcel.packets[0][0] + 1)

    def _perhaps_again(self, parcel: PacketBatch) -> PacketBatch:
        return parcel


class HostCodeReports(SyncClient):
    """Reports while host code is still running."""

    def _act(self) -> bool:
        if not (self.engine.host_code and self._runs):
            return super()._act()
        self._runs = False
        self.session._grant = None
        self.session._reached_ps = max(self.session._reached_ps, self.engine.now_ps)
        self.send(self.promising(self.session.report()))
        self._dawdle()
        return True


class FirstReportTooEarly(SyncClient):
    """Reports before the first step of the host script."""

    def _act(self) -> bool:
        if self.owes_first_report:
            self.owes_first_report = False
            self.send(self.promising(self.session.report()))
            self.engine.host_code = self.device.begin
            self._dawdle()
            return True
        return super()._act()


class PromisesTooMuch(SyncClient):
    def next_send_bound_ps(self, next_ps: int) -> int:
        return min(super().next_send_bound_ps(next_ps) + 1, MAX_PS)


# --- planted in the broker's state of a SIP -------------------------------------------------------------------


class FlightForgotten(SipSyncState):
    def flight_ps(self) -> int:
        return NEVER_PS


class _NewestOnly(dict[int, deque[tuple[int, int]]]):
    def setdefault(self, key: int, _default: Any = None) -> deque[tuple[int, int]]:
        return super().setdefault(key, deque(maxlen=1))


class NewestArrivalOnly(SipSyncState):
    def __init__(self, reaction_ps: int) -> None:
        super().__init__(reaction_ps)
        self.flight = _NewestOnly()


class _NewestKey(dict[int, int]):
    def __setitem__(self, key: int, value: int) -> None:
        self.clear()
        super().__setitem__(key, value)


class NewestAnnouncedOnly(SipSyncState):
    """A grant requires the packets of the newest report alone, and no others in flight."""

    def __init__(self, reaction_ps: int) -> None:
        super().__init__(reaction_ps)
        self.announced = _NewestKey()


class FlightToRunningIgnored(SipSyncState):
    def flight_ps(self) -> int:
        return NEVER_PS if self.running else super().flight_ps()


class Bounding(SipSyncState):
    """The real ``X`` with its parts taken apart; by itself it bounds as ``SipSyncState`` does."""

    def promised_ps(self) -> int:
        return NEVER_PS if self.promise_ps is None else self.promise_ps

    def reaction_bound_ps(self) -> int:
        return min(self.held_ps, self.flight_ps()) + self.reaction_ps

    def next_send_bound_ps(self) -> int:
        event = self.next_event_bound_ps()
        if self.promise_ps is None or event == NEVER_PS:
            return event
        return max(event, min(self.promised_ps(), self.reaction_bound_ps()))


class PromiseNotLowered(Bounding):
    def reaction_bound_ps(self) -> int:
        return NEVER_PS


class PromiseNotLoweredByHeld(Bounding):
    def reaction_bound_ps(self) -> int:
        return self.flight_ps() + self.reaction_ps


class PromiseNotLoweredByFlight(Bounding):
    def reaction_bound_ps(self) -> int:
        return self.held_ps + self.reaction_ps


class HeldForgottenByGrant(Bounding):
    """Leaves out what a running SIP held, since it is injected; but what that causes is not sent yet."""

    def reaction_bound_ps(self) -> int:
        return (self.flight_ps() if self.running else min(self.held_ps, self.flight_ps())) + self.reaction_ps


class ReactionTwice(Bounding):
    def reaction_bound_ps(self) -> int:
        return super().reaction_bound_ps() + self.reaction_ps


class ReactionAfterPromise(Bounding):
    def promised_ps(self) -> int:
        return super().promised_ps() + self.reaction_ps


class ReactionWithoutPromise(Bounding):
    """Takes the next event for an arrival: ``X = N + R`` where nothing is promised."""

    def next_send_bound_ps(self) -> int:
        event = self.next_event_bound_ps()
        if self.promise_ps is not None or event == NEVER_PS:
            return super().next_send_bound_ps()
        return event + self.reaction_ps


class PromiseBelowNext(Bounding):
    """A promise before the SIP's next event bounds the others."""

    def next_send_bound_ps(self) -> int:
        if self.promise_ps is None or self.next_event_bound_ps() == NEVER_PS:
            return self.next_event_bound_ps()
        return min(self.promised_ps(), self.reaction_bound_ps())


class _PromiseThatStays(SipSyncState):
    _kept: int | None = None

    @property
    def promise_ps(self) -> int | None:
        return self._kept


class PromiseOutlivesItsReport(_PromiseThatStays):
    """A report without a promise keeps the one before it."""

    @_PromiseThatStays.promise_ps.setter
    def promise_ps(self, promise_ps: int | None) -> None:
        if promise_ps is not None:
            self._kept = promise_ps


class PromiseOnlyRises(_PromiseThatStays):
    """A promise is never lowered."""

    @_PromiseThatStays.promise_ps.setter
    def promise_ps(self, promise_ps: int | None) -> None:
        if promise_ps is not None:
            self._kept = max(self._kept or 0, promise_ps)


class RunningAtInfinity(SipSyncState):
    def next_send_bound_ps(self) -> int:
        return self.flight_ps() if self.running else super().next_send_bound_ps()


# --- planted in the broker's decision -------------------------------------------------------------------------


class Decision(TimeSync):
    """The decision from everything, with its conditions taken apart; by itself it decides as ``TimeSync`` does."""

    def may_grant(self) -> bool:
        return all(m.reported for m in self._members)

    def is_quiescent(self) -> bool:
        return all(m.reported and not m.running and m.next_event_bound_ps() == NEVER_PS for m in self._members)

    def may_run(self, start_ps: int, horizon_ps: int) -> bool:
        return start_ps < horizon_ps

    def _decide(self, changed: set[int]) -> list[tuple[int, Grant]] | Quiescent:
        self._next_event_bounds = [m.next_event_bound_ps() for m in self._members]
        self._next_send_bounds = [m.next_send_bound_ps() for m in self._members]
        if self.is_quiescent():
            return Quiescent(tuple(m.waiting for m in self._members))
        granted = []
        for rank, member in enumerate(self._members) if self.may_grant() else ():
            start, horizon = self._next_event_bounds[rank], self._horizon(rank)
            if not member.running and start < NEVER_PS and self.may_run(start, horizon):
                granted.append((rank, self._grant(rank, start, None if horizon > MAX_PS else horizon)))
        return granted


class EndWithFlight(Decision):
    def is_quiescent(self) -> bool:
        return all(m.reported and not m.running and m.next_ps == NEVER_PS for m in self._members)


class EndWhileRunning(Decision):
    def is_quiescent(self) -> bool:
        return all(m.reported and (m.running or m.next_event_bound_ps() == NEVER_PS) for m in self._members)


class GrantBeforeFirstReports(Decision):
    def may_grant(self) -> bool:
        return True


class GrantOfNothing(Decision):
    def may_run(self, start_ps: int, horizon_ps: int) -> bool:
        return start_ps <= horizon_ps


class BlockedStayBlocked(TimeSync):
    """Examines the reporter and the receivers, not the SIPs that the reporter blocked."""

    def _to_examine(self, changed: set[int]) -> list[int]:
        return [rank for rank, member in enumerate(self._members) if not member.running and rank in changed]


class RecordsReporter(TimeSync):
    reporter = -1

    def report(self, rank: int, report: Report, now_ns: int = 0) -> list[tuple[int, Grant]] | Quiescent:
        self.reporter = rank
        return super().report(rank, report, now_ns)


class ReceiversNotExamined(RecordsReporter):
    """Examines the reporter and the SIPs that changed ones blocked, not idle SIPs with packets in flight."""

    def _to_examine(self, changed: set[int]) -> list[int]:
        if not self.grants:
            return super()._to_examine(changed)
        idle = [(rank, member) for rank, member in enumerate(self._members) if not member.running]
        return [rank for rank, member in idle if rank == self.reporter or member.blocker in changed]


class ReceiversKeepTheirBounds(RecordsReporter):
    """Updates ``N`` and ``X`` of the reporter, not of the receivers of its packets."""

    def _decide(self, changed: set[int]) -> list[tuple[int, Grant]] | Quiescent:
        return super()._decide({self.reporter})


class UnreachableBlock(TimeSync):
    """A SIP without a chain to another one blocks it all the same, as if without delay."""

    def _examine(self, rank: int) -> tuple[int, Grant] | None:
        start, into = self._next_event_bounds[rank], {source for source, _ in self.delays.into[rank]}
        for other in set(range(self.size)) - into - {rank}:
            if self._next_send_bounds[other] <= start < NEVER_PS:
                self._members[rank].blocker = other
                return None
        return super()._examine(rank)


# --- planted in the delays ------------------------------------------------------------------------------------


def _no_cycles(hub: Hub, _system: System) -> None:
    into = hub.timesync.delays.into
    for dst, sources in enumerate(into):
        into[dst] = [(src, delay) for src, delay in sources if src != dst]


def _at_the_start(hub: Hub, system: System) -> None:
    into, reactions = hub.timesync.delays.into, system.reactions_ps
    into[:] = [[(src, delay + reactions[src]) for src, delay in sources] for sources in into]


def _at_the_end(hub: Hub, system: System) -> None:
    into, reactions = hub.timesync.delays.into, system.reactions_ps
    into[:] = [[(src, delay + reactions[dst]) for src, delay in sources] for dst, sources in enumerate(into)]


def _reactions_twice(hub: Hub, system: System) -> None:
    hub.timesync.delays = DelayMatrix(system.size, system.channels, [2 * r for r in system.reactions_ps])


def _slowest_of_a_pair(hub: Hub, system: System) -> None:
    slowest: dict[tuple[int, int], Channel] = {}
    for channel in sorted(system.channels, key=lambda c: c.delay_ps):
        slowest[channel.src, channel.dst] = channel
    hub.timesync.delays = DelayMatrix(system.size, list(slowest.values()), system.reactions_ps)


# --- all of them ----------------------------------------------------------------------------------------------


def deciding(kind: type[TimeSync]) -> Parts:
    def tamper(hub: Hub, system: System) -> None:
        hub.timesync = kind(system.size, system.channels, system.reactions_ps)

    return Parts(tamper=tamper)


def tracking(kind: type[SipSyncState]) -> Parts:
    def tamper(hub: Hub, system: System) -> None:
        hub.timesync._members = [kind(reaction_ps) for reaction_ps in system.reactions_ps]

    return Parts(tamper=tamper)


def _more_reaction(system: System) -> list[int]:
    return [reaction_ps + 1 for reaction_ps in system.reactions_ps]


MUTANTS: dict[str, Parts] = {
    "held packets left out of next": Parts(session=HeldLeftOut),
    "need not awaited before running": Parts(session=NeedNotAwaited),
    "packets in flight forgotten": tracking(FlightForgotten),
    "only the newest least arrival kept": tracking(NewestArrivalOnly),
    "packets in flight do not lower a running SIP": tracking(FlightToRunningIgnored),
    "one stream and one mail order per channel": Parts(session=StreamPerChannel, client=MailPerChannel),
    "a channel's count compared with the pair's": Parts(session=CountPerChannel),
    "taken counts injected packets only": Parts(session=TakenMeansInjected),
    "no self loop: D[j][j] missing": Parts(tamper=_no_cycles),
    "SIPs without a chain block": deciding(UnreachableBlock),
    "delay of the slowest channel of a pair": Parts(tamper=_slowest_of_a_pair),
    "arrival after local at equal t": Parts(engine=ArrivalAfterLocal),
    "ties by order of receipt": Parts(session=TiesByReceipt),
    "arrivals at the horizon are injected": Parts(session=InjectsAtTheHorizon),
    "events at the horizon are run": Parts(engine=RunsTheHorizon),
    "end while a packet is in flight": deciding(EndWithFlight),
    "end while a SIP runs": deciding(EndWhileRunning),
    "grant before every first report": deciding(GrantBeforeFirstReports),
    "host code that reports": Parts(client=HostCodeReports),
    "first report before the script's first step": Parts(client=FirstReportTooEarly),
    "promise not lowered by held or in-flight": tracking(PromiseNotLowered),
    "promise not lowered by held": tracking(PromiseNotLoweredByHeld),
    "promise not lowered by in-flight": tracking(PromiseNotLoweredByFlight),
    "promise not lowered by held once it runs": tracking(HeldForgottenByGrant),
    "promise below N taken literally": tracking(PromiseBelowNext),
    "promise kept by a report without one": tracking(PromiseOutlivesItsReport),
    "promise never lowered by a later report": tracking(PromiseOnlyRises),
    "promise larger than the real one": Parts(client=PromisesTooMuch),
    "promise read per channel": Parts(session=PromiseOfTheChannel),
    "reaction without a promise: X = N + R": tracking(ReactionWithoutPromise),
    "reaction added to the promise": tracking(ReactionAfterPromise),
    "reaction counted twice in X": tracking(ReactionTwice),
    "reaction counted twice in D": Parts(tamper=_reactions_twice),
    "reaction of the chain's start in D": Parts(tamper=_at_the_start),
    "reaction of the chain's end in D": Parts(tamper=_at_the_end),
    "reaction larger than the real one": Parts(reactions=_more_reaction),
    "a running SIP is unbounded": tracking(RunningAtInfinity),
    "grant when N equals the horizon": deciding(GrantOfNothing),
    "blocker changed, blocked not examined": deciding(BlockedStayBlocked),
    "idle receivers not examined": deciding(ReceiversNotExamined),
    "bounds of receivers not updated": deciding(ReceiversKeepTheirBounds),
    "need only of the newest report": tracking(NewestAnnouncedOnly),
    "batch that the report does not count": Parts(session=CountedLate),
    "batch split early keeps its first number": Parts(session=SplitForgetsItsNumber),
    "overlapping batch taken again": Parts(session=OverlapTakenAgain),
    "overlapping batch dropped": Parts(session=OverlapDropped),
}


def catch(system: System, expected: Outcome, parts: Parts) -> str | None:
    """The symptom of a mutant on one system, or None. Only named failures count: a crash is no catch."""
    try:
        return first_difference(simulate(system, parts), expected)
    except NAMED_FAILURES as failure:
        return f"{type(failure).__name__}: {failure}"


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_bug_is_caught(name: str) -> None:
    for seed in range(SYSTEMS):
        system = random_system(seed)
        if catch(system, reference(system), MUTANTS[name]) is not None:
            return
    pytest.fail(f"no system of {SYSTEMS} shows: {name}")


@pytest.mark.parametrize("parts", [deciding(Decision), tracking(Bounding)], ids=["Decision", "Bounding"])
def test_base_classes_of_mutants_are_correct(parts: Parts) -> None:
    for seed in range(100):
        system = random_system(seed)
        assert catch(system, reference(system), parts) is None, f"seed {seed}"


def main() -> None:
    """Print, for every mutant, in how many of the systems it is caught, and how."""
    systems = [random_system(seed) for seed in range(SYSTEMS)]
    expected = [reference(system) for system in systems]
    for name, parts in MUTANTS.items():
        caught = [how for s, e in zip(systems, expected, strict=True) if (how := catch(s, e, parts)) is not None]
        symptoms = Counter(how.split(" ")[0] for how in caught)
        print(f"{len(caught):5d}  {name:50s} {dict(symptoms.most_common(4))}")


if __name__ == "__main__":
    main()
