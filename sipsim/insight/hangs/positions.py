"""Code positions of all kernels and host scripts, from the dumps of SIPs, as folded text and as plain values. Pure.

Used when a run is stopped, when a SIP makes no progress, and on request. ``SipNode.tasks_dump`` makes the
dumps; the answer to ``DumpRequest`` is a dump with queues.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from sipsim.core.units import format_time_ps
from sipsim.insight.hangs.facts import CodeFacts, PositionFacts, TaskFacts
from sipsim.insight.hangs.fold import Entry, folded
from sipsim.records.code_place import shown
from sipsim.records.dump import SipDump, TaskState


class Positions(NamedTuple):
    """The code positions of all tasks: at most 32 lines of text, and plain values for the result file."""

    text: str
    facts: list[PositionFacts]


def explain_positions(
    dumps: Sequence[SipDump], unknown: Mapping[int, str] | None = None, folder: str = ""
) -> Positions:
    """Return the code positions of all tasks: running tasks first, then tasks in other waits, then waits on queues.

    ``unknown``: reasons of missing dumps, by rank. ``folder``: the user's working folder, for relative paths.
    """
    missing = unknown or {}
    tasks = sorted((task for dump in dumps for task in dump.tasks), key=_urgency)
    kernels = task_entries((task for task in tasks if task.place[1] >= 0), folder)
    silent = [Entry((rank, -1, -1), reason) for rank, reason in sorted(missing.items())]
    lines = [_head(dumps), *folded(kernels), *folded([*silent, *script_entries(dumps, tasks, folder)], most=10)]
    facts = [cast(PositionFacts, task_facts(task)) for task in tasks]
    facts += [PositionFacts(rank=rank, unknown=reason) for rank, reason in missing.items()]
    return Positions("\n".join(lines), facts)


def running(dump: SipDump | None) -> TaskState | None:
    """Return the task of a SIP whose code runs; None if every task waits."""
    tasks = dump.tasks if dump is not None else ()
    return next((task for task in tasks if not task.waits_for and task.file), None)


def running_text(dump: SipDump, folder: str = "") -> str:
    """Return the code position of a SIP that makes no progress, as a clause for a message."""
    task = running(dump)
    if task is None:
        return "no code of a kernel or script runs there"
    return f"{task.name} runs{at(task, folder)}"


def running_facts(dump: SipDump | None) -> CodeFacts:
    """Return ``file``, ``line``, ``cube`` and ``pe`` of the running task, as far as known."""
    task = running(dump)
    if task is None:
        return {}
    place = CodeFacts(cube=task.place[1], pe=task.place[2]) if task.place[1] >= 0 else CodeFacts()
    return {"file": task.file, "line": task.line, **place}


def at(task: TaskState, folder: str) -> str:
    """Return `` at FILE:LINE``; "" if unknown."""
    where = shown(task.file, task.line, folder)
    return f" at {where}" if where else ""


def task_entries(tasks: Iterable[TaskState], folder: str) -> list[Entry]:
    """Return the state and code position of each task."""
    return [Entry(task.place, _doing(task) + at(task, folder)) for task in tasks]


def script_entries(dumps: Iterable[SipDump], tasks: Iterable[TaskState], folder: str) -> list[Entry]:
    """Return the entries of tasks that run on no PE, and of scripts that have ended."""
    ended = [Entry((dump.rank, -1, -1), "its script has ended") for dump in dumps if not dump.tasks]
    return [*task_entries((task for task in tasks if task.place[1] < 0), folder), *ended]


def doing_in_queue(task: TaskState, folder: str) -> str:
    """Return the operation and directions that a task waits in, and the task's code position."""
    return f"{task.op} {' or '.join(task.directions)}{at(task, folder)}"


def task_facts(task: TaskState) -> TaskFacts:
    """Return a task as plain values; cube and PE for kernels only."""
    rank, cube, pe = task.place
    place = TaskFacts(rank=rank, cube=cube, pe=pe) if cube >= 0 else TaskFacts(rank=rank)
    return {**place, "task": task.name, "waits_for": task.waits_for, "file": task.file, "line": task.line}


def _doing(task: TaskState) -> str:
    is_kernel = task.place[1] >= 0
    if not task.waits_for and not (is_kernel and task.word):
        return "runs" if is_kernel else f"{task.name} runs"
    if not is_kernel:
        return f"{task.name} waits for {task.waits_for}"
    return task.waits_for if task.op else f"waits for {task.waits_for}" if not task.word else f"tl.{task.word}"


def _urgency(task: TaskState) -> int:
    """Sort key: running tasks first; waits on queues last, since these probably depend on the other tasks."""
    return 0 if not task.waits_for else 2 if task.op else 1


def _head(dumps: Sequence[SipDump]) -> str:
    times = sorted({dump.now_ps for dump in dumps})
    when = ""
    if times:
        last = f" to {format_time_ps(times[-1])}" if len(times) > 1 else ""
        when = f", at {format_time_ps(times[0])}{last} of simulated time"
    return f"where the code is{when}:"
