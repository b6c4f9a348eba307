"""The engine around SimPy's queue: horizons, order at equal times, and why ``env.run(until=...)`` is not used."""

import itertools
from collections.abc import Iterator

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sipsim.core.engine import AFTER, ARRIVAL, LOCAL, Engine


def engine_with(*times_ps: int) -> tuple[Engine, list[int]]:
    engine, seen = Engine(), []
    for time_ps in times_ps:
        engine.at(time_ps, lambda t=time_ps: seen.append(t))
    return engine, seen


@pytest.mark.skipif(not simpy.__version__.startswith("4.1.2"), reason="the trap is SimPy 4.1.2's")
def test_simpy_run_until_leaves_its_stop_event() -> None:
    """``run(until=t)`` leaves its stop event in the queue, so ``peek`` returns t although no event is due."""
    env = simpy.Environment()
    env.timeout(3)
    env.run(until=10)
    assert env.peek() == 10
    assert env.now == 10


def test_run_before_leaves_no_stop_event() -> None:
    engine, seen = engine_with(3, 20)
    assert engine.run_before(10, 100)
    assert seen == [3]
    assert engine.next_ps() == 20
    assert engine.now_ps == 3, "the clock stands at the last event, not at the horizon"


@given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 35), min_size=1))
def test_never_an_event_at_or_after_the_horizon(times_ps: list[int], horizons_ps: list[int]) -> None:
    engine, seen = engine_with(*times_ps)
    for horizon_ps in itertools.accumulate(horizons_ps, max):
        assert engine.run_before(horizon_ps, 1000)
        assert seen == sorted(t for t in times_ps if t < horizon_ps)
        assert engine.next_ps() == min((t for t in times_ps if t >= horizon_ps), default=None)


def test_without_a_horizon_all_events_are_run() -> None:
    engine, seen = engine_with(5, 10**15, 7)
    assert engine.run_before(None, 100)
    assert seen == [5, 7, 10**15]
    assert engine.next_ps() is None
    assert engine.run_before(None, 100), "an empty queue has got there"


def test_it_stops_after_most_events() -> None:
    engine, seen = engine_with(1, 2, 3, 4)
    assert not engine.run_before(10, 2)
    assert seen == [1, 2]
    assert engine.run_before(4, 1), "three is the last before the horizon"
    assert not engine.run_before(5, 0)
    assert engine.run_before(5, 1)
    assert engine.events == 4


def test_events_that_events_make_belong_to_the_same_window() -> None:
    engine, seen = Engine(), []

    def chain() -> None:
        seen.append(engine.now_ps)
        engine.at(engine.now_ps + 4, chain)

    engine.at(0, chain)
    assert engine.run_before(9, 100)
    assert seen == [0, 4, 8]
    assert engine.next_ps() == 12


def test_an_arrival_comes_before_all_local_events_of_its_time() -> None:
    engine, seen = Engine(), []
    engine.at(5, lambda: seen.append("local"), LOCAL)
    engine.env.timeout(5).callbacks.append(lambda _: seen.append("simpy's own"))
    urgent = simpy.events.Event(engine.env)
    urgent.callbacks.append(lambda _: seen.append("urgent"))
    urgent._ok, urgent._value = True, None
    engine.env.schedule(urgent, simpy.events.URGENT, 5)
    engine.at(5, lambda: seen.append("arrival"), ARRIVAL)
    engine.at(5, lambda: seen.append("second arrival"), ARRIVAL)
    engine.at(4, lambda: seen.append("earlier"))
    engine.run_before(6, 100)
    assert seen[:4] == ["earlier", "arrival", "second arrival", "urgent"]
    assert sorted(seen[4:]) == ["local", "simpy's own"]


def test_local_events_of_one_time_come_in_the_order_of_their_making() -> None:
    engine, seen = Engine(), []

    def first() -> None:
        seen.append("first")
        engine.at(5, lambda: seen.append("made at five"))

    engine.at(5, first)
    engine.at(5, lambda: seen.append("second"))
    engine.run_before(6, 100)
    assert seen == ["first", "second", "made at five"]


def test_what_comes_after_is_behind_all_events_of_its_time() -> None:
    """But for those that it makes itself; an arrival is before it, whenever it was made."""
    engine, seen = Engine(), []

    def divide() -> None:
        seen.append("after")
        engine.at(5, lambda: seen.append("made by it"))
        engine.at(5, lambda: seen.append("after it"), AFTER)

    engine.at(5, divide, AFTER)
    engine.at(5, lambda: engine.at(5, lambda: seen.append("made at five")))
    engine.at(5, lambda: seen.append("arrival"), ARRIVAL)
    engine.env.timeout(5).callbacks.append(lambda _: seen.append("simpy's own"))
    engine.at(6, lambda: seen.append("later"))
    assert engine.run_before(7, 100)
    assert seen == ["arrival", "simpy's own", "made at five", "after", "made by it", "after it", "later"]


@given(st.lists(st.tuples(st.integers(0, 30), st.booleans())), st.integers(0, 35), st.integers(0, 40))
def test_a_cancelled_event_is_none(events: list[tuple[int, bool]], horizon_ps: int, most: int) -> None:
    """Neither for the next time and the last, nor for how many there were or may be, nor for the clock."""
    engine, seen = engine_with(*(time_ps for time_ps, is_cancelled in events if not is_cancelled))
    for callback in [engine.at(time_ps, lambda: seen.append(-1)) for time_ps, is_cancelled in events if is_cancelled]:
        callback.cancel()
    times_ps = sorted(time_ps for time_ps, is_cancelled in events if not is_cancelled)
    assert engine.last_local_ps() == max(times_ps, default=None)
    due_ps = [time_ps for time_ps in times_ps if time_ps < horizon_ps]
    assert engine.run_before(horizon_ps, most) == (len(due_ps) <= most)
    assert seen == due_ps[:most]
    assert engine.events == len(seen)
    assert engine.now_ps == max(seen, default=0)
    assert engine.next_ps() == min(times_ps[len(seen) :], default=None)


def test_an_event_may_cancel_another_one_of_its_time_and_one_that_is_over() -> None:
    engine, seen = Engine(), []
    first = engine.at(5, lambda: [seen.append("first"), second.cancel()])  # type: ignore[func-returns-value]
    second = engine.at(5, lambda: seen.append("second"))
    engine.at(6, lambda: [seen.append("third"), first.cancel(), second.cancel()])  # type: ignore[func-returns-value]
    assert engine.run_before(None, 100)
    assert seen == ["first", "third"]
    assert (engine.events, engine.next_ps(), engine.last_local_ps()) == (2, None, None)


def test_an_event_in_the_past_raises() -> None:
    engine, _ = engine_with(8)
    engine.run_before(9, 10)
    engine.at(8, lambda: None)
    with pytest.raises(ValueError, match="an event at 7 ps cannot be scheduled at 8 ps"):
        engine.at(7, lambda: None)


def test_times_stay_exact_integers_where_floats_would_not() -> None:
    far_ps = 2**62 + 1
    engine, seen = engine_with(far_ps)
    assert engine.next_ps() == far_ps
    assert engine.run_before(far_ps, 1)
    assert engine.run_before(far_ps + 1, 1)
    assert seen == [far_ps]
    assert (engine.now_ps, type(engine.now_ps)) == (far_ps, int)


def test_events_of_simpy_itself_run_as_its_own_loop_runs_them() -> None:
    """Processes, timeouts, callbacks and an event that fails: the same calls at the same times as with ``step``."""

    def model(env: simpy.Environment, seen: list[object]) -> Iterator[simpy.Event]:
        yield env.timeout(3)
        seen.append(("woke", env.now))
        gate = env.event()
        gate.callbacks.append(lambda event: seen.append(("called", event.value, env.now)))
        gate.succeed("open")
        yield gate
        try:
            yield env.process(fails(env))
        except KeyError as error:
            seen.append((str(error), env.now))

    def fails(env: simpy.Environment) -> Iterator[simpy.Event]:
        yield env.timeout(2)
        raise KeyError("lost")

    engine, ours, theirs = Engine(), [], []
    engine.env.process(model(engine.env, ours))
    engine.at(4, lambda: ours.append("ours"))
    assert engine.run_before(None, 100)
    plain = simpy.Environment()
    plain.process(model(plain, theirs))
    plain.timeout(4).callbacks.append(lambda _event: theirs.append("ours"))
    plain.run()
    assert ours == theirs
    assert len(ours) == 4


def test_an_unhandled_failure_is_raised() -> None:
    engine = Engine()
    engine.env.event().fail(KeyError("lost"))
    with pytest.raises(KeyError, match="lost"):
        engine.run_before(None, 100)
