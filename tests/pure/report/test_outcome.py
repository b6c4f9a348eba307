"""The outcome of a run: first cause first, partial or complete, and the exit code."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from outcomes import rank_outcome, record

from broker.ids import PROTOCOL
from broker.wire import (
    Deadlock,
    Finished,
    RankFailed,
    RankRecord,
    RankResult,
    RunStarted,
    SimTimeReached,
    Status,
    ToLauncher,
)
from launcher.hosts.run_loop import _Loop
from launcher.report.outcome import Outcome, RunError
from sipsim.core.errors import ERROR_KINDS, AhbmError, KernelError
from sipsim.records.dump import SipDump, TaskState
from sipsim.records.report import RankOutcome, RunRecord, Unread

RUN = record(spans_ps=((0, 1000),))


def told(rank: int, *runs: RunRecord) -> RankOutcome:
    return rank_outcome(rank, sim_end_ps=1000, runs=runs)


def result(rank: int, *runs: RunRecord, partial: bool = False) -> RankResult:
    return RankResult(rank, msgspec.json.encode(told(rank, *runs)), partial)


def wrong(elements: int, first: str) -> RunRecord:
    return msgspec.structs.replace(RUN, wrong=elements, first_wrong=first)


def outcome(*messages: object, size: int = 2) -> Outcome:
    made = Outcome(size)
    for message in messages:
        made.note(message)
    return made


class TestAGoodRun:
    def test_it_is_complete_when_every_rank_has_answered(self) -> None:
        one = outcome(RunStarted(), result(1, RUN))
        assert (one.complete, one.finished) == (False, False)
        both = outcome(result(1, RUN), result(0, RUN), Finished(4, 3, 2, 1))
        assert (both.complete, both.finished, both.cut_short) == (True, True, False)
        assert (both.status, both.exit_code, both.error) == ("ok", 0, None)
        assert both.ranks == {0: told(0, RUN), 1: told(1, RUN)}

    def test_a_status_moves_the_clock_only(self) -> None:
        seen = outcome(Status(2, 77, 5))
        assert (seen.now_ps, seen.status, seen.finished) == (77, "ok", False)


class TestFailures:
    def test_the_first_cause_stays(self) -> None:
        seen = outcome(RankFailed(1, "exception", "first", "trace", 5), RankFailed(0, "KernelError", "second", "", 3))
        seen.fail(RunError("process_died", 0, "third"))
        assert (seen.error.kind, seen.error.rank, seen.error.message, seen.error.detail) == (
            "exception",
            1,
            "first",
            "trace",
        )
        assert (seen.status, seen.exit_code) == ("failed", 5)

    def test_a_partial_answer_makes_the_run_one(self) -> None:
        seen = outcome(result(0, RUN), result(1, RUN, partial=True))
        assert (seen.complete, seen.cut_short) == (True, True)

    @pytest.mark.parametrize(("has_ipcq", "kind"), [(True, "IpcqDeadlock"), (False, "Deadlock")])
    def test_a_deadlock_is_explained(self, has_ipcq: bool, kind: str) -> None:
        dumps = tuple(msgspec.json.encode(SipDump(rank, 1000, (), (), has_ipcq=has_ipcq)) for rank in range(2))
        seen = outcome(Deadlock(dumps))
        assert (seen.error.kind, seen.error.rank, seen.exit_code) == (kind, None, 3)
        assert "nothing can happen any more, at 1.000 ns" in seen.error.message

    @pytest.mark.parametrize(
        ("kind", "status", "code"),
        [("timeout", "interrupted", 124), ("interrupted", "interrupted", 130), ("terminated", "interrupted", 143)],
    )
    def test_an_interruption(self, kind: str, status: str, code: int) -> None:
        seen = Outcome(1)
        seen.fail(RunError(kind, None, "stop"))
        assert (seen.status, seen.exit_code) == (status, code)


class TestWrongNumbers:
    def test_every_rank_with_some_is_listed(self) -> None:
        seen = outcome(result(2, wrong(3, "first wrong at [0, 1]: expected 2, got 3")), result(1, RUN), size=3)
        seen.note(result(0, RUN, wrong(1, "first wrong at [4, 4]: expected 0, got 9")))
        seen.note_wrong()
        assert (seen.error.kind, seen.error.rank, seen.exit_code) == ("wrong_numbers", 0, 1)
        assert seen.error.message == "rank 0: 1 wrong elements; first wrong at [4, 4]: expected 0, got 9"
        assert seen.error.detail == "rank 2: 3 wrong elements; first wrong at [0, 1]: expected 2, got 3"

    @pytest.mark.parametrize("count", [0, None])
    def test_none(self, count: int | None) -> None:
        seen = outcome(result(0, msgspec.structs.replace(RUN, wrong=count)))
        seen.note_wrong()
        assert seen.error is None

    def test_they_do_not_hide_an_earlier_failure(self) -> None:
        seen = outcome(RankFailed(1, "exception", "first", "", 5), result(0, wrong(3, "x")))
        seen.note_wrong()
        assert seen.error.kind == "exception"


class TestUnreadMessages:
    def seen(self, *counts: int) -> Outcome:
        rings = [Unread((0, 0, pe), "E", (1, 0, pe), "W", count) for pe, count in enumerate(counts)]
        return outcome(result(0, RUN), RankResult(1, msgspec.json.encode(rank_outcome(1, unread=tuple(rings))), False))

    def test_none(self) -> None:
        seen = self.seen()
        seen.note_unread(is_error=True)
        assert (seen.error, seen.notices) == (None, [])

    def test_one(self) -> None:
        seen = self.seen(1)
        seen.note_unread(is_error=False)
        text = "1 message was sent and never received: 1 from rank 0 cube 0 PE 0 (E) to rank 1 cube 0 PE 0 (W)"
        assert (seen.error, seen.notices) == (None, [f"{text}; with --check-invariants this is an error"])

    def test_many_directions_are_summed_up(self) -> None:
        seen = self.seen(*range(1, 12))
        seen.note_unread(is_error=True)
        assert (seen.error.kind, seen.error.rank, seen.exit_code) == ("IpcqUnreadMessages", 1, 3)
        assert seen.error.message.startswith("66 messages were sent and never received: 1 from rank 0 cube 0 PE 0 (E)")
        last = "8 from rank 0 cube 0 PE 7 (E) to rank 1 cube 0 PE 7 (W), 30 in 3 other directions"
        assert seen.error.message.endswith(last)
        assert len(seen.error.facts["unread"]) == 11

    def test_they_do_not_hide_an_earlier_failure(self) -> None:
        seen = self.seen(1)
        seen.fail(RunError("exception", 0, "first"))
        seen.note_unread(is_error=True)
        seen.note_unread(is_error=False)
        assert (seen.error.kind, seen.also, seen.notices) == ("exception", [], [])


class TestKinds:
    def test_exit_codes_are_those_that_are_documented(self) -> None:
        assert {
            code: sorted(kind for kind, its in ERROR_KINDS.items() if its == code) for code in ERROR_KINDS.values()
        } == {
            1: ["wrong_numbers"],
            2: ["config", "refused"],
            3: [
                "CollectiveMismatch",
                "Deadlock",
                "InvariantViolation",
                "IpcqDeadlock",
                "IpcqInUse",
                "IpcqInvalidDirection",
                "IpcqMessageTooLarge",
                "IpcqTypeMismatch",
                "IpcqUnreadMessages",
                "KernelError",
                "KernelMisuse",
                "LinkLoss",
                "MemoryAccessError",
                "MmuFault",
                "OutOfMemoryError",
                "ProcessMisuse",
                "SourceReused",
                "TcmFull",
            ],
            4: [
                "agent_failed",
                "bad_message",
                "host_lost",
                "host_memory",
                "hung",
                "internal",
                "lost_packet",
                "nondeterministic",
                "not_joined",
                "not_kept",
                "peer_lost",
                "process_died",
            ],
            5: ["exception"],
            124: ["timeout"],
            130: ["interrupted"],
            143: ["terminated"],
        }

    def test_every_error_that_can_be_raised_has_one(self) -> None:
        def below(cls: type[AhbmError]) -> list[type[AhbmError]]:
            return [cls, *(found for sub in cls.__subclasses__() for found in below(sub))]

        raised = [cls for cls in below(AhbmError) if not cls.__subclasses__()]
        assert len(raised) >= 8
        for cls in raised:
            assert ERROR_KINDS[cls.kind] == cls.exit_code

    def test_a_users_class_is_of_its_bases_kind(self) -> None:
        """Other processes of the run do not know its name."""
        own = type("Own", (KernelError,), {})
        assert (own.kind, "Own" in ERROR_KINDS) == ("KernelError", False)  # type: ignore[attr-defined]


class TestInvalidMessages:
    def noted(self, message: ToLauncher) -> RunError:
        outcome = Outcome(2)
        outcome.note(message)
        assert outcome.error is not None
        assert outcome.exit_code
        assert not outcome.ranks
        return outcome.error

    @pytest.mark.parametrize("blob", [b"", b"{}", b"\xff", b"[" * 100_000])
    def test_a_result_that_is_none(self, blob: bytes) -> None:
        error = self.noted(RankResult(1, blob, False))
        assert (error.kind, error.rank) == ("bad_message", 1)
        assert error.message.startswith("the result of rank 1 is not the outcome of a rank: ")

    @pytest.mark.parametrize(("sender", "rank"), [(1, 0), (2, 2), (4095, 4095)])
    def test_a_result_of_another(self, sender: int, rank: int) -> None:
        error = self.noted(RankResult(sender, msgspec.json.encode(rank_outcome(rank)), False))
        assert error.message == f"rank {sender} of 2 has sent the result of rank {rank}"

    @pytest.mark.parametrize(
        ("hosts", "told", "host"), [({}, "node-7", "node-7"), ({1: "b"}, "node-7", "b"), ({1: ""}, "", "")]
    )
    def test_the_host_of_a_process_that_failed(self, hosts: dict[int | None, str], told: str, host: str) -> None:
        seen = Outcome(2)
        seen.hosts |= hosts
        seen.note(RankFailed(1, "bad_message", "m", "", 1, host=told))
        assert seen.error is not None
        assert seen.error.facts["host"] == host

    def test_a_kind_of_failure_that_is_none(self) -> None:
        assert self.noted(RankFailed(0, "no such kind", "m", "", 1)).kind == "internal"

    def test_a_dump_that_is_none(self) -> None:
        error = self.noted(Deadlock((b"", b"{}")))
        assert error.kind == "Deadlock"
        assert "the waits are unknown, since the state that a SIP sent is not the dump of a SIP: " in error.message

    def test_a_frame_that_is_no_message_of_the_broker(self) -> None:
        told: list[str] = []
        outcome = Outcome(2)
        loop: Any = SimpleNamespace(outcome=outcome, _supervisor=SimpleNamespace(failed=lambda: told.append("failed")))
        _Loop._receive(loop, b"\xc1")
        assert outcome.error is not None
        assert (outcome.error.kind, outcome.error.rank) == ("bad_message", None)
        assert f"not a message of protocol {PROTOCOL}: " in outcome.error.message
        assert told == ["failed"]


def recorded(rank: int, index: int, run: RunRecord = RUN) -> RankRecord:
    return RankRecord(rank, index, msgspec.json.encode(run))


def records_of(seen: Outcome) -> list[tuple[RunRecord, ...]]:
    return [run.records for run in seen.finished_runs()]


class TestRecords:
    SECOND = record(nbytes=256)

    def test_a_collective_is_finished_when_every_rank_has_completed_it(self) -> None:
        seen = outcome(recorded(0, 0), recorded(0, 1, self.SECOND))
        assert records_of(seen) == []
        seen.note(recorded(1, 0))
        assert records_of(seen) == [(RUN, RUN)]
        seen.note(recorded(1, 1, self.SECOND))
        assert records_of(seen) == [(RUN, RUN), (self.SECOND, self.SECOND)]

    def test_a_restarted_rank_sends_its_records_again(self) -> None:
        seen = outcome(recorded(0, 0), recorded(1, 0), recorded(0, 0), recorded(0, 1))
        assert records_of(seen) == [(RUN, RUN)]

    def test_what_a_rank_answers_at_its_end_replaces_its_records(self) -> None:
        checked = wrong(1, "at [0]")
        seen = outcome(recorded(0, 0), recorded(1, 0), result(0, checked))
        assert records_of(seen) == [(checked, RUN)]

    def test_a_rank_that_died_leaves_its_records(self) -> None:
        seen = outcome(recorded(0, 0), recorded(1, 0), result(0, RUN, self.SECOND, partial=True))
        assert records_of(seen) == [(RUN, RUN)]

    @pytest.mark.parametrize("blob", [b"", b"{}", b"[1]"])
    def test_other_bytes_fail_the_run(self, blob: bytes) -> None:
        seen = outcome(RankRecord(1, 0, blob))
        assert (seen.error.kind, seen.error.rank) == ("bad_message", 1)
        assert seen.error.message.startswith("the record of a collective that rank 1 completed is not")

    def test_a_rank_that_does_not_exist_changes_nothing(self) -> None:
        assert records_of(outcome(recorded(2, 0))) == []


class TestLimitOfSimulatedTime:
    TASK = TaskState((0, 3, 1), "cube 3, PE 1", "recv W", "recv", ("W",), "/home/me/mine.py", 7, "recv")
    DUMP = msgspec.json.encode(SipDump(0, 5, (), (TASK,)))

    @pytest.mark.parametrize(("limit_ps", "text"), [(30_000_000, "30 us"), (1_500, "1500 ps"), (2_000_000_000, "2 ms")])
    def test_it_is_told_like_a_timeout(self, limit_ps: int, text: str) -> None:
        seen = outcome(SimTimeReached(limit_ps, (self.DUMP, self.DUMP)))
        assert (seen.status, seen.exit_code, seen.error.kind) == ("interrupted", 124, "timeout")
        assert seen.error.message == f"simulated time has reached {text} (--max-sim-time)"
        assert seen.error.facts["time_ps"] == limit_ps
        where = {"rank": 0, "cube": 3, "pe": 1, "file": "/home/me/mine.py", "line": 7}
        assert seen.error.facts["positions"] == [{**where, "task": "cube 3, PE 1", "waits_for": "recv W"}] * 2
        assert "recv W at me/mine.py:7" in seen.error.detail

    def test_a_dump_that_is_none(self) -> None:
        seen = outcome(SimTimeReached(5, (self.DUMP, b"?")))
        assert (seen.status, seen.error.kind) == ("interrupted", "timeout")
        assert "the lines of code are unknown" in seen.error.message
