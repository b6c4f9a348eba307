"""The broker's decision, fact by fact. Whole runs are in ``test_timesync_property``."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.timesync import Bound, ProtocolError, Quiet, TimeSync, least
from broker.wire import MAX_PS, Channel, Grant, Report, decode_for_sip, encode

NOTHING: tuple[()] = ()


def report(next_ps=None, held_ps=None, sent=NOTHING, taken=NOTHING, waiting=0, promise_ps=None, now_ps=0) -> Report:
    return Report(now_ps, next_ps, held_ps, sent, taken, waiting, promise_ps)


def pair(there_ps: int = 10, back_ps: int | None = 10) -> TimeSync:
    """SIP 0 reaches 1 in ``there_ps``, SIP 1 reaches 0 in ``back_ps``."""
    back = [] if back_ps is None else [Channel(1, 0, back_ps, "back")]
    return TimeSync(2, [Channel(0, 1, there_ps, "there"), *back])


def test_nobody_is_granted_before_every_first_report() -> None:
    sync = TimeSync(3, [Channel(0, 1, 10, "a"), Channel(1, 2, 10, "b")])
    assert sync.report(0, report(next_ps=0)) == []
    assert sync.report(2, report(next_ps=5)) == []
    assert sync.report(1, report()) == [(0, Grant(None, ())), (2, Grant(20, ()))]


def test_an_idle_stretch_is_jumped_in_one_grant() -> None:
    sync = pair()
    sync.report(0, report(next_ps=1_000_000))
    assert sync.report(1, report()) == [(0, Grant(1_000_020, ()))]


def test_silent_when_next_equals_the_horizon() -> None:
    sync = pair(there_ps=3, back_ps=5)
    sync.report(0, report(next_ps=100))
    assert sync.report(1, report(next_ps=95)) == [(1, Grant(103, ()))]
    assert not sync.is_running(0)
    assert sync.horizon_ps(0) == 100 == sync.acts_ps(0)
    assert sync.report(1, report(next_ps=96)) == [(0, Grant(101, ())), (1, Grant(103, ()))]


def test_no_barrier_and_a_running_sip_stands_where_it_was_granted() -> None:
    sync = pair()
    sync.report(0, report(next_ps=0))
    assert sync.report(1, report(next_ps=7)) == [(0, Grant(17, ())), (1, Grant(10, ()))]
    assert sync.report(1, report(next_ps=12)) == [], "SIP 0 still stands at 0"
    assert sync.report(0, report(next_ps=40)) == [(1, Grant(32, ()))]


def test_channels_one_way_leave_the_source_free() -> None:
    sync = pair(back_ps=None)
    sync.report(1, report(next_ps=3))
    assert sync.report(0, report(next_ps=2)) == [(0, Grant(None, ())), (1, Grant(12, ()))]
    assert sync.horizon_ps(0) is None
    assert sync.bound(0) is None


def test_a_grant_says_what_must_have_been_taken() -> None:
    sync = pair()
    sync.report(0, report(next_ps=0))
    sync.report(1, report(next_ps=100))
    assert sync.report(0, report(sent=((1, 3, 25),))) == [(1, Grant(45, ((0, 3),)))]
    assert sync.report(1, report(next_ps=100, held_ps=60, taken=((0, 3),))) == [(1, Grant(80, ()))]


def test_every_least_arrival_is_kept_until_the_count_covers_it() -> None:
    sync = pair(back_ps=None)
    sync.report(1, report())
    sync.report(0, report(next_ps=0))
    sync.report(0, report(next_ps=10, sent=((1, 2, 50),)))
    assert sync.acts_ps(1) == 50
    sync.report(0, report(next_ps=20, sent=((1, 5, 90),)))
    assert sync.acts_ps(1) == 50
    assert sync.report(0, report(next_ps=200, sent=((1, 6, 70),))) == [(0, Grant(None, ())), (1, Grant(210, ((0, 6),)))]
    assert sync.report(1, report(held_ps=90, taken=((0, 4),))) == [(1, Grant(210, ((0, 6),)))]
    assert sync.acts_ps(1) == 70


def test_packets_may_be_taken_before_they_are_told_of() -> None:
    sync = pair()
    sync.report(0, report(next_ps=0))
    sync.report(1, report(next_ps=1))
    sync.report(1, report(next_ps=60, held_ps=30, taken=((0, 2),)))
    assert sync.report(0, report(sent=((1, 2, 30),))) == [(1, Grant(50, ()))]
    assert sync.acts_ps(1) == 30


def test_packets_in_flight_bound_the_others_even_when_their_receiver_runs() -> None:
    sync = TimeSync(3, [Channel(0, 1, 10, "a"), Channel(1, 2, 10, "b")])
    sync.report(0, report(next_ps=0))
    sync.report(2, report(next_ps=60))
    assert sync.report(1, report(next_ps=1, promise_ps=500)) == [
        (0, Grant(None, ())),
        (1, Grant(10, ())),
    ], "SIP 2 is bounded by 0, by way of 1"
    assert sync.report(0, report(next_ps=300, sent=((1, 1, 45),))) == [(0, Grant(None, ()))]
    assert sync.is_running(1)
    assert sync.bound(2) == Bound(1, 45, 10, ["b"])


def test_quiet_tells_who_waits() -> None:
    sync = pair()
    sync.report(0, report(waiting=2))
    assert sync.report(1, report()) == Quiet((2, 0))


def test_not_quiet_while_something_is_in_flight_or_somebody_runs() -> None:
    sync = pair()
    sync.report(0, report(next_ps=0))
    assert sync.report(1, report()) == [(0, Grant(20, ()))]
    assert sync.report(0, report(sent=((1, 1, 15),))) == [(1, Grant(35, ((0, 1),)))]
    assert sync.report(1, report(taken=((0, 1),))) == Quiet((0, 0))


def test_one_is_idle_while_the_other_runs_is_not_quiet() -> None:
    sync = pair(there_ps=10, back_ps=10)
    sync.report(0, report(next_ps=0))
    assert sync.report(1, report(next_ps=5)) == [(0, Grant(15, ())), (1, Grant(10, ()))]
    assert sync.report(0, report()) == []
    assert sync.report(1, report()) == Quiet((0, 0))


# --- promises -------------------------------------------------------------------------------------------------


def test_a_promise_frees_the_others_but_not_the_end() -> None:
    sync = pair()
    sync.report(0, report(next_ps=5, promise_ps=1000))
    assert sync.report(1, report(next_ps=400)) == [(0, Grant(410, ())), (1, Grant(420, ()))]
    assert sync.report(1, report()) == []
    assert sync.is_running(0)


def test_held_and_in_flight_packets_lower_a_promise() -> None:
    sync = pair(back_ps=None)
    sync.report(1, report(next_ps=900))
    sync.report(0, report(next_ps=5, held_ps=40, promise_ps=1000))
    assert sync.horizon_ps(1) == 50

    sync = TimeSync(3, [Channel(0, 1, 10, "a"), Channel(1, 2, 10, "b")])
    sync.report(1, report(promise_ps=1000, next_ps=700))
    sync.report(2, report(next_ps=800))
    sync.report(0, report(next_ps=0, sent=((1, 1, 60),)))
    assert sync.bound(2) == Bound(0, 0, 20, ["a", "b"])
    sync.report(0, report(next_ps=500))
    assert sync.bound(2) == Bound(1, 60, 10, ["b"])


def test_a_promise_ends_with_the_report_that_made_it() -> None:
    sync = pair(back_ps=None)
    sync.report(1, report(next_ps=900))
    sync.report(0, report(next_ps=5, promise_ps=1000))
    assert sync.horizon_ps(1) == 1010
    sync.report(0, report(next_ps=30))
    assert sync.horizon_ps(1) == 40


def test_a_promise_weaker_than_the_next_event_holds_nobody_back() -> None:
    sync = pair()
    sync.report(0, report(next_ps=100, promise_ps=0))
    assert sync.report(1, report(next_ps=100, promise_ps=3)) == [(0, Grant(110, ())), (1, Grant(110, ()))]


def test_a_promise_of_an_idle_sip_holds_nobody_back() -> None:
    sync = pair()
    sync.report(0, report(next_ps=100))
    assert sync.report(1, report(promise_ps=3)) == [(0, Grant(120, ()))]


def test_a_horizon_after_the_last_time_is_no_horizon() -> None:
    sync = pair()
    sync.report(0, report(next_ps=MAX_PS, promise_ps=MAX_PS))
    ((rank, grant),) = sync.report(1, report())
    assert (rank, grant) == (0, Grant(None, ()))
    assert decode_for_sip(encode(grant)) == grant


# --- reports that cannot be true ------------------------------------------------------------------------------


def test_a_second_report_without_a_grant_is_refused_with_the_last_facts() -> None:
    sync = pair()
    sync.report(0, report(next_ps=77))
    with pytest.raises(ProtocolError, match=r"SIP 0 reported without a grant.*next_ps=77"):
        sync.report(0, report(next_ps=78))


@pytest.mark.parametrize("count", [1, 2])
def test_counts_of_sent_packets_only_grow(count: int) -> None:
    sync = pair()
    sync.report(1, report())
    sync.report(0, report(next_ps=0, sent=((1, 2, 10),)))
    with pytest.raises(ProtocolError, match=f"SIP 0 counts {count} packets to 1 after 2"):
        sync.report(0, report(sent=((1, count, 30),)))


def test_counts_of_taken_packets_never_shrink() -> None:
    sync = pair()
    sync.report(0, report(next_ps=900))
    sync.report(1, report(next_ps=0, taken=((0, 2),)))
    with pytest.raises(ProtocolError, match="SIP 1 took 1 packets of 0 after 2"):
        sync.report(1, report(taken=((0, 1),)))


@pytest.mark.parametrize(
    ("rank", "wrong"),
    [(2, report()), (-2, report()), (0, report(sent=((2, 1, 5),))), (0, report(taken=((4095, 1),)))],
)
def test_strangers_are_refused(rank: int, wrong: Report) -> None:
    with pytest.raises(ProtocolError, match=r"SIPs are 0 to 1"):
        pair().report(rank, wrong)


# --- what it tells --------------------------------------------------------------------------------------------


def test_the_bound_names_the_sip_and_the_chain() -> None:
    sync = TimeSync(3, [Channel(0, 1, 10, "a"), Channel(1, 2, 10, "b"), Channel(0, 2, 40, "long")])
    for rank, next_ps in enumerate((5, 30, 100)):
        sync.report(rank, report(next_ps=next_ps))
    assert sync.bound(2) == Bound(0, 5, 20, ["a", "b"])
    assert sync.bound(1) == Bound(0, 5, 10, ["a"])
    assert sync.horizon_ps(2) == 25


def test_totals() -> None:
    sync = pair(back_ps=None)
    sync.report(0, report(next_ps=4))
    sync.report(1, report(next_ps=6))
    assert (sync.reports, sync.grants, sync.windows, sync.window_ps_sum) == (2, 2, 1, 8)


@given(st.lists(st.none() | st.integers(0, 10)))
def test_least_takes_none_as_never(times: list[int | None]) -> None:
    known = sorted(t for t in times if t is not None)
    assert least(*times) == (known[0] if known else None)
