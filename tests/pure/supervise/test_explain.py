"""The state of synchronisation as text: statistics of waits, the table, and stalls."""

import re

import pytest

from broker.channels import DelayMatrix
from broker.ids import MAX_PS, Channel
from broker.sync.timesync import TimeSync, WaitStats
from broker.wire import Report, SipSync, Sync
from launcher.processes.this_host import ProcessState
from launcher.report.sync_state import explanation, reason
from launcher.supervise.stall import STALL_AFTER_S, Watchdog

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


# --- statistics -----------------------------------------------------------------------------------------------


def test_a_wait_is_charged_to_its_cause_at_the_time_and_to_every_channel_of_the_chain() -> None:
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
        (sip(state="joining"), "its process to join"),
        (sip(state="starting"), "its host script to reach the first wait"),
        (sip(state="running"), "nothing: it runs"),
        (
            sip(state="running", lacks=((1, 3), (4, 1))),
            "nothing, or 3 packets of SIP 1 in flight and 1 packets of SIP 4 in flight",
        ),
        (sip(state="idle"), "something to arrive: the SIP has no event"),
        (
            sip(state="idle", waiting=2),
            "something to arrive: the SIP has no event; 2 kernels and scripts of the SIP wait",
        ),
        (sip(), "SIP 1, which may send at 1.500 ns; 500 ps by 1.W>0.E"),
        (
            sip(by=0, chain=("0.E>1.W", "1.W>0.E")),
            "itself, which may send at 1.500 ns; 500 ps by 0.E>1.W, 1.W>0.E",
        ),
        (sip(by=None), "a grant that is in flight"),
    ],
)
def test_what_a_sip_waits_for(standing: SipSync, said: str) -> None:
    assert reason(standing) == said


def test_the_table_has_a_line_a_sip_times_and_the_costliest_channels() -> None:
    text = explanation(sync(sip(0), sip(1, "idle", next_ps=None, horizon_ps=None), channels=(("c", 2_500_000_000),)))
    lines = text.splitlines()
    assert lines[0] == "synchronisation (running; 5 reports, 4 grants):"
    assert re.fullmatch(r"  0 +waiting  1\.500 s  1\.000 ns  2\.000 ns +2\.000 ns +SIP 1, .*", lines[2])
    assert re.fullmatch(r"  1 +idle .*never +never +something to arrive: .*", lines[3])
    assert lines[6].split() == ["0", "0.001", "s", "0.003", "s", "0.002", "s"]
    assert lines[-1] == "  c  2.500 s"
    assert not any(line != line.rstrip() for line in lines)


def test_no_table_of_channels_without_waits() -> None:
    assert "channels" not in explanation(sync(sip(0)))


# --- stalls ---------------------------------------------------------------------------------------------------


def asleep(cpu_s: float) -> ProcessState:
    return ProcessState("sleeping", cpu_s)


PIDS: dict[int | None, int] = {None: 10, 0: 20, 1: 21}
ASLEEP: dict[int | None, ProcessState] = {None: asleep(0.05), 0: asleep(0.07), 1: asleep(0.09)}


def watchdog_of(standing: Sync | None, pids: dict[int | None, int] = PIDS) -> Watchdog:
    """It begins at 0 s; the broker has answered once, unless ``standing`` is None."""
    made = Watchdog(0.0)
    for rank, pid in pids.items():
        made.started(rank, pid, is_local=True)
    if standing is not None:
        made.note_sync(standing, 0.0)
    return made


def watched(until_s: float, states: dict[int | None, ProcessState] = ASLEEP, standing: Sync | None = None) -> list[str]:
    """All warnings when states and answers arrive once a second and never change."""
    standing = standing or sync(sip(0, "running"), sip(1, by=0))
    stall, warnings, now_s = watchdog_of(None), [], 0.0
    while now_s < until_s:
        now_s += 1.0
        warnings += [stall.note_sync(standing, now_s), stall.warning(states, now_s)]
    return [warning for warning in warnings if warning is not None]


def test_a_stall_is_reported_once_with_the_sip_that_should_move() -> None:
    (warning,) = watched(30.0)
    assert warning.startswith("stalled: nothing has moved for 3.0 s, and no process of the run computes\n")
    assert "SIP 0 has been running for 1.5 s: nothing: it runs; its process (pid 20) sleeps" in warning
    assert "SIP 0, which may send" in warning, "the table is there"


def test_not_before_its_time() -> None:
    assert watched(STALL_AFTER_S) == []


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("status", ["running", "disk-sleep"])
def test_a_process_that_runs_or_waits_for_a_disk_is_no_stall(rank: int, status: str) -> None:
    assert watched(30.0, {**ASLEEP, rank: ProcessState(status, 0.07)}) == []


def test_cpu_time_between_two_samples_is_computing() -> None:
    stall = watchdog_of(sync(sip(0, "running")))
    for second in range(1, 30):
        states = {**ASLEEP, 0: asleep(0.07 + 0.5 * second)}
        assert stall.warning(states, float(second)) is None


def test_one_tick_is_no_computing() -> None:
    stall = watchdog_of(sync(sip(0, "running")))
    states = [{0: asleep(0.01 * second)} for second in range(1, 5)]
    warnings = [stall.warning(each, float(second)) for second, each in enumerate(states, 1)]
    assert [warning is not None for warning in warnings] == [False, False, True, False]


def test_a_stopped_process_is_named() -> None:
    (warning,) = watched(9.0, {**ASLEEP, 1: ProcessState("stopped", 0.09)}, sync(sip(1, "running")))
    assert "sip-1 (pid 21): its process is stopped" in warning


def test_a_broker_that_does_not_answer_is_named() -> None:
    stall = watchdog_of(None)
    states = {**ASLEEP, None: ProcessState("stopped", 0.05)}
    warnings = [stall.warning(states, second) for second in (1.0, 2.0, 3.0)]
    assert warnings[:2] == [None, None]
    assert warnings[2] is not None
    assert "broker (pid 10): its process is stopped\n  the broker has not answered for 3.0 s" in warnings[2]


def test_a_host_that_is_silent_is_named_first() -> None:
    """What its processes do is not known, so the warning does not say that none computes."""
    stall = watchdog_of(sync(sip(0, "running")))
    warnings = [stall.warning(ASLEEP, second, {"b": second - 1.0}) for second in (1.0, 2.0, 3.0)]
    assert warnings[:2] == [None, None]
    first, second, *_ = (warnings[2] or "").splitlines()
    assert first == "stalled: nothing has moved for 3.0 s, and no process on the hosts that answer computes"
    assert second == "  host b: its agent has been silent for 2.0 s"


def test_the_end_of_a_stall_is_reported_and_so_is_the_next_one() -> None:
    stall = watchdog_of(sync(sip(0, "running")))
    warnings = [stall.warning(ASLEEP, float(second)) is not None for second in range(1, 5)]
    assert warnings == [False, False, True, False]
    assert stall.note_sync(sync(sip(0, "running"), reports=6), 5.0) == "moves again after 5.0 s"
    warnings = [stall.warning(ASLEEP, float(second)) is not None for second in range(6, 10)]
    assert warnings == [False, False, True, False]
    states = {**ASLEEP, 0: ProcessState("running", 0.07)}
    assert stall.warning(states, 10.0) == "moves again after 5.0 s"


def test_a_broker_that_computes_its_answers_is_no_progress() -> None:
    """All the others sleep, and the broker's state is the same each time."""
    standing = sync(sip(0, "joining"))
    stall = watchdog_of(standing)
    warnings = []
    for second in range(1, 30):
        assert stall.note_sync(standing, float(second)) is None
        states = {**ASLEEP, None: ProcessState("running", 0.05 * second)}
        warnings.append(stall.warning(states, second + 0.5))
    (warning,) = filter(None, warnings)
    assert warning.startswith("stalled: nothing has moved for ")


def test_a_broker_that_computes_and_does_not_answer_is_no_stall() -> None:
    stall = watchdog_of(None)
    stall.note_sync(sync(sip(0, "running")), 0.5)
    for second in range(1, 30):
        states = {**ASLEEP, None: ProcessState("running", 0.05 * second)}
        assert stall.warning(states, float(second)) is None


def test_after_a_suspension_of_the_launcher_there_is_no_stall() -> None:
    """Ctrl-Z and fg."""
    stall = watchdog_of(sync(sip(0, "running")))
    assert stall.warning(ASLEEP, 40.0) is None
    assert stall.warning({}, 41.0) is None


@pytest.mark.parametrize("state", ["joining", "starting", "running"])
def test_one_that_a_person_starts_may_be_typed_or_compute(state: str) -> None:
    """No host tells anything of its process, so nobody can say that it does not move."""
    for known in ({}, {0: 20}):
        standing = sync(sip(0, state), sip(1, state))
        stall = watchdog_of(standing, {None: 10, **known})
        for second in range(1, 30):
            assert stall.note_sync(standing, float(second)) is None
            assert stall.warning(ASLEEP, float(second)) is None


def test_a_join_is_progress() -> None:
    stall = watchdog_of(None)
    for second in range(1, 10):
        states = sync(*(sip(rank, "joining" if rank >= second else "starting") for rank in range(12)))
        assert stall.note_sync(states, float(second)) is None
        assert stall.warning(ASLEEP, float(second)) is None


def test_never_is_the_last_time() -> None:
    assert "9223372.037 s" in reason(sip(by_ps=MAX_PS))
