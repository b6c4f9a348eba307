"""The phases of a run as the hub decides them: joining, running, every ending, and facts that cannot be true."""

import pytest
from hub_runs import RING, SIZE, Hub, Out, join, joining, report, running

from broker.hub import Phase
from broker.ids import LAUNCHER
from broker.wire import (
    Abort,
    Deadlock,
    Dump,
    DumpRequest,
    End,
    Failed,
    Finished,
    Grant,
    Leave,
    Lost,
    Message,
    Progress,
    RankFailed,
    RankRecord,
    RankResult,
    Record,
    Refused,
    Restart,
    Result,
    RunStarted,
    SimTimeReached,
    Start,
    Status,
    StatusRequest,
    Stop,
    SyncRequest,
)


def ending() -> Hub:
    hub = running()
    for rank in range(SIZE):
        hub.handle(rank, report())
    assert hub.phase is Phase.ENDING
    return hub


def aborts(out: Out) -> dict[int, str]:
    return {to: message.reason for to, message in out if isinstance(message, Abort)}


def to_launcher(out: Out) -> list[Message]:
    return [message for to, message in out if to == LAUNCHER]


def answer_all(hub: Hub, *ranks: int, partial: bool = True) -> Out:
    return [sent for rank in ranks for sent in hub.handle(rank, Result(b"r%d" % rank, partial))]


# --- a run without failures -----------------------------------------------------------------------------------


def test_the_last_join_starts_the_run() -> None:
    hub = Hub(SIZE, RING)
    assert hub.handle(2, join(2)) == []
    assert hub.handle(0, join(0)) == []
    start = Start(("ipc://0", "ipc://1", "ipc://2"), (0, 0, 0))
    assert hub.handle(1, join(1)) == [(LAUNCHER, RunStarted()), (0, start), (1, start), (2, start)]


def test_reports_are_answered_with_grants() -> None:
    hub = running()
    assert hub.handle(0, report(next_ps=0)) == []
    assert hub.handle(1, report()) == []
    assert hub.handle(2, report(next_ps=4)) == [(0, Grant(14, ())), (2, Grant(20, ()))]


def test_the_end_when_no_kernel_waits() -> None:
    hub = running()
    hub.handle(0, report())
    hub.handle(1, report())
    assert hub.handle(2, report()) == [(rank, End()) for rank in range(SIZE)]
    assert answer_all(hub, 1, 0, partial=False) == [
        (LAUNCHER, RankResult(1, b"r1", False)),
        (LAUNCHER, RankResult(0, b"r0", False)),
    ]
    assert answer_all(hub, 2, partial=False) == [
        (LAUNCHER, RankResult(2, b"r2", False)),
        (LAUNCHER, Finished(3, 0, 0, 0)),
        *((rank, Leave()) for rank in range(SIZE)),
    ]
    assert hub.phase is Phase.DONE


def test_status_counts_joined_sips_and_gives_the_least_time() -> None:
    hub = joining(0, 1)
    assert hub.handle(LAUNCHER, StatusRequest()) == [(LAUNCHER, Status(2, 0, 0))]
    hub.handle(2, join(2))
    for rank, next_ps in enumerate((70, 50, None)):
        hub.handle(rank, report(next_ps=next_ps))
    assert hub.handle(LAUNCHER, StatusRequest()) == [(LAUNCHER, Status(3, 50, hub.timesync.grants))]


# --- deadlock -------------------------------------------------------------------------------------------------


def test_a_deadlock_collects_every_dump_and_ends_the_run() -> None:
    hub = running()
    hub.handle(0, report(waiting=1))
    hub.handle(1, report())
    assert hub.handle(2, report(waiting=4)) == [(rank, DumpRequest()) for rank in range(SIZE)]
    assert hub.handle(2, Dump(b"two")) == []
    assert hub.handle(0, Dump(b"zero")) == []
    out = hub.handle(1, Dump(b"one"))
    assert out[0] == (LAUNCHER, Deadlock((b"zero", b"one", b"two")))
    assert aborts(out[1:]) == dict.fromkeys(range(SIZE), "deadlock")
    assert to_launcher(answer_all(hub, 0, 1, 2))[-1] == Finished(3, 0, 0, 0)


def test_a_sip_that_is_lost_while_it_dumps_ends_the_run() -> None:
    hub = running()
    for rank in range(SIZE):
        hub.handle(rank, report(waiting=1))
    assert hub.phase is Phase.DUMPING
    assert set(aborts(hub.handle(LAUNCHER, Lost(1, "signal 9")))) == {0, 2}
    assert hub.handle(0, Dump(b"late")) == []
    assert isinstance(to_launcher(answer_all(hub, 0, 2))[-1], Finished)


def test_a_dump_without_a_request_is_dropped() -> None:
    hub = running()
    assert hub.handle(0, Dump(b"early")) == []
    for rank in range(SIZE):
        hub.handle(rank, report(waiting=1))
    hub.handle(1, Dump(b"one"))
    assert hub.handle(2, Dump(b"two")) == []
    assert hub.handle(0, Dump(b"zero"))[0] == (LAUNCHER, Deadlock((b"zero", b"one", b"two")))


# --- failures -------------------------------------------------------------------------------------------------


def test_a_failure_is_reported_first_and_aborts_the_others() -> None:
    hub = running()
    out = hub.handle(1, Failed("exception", "ZeroDivisionError", "traceback", 77))
    assert out[0] == (LAUNCHER, RankFailed(1, "exception", "ZeroDivisionError", "traceback", 77, host="here"))
    assert {0, 2} <= set(aborts(out[1:]))
    assert set(aborts(out).values()) == {"SIP 1 failed: ZeroDivisionError"}
    assert to_launcher(answer_all(hub, 1, 0)) == [RankResult(1, b"r1", True), RankResult(0, b"r0", True)]
    assert to_launcher(answer_all(hub, 2)) == [RankResult(2, b"r2", True), Finished(0, 0, 0, 0)]


def test_a_second_failure_is_reported_and_aborts_no_sip_again() -> None:
    hub = running()
    hub.handle(1, Failed("exception", "first", "", 0))
    assert hub.handle(2, Failed("exception", "second", "", 0)) == [
        (LAUNCHER, RankFailed(2, "exception", "second", "", 0, host="here"))
    ]


def test_a_failure_before_the_join_is_acknowledged_after_it_was_told() -> None:
    """The process exits then: what its exit says would be less."""
    out = joining(0, 2).handle(1, Failed("config", "a damaged file", "", 0))
    assert out[0] == (LAUNCHER, RankFailed(1, "config", "a damaged file", "", 0))
    assert [type(message) for to, message in out if to == 1] == [Refused]
    assert set(aborts(out)) == {0, 2}


def test_a_failure_blames_the_rank_that_caused_it() -> None:
    (_, failure), *rest = running().handle(1, Failed("bad_message", "m", "", 0, blames=2))
    assert isinstance(failure, RankFailed)
    assert failure.rank == 2
    assert 1 in aborts(rest), "the sender has not ended by itself"


@pytest.mark.parametrize(
    ("sender", "rank", "who"),
    [(1, 1, "rank 1 (pid 101 on here)"), (9, 9, "rank 9"), (LAUNCHER, None, "the launcher")],
)
def test_bytes_that_are_no_message_name_their_sender(sender: int, rank: int | None, who: str) -> None:
    (to, failure), *rest = running().take_malformed(sender, "cut short")
    assert (to, isinstance(failure, RankFailed)) == (LAUNCHER, True)
    assert (failure.kind, failure.rank) == ("bad_message", rank)
    assert failure.message.startswith(f"{who} has sent ")
    assert failure.message.endswith(": cut short")
    assert set(aborts(rest)) == {0, 1, 2}


def test_reports_after_a_failure_grant_nothing() -> None:
    hub = running()
    hub.handle(0, report(next_ps=5))
    hub.handle(1, report())
    hub.handle(0, Failed("exception", "x", "", 0))
    assert hub.handle(2, report(next_ps=5)) == []


def stand(hub: Hub, rank: int, now_ps: int) -> Out:
    told = hub.handle(rank, Failed("LinkLoss", f"at {now_ps}", "", now_ps, deferred=True))
    return told + hub.handle(rank, report(next_ps=now_ps + 1))


def all_running() -> Hub:
    hub = running()
    for rank in range(SIZE):
        hub.handle(rank, report(next_ps=0))
    assert all(hub.timesync.is_running(rank) for rank in range(SIZE))
    return hub


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_of_failures_of_sips_that_stand_the_first_in_simulated_time_is_the_cause(order: tuple[int, ...]) -> None:
    """Ties are told, too, by rank; what is later is not."""
    hub, out = all_running(), []
    for rank in order:
        assert not to_launcher(out)
        out = stand(hub, rank, (7, 5, 5)[rank])
    told = [(each.rank, each.now_ps) for each in to_launcher(out) if isinstance(each, RankFailed)]
    assert (told, set(aborts(out))) == ([(1, 5), (2, 5)], {0, 1, 2})


def test_before_the_run_ends_by_a_sip_that_stands_others_come_to_its_time_and_no_further() -> None:
    hub = all_running()
    assert stand(hub, 1, 5) == []
    assert [message for _, message in hub.handle(0, report(next_ps=5)) if isinstance(message, Grant)] == [Grant(6, ())]
    assert hub.handle(2, report(next_ps=6)) == []
    out = hub.handle(0, report())
    assert [each.rank for each in to_launcher(out) if isinstance(each, RankFailed)] == [1]
    assert hub.phase is Phase.ABORTING


def test_what_ends_the_run_before_others_have_come_to_its_time_is_told_with_it() -> None:
    hub = all_running()
    stand(hub, 1, 5)
    out = hub.handle(0, Failed("exception", "x", "", 3))
    assert [each.rank for each in to_launcher(out) if isinstance(each, RankFailed)] == [0, 1]


def test_the_successor_of_a_sip_that_stands_fails_again() -> None:
    hub = all_running()
    stand(hub, 1, 5)
    hub.handle(LAUNCHER, Restart(1, 1))
    out = hub.handle(LAUNCHER, Stop("timeout"))
    assert not [each for each in to_launcher(out) if isinstance(each, RankFailed)]


def test_a_sip_that_does_not_run_cannot_defer_its_failure() -> None:
    hub = running()
    assert isinstance(hub.handle(1, Failed("LinkLoss", "m", "", 0, deferred=True))[0][1], RankFailed)


def test_a_failure_before_all_have_joined() -> None:
    hub = joining(0, 1)
    out = hub.handle(0, Failed("exception", "x", "", 0))
    assert isinstance(out[0][1], RankFailed)
    assert set(aborts(out)) == {0, 1}


def test_a_sip_that_joins_during_an_abort_is_aborted_and_waited_for() -> None:
    hub = joining(0)
    hub.handle(0, Failed("exception", "x", "", 0))
    assert hub.handle(2, join(2)) == [(2, Abort("the run is already ending"))]
    assert to_launcher(answer_all(hub, 0)) == [RankResult(0, b"r0", True)]
    assert isinstance(to_launcher(answer_all(hub, 2))[-1], Finished)


def test_a_result_counts_once() -> None:
    hub = ending()
    answer_all(hub, 0)
    assert answer_all(hub, 0) == []
    assert hub.phase is Phase.ENDING


# --- losses and stops -----------------------------------------------------------------------------------------


def test_a_lost_sip_aborts_the_others_and_is_not_waited_for() -> None:
    hub = running()
    out = hub.handle(LAUNCHER, Lost(1, "exit code 3"))
    assert aborts(out) == dict.fromkeys((0, 2), "SIP 1 is lost: exit code 3")
    assert to_launcher(out) == []
    assert isinstance(to_launcher(answer_all(hub, 0, 2))[-1], Finished)


def test_the_last_unanswered_sip_may_be_lost_during_the_end() -> None:
    hub = ending()
    answer_all(hub, 0, 2, partial=False)
    assert to_launcher(hub.handle(LAUNCHER, Lost(1, "signal 9"))) == [Finished(3, 0, 0, 0)]


def test_the_exit_of_a_sip_after_its_result_is_no_loss() -> None:
    hub = ending()
    answer_all(hub, 1, partial=False)
    assert hub.handle(LAUNCHER, Lost(1, "exit code 0")) == []
    assert hub.phase is Phase.ENDING


def test_all_lost_before_the_first_join() -> None:
    hub = Hub(SIZE, RING)
    assert hub.handle(LAUNCHER, Lost(0, "exit code 1")) == [(LAUNCHER, Finished(0, 0, 0, 0))]
    assert hub.handle(LAUNCHER, Lost(1, "exit code 1")) == []


def test_all_lost_one_by_one() -> None:
    hub = running()
    answers = [to_launcher(hub.handle(LAUNCHER, Lost(rank, "signal 9"))) for rank in range(SIZE)]
    assert answers == [[], [], [Finished(0, 0, 0, 0)]]


def test_stop_aborts_all_once() -> None:
    hub = running()
    assert aborts(hub.handle(LAUNCHER, Stop("timeout"))) == dict.fromkeys(range(SIZE), "timeout")
    assert hub.handle(LAUNCHER, Stop("again")) == []
    assert isinstance(to_launcher(answer_all(hub, 0, 1, 2))[-1], Finished)


def test_stop_after_the_end_changes_nothing() -> None:
    assert ending().handle(LAUNCHER, Stop("timeout")) == []


# --- refusals and facts that cannot be true -------------------------------------------------------------------


def test_a_refused_sip_receives_the_reason_and_ends_the_run() -> None:
    hub = joining(0)
    out = hub.handle(1, join(1, digest="another"))
    reason = "SIP 1 (here) and SIP 0 (here) have different plans (another, plan); give all SIPs the same config"
    (refused_to, refused), (launcher, failed), *rest = out
    assert (refused_to, launcher) == (1, LAUNCHER)
    assert isinstance(refused, Refused)
    assert refused.reason.startswith(reason)
    assert failed == RankFailed(1, "refused", refused.reason, "", 0)
    assert rest == [(0, Abort(refused.reason))]


def test_a_join_from_the_address_of_another_rank_is_refused() -> None:
    hub = joining(0)
    assert hub.handle(2, join(1)) == [(2, Refused("rank 1 joined from the address of rank 2"))]
    assert hub.phase is Phase.JOINING


@pytest.mark.fault
@pytest.mark.parametrize(
    ("sender", "fact", "error"),
    [
        (0, report(next_ps=1), "reported without a grant"),
        (1, report(sent=((3, 1, 9),)), "SIPs are 0 to 2"),
        (1, report(taken=((7, 1),)), "SIPs are 0 to 2"),
        (5, report(), "SIPs are 0 to 2"),
        (LAUNCHER, report(), "SIPs are 0 to 2"),
        (1, Result(b"", False), "sent its result before"),
    ],
)
def test_a_fact_that_cannot_be_true_is_a_failure_never_an_exception(sender: int, fact: Message, error: str) -> None:
    hub = running()
    hub.handle(0, report(next_ps=1))
    out = hub.handle(sender, fact)
    (to, failure), *rest = out
    assert to == LAUNCHER
    assert isinstance(failure, RankFailed)
    assert (failure.kind, failure.rank) == ("bad_message", sender if sender >= 0 else None)
    assert error in failure.message
    unanswered = {0, 1, 2} - ({sender} if isinstance(fact, Result) else set())
    assert set(aborts(rest)) == unanswered
    assert isinstance(to_launcher(answer_all(hub, *unanswered))[-1], Finished)


def test_a_report_before_the_start_is_a_failure() -> None:
    (_, failure), *_ = joining(0).handle(0, report())
    assert isinstance(failure, RankFailed)
    assert failure.message == "SIP 0 sent a report before the run started"


def test_a_dump_by_an_unknown_sender_is_a_failure() -> None:
    hub = running()
    for rank in range(SIZE):
        hub.handle(rank, report(waiting=1))
    (_, failure), *_ = hub.handle(9, Dump(b""))
    assert isinstance(failure, RankFailed)
    assert failure.message == "SIP 9 sent a dump, but has not joined"


# --- the state of synchronisation -----------------------------------------------------------------------------


def test_sync_names_blockers_in_every_phase() -> None:
    hub = joining(0, 2)
    ((to, sync),) = hub.handle(LAUNCHER, SyncRequest(), 7)
    assert to == LAUNCHER
    assert (sync.last, sync.phase) == (False, "joining")
    assert [sip.state for sip in sync.sips] == ["joined", "joining", "joined"]
    hub.handle(1, join(1), 1_000)
    for rank, next_ps in ((0, 50), (1, 65), (2, None)):
        hub.handle(rank, report(next_ps=next_ps), 2_000)
    ((_, sync),) = hub.handle(LAUNCHER, SyncRequest(), 9_000)
    zero, one, two = sync.sips
    assert (zero.state, zero.horizon_ps, zero.since_ns, zero.by) == ("running", 80, 7_000, 0), "only its own cycle"
    assert (one.state, one.next_ps, one.horizon_ps, one.by, one.chain) == ("waiting", 65, 60, 0, ("c0",))
    assert (two.state, two.next_ps, two.horizon_ps, two.chain) == ("idle", None, 70, ("c0", "c1"))
    assert sync.channels == (("c0", 7_000),)
    assert [sip.wait_ns for sip in sync.sips] == [1_993, 8_993, 8_993]


@pytest.mark.parametrize("ending", ["end", "deadlock", "failure", "stop", "lost"])
def test_the_last_sync_is_sent_once_with_the_state_before_the_end(ending: str) -> None:
    hub = running()
    for rank in range(SIZE):
        if ending in ("end", "deadlock"):
            hub.handle(rank, report(waiting=int(ending == "deadlock")))
    if ending == "deadlock":
        for rank in range(SIZE):
            hub.handle(rank, Dump(b""))
    elif ending == "failure":
        hub.handle(1, Failed("exception", "why", "", 5))
    elif ending == "stop":
        hub.handle(LAUNCHER, Stop("interrupted"))
    elif ending == "lost":
        hub.handle(LAUNCHER, Lost(2, "SIGKILL"))
    for rank in range(SIZE):
        hub.handle(rank, Result(b"", False))
    assert hub.phase is Phase.DONE
    assert [sync.phase for sync in hub.last_syncs] == ["running"]


def test_the_time_told_is_that_of_the_last_progress_of_each_rank() -> None:
    hub = running()
    for rank, at in ((0, 30), (2, 60), (0, 90)):
        assert hub.handle(rank, Progress(10 * at, 1), at) == []
    hub.handle(LAUNCHER, StatusRequest(), 130)
    status = hub.status()
    assert status.reported_ps == (900 + 600) // 3
    # SIP 1 has told nothing since the start of the run, at 30 ns.
    assert status.age_ns == 130 - (90 + 60 + 30) // 3
    hub.handle(LAUNCHER, Restart(0, 1), 130)
    assert hub.status().reported_ps == 600 // 3


def test_a_record_is_passed_on() -> None:
    assert running().handle(1, Record(3, b"blob")) == [(LAUNCHER, RankRecord(1, 3, b"blob"))]


@pytest.mark.parametrize("message", [Record(0, b""), Progress(0, 0)])
def test_news_of_nobody_end_the_run(message: Message) -> None:
    assert [m.kind for m in to_launcher(running().handle(LAUNCHER, message)) if isinstance(m, RankFailed)] == [
        "bad_message"
    ]


class TestLimit:
    def test_it_is_reached_when_every_rank_has_nothing_before_it(self) -> None:
        hub = limited(100)
        assert [to for to, _ in hub.handle(2, report(next_ps=100))] == [0, 1]
        assert hub.handle(0, report(next_ps=150)) == []
        asked = hub.handle(1, report(next_ps=101, waiting=1))
        assert asked == [(rank, DumpRequest()) for rank in range(SIZE)]
        assert hub.phase is Phase.DUMPING
        told = [hub.handle(rank, Dump(b"%d" % rank)) for rank in range(SIZE)]
        assert to_launcher(told[-1]) == [SimTimeReached(100, (b"0", b"1", b"2"))]
        assert set(aborts(told[-1])) == set(range(SIZE))

    def test_a_run_that_ends_before_it_ends_well(self) -> None:
        hub = limited(100)
        hub.handle(2, report())
        hub.handle(0, report())
        assert hub.handle(1, report()) == [(rank, End()) for rank in range(SIZE)]

    def test_a_deadlock_before_it_is_one(self) -> None:
        hub = limited(100)
        for rank in (2, 0, 1):
            hub.handle(rank, report(waiting=1))
        told = [to_launcher(hub.handle(rank, Dump(b""))) for rank in range(SIZE)]
        assert told[-1] == [Deadlock((b"", b"", b""))]


def limited(limit_ps: int) -> Hub:
    """A run with a limit in which SIPs 0 and 1 have been granted windows, and SIP 2 has not reported."""
    hub = Hub(SIZE, RING, None, limit_ps)
    for rank in range(SIZE):
        hub.handle(rank, join(rank))
    for rank in (0, 1):
        assert hub.handle(rank, report(next_ps=95)) == []
    return hub
