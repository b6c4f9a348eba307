"""A wait that sleeps is woken by PE_CPU; one that polls ends at the first poll at or after the event, counted from the
start of the wait. A poll loop that backs off beats sleep for short waits and loses for long ones.

The pair and its times are those of ``pair_times``; a poll interval is 10 ns.
"""

from itertools import pairwise

import pytest
from hardware import Bench, pair_bench, tcm
from hypothesis import given
from hypothesis import strategies as st
from pair_times import RETURN_PS, arrival_ps, queue_bench, recv_i32, run_pair, send_i32
from wire_packets import credit

from sipsim.chips.ahbm.ipcq.backpressure import Backpressure
from sipsim.chips.ahbm.tl.language import TL

HERE_PS = arrival_ps(64)
"""A message that is sent at 0 arrives at 17,550 ps."""
POLL = {"defaults.backpressure": "poll", "defaults.poll_interval_ns": 10}
COSTS = {"defaults.poll_interval_max_ns": 80, "pe_cpu.wakeup_ns": 30, "pe_cpu.poll_ns": 5}
COSTLY_POLL, SLEEP = {**POLL, **COSTS}, {**COSTS, "defaults.backpressure": "sleep"}


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


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("settings", "sent_ps", "since_ps", "seen_ps"),
    [
        # A poll at the time of the arrival sees it, one a picosecond before does not.
        (POLL, 0, 0, 20_000),
        (POLL, 0, 7_549, 27_549),
        (POLL, 0, 7_550, 17_550),
        (POLL, 0, 7_551, 17_551),
        # Looks at 10, 30, 70, 150 ns and then every 80.
        (COSTLY_POLL, 30_000 - HERE_PS, 0, 30_000 + 5_000),
        (COSTLY_POLL, 70_001 - HERE_PS, 0, 150_000 + 5_000),
        (COSTLY_POLL, 10**6 - HERE_PS, 0, 1_030_000 + 5_000),
        (SLEEP, 10**6 - HERE_PS, 0, 10**6 + 30_000),
        # What is there costs nothing to see.
        (POLL, 0, HERE_PS, HERE_PS),
        (COSTLY_POLL, 0, HERE_PS, HERE_PS),
        (SLEEP, 0, HERE_PS + 1, HERE_PS + 1),
    ],
)
@pytest.mark.parametrize("direction", ["W", None])
def test_a_recv_polls_every_interval(
    settings: dict[str, object], sent_ps: int, since_ps: int, seen_ps: int, direction: str | None
) -> None:
    bench = pair_bench(settings)

    def sender(tl: TL) -> None:
        if sent_ps:
            bench.pause(0, 0, sent_ps)
        send_i32(tl, tcm(0, 0))

    run_pair(bench, sender, lambda tl: tl.recv(direction, 16, "i32"), since_ps)
    (received,) = bench.records("ipcq.recv")
    assert (received.start_ps, received.end_ps) == (since_ps, seen_ps + RETURN_PS)


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("settings", "since_ps", "sent_ps"),
    [
        (POLL, 0, 120_000),
        (POLL, 5_799, 125_799),
        (POLL, 5_800, 115_800),
        (POLL, 116_000, 116_000),
        (COSTLY_POLL, 0, 150_000 + 5_000),
        (SLEEP, 0, 115_800 + 30_000),
    ],
)
def test_a_blocked_send_polls_every_interval(settings: dict[str, object], since_ps: int, sent_ps: int) -> None:
    """One slot; its message is taken at 100,000 ps, and its credit is back at 115,800."""
    bench, sent = pair_bench({**settings, "defaults.n_slots": 1}), list[int]()

    def sender(tl: TL) -> None:
        send_i32(tl, tcm(0, 0))
        if since_ps:
            bench.pause(0, 0, since_ps)
        send_i32(tl, tcm(0, 0))
        sent.append(bench.engine.now_ps)

    run_pair(bench, sender, recv_i32, 100_000)
    assert sent == [sent_ps]


def two_sends(tl: TL, bench: Bench, pause_ps: int) -> None:
    bench.pause(0, 0, pause_ps)
    send_i32(tl, tcm(0, 0))
    send_i32(tl, tcm(0, 0))


@pytest.mark.ideal
def test_a_stale_credit_does_not_shift_the_polls() -> None:
    """Two credits: a stale one, which frees no slot, and one that does; the poll is due at 120,004."""
    bench = pair_bench({**POLL, "defaults.n_slots": 1})
    sender, base = bench.ipcq(0, 0), bench.queue(1, 0, "W").my_rx_base_pa
    bench.engine.at(50_001, lambda: sender.credit(credit(0, base, (0, 1, 0), "W")))
    run_pair(bench, lambda tl: two_sends(tl, bench, 4), recv_i32, 100_000)
    assert bench.ends("ipcq.send") == [4, 120_004], "credit at 115,800"


@pytest.mark.ideal
def test_futures_poll_from_the_time_of_their_post() -> None:
    """The messages arrive at 17,550 and 18,550; one future polls at 20,000, the other at 23,000, in order. Where waits
    sleep, a posted receive needs no core: PE_IPCQ serves it at once.
    """

    def ends(settings: dict[str, object]) -> list[int]:
        bench = pair_bench(settings)

        def receiver(tl: TL) -> None:
            first = tl.recv_async("W", 16, "i32")
            bench.pause(1, 0, 3_000)
            second = tl.recv_async("W", 16, "i32")
            bench.pause(1, 0, 20_000)
            tl.wait(second)
            tl.wait(first)

        return run_pair(bench, 2, receiver).ends("ipcq.recv")

    assert ends(POLL) == [20_000 + RETURN_PS, 23_000 + RETURN_PS]
    assert ends(SLEEP) == [HERE_PS + RETURN_PS, HERE_PS + 1_000 + RETURN_PS]


@pytest.mark.ideal
@pytest.mark.parametrize("returned", ["fast_path", "fabric", "piggyback"])
def test_empty_polls_cost_no_events(returned: str) -> None:
    """As many for a wait of a microsecond as for one of a second, and two more than with sleep: the two late polls."""

    def events(mode: str, wait_ps: int) -> int:
        bench = queue_bench(n_slots=1, backpressure=mode, poll_interval_ns=0.7, credit_return_mode=returned)
        run_pair(bench, lambda tl: two_sends(tl, bench, wait_ps), lambda tl: [recv_i32(tl) for _ in range(2)])
        return bench.engine.events

    asleep, polling = events("sleep", 10**6), events("poll", 10**6)
    assert polling == events("poll", 10**12)
    assert asleep < polling <= asleep + 3


def test_polling_ends_with_the_run() -> None:
    """A recv without a message: the event queue becomes empty, so a deadlock is detected."""
    bench = pair_bench(POLL)
    bench.kernel(1, 0, recv_i32)
    bench.run()
    assert bench.engine.events == 1
    assert bench.sip.waiting() == 1
