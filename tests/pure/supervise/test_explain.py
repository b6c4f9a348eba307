"""Synchronisation in words: the books of who waited for whom, the table, and what counts as a stall."""

import re

import pytest

from broker.ids import MAX_PS, Channel
from broker.sync.delays import DelayMatrix
from broker.sync.timesync import TimeSync
from broker.sync.wait_stats import WaitStats
from broker.wire import Report, SipSync, Sync
from launcher.processes.process_state import ProcessState
from launcher.report.explain import explanation, reason
from launcher.supervise.stall import STALL_AFTER_S, StallDetector

LINE = [Channel(0, 1, 10, "a"), Channel(1, 2, 20, "b")]


def sip(rank: int = 0, state: str = "waiting", **changes: object) -> SipSync:
    usual: dict[str, object] = {
        "now_ps": 1_000,
        "next_ps": 2_000,
        "horizon_ps": 2_000,
        "since_ns": 1_500_000_000,
        "by": 1,
        "by_ps": 1_500,
        "delay_ps": 500,
        "chain": ("1.W>0.E",),
        "lacks": (),
        "waiting": 0,
        "run_ns": 1_000_000,
        "send_ns": 2_000_000,
        "wait_ns": 3_000_000,
    }
    return SipSync(rank=rank, state=state, **{**usual, **changes})  # type: ignore[arg-type]


def sync(*sips: SipSync, reports: int = 5, channels: tuple[tuple[str, int], ...] = ()) -> Sync:
    return Sync(False, "running", reports, 4, sips, channels)


# --- the books ------------------------------------------------------------------------------------------------


def test_a_wait_is_charged_to_who_kept_it_at_the_time_and_to_every_channel_of_the_chain() -> None:
    waits, delays = WaitStats(3), DelayMatrix(3, LINE)
    waits.blocked(2, 0, 100)
    waits.blocked(2, 1, 150)
    waits.granted(2, 170)
    waits.granted(1, 180)
    assert dict(waits.cost_ns) == {(0, 2): 50, (1, 2): 20}
    assert waits.costliest_channels(delays, 3, 999) == [("b", 70), ("a", 50)]
    assert waits.costliest_channels(delays, 1, 999) == [("b", 70)]


def test_a_wait_that_lasts_counts_up_to_now_and_once() -> None:
    waits, delays = WaitStats(3), DelayMatrix(3, LINE)
    waits.blocked(1, 0, 100)
    assert waits.costliest_channels(delays, 3, 130) == [("a", 30)]
    assert waits.costliest_channels(delays, 3, 160) == [("a", 60)]
    waits.granted(1, 170)
    assert waits.costliest_channels(delays, 3, 999) == [("a", 70)]


def test_the_broker_books_what_its_decisions_make_wait() -> None:
    """Seen to fail: a change of blocker that is not charged, and a grant that leaves the blocker in place."""
    line = TimeSync(3, LINE)
    line.report(0, Report(0, 5, None, (), (), 0, 5, 1_000, 100), 1_000)
    line.report(1, Report(0, 50, None, (), (), 0, 50, 2_000, 200), 1_100)
    line.report(2, Report(0, 60, None, (), (), 0, 60), 1_200)
    assert dict(line.waits.cost_ns) == {}, "SIP 0 runs, 1 waits for it, 2 for it too by way of 1"
    line.report(0, Report(5, 45, None, (), (), 0, 45), 1_700)
    assert dict(line.waits.cost_ns) == {(0, 1): 500, (0, 2): 500}
    assert (line.waits.run_ns, line.waits.send_ns) == ([1_000, 2_000, 0], [100, 200, 0])
    assert line.waits.since_ns == [1_700, 1_700, 1_700]


# --- the table ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("standing", "said"),
    [
        (sip(state="joining"), "its process has not joined"),
        (sip(state="starting"), "its host script has not come to its first wait"),
        (sip(state="running"), "nothing: it runs"),
        (
            sip(state="running", lacks=((1, 3), (4, 1))),
            "runs, or 3 packets of SIP 1 on their way and 1 packets of SIP 4 on their way",
        ),
        (sip(state="idle"), "something to arrive: it has no event of its own"),
        (
            sip(state="idle", waiting=2),
            "something to arrive: it has no event of its own; 2 of its kernels and scripts wait",
        ),
        (sip(), "SIP 1, which may send at 1.500 ns; 500 ps by 1.W>0.E"),
        (
            sip(by=0, chain=("0.E>1.W", "1.W>0.E")),
            "itself, which may send at 1.500 ns; 500 ps by 0.E>1.W, 1.W>0.E",
        ),
        (sip(by=None), "a grant that is on its way"),
    ],
)
def test_what_a_sip_waits_for(standing: SipSync, said: str) -> None:
    assert reason(standing) == said


def test_the_table_has_a_line_a_sip_times_and_the_dearest_channels() -> None:
    text = explanation(sync(sip(0), sip(1, "idle", next_ps=None, horizon_ps=None), channels=(("c", 2_500_000_000),)))
    lines = text.splitlines()
    assert lines[0] == "synchronisation (running; 5 reports, 4 grants):"
    assert re.fullmatch(r"  0 +waiting  1\.500 s  1\.000 ns  2\.000 ns +2\.000 ns +SIP 1, .*", lines[2])
    assert re.fullmatch(r"  1 +idle .*never +never +something to arrive: .*", lines[3])
    assert lines[6].split() == ["0", "0.001", "s", "0.003", "s", "0.002", "s"]
    assert lines[-1] == "  c  2.500 s"
    assert not any(line != line.rstrip() for line in lines)


def test_no_table_of_channels_where_nobody_waited() -> None:
    assert "channels" not in explanation(sync(sip(0)))


# --- stalls ---------------------------------------------------------------------------------------------------

PIDS = {"broker": 10, "sip-0": 20, "sip-1": 21}
ASLEEP = {"broker": ProcessState("S", 5), "sip-0": ProcessState("S", 7), "sip-1": ProcessState("S", 9)}


def watched(until_s: float, states: dict[str, ProcessState] = ASLEEP, standing: Sync | None = None) -> list[str]:
    """Everything that is told when states and answers come once a second and never change."""
    stall, told, now_s = StallDetector(0.0), [], 0.0
    standing = standing or sync(sip(0, "running"), sip(1, by=0))
    while now_s < until_s:
        now_s += 1.0
        told += [stall.note_sync(standing, now_s), stall.check(standing, PIDS, states, now_s)]
    return [words for words in told if words is not None]


def test_a_stall_is_told_once_and_names_who_should_have_moved() -> None:
    (told,) = watched(30.0)
    assert told.startswith("stalled: nothing has moved for 3.0 s, and no process of the run computes\n")
    assert "SIP 0 has been running for 1.5 s: nothing: it runs; its process (pid 20) sleeps" in told
    assert "SIP 0, which may send" in told, "the table is there"


def test_not_before_its_time() -> None:
    assert watched(STALL_AFTER_S) == []


@pytest.mark.parametrize("who", ["broker", "sip-0", "sip-1"])
@pytest.mark.parametrize("state", ["R", "D"])
def test_who_runs_or_waits_for_a_processor_or_disk_is_no_stall(who: str, state: str) -> None:
    """Seen to fail: only the processes of SIPs that were granted looked at, and the state R left out."""
    assert watched(30.0, {**ASLEEP, who: ProcessState(state, 7)}) == []


def test_who_used_the_processor_between_two_looks_has_computed() -> None:
    stall, standing = StallDetector(0.0), sync(sip(0, "running"))
    for second in range(1, 30):
        states = {**ASLEEP, "sip-0": ProcessState("S", 7 + 50 * second)}
        assert stall.check(standing, PIDS, states, float(second)) is None


def test_one_tick_is_no_computing() -> None:
    """The kernel charges a tick to who happens to run: the process that answers our question, for one."""
    stall, standing = StallDetector(0.0), sync(sip(0, "running"))
    told = [stall.check(standing, PIDS, {"sip-0": ProcessState("S", second)}, float(second)) for second in range(1, 5)]
    assert [words is not None for words in told] == [False, False, True, False]


def test_a_stopped_process_is_named() -> None:
    (told,) = watched(9.0, {**ASLEEP, "sip-1": ProcessState("T", 9)}, sync(sip(1, "running")))
    assert "sip-1 (pid 21): its process is stopped" in told


def test_a_broker_that_does_not_answer_is_named() -> None:
    stall = StallDetector(0.0)
    told = [stall.check(None, PIDS, {**ASLEEP, "broker": ProcessState("T", 5)}, second) for second in (1.0, 2.0, 3.0)]
    assert told[:2] == [None, None]
    assert told[2] is not None
    assert "broker (pid 10): its process is stopped\n  the broker has not answered for 3.0 s" in told[2]


def test_it_says_when_things_move_again_and_can_tell_the_next_stall() -> None:
    stall, standing = StallDetector(0.0), sync(sip(0, "running"))
    stall.note_sync(standing, 0.0)
    told = [stall.check(standing, PIDS, ASLEEP, float(second)) is not None for second in range(1, 5)]
    assert told == [False, False, True, False]
    assert stall.note_sync(sync(sip(0, "running"), reports=6), 5.0) == "moves again after 5.0 s"
    told = [stall.check(standing, PIDS, ASLEEP, float(second)) is not None for second in range(6, 10)]
    assert told == [False, False, True, False]
    assert stall.check(standing, PIDS, {**ASLEEP, "sip-0": ProcessState("R", 7)}, 10.0) == "moves again after 5.0 s"


def test_who_was_suspended_itself_knows_nothing_of_a_stall() -> None:
    """Ctrl-Z and fg."""
    stall, standing = StallDetector(0.0), sync(sip(0, "running"))
    assert stall.check(standing, PIDS, ASLEEP, 40.0) is None
    assert stall.check(None, {}, {}, 41.0) is None


def test_a_join_is_a_move() -> None:
    stall = StallDetector(0.0)
    for second in range(1, 10):
        states = sync(*(sip(rank, "joining" if rank >= second else "starting") for rank in range(12)))
        assert stall.note_sync(states, float(second)) is None
        assert stall.check(states, PIDS, ASLEEP, float(second)) is None


def test_never_is_the_last_time() -> None:
    assert "9223372.037 s" in reason(sip(by_ps=MAX_PS))
