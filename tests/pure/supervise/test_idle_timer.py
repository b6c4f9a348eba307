"""How long a process has spent without progress: what it computed and was blocked, never what it waited to run."""

import os

from launcher.processes.this_host import TICK_S, ProcessState, own_state, process_state
from launcher.supervise.stall import IdleTimer


def sample(at_s: float, status: str = "sleeping", cpu_s: float = 0.0, waited_s: float = 0.0) -> ProcessState:
    return ProcessState(status, cpu_s, waited_s, at_s)


def test_quiet_time_counts_from_the_last_progress() -> None:
    timer, seen = IdleTimer(), []
    for at, moved in enumerate((False, False, False, True, False, False), start=1):
        timer.note(sample(0.5 * at))
        if moved:
            timer.moved(0.2)
        seen.append(timer.idle_s)
    assert seen == [0.0, 0.5, 1.0, 0.2, 0.7, 1.2]


def test_a_wait_for_a_processor_is_no_quiet_time() -> None:
    timer = IdleTimer(10.0)
    states = [
        sample(0.0),
        sample(2.0, "running", cpu_s=0.5),
        sample(4.0, "sleeping", cpu_s=1.0, waited_s=2.5),
        sample(6.0, "sleeping", cpu_s=1.0, waited_s=2.5),
        sample(8.0, "stopped", cpu_s=1.0, waited_s=2.5),
    ]
    seen = []
    for state in states:
        timer.note(state)
        seen.append((timer.idle_s, timer.waited_s))
    assert seen == [(0.0, 0.0), (0.5, 1.5), (1.0, 3.0), (3.0, 3.0), (5.0, 3.0)]


def test_many_threads_spend_no_more_than_the_clock() -> None:
    assert sample(3.0, "running", cpu_s=40.0).spent_since(sample(1.0)) == 2.0


def test_a_process_that_was_suspended_was_not_quiet() -> None:
    timer = IdleTimer(1.0)
    timer.note(sample(0.5))
    timer.note(sample(3600.0))
    assert (timer.idle_s, timer.waited_s) == (1.0, 0.0)


def test_what_the_kernel_counts_of_a_process() -> None:
    """Its samples never run backwards, and what it has spent is no more than has passed."""
    before = process_state(os.getpid())
    assert before is not None
    sum(range(10**6))
    for after in (process_state(os.getpid()), own_state()):
        assert after is not None
        assert after.at_s >= before.at_s
        assert after.cpu_s >= before.cpu_s - TICK_S
        assert after.waited_s >= before.waited_s
        assert 0 <= after.spent_since(before) <= after.at_s - before.at_s
