"""The supervisor: facts and times in, commands out. And the placement of ranks on hosts."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import wire
from broker.wire import Lost, PeerLost, RankResult, Restart, SipSync, Sync
from launcher.options import Options
from launcher.processes.fork_server import NotStarted, ProcessExited, ProcessStarted
from launcher.processes.this_host import ProcessState
from launcher.report.outcome import RunError
from launcher.supervise.facts import (
    BrokerListens,
    Command,
    Fact,
    Fail,
    HostGone,
    HostJoined,
    HostSpec,
    Kill,
    LogLine,
    Position,
    ProcessEvent,
    RequestPosition,
    Revive,
    Sampled,
    ServerGone,
    Start,
    Tick,
)
from launcher.supervise.positions import NO_ANSWER
from launcher.supervise.ranks import EXPLAIN_S, next_host, place_blockwise
from launcher.supervise.supervisor import GRACE_S, Supervisor
from sipsim.node.process import LOST_BROKER_EXIT
from sipsim.records.dump import SipDump, TaskState

ONE_HOST = [HostSpec()]
TWO = [HostSpec("a", 2), HostSpec("b", 2)]
SPINNING = SipDump(1, 5000, (), (TaskState((1, 2, 3), "cube 2, PE 3", "", "", (), "/home/a/mine.py", 31),))
THREE = [HostSpec("a"), HostSpec("b"), HostSpec("c")]


class Run:
    """A supervisor with a clock that the test moves."""

    def __init__(self, n_sips: int = 4, hosts: list[HostSpec] = ONE_HOST, **settings: Any) -> None:
        self.now_s = 100.0
        self.supervisor = Supervisor(n_sips, Options(**settings), hosts, self.now_s)
        self.pids: dict[int, int] = {}
        self.hosts = hosts

    def take(self, fact: Fact) -> list[Command]:
        return self.supervisor.handle(fact, self.now_s)

    def note(self, message: wire.ToLauncher) -> list[Command]:
        return self.supervisor.note(message, self.now_s)

    def begin(self, joined: bool = True) -> "Run":
        """All hosts and processes have started, and all SIPs have joined."""
        self.take(ProcessEvent(-1, ProcessStarted(None, 0, 1)))
        starts = self.take(BrokerListens())
        for host in range(len(self.hosts)):
            starts += self.take(HostJoined(host))
        for start in starts:
            assert isinstance(start, Start)
            self.started(start)
        if joined:
            self.note(wire.RunStarted())
        return self

    def started(self, start: Start) -> None:
        pid = 1000 * (start.incarnation + 1) + start.rank
        self.pids[start.rank] = pid
        assert self.take(ProcessEvent(start.host, ProcessStarted(start.rank, start.incarnation, pid))) == []

    def ends(self, rank: int, status: int, incarnation: int = 0) -> list[Command]:
        host = self.supervisor.ranks[rank].host.index
        return self.take(ProcessEvent(host, ProcessExited(rank, incarnation, 1000 * (incarnation + 1) + rank, status)))

    def after(self, seconds: float, step_s: float = 0.2) -> list[Command]:
        """Time passes in steps of the loop; returns all commands."""
        found: list[Command] = []
        until_s = self.now_s + seconds
        while self.now_s < until_s - 1e-9:
            self.now_s = min(self.now_s + step_s, until_s)
            found += self.take(Sampled({})) + self.take(Tick())
        return found

    def quiet(self, rank: int, seconds: float, **changes: Any) -> list[Command]:
        """A rank of which only the broker knows makes no progress for so long; the commands after the last message."""
        commands = self.after(seconds)
        assert commands == []
        return self.sync(sip_state(rank, "running", seconds, **changes))

    def sync(self, *changed: SipSync, last: bool = False) -> list[Command]:
        sips = {rank: sip_state(rank) for rank in range(len(self.supervisor.ranks))} | {s.rank: s for s in changed}
        return self.note(Sync(last, "running", 1, 1, tuple(sips.values()), ()))


def sip_state(rank: int, state: str = "waiting", quiet_s: float = 0.0, incarnation: int = 0) -> SipSync:
    return SipSync(rank, state, 5_000, 6_000, 7_000, 0, None, 0, 0, (), (), 0, 0, 0, 0, int(quiet_s * 1e9), incarnation)


def failures(commands: list[Command]) -> list[RunError]:
    return [command.error for command in commands if isinstance(command, Fail)]


def the_failure(commands: list[Command]) -> RunError:
    (error,) = failures(commands)
    return error


# --- the start ------------------------------------------------------------------------------------------------


def test_a_rank_is_started_once_its_host_and_the_broker_are_ready():
    run = Run(hosts=TWO)
    assert run.take(HostJoined(0)) == []
    assert run.take(BrokerListens()) == [Start(0, 0, 0), Start(0, 1, 0)]
    assert run.take(HostJoined(1)) == [Start(1, 2, 0), Start(1, 3, 0)]
    assert run.take(BrokerListens()) == []


def test_what_cannot_be_started_fails_the_run():
    run = Run().begin()
    error = the_failure(run.take(ProcessEvent(0, NotStarted(1, 0, "no more processes"))))
    assert (error.kind, error.rank) == ("process_died", 1)
    assert error.message == "rank 1 cannot be started: no more processes"


# --- deaths ---------------------------------------------------------------------------------------------------


def test_without_a_budget_the_first_death_is_the_cause_and_the_broker_is_told():
    run = Run().begin()
    commands = run.ends(1, -9)
    error = the_failure(commands)
    assert (error.kind, error.rank, error.message) == ("process_died", 1, "rank 1 (pid 1001) was killed by SIGKILL")
    assert error.facts == {"pid": 1001, "signal": "SIGKILL", "host": "", "incarnation": 0}
    assert [c for c in commands if isinstance(c, wire.Message)] == [Lost(1, "was killed by SIGKILL")]
    assert not run.supervisor.over
    run.after(GRACE_S)
    assert run.supervisor.over


def test_with_a_budget_the_broker_is_told_before_the_next_incarnation_is_started():
    run = Run(max_restarts=2).begin()
    notice, *rest = run.ends(1, -9)
    assert rest == [Restart(1, 1), Start(0, 1, 1)]
    assert notice == LogLine("rank 1 (pid 1001) was killed by SIGKILL; started again (1 of --max-restarts 2)")


def test_a_budget_is_one_for_the_whole_run_and_a_death_beyond_it_names_it():
    run = Run(max_restarts=2).begin()
    run.ends(1, -9)
    run.ends(3, 7)
    error = the_failure(run.ends(2, -11))
    assert error.message == "rank 2 (pid 1002) was killed by SIGSEGV; --max-restarts 2 is used up"
    assert run.supervisor.restarts == 2


def test_the_end_of_an_earlier_incarnation_is_no_second_death():
    run = Run(max_restarts=2).begin()
    *_, start = run.ends(1, -9)
    run.started(start)
    assert run.ends(1, -9) == []
    assert run.supervisor.ranks[1].incarnation == 1


def test_after_a_failure_nothing_is_restarted():
    run = Run(max_restarts=5).begin()
    run.supervisor.failed()
    commands = run.ends(1, -9)
    assert not [c for c in commands if isinstance(c, Start)]
    assert the_failure(commands).message == "rank 1 (pid 1001) was killed by SIGKILL"


def test_a_clean_exit_before_the_answer_is_a_death_when_the_answer_does_not_come():
    run = Run().begin()
    assert run.ends(1, 0) == []
    assert run.after(GRACE_S - 0.2) == []
    error = the_failure(run.after(0.4))
    assert error.message == "rank 1 (pid 1001) ended with exit code 0 before the run was over"


def test_a_clean_exit_whose_answer_is_in_flight_is_no_death():
    run = Run().begin()
    run.ends(1, 0)
    run.note(RankResult(1, b"", False))
    assert run.after(3 * GRACE_S) == []


@pytest.mark.parametrize("status", [-9, 70])
def test_the_death_of_the_broker_is_the_end_whatever_the_budget(status: int):
    run = Run(max_restarts=9).begin()
    error = the_failure(run.take(ProcessEvent(-1, ProcessExited(None, 0, 1, status))))
    how = {-9: "was killed by SIGKILL", 70: "ended with exit code 70"}[status]
    assert (error.kind, error.message) == ("process_died", f"the broker (pid 1) {how}")


def test_the_broker_may_leave_when_it_has_finished():
    run = Run().begin()
    run.take(ProcessEvent(-1, ProcessExited(None, 0, 1, 0)))
    run.note(wire.Finished(1, 1, 1, 1))
    assert run.supervisor.over
    assert run.after(3 * GRACE_S) == []


def test_the_death_of_the_server_is_the_end_at_once():
    run = Run(max_restarts=9).begin()
    error = the_failure(run.take(ServerGone(77, -9)))
    assert error.message == "the server that starts the processes (pid 77) was killed by SIGKILL"
    assert run.supervisor.over


@pytest.mark.parametrize("again", [False, True])
def test_what_a_process_that_has_not_joined_has_told_comes_before_its_exit(again: bool):
    """Its reason comes through the broker, and the exit may be heard of first."""
    run = Run(max_restarts=1).begin(joined=again)
    if again:
        *_, start = run.ends(1, -9)
        run.started(start)
    assert run.ends(1, 2, incarnation=int(again)) == []
    run.supervisor.failed()
    assert run.after(GRACE_S + 0.2) == [Lost(1, "ended with exit code 2")]


@pytest.mark.parametrize(("status", "is_shown"), [(LOST_BROKER_EXIT, False), (3, True), (-9, True)])
def test_after_a_failure_a_rank_that_has_lost_the_broker_is_no_other_death(status: int, is_shown: bool):
    run = Run().begin()
    run.supervisor.failed()
    found = run.ends(1, status)
    assert [error.rank for error in failures(found)] == [1] * is_shown
    assert any(isinstance(each, wire.Message) for each in found)


def test_the_death_of_the_broker_is_the_cause_also_where_a_rank_that_has_lost_it_ends_first():
    run = Run().begin()
    assert run.ends(1, LOST_BROKER_EXIT) == []
    error = the_failure(run.take(ProcessEvent(-1, ProcessExited(None, 0, 1, -9))))
    assert (error.rank, error.message) == (None, "the broker (pid 1) was killed by SIGKILL")


def test_a_rank_that_has_lost_a_broker_that_lives_has_died():
    run = Run().begin()
    assert run.ends(1, LOST_BROKER_EXIT) == []
    assert the_failure(run.after(GRACE_S + 0.2)).rank == 1


def test_a_process_that_has_not_joined_and_told_nothing_has_died():
    run = Run().begin(joined=False)
    assert run.ends(1, 1) == []
    error = the_failure(run.after(GRACE_S + 0.2))
    assert (error.kind, error.rank, error.facts["exit_code"]) == ("process_died", 1, 1)


# --- hosts ----------------------------------------------------------------------------------------------------

LOST = HostGone(1, "host_lost", "host b is lost: silent")


def test_a_lost_host_fails_a_run_without_a_budget_and_names_its_ranks():
    run = Run(hosts=TWO).begin()
    commands = run.take(LOST)
    error = the_failure(commands)
    assert (error.kind, error.message) == ("host_lost", "host b is lost: silent; ranks that ran there: 2, 3")
    assert error.facts["host"] == "b"
    assert [c.rank for c in commands if isinstance(c, Lost)] == [2, 3]


def test_a_lost_host_costs_one_restart_and_its_ranks_go_to_the_emptiest():
    run = Run(6, [HostSpec("a", 4), HostSpec("b", 2), HostSpec("c", 3)], max_restarts=1).begin()
    assert [rank.host.name for rank in run.supervisor.ranks] == list("aaaabb")
    notice, *rest = run.take(LOST)
    assert isinstance(notice, LogLine)
    assert rest == [Restart(4, 1), Restart(5, 1), Start(2, 4, 1), Start(2, 5, 1)]
    assert run.supervisor.restarts == 1


def test_the_end_of_a_process_on_a_host_that_is_gone_is_no_second_death():
    run = Run(hosts=TWO, max_restarts=1).begin()
    run.take(LOST)
    assert run.ends(2, -9) == []


def test_no_host_is_left():
    run = Run(2, [HostSpec("a")], max_restarts=3).begin()
    error = the_failure(run.take(HostGone(0, "host_lost", "host a is lost: silent")))
    assert error.message == "host a is lost: silent; ranks that ran there: 0, 1; no other host is left"


AGENT = HostGone(1, "agent_failed", "the agent on b (pid 7) has ended", can_return=True)


def test_an_agent_that_dies_is_started_again_and_then_its_ranks():
    run = Run(hosts=TWO, max_restarts=1).begin()
    notice, *rest = run.take(AGENT)
    assert isinstance(notice, LogLine)
    assert rest == [Revive(1), Restart(2, 1), Restart(3, 1)]
    assert run.take(HostJoined(1)) == [Start(1, 2, 1), Start(1, 3, 1)]
    assert run.supervisor.restarts == 1


def test_an_agent_that_cannot_be_started_again_leaves_its_ranks_to_others_for_the_same_price():
    run = Run(hosts=TWO, max_restarts=1).begin()
    run.take(AGENT)
    assert run.take(HostGone(1, "agent_failed", "b: no agent has started: no route to host")) == [
        Start(0, 2, 1),
        Start(0, 3, 1),
    ]
    assert run.supervisor.restarts == 1


def test_an_agent_that_was_killed_before_it_connected_is_restarted():
    run = Run(hosts=TWO, max_restarts=1)
    run.take(ProcessEvent(-1, ProcessStarted(None, 0, 1)))
    run.take(BrokerListens())
    why = "b: no agent has started: the process that starts the agent was killed by SIGKILL"
    killed = HostGone(1, "agent_failed", why, can_return=True)
    notice, *rest = run.take(killed)
    assert (isinstance(notice, LogLine), rest) == (True, [Revive(1)])
    assert [start.host for start in run.take(HostJoined(1)) if isinstance(start, Start)] == [1, 1]
    assert run.supervisor.restarts == 1


def test_without_a_budget_a_killed_agent_fails_the_run():
    error = the_failure(
        Run(hosts=TWO).take(HostGone(1, "agent_failed", "b: no agent has started: it died", can_return=True))
    )
    assert error.message == "b: no agent has started: it died"


def test_a_host_without_an_agent_fails_the_run():
    run = Run(hosts=TWO, max_restarts=9)
    error = the_failure(run.take(HostGone(0, "agent_failed", "a: no agent has started: Connection refused")))
    assert (error.kind, error.message) == ("agent_failed", "a: no agent has started: Connection refused")


# --- deadlines ------------------------------------------------------------------------------------------------


def test_a_rank_that_does_not_join_is_named_with_its_host():
    run = Run(hosts=TWO, join_timeout_s=5.0).begin(joined=False)
    run.sync(sip_state(2, "joining"), sip_state(0, "joined"))
    assert run.after(4.9) == []
    error = the_failure(run.after(0.2))
    assert (error.kind, error.rank) == ("not_joined", 2)
    assert error.message == "joined 0, 1, 3 of 4; missing: 2 on b (after 5 s, --join-timeout)"
    assert error.detail == "  rank 2: its process (pid 1002 on b) has not joined"


def test_a_missing_agent_is_the_reason_for_missing_ranks():
    run = Run(hosts=TWO, join_timeout_s=5.0)
    run.take(BrokerListens())
    for start in run.take(HostJoined(0)):
        run.started(start)
    run.sync(sip_state(2, "joining"), sip_state(3, "joining"))
    error = the_failure(run.after(6))
    assert error.message.startswith("joined 0, 1 of 4; missing: 2 on b, 3 on b")
    assert error.detail.splitlines()[0] == "  rank 2: the agent of b has not reported"


def test_a_restarted_rank_has_as_long_to_join():
    run = Run(max_restarts=1, join_timeout_s=5.0).begin()
    for _ in range(12):
        run.after(5)
        run.sync()
    *_, start = run.ends(1, -9)
    run.started(start)
    assert run.after(4.8) == []
    assert the_failure(run.after(0.4)).kind == "not_joined"


def test_with_a_budget_a_rank_that_does_not_join_is_killed_and_restarted():
    run = Run(hosts=TWO, join_timeout_s=5.0, max_restarts=1).begin(joined=False)
    run.sync(sip_state(2, "joining"))
    assert run.after(5.4) == [Kill(1, 2)]
    notice, *rest = run.ends(2, -9)
    text = "rank 2 (pid 1002 on b) has not joined within 5 s, --join-timeout; started again (1 of --max-restarts 1)"
    assert notice == LogLine(text)
    assert rest == [Restart(2, 1), Start(1, 2, 1)]
    run.started(rest[-1])
    assert run.after(4.8) == []
    error = the_failure(run.after(0.4))
    assert (error.kind, error.rank) == ("not_joined", 2)
    assert error.message.endswith("missing: 2 on b (after 5 s, --join-timeout); --max-restarts 1 is used up")


def test_more_missing_ranks_than_restarts_are_not_killed():
    run = Run(join_timeout_s=5.0, max_restarts=1).begin(joined=False)
    run.sync(sip_state(1, "joining"), sip_state(2, "joining"))
    error = the_failure(run.after(5.2))
    assert (error.kind, error.facts["missing"]) == ("not_joined", [1, 2])


def test_a_rank_that_has_joined_again_is_not_missing():
    run = Run(max_restarts=1, join_timeout_s=5.0).begin()
    *_, start = run.ends(1, -9)
    run.started(start)
    run.sync(sip_state(1, "joining"))
    run.sync(sip_state(1, "running", incarnation=1))
    assert run.after(20) == []


@pytest.mark.fault
def test_a_suspended_launcher_has_missed_nothing():
    run = Run(join_timeout_s=5.0).begin(joined=False)
    run.now_s += 3600
    assert run.take(Tick()) == []


def test_a_rank_without_progress_is_hung_by_the_second_message():
    run = Run(hosts=TWO, progress_timeout_s=10.0).begin()
    assert run.quiet(1, 10.5) == []
    run.take(Sampled({1: ProcessState("running", 11.0)}))
    assert run.sync(sip_state(1, "running", 11.5)) == [RequestPosition(1)]
    commands = run.take(Position(1, SPINNING))
    error = the_failure(commands)
    assert (error.kind, error.rank) == ("hung", 1)
    assert error.message == (
        "rank 1 (pid 1001 on a) has made no progress for 11.5 s at 5.000 ns: cube 2, PE 3 runs at a/mine.py:31; "
        "granted to 7.000 ns; its process computes"
    )
    assert {key: error.facts[key] for key in ("file", "line", "cube", "pe", "time_ps")} == {
        "file": "/home/a/mine.py",
        "line": 31,
        "cube": 2,
        "pe": 3,
        "time_ps": 5000,
    }
    assert Lost(1, "hung") in commands


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (Position(1, None), f"its process {NO_ANSWER}"),
        (Position(1, None, "is far away"), "its process is far away"),
        (Position(1, SipDump(1, 5000, (), ())), "no code of a kernel or script runs there"),
    ],
)
def test_a_hung_rank_that_does_not_tell_its_place(answer: Position, what: str):
    run = Run(progress_timeout_s=10.0).begin()
    run.quiet(1, 10.5)
    run.sync(sip_state(1, "running", 11.5))
    error = the_failure(run.take(answer))
    assert error.message.startswith("rank 1 (pid 1001) has made no progress for 11.5 s at 5.000 ns: ")
    assert error.message.endswith(f": {what}; granted to 7.000 ns")
    assert "file" not in error.facts


def test_a_rank_that_moves_while_it_is_asked_is_not_hung():
    run = Run(progress_timeout_s=10.0).begin()
    run.quiet(1, 10.5)
    assert run.sync(sip_state(1, "running", 11.5)) == [RequestPosition(1)]
    assert run.sync(sip_state(1, "running", 0.1)) == []
    assert run.take(Position(1, SPINNING)) == []


def test_a_suspended_broker_is_no_hang():
    run = Run(progress_timeout_s=10.0).begin()
    assert run.quiet(1, 10.5) == []
    assert run.sync(sip_state(1, "running", 0.1)) == []
    assert run.quiet(1, 10.5) == []


@pytest.mark.parametrize("state", ["waiting", "idle", "joined"])
def test_a_waiting_rank_is_not_hung(state: str):
    run = Run(progress_timeout_s=10.0).begin()
    run.after(10.5)
    assert [command for _ in range(3) for command in run.sync(sip_state(1, state, 99.0))] == []


def test_with_a_budget_a_hung_rank_is_killed_and_started_again():
    run = Run(progress_timeout_s=10.0, max_restarts=1).begin()
    run.quiet(1, 10.5)
    assert run.sync(sip_state(1, "running", 11.5)) == [RequestPosition(1)]
    assert run.take(Position(1, SPINNING)) == [Kill(0, 1)]
    run.sync(sip_state(1, "running", 12.5))
    assert run.take(Position(1, SPINNING)) == [], "it is being killed"
    notice, *rest = run.ends(1, -9)
    assert isinstance(notice, LogLine)
    assert "has made no progress" in notice.text
    assert rest == [Restart(1, 1), Start(0, 1, 1)]


class Process:
    """A process, and how its time is spent."""

    def __init__(self) -> None:
        self.state = ProcessState("sleeping", 0.0, 0.0, 500.0)

    def spends(self, computed_s: float, blocked_s: float, waited_s: float) -> ProcessState:
        """The next sample."""
        _, cpu_s, before_s, at_s = self.state
        status = "running" if computed_s + waited_s > blocked_s else "sleeping"
        passed_s = computed_s + blocked_s + waited_s
        self.state = ProcessState(status, cpu_s + computed_s, before_s + waited_s, at_s + passed_s)
        return self.state


def seconds_to_hang(most_s: int, *times: tuple[float, float, float], limit_s: float = 10.0) -> tuple[int, float]:
    """After how many seconds a rank without progress is asked where it is, and what it had spent by then.

    ``times``: in turn, what its process computed, was blocked and waited for a processor in each second.
    """
    run, process, spent_s = Run(progress_timeout_s=limit_s).begin(), Process(), 0.0
    run.take(Sampled({1: process.state}))
    for second in range(1, most_s):
        computed_s, blocked_s, waited_s = times[second % len(times)]
        spent_s += computed_s + blocked_s
        run.now_s += 1.0
        broker = ProcessState("sleeping", 0.0, 0.0, run.now_s)
        run.take(Sampled({1: process.spends(computed_s, blocked_s, waited_s), None: broker}))
        if run.sync(sip_state(1, "running", second)):
            return second, spent_s
    return most_s, spent_s


@pytest.mark.parametrize("share", [1.0, 0.5, 0.1, 0.01])
def test_a_rank_that_only_computes_is_hung_by_its_cpu_time(share: float):
    """Twice: the second message must say so too."""
    second, spent_s = seconds_to_hang(3000, (share, 0.0, 1.0 - share))
    assert 10.0 < spent_s <= 10.0 + 2 * share + 1e-6
    assert second == pytest.approx(spent_s / share)


@pytest.mark.parametrize("computed_s", [0.0, 0.003, 0.4])
def test_a_rank_that_is_blocked_is_hung_by_the_clock(computed_s: float):
    assert seconds_to_hang(100, (computed_s, 1.0 - computed_s, 0.0))[0] == 12


def test_a_rank_that_never_gets_a_processor_is_not_hung():
    assert seconds_to_hang(1000, (0.0, 0.0, 1.0)) == (1000, 0.0)


SHARES = st.tuples(*[st.integers(0, 10)] * 3).filter(any).map(lambda parts: tuple(part / sum(parts) for part in parts))


@given(st.lists(SHARES, min_size=1, max_size=5), st.integers(1, 20))
def test_no_rank_is_hung_before_it_has_spent_its_time(times: list[tuple[float, float, float]], limit_s: int):
    second, spent_s = seconds_to_hang(100, *times, limit_s=limit_s)
    assert second == 100 or spent_s > limit_s
    # A sample that finds it ready to run counts what it has computed.
    assert second < 100 or sum(c if c + w > b else c + b for c, b, w in times) / len(times) * 95 <= limit_s + 2


def test_another_rank_that_stands_costs_a_computing_one_nothing():
    run, stands, computes = Run(progress_timeout_s=2.0, max_restarts=9).begin(), Process(), Process()
    asked: list[Command] = []
    for second in range(9):
        run.now_s += 1.0
        states = {2: stands.spends(0.0, 1.0, 0.0), 1: computes.spends(0.1, 0.0, 0.9)}
        run.take(Sampled({**states, None: ProcessState("sleeping", 0.0, 0.0, run.now_s)}))
        asked += run.sync(*(sip_state(rank, "running", second) for rank in (1, 2)))
    assert set(asked) == {RequestPosition(2)}


@pytest.mark.parametrize("number", [None, 1])
def test_one_that_computes_its_last_message_is_not_hung_by_the_clock(number: int | None):
    """The broker's answer, a rank's result."""
    run, process = Run(progress_timeout_s=10.0).begin(), Process()
    run.sync(last=True)
    for rank in (0, 2, 3) if number == 1 else range(4):
        run.note(RankResult(rank, b"", False))
    found: list[Command] = []
    for second in range(1, 100):
        run.now_s += 1.0
        found += run.take(Sampled({number: process.spends(0.1, 0.0, 0.9)})) + run.take(Tick())
        found += run.sync(sip_state(1, "idle", second)) if number == 1 else []
    assert found == []


def test_an_unexplained_lost_connection_is_reported_with_both_ends():
    run = Run(hosts=TWO).begin()
    run.note(PeerLost(0, 3, "no answer"))
    assert run.after(EXPLAIN_S - 0.1) == []
    error = the_failure(run.after(0.3))
    assert (error.kind, error.rank) == ("peer_lost", 0)
    assert error.message == (
        "rank 0 on a has lost its connection to rank 3 on b, and neither process nor host is known to have ended: "
        "no answer"
    )


STOPPED = {3: ProcessState("stopped", 1.0)}


def test_a_process_that_is_stopped_and_lost_is_named_with_its_state():
    """It does not answer the heartbeats of its peers either; they may find that first."""
    run = Run(hosts=TWO).begin()
    run.note(PeerLost(0, 3, "no answer"))
    run.after(0.5)
    run.note(PeerLost(3, 3, "no answer"))
    assert run.after(EXPLAIN_S - 0.1) == []
    run.take(Sampled(STOPPED))
    run.now_s += 0.2
    error = the_failure(run.take(Tick()))
    assert (error.kind, error.rank, error.facts["host"]) == ("peer_lost", 3, "b")
    assert error.message.endswith("; its process is stopped")


def test_a_process_that_has_lost_the_broker_is_started_again():
    run = Run(hosts=TWO, max_restarts=1).begin()
    for rank in (0, 1, 2, 3):
        run.note(PeerLost(rank, 3, "no answer"))
    assert run.after(EXPLAIN_S + 0.2) == [Kill(1, 3)]
    notice, *rest = run.ends(3, -9)
    assert isinstance(notice, LogLine)
    assert rest == [Restart(3, 1), Start(1, 3, 1)]
    run.started(Start(1, 3, 1))
    run.sync(sip_state(3, "running", incarnation=1))
    assert run.after(2 * EXPLAIN_S) == [], "what its peers have lost is explained"


def test_a_lost_connection_of_a_replaced_process_is_ignored():
    """A rank that computes for long reports it late."""
    run = Run(hosts=TWO, max_restarts=1).begin()
    *_, start = run.ends(3, -9)
    run.started(start)
    run.sync(sip_state(3, "running", incarnation=1))
    run.after(2 * EXPLAIN_S)
    run.note(PeerLost(0, 3, "no answer"))
    assert run.after(10) == []


def test_a_lost_connection_to_the_new_process_is_reported():
    run = Run(hosts=TWO, max_restarts=1).begin()
    *_, start = run.ends(3, -9)
    run.started(start)
    run.sync(sip_state(3, "running", incarnation=1))
    run.note(PeerLost(0, 3, "no answer", peer_incarnation=1))
    assert the_failure(run.after(EXPLAIN_S + 0.2)).kind == "peer_lost"


def test_a_broker_that_never_answers_while_ranks_join_is_hung():
    run = Run(join_timeout_s=5.0).begin(joined=False)
    error = the_failure(run.after(5.5))
    assert (error.kind, error.message) == ("hung", "the broker (pid 1) has not answered for 5 s")


def test_a_rank_that_is_restarted_at_the_end_has_the_time_of_its_replay():
    run = Run(max_restarts=1, progress_timeout_s=10.0).begin()
    run.sync(last=True)
    run.note(RankResult(0, b"", False))
    *_, start = run.ends(1, -9)
    run.started(start)
    for _ in range(30):
        assert run.after(1.0) + run.sync(sip_state(1, "running", incarnation=1)) == []


@pytest.mark.parametrize(
    "news",
    [ProcessStarted(0, 0, 7), ProcessExited(0, 0, 1000, -9), ProcessExited(None, 0, 1, -9), ProcessExited(99, 0, 1, 0)],
)
def test_news_of_other_hosts_ranks_are_dropped(news: ProcessStarted | ProcessExited):
    run = Run(hosts=TWO).begin()
    assert run.take(ProcessEvent(1, news)) == []
    assert run.ends(0, -9) != [], "the rank still has the process that it had"


@pytest.mark.parametrize("first", ["death", "connection"])
def test_a_death_explains_a_lost_connection(first: str):
    run = Run(hosts=TWO, max_restarts=1).begin()
    if first == "connection":
        run.note(PeerLost(0, 3, "no answer"))
        run.after(1.0)
    *_, start = run.ends(3, -9)
    if first == "death":
        run.after(1.0)
        run.note(PeerLost(0, 3, "no answer"))
    run.started(start)
    run.sync(sip_state(3, "running", incarnation=1))
    assert run.after(10) == []


def test_a_lost_host_explains_a_lost_connection():
    run = Run(hosts=TWO, max_restarts=1).begin()
    run.note(PeerLost(0, 3, "no answer"))
    run.after(1.0)
    for start in run.take(LOST):
        if isinstance(start, Start):
            run.started(start)
    run.sync(sip_state(2, "running", incarnation=1), sip_state(3, "running", incarnation=1))
    assert run.after(10) == []


def test_a_broker_that_does_not_answer_is_hung():
    run = Run(progress_timeout_s=10.0).begin()
    run.sync()
    error = the_failure(run.after(12))
    assert (error.kind, error.message) == ("hung", "the broker (pid 1) has not answered for 10 s")


def test_a_rank_that_does_not_answer_at_the_end_is_hung():
    run = Run(progress_timeout_s=10.0).begin()
    run.sync(last=True)
    run.note(RankResult(0, b"", False))
    for second in range(1, 10):
        assert run.after(1.0) + run.sync(sip_state(1, "idle", second)) == []
    error = the_failure(run.after(1.5))
    assert (error.kind, error.rank) == ("hung", 1)


def test_without_deadlines_nothing_is_late():
    run = Run(join_timeout_s=1.0, progress_timeout_s=1.0, deadlines=False).begin(joined=False)
    run.note(PeerLost(0, 3, "no answer"))
    run.sync(sip_state(1, "running", 99.0))
    run.sync(sip_state(1, "running", 99.0))
    assert run.after(100) == []


# --- placement ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_ranks", "slots", "places"),
    [
        (4, [2, 2], "0011"),
        (3, [2, 2], "001"),
        (4, [3, 3], "0001"),
        (4, [None, None], "0011"),
        (5, [None, None], "00011"),
        (2, [None, None, None], "01"),
        (5, [1, None, None], "01122"),
        (2, [4, None], "00"),
        (4, [None, 1], "0001"),
    ],
)
def test_blocks(n_ranks: int, slots: list[int | None], places: str):
    assert place_blockwise(n_ranks, slots) == [int(place) for place in places]


def test_too_few_slots():
    with pytest.raises(ValueError, match="4 SIPs need 4 slots, but the hosts have 3"):
        place_blockwise(4, [2, 1])


@pytest.mark.parametrize(
    ("slots", "ranks_on", "chosen"),
    [
        ({0: 4, 2: 3}, {0: 4, 2: 0}, 2),
        ({0: 4, 2: 3}, {0: 1, 2: 0}, 2),
        ({0: 4, 2: 2}, {0: 1, 2: 0}, 0),
        ({0: None, 2: 9}, {0: 8, 2: 0}, 0),
        ({0: None, 2: None}, {0: 3, 2: 2}, 2),
        ({0: 1, 2: 1}, {0: 2, 2: 2}, 0),
    ],
)
def test_most_free_slots_then_fewest_ranks(slots: dict[int, int | None], ranks_on: dict[int, int], chosen: int):
    assert next_host(slots.keys(), slots, Counter(ranks_on)) == chosen


def test_nowhere():
    assert next_host([], {}, Counter()) is None
