"""Records the promises and packets of sessions independently. Not a test."""

import random

import pytest

from broker.channels import DelayMatrix
from broker.ids import MAX_PS
from broker.wire import Grant, Report
from sipsim.chips.ahbm.plan import Plan
from sipsim.core.session import Session


class Watched:
    """Every packet of every session, with the promise in force, recorded independently."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slacks: list[int] = []
        self.gains: list[int] = []
        self.last: dict[int, Report] = {}
        self.in_force: dict[int, int] = {}
        self.plan: Plan | None = None
        emit, emit_far, report, begin = Session.emit, Session.emit_far, Session.report, Session.begin

        def watched_emit(session: Session, channel: int, arrival_ps: int, body: bytes) -> None:
            plan, rank = session.model.plan, session.rank
            spec = plan.channels[channel]
            sent_ps = arrival_ps - plan.pair_delay_ps[rank, spec.dst]
            self.slacks.append(sent_ps - self.in_force.get(rank, 0))
            emit(session, channel, arrival_ps, body)

        def watched_emit_far(session: Session, dst: int, arrival_ps: int, body: bytes) -> None:
            plan, rank = session.model.plan, session.rank
            delay_ps = DelayMatrix(plan.system.n_sips, plan.channels, plan.reactions_ps).get(rank, dst)
            assert delay_ps is not None
            self.slacks.append(arrival_ps - delay_ps - self.in_force.get(rank, 0))
            emit_far(session, dst, arrival_ps, body)

        def watched_report(session: Session) -> Report:
            made = self.last[session.rank] = report(session)
            if made.next_ps is not None:
                self.gains.append(made.promise_ps - made.next_ps)
            return made

        def watched_begin(session: Session) -> None:
            rank, horizon = session.rank, session._grant.horizon_ps
            arrivals = [arrival_ps for arrival_ps, *_ in session._held if horizon is None or arrival_ps < horizon]
            reaction_ps = session.model.plan.reactions_ps[rank]
            self.in_force[rank] = min(self.last[rank].promise_ps, *(a + reaction_ps for a in arrivals), MAX_PS)
            begin(session)

        monkeypatch.setattr(Session, "emit", watched_emit)
        monkeypatch.setattr(Session, "emit_far", watched_emit_far)
        monkeypatch.setattr(Session, "report", watched_report)
        monkeypatch.setattr(Session, "begin", watched_begin)


def short_windows(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Cut grants at random so short that one time is run, followed by a report and a promise."""
    grant, rng = Session.grant, random.Random(seed)

    def cut(session: Session, granted: Grant) -> None:
        held_ps = session._held[0][0] if session._held else None
        known = [time_ps for time_ps in (session.engine.next_ps(), held_ps, granted.horizon_ps) if time_ps is not None]
        if known and rng.random() < 0.5:
            granted = Grant(min(min(known) + 1, granted.horizon_ps or MAX_PS), granted.need, granted.colocate)
        grant(session, granted)

    monkeypatch.setattr(Session, "grant", cut)
