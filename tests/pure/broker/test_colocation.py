"""When all processes should share a processor, from constructed sequences; and that a process then does."""

import os
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest

from broker.colocation import FEWEST_REPORTS, SMOOTHING, WAKES_NS, ColocationPolicy, CpuAffinity

LONG = 100 * SMOOTHING


def advice(*phases: tuple[int, int, int]) -> list[bool]:
    """The advice after every report of each phase: (reports, SIPs running, run time of each)."""
    policy = ColocationPolicy()
    return [policy.note(running, run_ns) for reports, running, run_ns in phases for _ in range(reports)]


# --- the decision ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("running", "run_ns"), [(1, 10**9), (1, 0), (8, 0), (8, 10), (2, WAKES_NS // 2)])
def test_no_advice_before_the_fewest_reports(running: int, run_ns: int) -> None:
    advised = advice((LONG, running, run_ns))
    assert advised == [False] * (FEWEST_REPORTS - 1) + [True] * (LONG - FEWEST_REPORTS + 1)


def test_sips_that_run_one_at_a_time_share_however_long_they_run() -> None:
    assert advice((LONG, 1, 10**12))[-1]


@pytest.mark.parametrize("running", [2, 3, 64])
def test_many_busy_sips_do_not_share(running: int) -> None:
    """Sharing costs the run time of all SIPs but one."""
    enough_ns = 2 * WAKES_NS // (running - 1) + 1000
    assert not any(advice((LONG, running, enough_ns)))
    assert advice((LONG, running, WAKES_NS // (running - 1) - 1000))[-1]


def test_the_advice_follows_a_change_of_load() -> None:
    """It changes once in each direction; a change takes several reports."""
    advised = advice((LONG, 1, 10_000), (LONG, 4, 1_000_000), (LONG, 1, 10_000))
    first, second, third = advised[:LONG], advised[LONG : 2 * LONG], advised[2 * LONG :]
    assert first[-1]
    assert not second[-1]
    assert third[-1]
    assert sum(a != b for a, b in pairwise(advised)) == 3
    assert second[0], "one long report among many short ones changes nothing"


def test_between_the_thresholds_the_advice_is_kept() -> None:
    """Two at a time lose the run time of one: separating takes twice the wakes, sharing less than the wakes."""
    between = (LONG, 2, WAKES_NS * 3 // 2)
    assert advice((LONG, 1, 0), between)[-1]
    assert not advice((LONG, 2, 10 * WAKES_NS), between)[-1]
    assert not advice((LONG, 1, 0), (LONG, 2, 2 * WAKES_NS + 1000))[-1]
    assert advice((LONG, 2, 10 * WAKES_NS), (LONG, 2, WAKES_NS - 1000))[-1]


def test_load_around_a_threshold_does_not_toggle_the_advice() -> None:
    steps = [(SMOOTHING, 2, WAKES_NS * (4 + 3 * sign) // 4) for _ in range(50) for sign in (1, -1)]
    advised = advice((LONG, 1, 0), *steps)[LONG:]
    assert all(advised)


# --- the affinity ---------------------------------------------------------------------------------------------


def in_a_child(body: Callable[[], None]) -> None:
    """Run ``body`` in a forked child, so that this process stays unchanged; its failed assertions fail the test."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            body()
            os.write(writer, b"passed")
        except BaseException as error:
            os.write(writer, repr(error).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        result = pipe.read()
    os.waitpid(pid, 0)
    assert result == b"passed", result.decode()


def cpus_of_all_threads() -> list[set[int]]:
    return [os.sched_getaffinity(int(thread)) for thread in os.listdir("/proc/self/task")]


ALLOWED = sorted(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(len(ALLOWED) < 2, reason="one processor is allowed here: there is no choice to make")


@needs_two
@pytest.mark.parametrize("shared_cpu_seed", [0, 1, 4711])
def test_all_threads_move_to_one_processor_and_are_released(shared_cpu_seed: int) -> None:
    def body() -> None:
        affinity, go = CpuAffinity(shared_cpu_seed), threading.Event()
        threads = [threading.Thread(target=go.wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert cpus_of_all_threads() == [set(ALLOWED)] * 4
        for _ in range(2):
            affinity.colocate(True)
            assert cpus_of_all_threads() == [{ALLOWED[shared_cpu_seed % len(ALLOWED)]}] * 4
            affinity.colocate(False)
            assert cpus_of_all_threads() == [set(ALLOWED)] * 4
        go.set()

    in_a_child(body)


@needs_two
def test_the_seed_selects_the_processor() -> None:
    def body() -> None:
        for _ in range(2):
            affinity = CpuAffinity(11)
            affinity.colocate(True)
            assert cpus_of_all_threads() == [{ALLOWED[11 % len(ALLOWED)]}]
            affinity.colocate(False)

    in_a_child(body)


@needs_two
def test_repeated_advice_changes_nothing() -> None:
    """Nor is an affinity released that was never set."""

    def body() -> None:
        affinity = CpuAffinity(0)
        os.sched_setaffinity(0, {ALLOWED[1]})
        affinity.colocate(False)
        assert cpus_of_all_threads() == [{ALLOWED[1]}]
        affinity.colocate(True)
        assert cpus_of_all_threads() == [{ALLOWED[0]}]
        os.sched_setaffinity(0, {ALLOWED[1]})
        affinity.colocate(True)
        assert cpus_of_all_threads() == [{ALLOWED[1]}]

    in_a_child(body)


def test_with_one_allowed_processor_nothing_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> None:
        os.sched_setaffinity(0, {ALLOWED[-1]})
        affinity = CpuAffinity(0)
        calls: list[object] = []
        monkeypatch.setattr("os.sched_setaffinity", lambda *args: calls.append(args))
        for together in (True, False, True):
            affinity.colocate(together)
        assert cpus_of_all_threads() == [{ALLOWED[-1]}]
        assert calls == []

    in_a_child(body)


def test_without_affinity_calls_nothing_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.sched_getaffinity")
    calls: list[object] = []
    monkeypatch.setattr("os.sched_setaffinity", lambda *args: calls.append(args))
    CpuAffinity(3).colocate(True)
    assert calls == []


@needs_two
def test_a_thread_that_exits_meanwhile_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a thread had exited between the listing and the move."""
    moved: list[int] = []

    def move(thread: int, _cpus: object) -> None:
        if thread == 1:
            raise ProcessLookupError
        moved.append(thread)

    monkeypatch.setattr("os.listdir", lambda _path: ["5", "1", "6"])
    monkeypatch.setattr("os.sched_setaffinity", move)
    CpuAffinity(0).colocate(True)
    assert moved == [5, 6]


@needs_two
@pytest.mark.parametrize(("preempts", "policy"), [(False, os.SCHED_BATCH), (True, os.SCHED_OTHER)])
def test_only_the_broker_preempts_and_none_while_all_share(preempts: bool, policy: int) -> None:
    def body() -> None:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        affinity = CpuAffinity(3, preempts)
        for together, wanted in ((False, policy), (True, os.SCHED_BATCH), (False, policy)):
            affinity.colocate(together)
            assert os.sched_getscheduler(0) == wanted

    in_a_child(body)
