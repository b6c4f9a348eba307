"""``backpressure: poll``: a wait ends at the first poll at or after the event, counted from the start of the wait.

The pair and its times are those of ``pair_times``; a poll interval is 10 ns.
"""

import pytest
from hardware import Bench, pair_bench, tcm
from pair_times import RETURN_PS, arrival_ps, recv_i32, send_i32

from sipsim.ipcq.messages import IpcqCreditMetadata
from sipsim.tl.language import TL

POLL_PS = 10_000
HERE_PS = arrival_ps(64)
"""A message that is sent at 0 arrives at 17,550 ps."""


def poll_bench(n_slots: int = 8, interval_ns: float = 10, mode: str = "poll", returned: str = "fast_path") -> Bench:
    return pair_bench(
        {
            "defaults.backpressure": mode,
            "defaults.poll_interval_ns": interval_ns,
            "defaults.n_slots": n_slots,
            "defaults.credit_return_mode": returned,
        }
    )


def later(bench: Bench, cube: int, time_ps: int) -> None:
    if time_ps:
        bench.pause(cube, 0, time_ps)


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("since_ps", "wakeup_ps"),
    [
        (0, 20_000),
        (7_549, 27_549),
        (7_550, 17_550),
        (7_551, 17_551),
        (17_549, 27_549),
        (17_550, 17_550),
        (17_551, 17_551),
        (90_000, 90_000),
    ],
)
def test_a_recv_polls_every_interval(since_ps: int, wakeup_ps: int) -> None:
    """A poll at the time of the arrival sees it, one a picosecond before does not; a recv that starts later sees it at
    once.
    """
    bench = poll_bench()
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))

    def receiver(tl: TL) -> None:
        later(bench, 1, since_ps)
        recv_i32(tl)

    bench.kernel(1, 0, receiver)
    bench.run()
    (received,) = bench.records("ipcq.recv")
    assert (received.start_ps, received.end_ps) == (since_ps, wakeup_ps + RETURN_PS)


@pytest.mark.ideal
@pytest.mark.parametrize(
    ("since_ps", "sent_ps"), [(0, 40_000), (3_349, 43_349), (3_350, 33_350), (3_351, 33_351), (35_800, 35_800)]
)
def test_a_blocked_send_polls_every_interval(since_ps: int, sent_ps: int) -> None:
    """One slot; the message in it was taken on arrival, and its credit came at 33,350 ps."""
    bench = poll_bench(n_slots=1)

    def sender(tl: TL) -> None:
        send_i32(tl, tcm(0, 0))
        later(bench, 0, since_ps)
        send_i32(tl, tcm(0, 0))

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, HERE_PS)
        recv_i32(tl)

    bench.kernel(0, 0, sender)
    bench.kernel(1, 0, receiver)
    bench.run()
    assert HERE_PS + RETURN_PS == 33_350
    assert [r.end_ps for r in bench.records("ipcq.send")] == [0, sent_ps]


@pytest.mark.ideal
def test_a_stale_credit_does_not_shift_the_polls() -> None:
    """Two credits: a stale one, which frees no slot, and one that does; the poll is due at 120,004."""
    bench = poll_bench(n_slots=1)
    sender, base = bench.ipcq(0, 0), bench.queue(1, 0, "W").my_rx_base_pa

    def stale() -> None:
        sender.credit(IpcqCreditMetadata(0, base, 0, 1, 0, "W"))

    def send_two(tl: TL) -> None:
        bench.pause(0, 0, 4)
        send_i32(tl, tcm(0, 0))
        send_i32(tl, tcm(0, 0))

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, 100_000)
        recv_i32(tl)

    bench.engine.at(50_001, stale)
    bench.kernel(0, 0, send_two)
    bench.kernel(1, 0, receiver)
    bench.run()
    assert [r.end_ps for r in bench.records("ipcq.send")] == [4, 120_004], "credit at 115,800"


@pytest.mark.ideal
def test_futures_poll_from_the_time_of_their_post() -> None:
    """The messages arrive at 17,550 and 18,550; one future polls at 20,000, the other at 23,000, in order."""
    bench = poll_bench()
    bench.kernel(0, 0, lambda tl: [send_i32(tl, tcm(0, 0)) for _ in range(2)])

    def receiver(tl: TL) -> None:
        first = tl.recv_async("W", 16, "i32")
        bench.pause(1, 0, 3_000)
        second = tl.recv_async("W", 16, "i32")
        bench.pause(1, 0, 1_111)
        tl.wait(second)
        tl.wait(first)

    bench.kernel(1, 0, receiver)
    bench.run()
    assert [r.end_ps for r in bench.records("ipcq.recv")] == [20_000 + RETURN_PS, 23_000 + RETURN_PS]


@pytest.mark.ideal
def test_a_recv_without_a_direction_polls() -> None:
    """From 2,000 ps on, every 10 ns: at 22,000."""
    bench = poll_bench()
    bench.kernel(0, 0, lambda tl: send_i32(tl, tcm(0, 0)))

    def receiver(tl: TL) -> None:
        bench.pause(1, 0, 2_000)
        tl.recv(shape=16, dtype="i32")

    bench.kernel(1, 0, receiver)
    bench.run()
    assert bench.records("ipcq.recv")[0].end_ps == 22_000 + RETURN_PS


@pytest.mark.ideal
@pytest.mark.parametrize("returned", ["fast_path", "fabric", "piggyback"])
def test_empty_polls_cost_no_events(returned: str) -> None:
    """As many for a wait of a microsecond as for one of a second, and two more than with sleep: the two late polls."""

    def events(mode: str, wait_ps: int) -> int:
        bench = poll_bench(1, 0.7, mode, returned)

        def sender(tl: TL) -> None:
            bench.pause(0, 0, wait_ps)
            send_i32(tl, tcm(0, 0))
            send_i32(tl, tcm(0, 0))

        bench.kernel(0, 0, sender)
        bench.kernel(1, 0, lambda tl: [recv_i32(tl) for _ in range(2)])
        bench.run()
        return bench.engine.events

    asleep, polling = events("sleep", 10**6), events("poll", 10**6)
    assert polling == events("poll", 10**12)
    assert asleep < polling <= asleep + 3


def test_polling_ends_with_the_run() -> None:
    """A recv without a message: the event queue becomes empty, so a deadlock is detected."""
    bench = poll_bench()
    bench.kernel(1, 0, lambda tl: [recv_i32(tl)])
    bench.run()
    assert bench.engine.events == 1
    assert bench.sip.waiting() == 1
