"""Processes on the timeline: SimPy's order whatever the windows, ints of ps only, and the end of the background."""

import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from sipsim.core.engine import AFTER, ARRIVAL, Engine
from sipsim.core.errors import ProcessMisuse
from sipsim.core.processes import PartProcess
from sipsim.core.task import TaskFailed

Trace = list[tuple[Any, ...]]
Step = tuple[Any, ...]
DELAY = st.integers(0, 6)
STEP = st.one_of(
    st.tuples(st.just("timeout"), DELAY),
    st.tuples(st.just("use"), st.integers(0, 1), DELAY),
    st.tuples(st.just("put"), st.integers(0, 9)),
    st.tuples(st.just("get"), DELAY),
    st.tuples(st.just("interrupt"), st.integers(0, 3)),
    st.tuples(st.just("any"), DELAY, DELAY),
    st.tuples(st.just("all"), DELAY, DELAY),
    st.tuples(st.just("child"), DELAY),
)
PROGRAM = st.lists(st.lists(STEP, max_size=6), min_size=1, max_size=4)


def begin(env: simpy.Environment, program: list[list[Step]], trace: Trace) -> None:
    """Start a process for each list of steps, on two resources and a store with room for two."""
    resources, store = [simpy.Resource(env, 1), simpy.Resource(env, 2)], simpy.Store(env, 2)
    processes: list[simpy.Process] = []

    def child(number: int, delay: int) -> Iterator[simpy.Event]:
        yield env.timeout(delay)
        trace.append((env.now, number, "child"))

    def one(number: int, step: Step) -> Iterator[simpy.Event]:
        match step:
            case "timeout", delay:
                yield env.timeout(delay)
            case "use", which, delay:
                with resources[which].request() as turn:
                    yield turn
                    yield env.timeout(delay)
            case "put", item:
                yield store.put(item) | env.timeout(4)
            case "get", delay:
                got = yield store.get() | env.timeout(delay)
                trace.append((env.now, number, [value for value in got.values() if value is not None]))
            case "interrupt", other:
                target = processes[other % len(processes)]
                if target.is_alive and target is not env.active_process:
                    target.interrupt(number)
            case "any", first, second:
                yield env.any_of([env.timeout(first), env.timeout(second)])
            case "all", first, second:
                yield env.all_of([env.timeout(first), env.timeout(second)])
            case "child", delay:
                yield env.process(child(number, delay))

    def run(number: int, steps: list[Step]) -> Iterator[simpy.Event]:
        for step in steps:
            try:
                yield from one(number, step)
            except simpy.Interrupt as interrupt:
                trace.append((env.now, number, "interrupted", interrupt.cause))
            trace.append((env.now, number, step))

    start: Callable[..., simpy.Process] = getattr(env, "start", lambda generator, *_names: env.process(generator))
    for number, steps in enumerate(program):
        processes.append(start(run(number, steps), "part lab.random", str(number)))


@given(PROGRAM, st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4))), st.lists(st.integers(0, 30)))
def test_a_trace_does_not_depend_on_windows(
    program: list[list[Step]], windows: list[tuple[int, int]], arrivals_ps: list[int]
) -> None:
    """It is that of SimPy's own loop. Arrivals enter with their window, as the session lets them, and come first."""
    plain, theirs = simpy.Environment(), Trace()
    begin(plain, program, theirs)
    plain.run()

    engine, ours = Engine(), Trace()
    begin(engine.env, program, ours)
    arrivals_ps, horizon_ps = sorted(arrivals_ps), 0
    for width_ps, most in [*windows, (1000, 7)]:
        horizon_ps += width_ps
        while arrivals_ps and arrivals_ps[0] < horizon_ps:
            at_ps = arrivals_ps.pop(0)
            engine.at(at_ps, lambda t=at_ps: ours.append((t, "arrival")), ARRIVAL)  # type: ignore[misc]
        while not engine.run_before(horizon_ps, most):
            pass
    assert [each for each in ours if each[1] != "arrival"] == theirs
    for before, (now_ps, *rest) in pairwise(ours):
        assert before[0] < now_ps or rest != ["arrival"] or before[1] == "arrival", "an arrival comes first"
    assert engine.next_ps() is None
    assert not [each for each in engine.env.processes if each.ended]


class Mine(int):
    """A whole number of a user's own class."""


@pytest.mark.parametrize("delay", [0.5, 2.0, np.float64(3), np.int64(3), -1, True, Mine(4), "5", None])
@pytest.mark.parametrize("way", ["timeout", "schedule", "class"])
def test_a_delay_is_an_int_of_picoseconds(delay: Any, way: str) -> None:
    env = Engine().env
    make = {
        "timeout": lambda: env.timeout(delay),
        "schedule": lambda: env.schedule(env.event(), delay=delay),
        "class": lambda: simpy.Timeout(env, delay),
    }[way]
    with pytest.raises((ProcessMisuse, ValueError, TypeError)) as caught:
        make()
    assert way == "class" or caught.type is ProcessMisuse
    assert env.next_ps() is None


@pytest.mark.parametrize(
    "call",
    [
        lambda env: env.run(),
        lambda env: env.run(until=5),
        lambda env: env.step(),
        lambda env: env.schedule(env.event(), priority=ARRIVAL),
        lambda env: env.schedule(env.event(), priority=AFTER),
    ],
)
def test_who_runs_events_and_their_order_is_not_the_users(call: Callable[[simpy.Environment], None]) -> None:
    engine, seen = Engine(), []
    engine.at(3, lambda: seen.append(3))
    with pytest.raises(ProcessMisuse):
        call(engine.env)
    assert engine.run_before(None, 10)
    assert seen == [3]


def start(engine: Engine, *steps: Any, background: bool = False) -> PartProcess:
    """A process that yields the steps, or what they return."""

    def run() -> Iterator[Any]:
        for step in steps:
            yield step() if callable(step) else step

    engine.env.start(run(), "part lab.steps", "steps", background)
    return list(engine.env.processes)[-1]


@pytest.mark.parametrize("wrong", [0.5, 3, None, "soon", simpy.Environment().event()])
def test_a_process_yields_events_of_its_own_timeline(wrong: object) -> None:
    engine = Engine()
    process = start(engine, lambda: engine.env.timeout(7), wrong)
    with pytest.raises(TaskFailed) as caught:
        engine.run_before(None, 100)
    assert (engine.now_ps, caught.value.place) == (7, "process steps of part lab.steps")
    assert type(caught.value.__cause__) is ProcessMisuse
    trace = caught.value.__cause__.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    assert trace.tb_frame.f_code.co_name == "run", "the line of the yield is the last one"
    assert process.ended
    assert not engine.env.processes


@pytest.mark.parametrize("made", [lambda: iter([1]), lambda: None, lambda: start])
def test_a_process_is_a_generator(made: Callable[[], Any]) -> None:
    with pytest.raises(ProcessMisuse, match="part lab"):
        Engine().env.start(made(), "part lab")


def test_an_exception_ends_the_run_even_if_another_process_waits() -> None:
    engine, env = Engine(), Engine().env
    env = engine.env

    def fails() -> Iterator[simpy.Event]:
        yield env.timeout(4)
        raise KeyError("lost")

    def waits() -> Iterator[simpy.Event]:
        yield env.process(fails())

    env.start(waits(), "part lab")
    with pytest.raises(TaskFailed, match="process fails of part lab") as caught:
        engine.run_before(None, 100)
    assert type(caught.value.__cause__) is KeyError


def test_a_child_is_of_the_kind_of_its_parent() -> None:
    engine = Engine()
    env, seen = engine.env, []

    def child() -> Iterator[simpy.Event]:
        yield env.timeout(9)

    def parent() -> Iterator[simpy.Event]:
        env.process(child())
        yield env.timeout(5)

    env.start(parent(), "part front")
    env.start(parent(), "part back", is_background=True)
    env.process(child())
    engine.run_before(3, 100)
    seen = [(each.name, each.is_server) for each in env.processes]
    assert seen == [
        ("process parent of part front", False),
        ("process parent of part back", True),
        ("process child of part front", False),
        ("process child of part back", True),
    ]


def test_a_thread_ends_the_run() -> None:
    engine, caught = Engine(), []
    event = engine.env.event()

    def trigger() -> None:
        try:
            event.succeed()
        except ProcessMisuse as error:
            caught.append(error)

    def run() -> Iterator[simpy.Event]:
        thread = threading.Thread(target=trigger)
        thread.start()
        thread.join()
        yield event

    engine.env.start(run(), "part lab")
    with pytest.raises(ProcessMisuse, match="thread"):
        engine.run_before(None, 100)
    assert len(caught) == 1


# --- the background -------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=5), st.integers(0, 40))
def test_nothing_of_the_background_is_left(processes: list[tuple[int, bool]], stop_ps: int) -> None:
    """Whatever it waits for; events of others stay, and all in their order."""
    engine = Engine()
    env, woken = engine.env, []
    kept = [stop_ps + 20, stop_ps + 30]
    for at_ps in kept:
        engine.at(at_ps, lambda t=at_ps: woken.append(t))  # type: ignore[misc]
    env.timeout(stop_ps + 25).callbacks.append(lambda _event: woken.append(stop_ps + 25))

    def ticks(period: int, is_any: bool) -> Iterator[simpy.Event]:
        resource, store = simpy.Resource(env), simpy.Store(env)
        while True:
            with resource.request() as turn:
                yield turn
                env.timeout(1000)
                yield (env.timeout(period) | store.get() | env.timeout(2000)) if is_any else env.timeout(period)

    for period, is_any in processes:
        env.start(ticks(period, is_any), "part lab", is_background=True)
    engine.at(stop_ps, env.stop_background, AFTER)
    assert engine.run_before(None, 10_000)
    assert woken == [stop_ps + 20, stop_ps + 25, stop_ps + 30]
    assert engine.now_ps == stop_ps + 30
    assert not env.processes


def test_cleanup_code_of_a_stopped_process_may_release_and_not_fail() -> None:
    engine = Engine()
    env, seen = engine.env, []

    def ticks(fails: bool) -> Iterator[simpy.Event]:
        try:
            yield env.timeout(10)
        finally:
            env.timeout(500)
            seen.append(env.now)
            if fails:
                raise KeyError("cleanup")

    env.start(ticks(False), "part lab", is_background=True)
    env.start(ticks(True), "part lab", is_background=True)
    engine.at(5, env.stop_background)
    with pytest.raises(TaskFailed, match="process ticks of part lab"):
        engine.run_before(None, 100)
    assert seen == [5, 5]


def test_a_process_tells_what_it_waits_for_and_where() -> None:
    engine = Engine()
    env = engine.env

    def inner() -> Iterator[simpy.Event]:
        yield simpy.Store(env).get()

    def outer() -> Iterator[simpy.Event]:
        yield env.timeout(3)
        yield from inner()

    env.start(outer(), "part lab")
    (process,) = env.processes
    assert (process.waits_for, process.frame) == (None, None)
    engine.run_before(2, 100)
    assert process.waits_for == "a Timeout event"
    engine.run_before(5, 100)
    assert process.waits_for == "a StoreGet event"
    assert process.frame is not None
    assert process.frame.f_code.co_name == "inner"
    process.stop()
