"""Tasks: blocking code, resumed by the part that it waits for."""

import signal
from typing import Any

import greenlet
import pytest

from sipsim.core.errors import Halt
from sipsim.core.task import Task, TaskFailed


def task_of(body, name: str = "a kernel") -> Task:  # type: ignore[no-untyped-def]
    return Task(name, body, greenlet.getcurrent())


def test_it_runs_only_when_resumed() -> None:
    steps: list[str] = []
    task = task_of(lambda: steps.append("ran"))
    assert steps == []
    assert not task.ended
    task.resume()
    assert steps == ["ran"]
    assert task.ended


def test_wait_gives_up_the_thread_and_returns_what_resume_was_given() -> None:
    seen: list[object] = []

    def body() -> None:
        seen.append(task.wait("the first thing"))
        seen.append(task.wait("the second"))

    task = task_of(body)
    task.resume("lost: nobody waits yet")
    assert (seen, task.waits_for) == ([], "the first thing")
    task.resume(b"data")
    assert (seen, task.waits_for) == ([b"data"], "the second")
    task.resume(7)
    assert (seen, task.waits_for, task.ended) == ([b"data", 7], None, True)


def test_a_task_that_ends_returns_to_the_loop() -> None:
    """Two tasks in turns."""
    order: list[str] = []

    def body(name: str, tasks: list[Task], index: int) -> None:
        for turn in range(2):
            order.append(f"{name}{turn}")
            tasks[index].wait("its turn")

    tasks: list[Task] = []
    tasks += [task_of(lambda n=n, i=i: body(n, tasks, i)) for i, n in enumerate("ab")]  # type: ignore[misc]
    for task in [*tasks, *tasks]:
        task.resume()
    assert order == ["a0", "b0", "a1", "b1"]


class Odd(BaseException):
    """No ``Exception``."""


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(3), GeneratorExit(), Odd(), greenlet.GreenletExit()], ids=repr
)
def test_an_exception_surfaces_in_the_loop_with_its_cause(error: BaseException) -> None:
    def body() -> None:
        task.wait("its end")
        raise error

    task = task_of(body, "cube 3, PE 0")
    task.resume()
    with pytest.raises(TaskFailed, match=r"^cube 3, PE 0 failed$") as caught:
        task.resume()
    assert caught.value.__cause__ is error
    assert caught.value.place == "cube 3, PE 0"
    assert task.ended


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_a_keyboard_interrupt_is_an_exception_of_the_code_unless_python_makes_it_of_ctrl_c(handler: Any) -> None:
    def body() -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(TaskFailed if handler is signal.SIG_IGN else KeyboardInterrupt):
            task_of(body).resume()
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_ends_code_from_outside_is_no_exception_of_it() -> None:
    def body() -> None:
        raise Halt

    with pytest.raises(Halt):
        task_of(body).resume()


def test_a_task_left_waiting_has_no_effect() -> None:
    """A task that is never resumed again is closed with its handlers run and no error."""
    left: list[str] = []

    def body() -> None:
        try:
            task.wait("nothing that will happen")
        finally:
            left.append("closed")

    task = task_of(body)
    task.resume()
    task._greenlet.throw(greenlet.GreenletExit)
    assert left == ["closed"]
