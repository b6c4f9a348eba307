"""A wake-up and a poll cost PE_CPU; a poll loop that backs off beats sleep for short waits and loses for long ones.

The pair and its times are those of ``pair_times``.
"""

from itertools import pairwise

import pytest
from hardware import Bench, pair_bench, tcm
from hypothesis import given
from hypothesis import strategies as st
from pair_times import RETURN_PS, arrival_ps, recv_i32, send_i32

from sipsim.ipcq.backpressure import Backpressure
from sipsim.tl.language import TL

WAKE_NS, LOOK_NS, FIRST_NS, MOST_NS = 30, 5, 10, 80
HERE_PS = arrival_ps(64)


def looks_ps(first_ps: int, most_ps: int, until_ps: int) -> list[int]:
    """The looks of a loop that doubles its pause, one after the other."""
    at_ps, pause_ps, found = 0, first_ps, [0]
    while at_ps < until_ps:
        at_ps += pause_ps
        found.append(at_ps)
        pause_ps = min(2 * pause_ps, max(most_ps, first_ps))
    return found


@given(
    st.integers(1, 2_000),
    st.integers(0, 40_000),
    st.integers(0, 2_000),
    st.integers(0, 10**9),
    st.integers(1, 300_000),
)
def test_a_computed_look_is_that_of_the_loop(first: int, most: int, look: int, since: int, wait: int) -> None:
    pressure = Backpressure(first, most, look)
    pause_ps = max(first, look)
    expected = next(each for each in looks_ps(pause_ps, most, wait) if each >= wait)
    assert pressure.seen_ps(since, since + wait) == since + expected + look
    assert pressure.seen_ps(since, since) == pressure.seen_ps(since, since - 1) == since


@given(st.integers(1, 50), st.integers(0, 400), st.integers(0, 50), st.integers(0, 100))
def test_the_crossing_is_where_the_mean_delay_passes_a_wake_up(first: int, most: int, look: int, wake: int) -> None:
    """For each interval between two looks, the mean over all times in it, doubled to stay whole."""
    pressure = Backpressure(first, most, look)
    crossing = pressure.crossing_ps(wake)
    looks = looks_ps(max(first, look), most, 4 * max(most, first, look) + 4)
    for start, stop in pairwise(looks):
        mean_of_two = (stop - start) + 2 * look
        is_slower = mean_of_two >= 2 * wake
        assert is_slower == (crossing is not None and start >= crossing)


def test_the_crossing_of_the_proposed_values() -> None:
    """Looks at 0, 10, 30, 70, 150 and then every 80 ns; 80 is the first interval of at least 2 * (30 - 5) ns."""
    pressure = Backpressure(FIRST_NS, MOST_NS, LOOK_NS)
    assert pressure.crossing_ps(WAKE_NS) == 70
    assert pressure.crossing_ps(LOOK_NS) == 0, "a wake-up as short as a look"
    assert pressure.crossing_ps(10**6) is None, "no interval is as long"
    assert Backpressure(FIRST_NS, 0, LOOK_NS).crossing_ps(WAKE_NS) is None, "a loop that does not back off"


def costly(mode: str, n_slots: int = 8) -> Bench:
    return pair_bench(
        {
            "defaults.n_slots": n_slots,
            "defaults.backpressure": mode,
            "defaults.poll_interval_ns": FIRST_NS,
            "defaults.poll_interval_max_ns": MOST_NS,
            "pe_cpu.wakeup_ns": WAKE_NS,
            "pe_cpu.poll_ns": LOOK_NS,
        }
    )


def seen_after_ps(mode: str, wait_ps: int) -> int:
    """How long after its message's arrival a recv that has waited for ``wait_ps`` goes on."""
    bench = costly(mode)
    bench.kernel(1, 0, lambda tl: [recv_i32(tl)])

    def sender(tl: TL) -> None:
        if wait_ps > HERE_PS:
            bench.pause(0, 0, wait_ps - HERE_PS)
        send_i32(tl, tcm(0, 0))

    bench.kernel(0, 0, sender)
    bench.run()
    return bench.records("ipcq.recv")[0].end_ps - RETURN_PS - max(wait_ps, HERE_PS)


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("wait_ps", "seen_at_ps"),
    [(HERE_PS, 30_000), (30_000, 30_000), (30_001, 70_000), (70_001, 150_000), (150_001, 230_000), (10**6, 1_030_000)],
)
def test_waits_of_a_machine(wait_ps: int, seen_at_ps: int) -> None:
    assert seen_after_ps("poll", wait_ps) == seen_at_ps - wait_ps + 5_000
    assert seen_after_ps("sleep", wait_ps) == 30_000


@pytest.mark.ideal
def test_poll_wins_short_waits_and_loses_long_ones() -> None:
    """The mean over waits that are spread over an interval: 70 ns is the crossing."""

    def mean_ps(start_ns: int, stop_ns: int) -> float:
        waits = range(start_ns * 1000 + 1, stop_ns * 1000, 2_000)
        return sum(seen_after_ps("poll", wait) for wait in waits) / len(waits)

    assert mean_ps(30, 70) == pytest.approx(40_000 / 2 + 5_000, abs=1_000)
    assert mean_ps(70, 150) == pytest.approx(80_000 / 2 + 5_000, abs=1_000)
    assert mean_ps(30, 70) < seen_after_ps("sleep", 50_000) < mean_ps(70, 150)


@pytest.mark.ideal
@pytest.mark.parametrize("mode", ["sleep", "poll"])
def test_a_message_that_is_there_costs_nothing_to_see(mode: str) -> None:
    bench = costly(mode)
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, HERE_PS)
        recv_i32(tl)

    bench.kernel(1, 0, receiver)
    bench.run()
    assert bench.records("ipcq.recv")[0].end_ps == HERE_PS + RETURN_PS


@pytest.mark.ideal
@pytest.mark.parametrize(("mode", "late_ps"), [("sleep", 30_000), ("poll", None)])
def test_a_blocked_send_sees_its_credit_later(mode: str, late_ps: int | None) -> None:
    """One slot; its message is taken at once, as the receiver is late. The credit is back at 100,000 + 15,800."""
    bench = costly(mode, n_slots=1)
    put_at: list[int] = []

    def sender(tl: TL) -> None:
        send_i32(tl, tcm(0, 0))
        send_i32(tl, tcm(0, 0))
        put_at.append(bench.engine.now_ps)

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, 100_000)
        recv_i32(tl)

    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, receiver)
    bench.run()
    event_ps = 100_000 + RETURN_PS
    seen_ps = event_ps + late_ps if late_ps is not None else 150_000 + 5_000
    assert put_at == [seen_ps]


@pytest.mark.ideal
def test_a_posted_receive_needs_no_core() -> None:
    """A future whose kernel does not wait is served at once by PE_IPCQ; one that is waited for wakes its kernel."""
    bench = costly("sleep")
    bench.kernel(0, 0, lambda tl: [send_i32(tl, tcm(0, 0)) for _ in range(2)])

    def receiver(tl: TL) -> None:
        futures = [tl.recv_async("W", 16, "i32") for _ in range(2)]
        bench.pause(1, 0, HERE_PS + 500)
        for each in futures:
            tl.wait(each)

    bench.kernel(1, 0, receiver)
    bench.run()
    ends = [HERE_PS + RETURN_PS, HERE_PS + 1_000 + RETURN_PS]
    assert [each.end_ps for each in bench.records("ipcq.recv")] == ends
