"""Packets to SIPs to which no channel leads: random systems against the single-queue reference, and planted bugs.

The systems are those of ``random_systems`` with such packets, the runs those of ``random_runs``.
"""

from pathlib import Path

from faulty_runs import DEADLOCK, play, random_faults
from random_runs import Caught, Parts, simulate
from random_systems import System, first_difference, random_system, reference

from sipsim.core.errors import InvariantViolation
from sipsim.core.session import Session

SEEDS = range(400)


def far_system(seed: int) -> System:
    return random_system(seed)._replace(far=True)


def test_far_packets_change_nothing_but_what_arrives() -> None:
    """Not with any timing of mail, grants and clients; in most systems there are some, and some tie with others."""
    with_far = ties = 0
    for seed in SEEDS:
        system = far_system(seed)
        expected = reference(system)
        try:
            difference = first_difference(simulate(system), expected)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        assert difference is None, f"seed {seed}: {difference}"
        far = len(system.channels)
        with_far += any(origin == far for trace in expected.traces for _, origin, _ in trace)
        ties += any(_ties(trace, far) for trace in expected.traces)
    assert with_far > len(SEEDS) * 0.4
    assert ties > len(SEEDS) * 0.15


def _ties(trace: list[tuple[int, int, int]], far: int) -> bool:
    """Whether a far packet comes at the time of another event."""
    far_times = {time_ps for time_ps, origin, _ in trace if origin == far}
    return any(time_ps in far_times for time_ps, origin, _ in trace if origin != far)


def test_far_packets_come_again_after_a_restart(tmp_path: Path) -> None:
    restarts = 0
    for seed in SEEDS[::2]:
        system, folder = far_system(seed), tmp_path / str(seed)
        folder.mkdir()
        outcome, run = play(system, random_faults(seed), folder)
        right = reference(system)
        if outcome is DEADLOCK:
            assert any(right.waiting), f"seed {seed}"
        else:
            assert first_difference(outcome, right) is None, f"seed {seed}"
        restarts += run.restarts
    assert restarts > len(SEEDS) / 4


# --- planted bugs ---------------------------------------------------------------------------------------------


class EmitsEarly(Session):
    """A packet arrives a picosecond sooner than it may, if its sender is a careless one."""

    def emit_far(self, dst: int, arrival_ps: int, body: bytes) -> None:
        super().emit_far(dst, arrival_ps - 1, body)


class ForgetsReactions(EmitsEarly):
    """The same sender, and a session that checks against the present alone."""

    def emit_far(self, dst: int, arrival_ps: int, body: bytes) -> None:
        self._send_bound_ps, kept = 0, self._send_bound_ps
        Session.emit_far(self, dst, max(arrival_ps - 3, self.engine.now_ps + (self._chain_delays_ps[dst] or 0)), body)
        self._send_bound_ps = kept


def found(seed: int, session: type[Session]) -> str:
    """What shows a planted bug on one system: a named failure, or a difference; empty for nothing."""
    system = far_system(seed)
    try:
        return first_difference(simulate(system, Parts(session=session)), reference(system)) or ""
    except (InvariantViolation, Caught) as error:
        return str(error)


def test_a_far_packet_that_arrives_too_early_is_refused_where_it_is_sent() -> None:
    """The tight ones of nearly every system with far packets; where all are late enough, the result is another one."""
    symptoms = [found(seed, EmitsEarly) for seed in SEEDS[:60]]
    assert sum("a far packet from SIP" in symptom for symptom in symptoms) > 10


def test_a_session_that_does_not_count_the_promise_is_found_out() -> None:
    """Its packet comes when the receiver has reached that time already."""
    assert any(" had run to " in found(seed, ForgetsReactions) for seed in SEEDS)
