"""When all should share a processor, decided from hand-made sequences; and that a process then really does.

Seen to fail with these bugs planted: advice before enough has been seen; no hysteresis, or one that only holds the
other way; the report's own run not counted off; threads but the main one left where they are; a place that is not
given back; a process with one processor that is moved.
"""

import os
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from broker.sync.colocation import FEWEST_REPORTS, SMOOTHING, WAKES_NS, ColocationPolicy, CpuAffinity

LONG = 100 * SMOOTHING


def told(*phases: tuple[int, int, int]) -> list[bool]:
    """What a crowd says after each of: so many reports, with so many SIPs running, so long each."""
    crowd = ColocationPolicy()
    return [crowd.note(running, run_ns) for reports, running, run_ns in phases for _ in range(reports)]


# --- the decision ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("running", "run_ns"), [(1, 10**9), (1, 0), (8, 0), (8, 10), (2, WAKES_NS // 2)])
def test_nothing_is_said_before_enough_has_been_seen(running: int, run_ns: int) -> None:
    said = told((LONG, running, run_ns))
    assert said == [False] * (FEWEST_REPORTS - 1) + [True] * (LONG - FEWEST_REPORTS + 1)


def test_one_at_a_time_belongs_together_however_long_each_runs() -> None:
    assert told((LONG, 1, 10**12))[-1]


@pytest.mark.parametrize("running", [2, 3, 64])
def test_many_that_are_busy_belong_apart(running: int) -> None:
    """What is lost together: all but one of them times what each runs."""
    enough_ns = 2 * WAKES_NS // (running - 1) + 1000
    assert not any(told((LONG, running, enough_ns)))
    assert told((LONG, running, WAKES_NS // (running - 1) - 1000))[-1]


def test_from_one_at_a_time_to_busy_and_back() -> None:
    """It goes apart once, and together once; the change takes some reports, not one."""
    said = told((LONG, 1, 10_000), (LONG, 4, 1_000_000), (LONG, 1, 10_000))
    first, second, third = said[:LONG], said[LONG : 2 * LONG], said[2 * LONG :]
    assert first[-1]
    assert not second[-1]
    assert third[-1]
    assert sum(a != b for a, b in pairwise(said)) == 3
    assert second[0], "one long report among many short ones is no crowd"


def test_between_the_two_thresholds_it_stays_as_it_is() -> None:
    """Two at a time lose what one runs: to leave takes twice the wakes, to come back less than the wakes."""
    between = (LONG, 2, WAKES_NS * 3 // 2)
    assert told((LONG, 1, 0), between)[-1]
    assert not told((LONG, 2, 10 * WAKES_NS), between)[-1]
    assert not told((LONG, 1, 0), (LONG, 2, 2 * WAKES_NS + 1000))[-1]
    assert told((LONG, 2, 10 * WAKES_NS), (LONG, 2, WAKES_NS - 1000))[-1]


def test_to_and_fro_about_a_threshold_does_not_go_to_and_fro() -> None:
    steps = [(SMOOTHING, 2, WAKES_NS * (4 + 3 * sign) // 4) for _ in range(50) for sign in (1, -1)]
    said = told((LONG, 1, 0), *steps)[LONG:]
    assert all(said)


# --- the deed -------------------------------------------------------------------------------------------------


def in_a_child(body: Callable[[], None]) -> None:
    """Run ``body`` in a forked child, so that nothing of it is left here; its assertions are ours."""
    told_by, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            body()
            os.write(tell, b"kept")
        except BaseException as error:
            os.write(tell, repr(error).encode()[:4000])
        os._exit(0)
    os.close(tell)
    with os.fdopen(told_by, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    assert said == b"kept", said.decode()


def places_of_all_threads() -> list[set[int]]:
    return [os.sched_getaffinity(int(thread)) for thread in os.listdir("/proc/self/task")]


ALLOWED = sorted(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(len(ALLOWED) < 2, reason="one processor is allowed here: there is no choice to make")


@needs_two
@pytest.mark.parametrize("shared_cpu_seed", [0, 1, 4711])
def test_all_threads_meet_on_one_processor_and_are_let_go_again(shared_cpu_seed: int) -> None:
    def body() -> None:
        placement, go = CpuAffinity(shared_cpu_seed), threading.Event()
        threads = [threading.Thread(target=go.wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert places_of_all_threads() == [set(ALLOWED)] * 4
        for _ in range(2):
            placement.colocate(True)
            assert places_of_all_threads() == [{ALLOWED[shared_cpu_seed % len(ALLOWED)]}] * 4
            placement.colocate(False)
            assert places_of_all_threads() == [set(ALLOWED)] * 4
        go.set()

    in_a_child(body)


@needs_two
def test_the_same_number_is_the_same_place_for_all() -> None:
    def body() -> None:
        for _ in range(2):
            placement = CpuAffinity(11)
            placement.colocate(True)
            assert places_of_all_threads() == [{ALLOWED[11 % len(ALLOWED)]}]
            placement.colocate(False)

    in_a_child(body)


@needs_two
def test_the_same_advice_again_changes_nothing() -> None:
    """Nor is a place given back that was never taken."""

    def body() -> None:
        placement = CpuAffinity(0)
        os.sched_setaffinity(0, {ALLOWED[1]})
        placement.colocate(False)
        assert places_of_all_threads() == [{ALLOWED[1]}]
        placement.colocate(True)
        assert places_of_all_threads() == [{ALLOWED[0]}]
        os.sched_setaffinity(0, {ALLOWED[1]})
        placement.colocate(True)
        assert places_of_all_threads() == [{ALLOWED[1]}]

    in_a_child(body)


def test_where_one_processor_is_allowed_nothing_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> None:
        os.sched_setaffinity(0, {ALLOWED[-1]})
        placement = CpuAffinity(0)
        asked: list[object] = []
        monkeypatch.setattr("os.sched_setaffinity", lambda *args: asked.append(args))
        for together in (True, False, True):
            placement.colocate(together)
        assert places_of_all_threads() == [{ALLOWED[-1]}]
        assert asked == []

    in_a_child(body)


def test_where_places_cannot_be_asked_for_nothing_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    asked: list[object] = []
    monkeypatch.setattr("os.sched_setaffinity", lambda *args: asked.append(args))
    CpuAffinity(3).colocate(True)
    assert asked == []


@needs_two
def test_a_thread_that_ends_meanwhile_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a thread had ended between the look for threads and the move."""
    moved: list[int] = []

    def move(thread: int, _places: object) -> None:
        if thread == 1:
            raise ProcessLookupError
        moved.append(thread)

    monkeypatch.setattr("os.listdir", lambda _path: ["5", "1", "6"])
    monkeypatch.setattr("os.sched_setaffinity", move)
    CpuAffinity(0).colocate(True)
    assert moved == [5, 6]


@needs_two
@pytest.mark.parametrize(("at_once", "apart"), [(False, os.SCHED_BATCH), (True, os.SCHED_OTHER)])
def test_only_the_broker_is_answered_at_once_and_nobody_while_all_share(at_once: bool, apart: int) -> None:
    """Seen to fail: the policy of the broker taken for everybody, and not given back after a gathering."""

    def body() -> None:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        placement = CpuAffinity(3, at_once)
        for together, wanted in ((False, apart), (True, os.SCHED_BATCH), (False, apart)):
            placement.colocate(together)
            assert os.sched_getscheduler(0) == wanted

    in_a_child(body)
