"""Any schedule of kills, late messages, duplicates, torn logs and resumes ends in the result of an undisturbed run.

The systems and their single-queue reference are those of ``random_systems``; the faults are in ``faulty_runs``.
``--all`` runs twenty thousand. Each mutant below leaves out one rule of a restart.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_runs import DEADLOCK, Caught, FaultyRun, Player, play, random_faults
from random_systems import System, first_difference, random_system, reference
from sweeps import batches

from broker.hub import Hub
from broker.sync.timesync import TimeSync
from broker.wire import Leave, Rejoined, RevokeGrant, Start
from sipsim.node.client import SyncClient
from sipsim.node.packet_log import PacketLog

SEEDS, BATCH = 20_100, 300
SEEDS_A_MUTANT = 1000


def play_seed(seed: int, folder: Path) -> tuple[str | None, FaultyRun]:
    """The first difference from the reference, or None."""
    system = random_system(seed)
    outcome, run = play(system, random_faults(seed), fresh(folder))
    right = reference(system)
    if outcome is DEADLOCK:
        return (None if any(right.waiting) else "no deadlock was expected"), run
    return first_difference(outcome, right), run


def fresh(folder: Path) -> Path:
    for left in folder.iterdir():
        left.unlink()
    return folder


@pytest.mark.parametrize("first_seed", batches(SEEDS, BATCH))
def test_every_schedule_of_faults_ends_in_the_same_result(first_seed: int, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + BATCH):
        wrong, run = play_seed(seed, tmp_path)
        assert wrong is None, f"seed {seed}: {wrong}"
        seen.update(restarts=run.restarts, resumes=run.resumes)
    assert seen["restarts"] > BATCH
    assert seen["resumes"] > BATCH // 100


# --- rules left out -------------------------------------------------------------------------------------------


def _keeps_sent_counts(patch: pytest.MonkeyPatch) -> None:
    """Grants still require packets that only the old process had sent."""
    real = TimeSync.restart

    def restart(self: TimeSync, rank: int) -> list[int]:
        announced = [member.announced.get(rank) for member in self._members]
        running = real(self, rank)
        for member, count in zip(self._members, announced, strict=True):
            if count is not None:
                member.announced[rank] = count
        return running

    patch.setattr(TimeSync, "restart", restart)


def _nothing_in_flight(patch: pytest.MonkeyPatch) -> None:
    """Packets that were sent to the old process are not in flight to the new one."""
    real = TimeSync.restart

    def restart(self: TimeSync, rank: int) -> list[int]:
        running = real(self, rank)
        self._members[rank].flight.clear()
        return running

    patch.setattr(TimeSync, "restart", restart)


def _first_grant_without_needs(patch: pytest.MonkeyPatch) -> None:
    """The first grant of the new process does not require the packets that the old one had taken."""
    real = TimeSync.restart

    def restart(self: TimeSync, rank: int) -> list[int]:
        running = real(self, rank)
        self._members[rank].announced.clear()
        return running

    patch.setattr(TimeSync, "restart", restart)


def _keeps_bounds(patch: pytest.MonkeyPatch) -> None:
    """The bounds of the old process hold until the new one has reported; others run past it."""
    real = TimeSync.restart

    def restart(self: TimeSync, rank: int) -> list[int]:
        before = self._members[rank]
        running = real(self, rank)
        fresh = self._members[rank]
        fresh.next_ps, fresh.promise_ps, fresh.held_ps = before.next_ps, before.promise_ps, before.held_ps
        self._unreported -= before.reported
        return running

    patch.setattr(TimeSync, "restart", restart)


def _grants_not_revoked(patch: pytest.MonkeyPatch) -> None:
    """A grant that requires lost packets is kept."""
    real = Hub._resume_with

    def resume_with(self: Hub, rank: int) -> Any:
        return [(to, message) for to, message in real(self, rank) if not isinstance(message, RevokeGrant)]

    patch.setattr(Hub, "_resume_with", resume_with)


def _stale_messages_count(patch: pytest.MonkeyPatch) -> None:
    """Late messages of an old process count as the new one's."""
    patch.setattr(Hub, "_stale_sender", lambda self, sender, _early, message: self._dispatch(sender % 4096, message))


def _early_joins_are_dropped(patch: pytest.MonkeyPatch) -> None:
    """A join that arrives before the launcher's ``Restart`` is never answered."""
    patch.setattr(Hub, "_stale_sender", lambda *_: [])


def _peers_do_not_resend(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SyncClient, "_resend", lambda *_: None)


def _peers_do_not_reconnect(patch: pytest.MonkeyPatch) -> None:
    real = Hub._rejoin

    def rejoin(self: Hub, join: Any) -> Any:
        return [(to, message) for to, message in real(self, join) if not isinstance(message, Rejoined)]

    patch.setattr(Hub, "_rejoin", rejoin)


def _resent_from_the_middle(patch: pytest.MonkeyPatch) -> None:
    """A peer is sent packets from the middle of the stream on."""
    real = SyncClient._resend

    def feed(self: SyncClient, rank: int, first: int) -> None:
        real(self, rank, max(first, self.session._out.counts.get(rank, 0) // 2))

    patch.setattr(SyncClient, "_resend", feed)


def _answered_sips_do_not_resend(patch: pytest.MonkeyPatch) -> None:
    """A SIP that has sent its result resends no packets."""
    real = SyncClient._resend

    def feed(self: SyncClient, rank: int, first: int) -> None:
        if not self._answered:
            real(self, rank, first)

    patch.setattr(SyncClient, "_resend", feed)


def _marks_too_late(patch: pytest.MonkeyPatch) -> None:
    """The log claims to hold more than it does."""
    real = PacketLog.mark
    patch.setattr(PacketLog, "mark", lambda self, time_ps: real(self, time_ps + 3))


def _marks_without_counts(patch: pytest.MonkeyPatch) -> None:
    """The time of the last mark is reported without the packets before it."""
    patch.setattr(PacketLog, "logged_counts", lambda _self: ())


def _torn_records_count(patch: pytest.MonkeyPatch) -> None:
    """A half-written record is appended to."""
    patch.setattr("os.ftruncate", lambda *_: None)
    real = PacketLog._read_predecessors

    def read(self: PacketLog) -> int:
        real(self)
        return max(os.fstat(self._fd).st_size, len(self._header))

    patch.setattr(PacketLog, "_read_predecessors", read)


def _results_before_a_restart_are_early(patch: pytest.MonkeyPatch) -> None:
    """After a restart, results that were sent before it count as sent too early."""
    real = Hub._resume_with

    def resume_with(self: Hub, rank: int) -> Any:
        self._asked.clear()
        return real(self, rank)

    patch.setattr(Hub, "_resume_with", resume_with)


def _no_leave(patch: pytest.MonkeyPatch) -> None:
    real = Hub._to

    def to(self: Hub, ranks: Any, message: Any) -> Any:
        return [] if isinstance(message, Leave) else real(self, ranks, message)

    patch.setattr(Hub, "_to", to)


def _absent_peers_are_sent_to(patch: pytest.MonkeyPatch) -> None:
    """Packets for a peer that is being restarted are sent to no process, and the peer waits for them."""
    real = SyncClient._start

    def start(self: SyncClient, message: Start) -> None:
        real(self, Start(tuple(endpoint or "at 999999999" for endpoint in message.endpoints), message.taken))

    patch.setattr(SyncClient, "_start", start)
    patch.setattr(Player, "_resend", lambda self, rank, first: SyncClient._resend(self, rank, max(first, 1)))


def _caught(mutate: Callable[[pytest.MonkeyPatch], None], seed: int, folder: Path) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        mutate(patch)
        try:
            return play_seed(seed, folder)[0] is not None
        except Exception:
            return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutate",
    [
        _keeps_sent_counts,
        _nothing_in_flight,
        _first_grant_without_needs,
        _keeps_bounds,
        _grants_not_revoked,
        _stale_messages_count,
        _early_joins_are_dropped,
        _peers_do_not_resend,
        _peers_do_not_reconnect,
        _resent_from_the_middle,
        _answered_sips_do_not_resend,
        _marks_too_late,
        _marks_without_counts,
        _torn_records_count,
        _results_before_a_restart_are_early,
        _no_leave,
        _absent_peers_are_sent_to,
    ],
)
def test_a_missing_rule_is_caught(mutate: Callable[[pytest.MonkeyPatch], None], tmp_path: Path) -> None:
    assert any(_caught(mutate, seed, tmp_path) for seed in range(SEEDS_A_MUTANT))


# --- a program that is not deterministic ----------------------------------------------------------------------


@pytest.mark.fault
def test_a_nondeterministic_program_is_named(tmp_path: Path) -> None:
    """The restarted device behaves differently. The first different packet is found, by its sender or its receiver."""

    class Nondeterministic(Player):
        def __init__(self, address: int, system: System, run: FaultyRun) -> None:
            other = random_system(system.seed + 7919)
            rank = address % 4096
            changed = [*system.habits]
            changed[rank] = system.habits[rank]._replace(far_ps=system.habits[rank].far_ps + 1 + other.size)
            super().__init__(address, system if address < 4096 else system._replace(habits=changed), run)

    found: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faulty_runs.Player", Nondeterministic)
        for seed in range(300):
            try:
                play_seed(seed, tmp_path)
            except Caught as caught:
                found[
                    "named" if "make its program deterministic" in str(caught) else str(caught).partition(":")[0]
                ] += 1
    assert found["named"] > 20
    assert set(found) <= {"named", "stall"}, "a stall is found by a deadline of the launcher"
