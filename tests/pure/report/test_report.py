"""A failure as text and as a document: its known facts, in order."""

from pathlib import Path
from typing import Any

import pytest
from outcomes import rank_outcome

from broker.wire import RankFailed, SipSync, Sync
from launcher.report.failure import MOST_ALSO, block, error_file_of, error_of
from launcher.report.outcome import LongReport, Outcome, RunError
from launcher.result.document import _rank

DEATH = "rank 1 (pid 7) was killed by SIGKILL"


def sip(rank: int, **changes: Any) -> SipSync:
    told: dict[str, Any] = {
        "rank": rank,
        "state": "running",
        "now_ps": 42_902_000,
        "next_ps": None,
        "horizon_ps": 42_928_000,
        "since_ns": 0,
        "by": None,
        "by_ps": 0,
        "delay_ps": 0,
        "chain": (),
        "lacks": (),
        "waiting": 0,
        "run_ns": 0,
        "send_ns": 0,
        "wait_ns": 0,
        **changes,
    }
    return SipSync(**told)


def outcome(*errors: RunError, sips: tuple[SipSync, ...] = (), **fields: Any) -> Outcome:
    made = Outcome(2)
    if sips:
        made.note(Sync(True, "running", 1, 1, sips, ()))
    for error in errors:
        made.fail(error)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def died(rank: int | None = 1, **facts: Any) -> RunError:
    return RunError("process_died", rank, DEATH, facts={"pid": 7, "signal": "SIGKILL", **facts})


class TestTheBlock:
    def test_a_run_that_went_well_has_none(self) -> None:
        assert (block(outcome()), error_of(outcome()), error_file_of(outcome())) == ("", None, None)

    def test_all_that_is_known_in_order(self) -> None:
        later = RunError("peer_lost", 0, "rank 0 has lost rank 1")
        seen = outcome(
            died(last_lines=["almost", "gone"], log="l/rank-1.log"),
            later,
            sips=(sip(0), sip(1, incarnation=2)),
            oom_kills=1,
        )
        assert block(seen).splitlines() == [
            f"ahbm-launch: process_died: {DEATH}",
            "  perhaps by the kernel's out-of-memory killer, which killed a process on this host during the run",
            "  at 42.902 us of simulated time, granted to 42.928 us; incarnation 2 of the rank; 2 restarts so far",
            "  then: peer_lost: rank 0 has lost rank 1",
            "last lines of the process's log (complete: l/rank-1.log):",
            "  | almost",
            "  | gone",
        ]

    def test_nothing_more_is_made_up(self) -> None:
        assert block(outcome(died())) == f"ahbm-launch: process_died: {DEATH}"

    def test_a_rank_that_never_joined_has_no_time(self) -> None:
        for state in ("joining", "joined"):
            assert "simulated" not in block(outcome(died(), sips=(sip(0), sip(1, state=state, now_ps=0))))

    def test_a_time_in_the_message_is_not_repeated(self) -> None:
        told = RunError("hung", 1, "rank 1 has made no progress at 42.902 us")
        line = "ahbm-launch: hung: rank 1 has made no progress at 42.902 us"
        assert block(outcome(told, sips=(sip(0), sip(1)))) == line

    def test_memory_is_named_for_sigkill_only(self) -> None:
        assert "memory" not in block(outcome(died(signal="SIGSEGV"), oom_kills=3))
        assert "memory" not in block(outcome(died(), oom_kills=0))
        assert "memory" not in block(outcome(RunError("hung", 1, "x", facts={"signal": "SIGKILL"}), oom_kills=3))
        assert "killed 3 processes on this host" in block(outcome(died(), oom_kills=3))

    def test_memory_of_this_host_is_no_cause_on_another(self) -> None:
        assert "memory" not in block(outcome(died(host="b"), oom_kills=3, host="a"))
        assert "memory" in block(outcome(died(host="a"), oom_kills=3, host="a"))

    def test_what_followed_is_cut_short(self) -> None:
        many = [RunError("process_died", rank, f"death {rank}") for rank in range(2, 12)]
        then = [line for line in block(outcome(died(), *many)).splitlines() if line.startswith("  then: ")]
        assert then == [f"  then: process_died: death {rank}" for rank in range(2, 2 + MOST_ALSO)] + [
            "  then: 5 more failures"
        ]

    def test_the_same_error_of_every_rank_is_printed_once(self) -> None:
        made = Outcome(3)
        for rank in range(3):
            made.note(RankFailed(rank, "exception", f"ZeroDivisionError (rank {rank})", "Traceback", 5))
        made.fail(died())
        assert block(made).splitlines() == [
            "ahbm-launch: exception: ZeroDivisionError (rank 0)",
            "Traceback",
            f"  then: process_died: {DEATH}",
        ]
        assert [each["rank"] for each in (error_of(made) or {})["also"]] == [1, 2, 1]

    @pytest.mark.parametrize(
        ("log_dir", "where"), [(None, "give --log-dir DIR, and read DIR/deadlock.txt"), (Path("l"), "l/deadlock.txt")]
    )
    def test_a_long_report_is_in_a_file(self, log_dir: Path | None, where: str) -> None:
        made = outcome(RunError("IpcqDeadlock", None, "a cycle", "  4 PEs wait"))
        made.long_report = LongReport("deadlock.txt", "every wait", "all of it")
        assert block(made, log_dir).splitlines() == [
            "ahbm-launch: IpcqDeadlock: a cycle",
            "  4 PEs wait",
            f"  all of it: {where}",
        ]

    def test_an_interruption_is_no_failure_of_a_kind(self) -> None:
        assert (
            block(outcome(RunError("timeout", None, "--timeout 1 s reached"))) == "ahbm-launch: --timeout 1 s reached"
        )


class TestTheDocument:
    def test_it_holds_what_is_known(self) -> None:
        seen = outcome(died(host="", last_lines=["gone"]), sips=(sip(0), sip(1, incarnation=1)), host="here")
        assert error_of(seen) == {
            "kind": "process_died",
            "rank": 1,
            "message": DEATH,
            "pid": 7,
            "signal": "SIGKILL",
            "last_lines": ["gone"],
            "process": "sip-1",
            "time_ps": 42_902_000,
            "granted_ps": 42_928_000,
            "incarnation": 1,
            "restarts": 1,
            "host": "here",
        }

    def test_facts_of_the_failure_take_precedence(self) -> None:
        """A later ``Sync`` may describe the restarted process."""
        seen = outcome(died(incarnation=0, host="there"), sips=(sip(1, incarnation=1),), host="here")
        facts = error_of(seen) or {}
        assert (facts["incarnation"], facts["host"]) == (0, "there")

    def test_the_file_has_more_keys(self) -> None:
        told = error_file_of(outcome(RunError("exception", 1, "x", "Traceback", {"time_ps": 3}))) or {}
        assert (told["schema"], told["status"], told["detail"], told["time_ps"]) == (1, "failed", "Traceback", 3)
        assert "restarts" not in told

    def test_ranks_have_their_restarts(self) -> None:
        seen = outcome(sips=(sip(0), sip(1, incarnation=2)), ranks={0: rank_outcome(0), 1: rank_outcome(1)})
        assert [_rank(seen, rank).restarts for rank in (0, 1)] == [0, 2]
        assert seen.restarts == 2


class TestWhatIsKept:
    def test_the_same_failure_twice_is_one(self) -> None:
        assert outcome(died(), died()).also == []

    def test_not_for_ever(self) -> None:
        assert len(outcome(*(RunError("hung", rank, f"{rank}") for rank in range(500))).also) == 100
