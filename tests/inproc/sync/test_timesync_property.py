"""No timing of mail, grants or clients may change a result: random systems against a single-queue reference.

Each system runs once through the real hub, sessions and engines under shuffled mail (``random_runs``); the trace of
every SIP must equal the reference's, and the run must end in the right way. Everything follows from the seed. That this
finds bugs is shown by ``tests/mutants.toml``.

A grant to a horizon that equals N cannot change a result: nothing runs, the SIP reports again, and so on for ever.
The harness therefore rejects a grant that lets nothing run.

Some bugs cannot change a result or stop a run, only cost time: a reaction or a promise that is left out of ``X`` or
``D``, or a SIP that is examined without need. ``test_promises_and_reactions_matter`` checks that windows are extended
and that no grant is later than it could be.
"""

from typing import Any

import pytest
from random_runs import Caught, Parts, simulate
from random_systems import SYSTEMS, Outcome, System, first_difference, random_system, reference
from sweeps import batches

from broker.channels import NEVER_PS, DelayMatrix
from broker.hub import Hub
from broker.ids import MAX_PS, Channel
from broker.sync.timesync import Quiescent, TimeSync
from broker.wire import Grant
from sipsim.core.session import Session

BATCH = 50


@pytest.mark.parametrize("first_seed", batches(SYSTEMS, BATCH, ordinary=8))
def test_real_machinery_equals_the_reference(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + BATCH):
        system = random_system(seed)
        try:
            difference = first_difference(simulate(system), reference(system))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        assert difference is None, f"seed {seed}: {difference}"


def test_systems_are_worth_running() -> None:
    """The generator makes ties of every kind, parallel channels, and both endings."""
    systems = [random_system(seed) for seed in range(SYSTEMS)]
    outcomes = [reference(system) for system in systems]
    parallel = sum(len({c[:2] for c in s.channels}) < len(s.channels) for s in systems)
    deadlocks = sum(any(outcome.waiting) for outcome in outcomes)
    tied = [_ties(outcome, system) for outcome, system in zip(outcomes, systems, strict=True)]
    assert parallel > SYSTEMS * 0.6
    assert SYSTEMS * 0.1 < deadlocks < SYSTEMS * 0.5
    assert sum(arrival_and_local for arrival_and_local, _ in tied) > SYSTEMS * 0.7
    assert sum(two_sources for _, two_sources in tied) > SYSTEMS * 0.2
    assert sum(len(trace) for outcome in outcomes for trace in outcome.traces) > SYSTEMS * 50


def test_promises_and_reactions_matter() -> None:
    """Both extend windows, in many systems; and packets are sent before a promise, on a slow channel."""
    systems = [random_system(seed) for seed in range(0, SYSTEMS, 4)]
    watched: list[Watching] = []
    sessions: list[Sending] = []

    class Noted(Sending):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            sessions.append(self)

    def tamper(hub: Hub, system: System) -> None:
        hub.timesync = Watching(system.size, system.channels, system.reactions_ps)
        watched.append(hub.timesync)

    for system in systems:
        assert first_difference(simulate(system, Parts(session=Noted, tamper=tamper)), reference(system)) is None
    assert sum(w.by_promise > 0 for w in watched) > len(systems) * 0.4
    assert sum(w.by_reaction > 0 for w in watched) > len(systems) * 0.5
    assert sum(w.free > 0 for w in watched) > len(systems) * 0.2
    assert sum(any(not row for row in w.delays.into) for w in watched) > len(systems) * 0.3
    assert sum(s.before_it_counts > 0 for s in sessions) > len(systems) * 0.3
    assert sum(s.split > 0 for s in sessions) > len(systems) * 0.5


class Watching(TimeSync):
    """Compares each decision with a recomputation of all bounds, and each horizon with simpler ones.

    ``by_promise``: grants beyond the horizon from next events alone; ``by_reaction``: beyond the one from promises
    without reactions; ``free``: not bounded by any SIP that can reach this one.
    """

    def __init__(self, size: int, channels: list[Channel], reactions_ps: list[int]) -> None:
        super().__init__(size, channels, reactions_ps)
        self._plain = DelayMatrix(size, channels)
        self.by_promise = self.by_reaction = self.free = 0

    def _decide(self, changed: set[int]) -> list[tuple[int, Grant]] | Quiescent:
        decision = super()._decide(changed)
        events = [m.next_event_bound_ps() for m in self._members]
        sends = [m.next_send_bound_ps() for m in self._members]
        if events != self._next_event_bounds or sends != self._next_send_bounds:
            raise Caught("the broker's bounds differ from those of its state")
        if not self._unreported:
            for rank, member in enumerate(self._members):
                if not member.running and self._next_event_bounds[rank] < min(self._horizon(rank), NEVER_PS):
                    raise Caught(f"SIP {rank} may run and was not granted")
        return decision

    def _grant(self, rank: int, start: int, horizon: int | None) -> Grant:
        real = self._horizon(rank)
        plain = min((self._next_event_bounds[k] + delay for k, delay in self._plain.into[rank]), default=NEVER_PS)
        promised = min((self._promised_ps(k) + delay for k, delay in self._plain.into[rank]), default=NEVER_PS)
        assert plain <= promised <= real
        self.by_promise += plain < promised
        self.by_reaction += promised < real
        self.free += bool(self.delays.into[rank]) and real > MAX_PS
        return super()._grant(rank, start, horizon)

    def _promised_ps(self, rank: int) -> int:
        member, event = self._members[rank], self._next_event_bounds[rank]
        if member.promise_ps is None or event == NEVER_PS:
            return event
        return max(event, min(member.promise_ps, member.held_ps, member.flight_ps()))


class Sending(Session):
    """Counts split batches, and packets that leave on a slow channel before they count as sent."""

    before_it_counts = split = 0

    def emit(self, channel: int, arrival_ps: int, body: bytes) -> None:
        dst = self._channels[channel].dst
        super().emit(channel, arrival_ps, body)
        self.before_it_counts += arrival_ps < self._send_bound_ps + self._channels[channel].delay_ps
        self.split += dst not in self._outgoing


def _ties(outcome: Outcome, system: System) -> tuple[bool, bool]:
    """Whether some SIP has an arrival and a local event at the same t, and arrivals from two sources at the same t."""
    arrival_and_local = two_sources = False
    for trace in outcome.traces:
        origins: dict[int, set[int]] = {}
        for time_ps, origin, _ in trace:
            origins.setdefault(time_ps, set()).add(origin if origin < 0 else system.channels[origin].src)
        arrival_and_local |= any(-1 in found and len(found) > 1 for found in origins.values())
        two_sources |= any(len(found - {-1}) > 1 for found in origins.values())
    return arrival_and_local, two_sources
