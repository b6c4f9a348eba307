"""Bugs planted into the synchronisation, one at a time: the random systems must catch every one of them.

Not a test of the simulator but of ``test_timesync_property``: it keeps that test's list of catches true. Each mutant
is a small change of one real part. ``PYTHONPATH=. python tests/inproc/test_timesync_mutants.py`` runs each on every
system and prints in how many it shows.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from random_runs import Caught, PacedEngine, Participant, Parts, simulate
from random_systems import SYSTEMS, Outcome, System, first_difference, random_system, reference
from simpy.events import EventPriority

from broker.hub import Hub
from broker.streams import LostPacket
from broker.timesync import Quiet, TimeSync, _Member, least
from broker.wire import Grant, Packet, Report
from sipsim.engine import ARRIVAL, LOCAL
from sipsim.errors import InvariantViolation
from sipsim.session import Session

NAMED_FAILURES = (Caught, InvariantViolation, LostPacket)


# --- planted in the session -----------------------------------------------------------------------------------


class HeldLeftOut(Session):
    def report(self) -> Report:
        return replace(super().report(), held_ps=None)


class NeedNotAwaited(Session):
    def is_ready(self) -> bool:
        return self._grant is not None


class StreamPerChannel(Session):
    """Numbers packets per channel; the counts of a pair are sums over its channels."""

    def emit(self, channel: int, arrival_ps: int, body: bytes) -> None:
        self._out.number(self._channels[channel].dst, arrival_ps)
        self._post(self._channels[channel].dst, Packet(self.rank, channel, 0, arrival_ps, body))

    def take(self, packet: Packet) -> None:
        seq = self._in.counts.get(packet.src, 0)
        super().take(replace(packet, seq=seq))


class CountPerChannel(Session):
    """Awaits a pair's count on one of the pair's channels."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lanes: Counter[tuple[int, int]] = Counter()

    def take(self, packet: Packet) -> None:
        self._lanes[packet.src, packet.channel] += 1
        super().take(packet)

    def is_ready(self) -> bool:
        most = {source: max((n for (s, _), n in self._lanes.items() if s == source), default=0) for source in range(8)}
        return self._grant is not None and all(most[source] >= count for source, count in self._grant.need)


class TiesByReceipt(Session):
    def take(self, packet: Packet) -> None:
        if self._in.accept(packet.src, packet.seq):
            receipt = self.packets_taken
            heapq.heappush(self._held, (packet.arrival_ps, receipt, packet.channel, packet.seq, packet.body))


class InjectsAtTheHorizon(Session):
    def begin(self) -> None:
        assert self._grant is not None
        grant = self._grant
        if grant.horizon_ps is not None:
            self._grant = Grant(grant.horizon_ps + 1, grant.need)
        super().begin()
        self._grant = grant


class TakenMeansInjected(Session):
    """Reports per source how many packets it injected, in place of how many it took."""

    def report(self) -> Report:
        held = Counter(source for _, source, *_ in self._held)
        taken = tuple((source, count - held[source]) for source, count in sorted(self._in.counts.items()))
        return replace(super().report(), taken=taken)


class ArrivalAfterLocal(PacedEngine):
    def at(self, time_ps: int, action: Callable[[], None], priority: EventPriority = LOCAL) -> None:
        super().at(time_ps, action, EventPriority(2) if priority == ARRIVAL else priority)


class RunsTheHorizon(PacedEngine):
    def run_before(self, horizon_ps: int | None, most_events: int) -> bool:
        return super().run_before(None if horizon_ps is None else horizon_ps + 1, most_events)


# --- planted in the loop around the session -------------------------------------------------------------------


class MailPerChannel(Participant):
    def mail_name(self, packet: Packet) -> int:
        return packet.src + 1000 * (packet.channel + 1)


class HostCodeReports(Participant):
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


class FirstReportTooEarly(Participant):
    """Reports before the host script has done its first thing."""

    def _act(self) -> bool:
        if self.owes_first_report:
            self.owes_first_report = False
            self.send(self.promising(self.session.report()))
            self.engine.host_code = self.device.begin
            self._dawdle()
            return True
        return super()._act()


# --- planted in what the broker knows of a SIP ----------------------------------------------------------------


class FlightForgotten(_Member):
    def flight_ps(self) -> int | None:
        return None


class _NewestOnly(dict[int, deque[tuple[int, int]]]):
    def setdefault(self, key: int, _default: Any = None) -> deque[tuple[int, int]]:
        return super().setdefault(key, deque(maxlen=1))


class NewestArrivalOnly(_Member):
    def __init__(self) -> None:
        super().__init__()
        self.flight = _NewestOnly()


class FlightToRunningIgnored(_Member):
    def flight_ps(self) -> int | None:
        return None if self.running else super().flight_ps()


class PromiseNotLowered(_Member):
    def _lowered(self) -> int | None:
        return self.promise_ps

    def sends_ps(self) -> int | None:
        acts, lowered = self.acts_ps(), self._lowered()
        return acts if acts is None or self.promise_ps is None or lowered is None else max(acts, lowered)


class PromiseNotLoweredByHeld(PromiseNotLowered):
    def _lowered(self) -> int | None:
        return least(self.promise_ps, self.flight_ps())


class PromiseNotLoweredByFlight(PromiseNotLowered):
    def _lowered(self) -> int | None:
        return least(self.promise_ps, self.held_ps)


class PromiseBelowNext(_Member):
    """A promise weaker than what the SIP's next event says by itself holds everybody back."""

    def sends_ps(self) -> int | None:
        if self.promise_ps is None:
            return self.acts_ps()
        return least(self.promise_ps, self.held_ps, self.flight_ps())


class RunningAtInfinity(_Member):
    def sends_ps(self) -> int | None:
        return self.flight_ps() if self.running else super().sends_ps()


# --- planted in the broker's decision -------------------------------------------------------------------------


class Decision(TimeSync):
    """The real decision with its three conditions taken apart; by itself it decides as ``TimeSync`` does."""

    def may_grant(self) -> bool:
        return all(m.reported for m in self._members)

    def is_quiet(self) -> bool:
        return all(m.reported and not m.running and m.acts_ps() is None for m in self._members)

    def reaches(self, start_ps: int, horizon_ps: int) -> bool:
        return start_ps < horizon_ps

    def _decide(self) -> list[tuple[int, Grant]] | Quiet:
        if self.is_quiet():
            return Quiet(tuple(m.waiting for m in self._members))
        sends = [m.sends_ps() for m in self._members]
        idle = [(rank, m.acts_ps()) for rank, m in enumerate(self._members) if not m.running]
        granted = []
        for rank, start in idle if self.may_grant() else ():
            if start is None:
                continue
            horizon = self._horizon(rank, sends)
            if horizon is None or self.reaches(start, horizon):
                granted.append((rank, self._grant(rank, start, horizon)))
        return granted


class EndWithFlight(Decision):
    def is_quiet(self) -> bool:
        return all(m.reported and not m.running and m.next_ps is None for m in self._members)


class EndWhileRunning(Decision):
    def is_quiet(self) -> bool:
        return all(m.reported and (m.running or m.acts_ps() is None) for m in self._members)


class GrantBeforeFirstReports(Decision):
    def may_grant(self) -> bool:
        return True


class GrantOfNothing(Decision):
    def reaches(self, start_ps: int, horizon_ps: int) -> bool:
        return start_ps <= horizon_ps


def deciding(kind: type[TimeSync]) -> Parts:
    def tamper(hub: Hub, system: System) -> None:
        hub.timesync = kind(system.size, system.channels)

    return Parts(tamper=tamper)


def knowing(kind: type[_Member]) -> Parts:
    def tamper(hub: Hub, system: System) -> None:
        hub.timesync._members = [kind() for _ in range(system.size)]

    return Parts(tamper=tamper)


def _no_cycles(hub: Hub, system: System) -> None:
    for rank in range(system.size):
        hub.timesync.delays.rows[rank][rank] = None


MUTANTS: dict[str, Parts] = {
    "held packets left out of next": Parts(session=HeldLeftOut),
    "need not awaited before running": Parts(session=NeedNotAwaited),
    "packets in flight forgotten": knowing(FlightForgotten),
    "only the newest least arrival kept": knowing(NewestArrivalOnly),
    "packets in flight do not lower a running SIP": knowing(FlightToRunningIgnored),
    "one stream and one mail order per channel": Parts(session=StreamPerChannel, participant=MailPerChannel),
    "a channel's count compared with the pair's": Parts(session=CountPerChannel),
    "taken counts injected packets only": Parts(session=TakenMeansInjected),
    "no self loop: D[j][j] missing": Parts(tamper=_no_cycles),
    "arrival after local at equal t": Parts(engine=ArrivalAfterLocal),
    "ties by order of receipt": Parts(session=TiesByReceipt),
    "what arrives at the horizon is injected": Parts(session=InjectsAtTheHorizon),
    "events at the horizon are run": Parts(engine=RunsTheHorizon),
    "end while something is in flight": deciding(EndWithFlight),
    "end while someone runs": deciding(EndWhileRunning),
    "grant before every first report": deciding(GrantBeforeFirstReports),
    "host code that reports": Parts(participant=HostCodeReports),
    "first report before the script's first step": Parts(participant=FirstReportTooEarly),
    "promise not lowered by held or in-flight": knowing(PromiseNotLowered),
    "promise not lowered by held": knowing(PromiseNotLoweredByHeld),
    "promise not lowered by in-flight": knowing(PromiseNotLoweredByFlight),
    "promise below N taken literally": knowing(PromiseBelowNext),
    "a running SIP stands at infinity": knowing(RunningAtInfinity),
    "grant when N equals the horizon": deciding(GrantOfNothing),
}


def catch(system: System, expected: Outcome, parts: Parts) -> str | None:
    """How a mutant shows on one system, or None. Only named failures count: a mutant that crashes is no catch."""
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


def test_decision_by_itself_is_no_mutant() -> None:
    """The copy that the mutants of the decision are made from is right."""
    for seed in range(100):
        system = random_system(seed)
        assert catch(system, reference(system), deciding(Decision)) is None, f"seed {seed}"


def main() -> None:
    """Print, for every mutant, in how many of the systems it is caught, and how."""
    systems = [random_system(seed) for seed in range(SYSTEMS)]
    expected = [reference(system) for system in systems]
    for name, parts in MUTANTS.items():
        caught = [how for s, e in zip(systems, expected, strict=True) if (how := catch(s, e, parts)) is not None]
        ways = Counter(how.split(" ")[0] for how in caught)
        print(f"{len(caught):5d}  {name:50s} {dict(ways.most_common(4))}")


if __name__ == "__main__":
    main()
