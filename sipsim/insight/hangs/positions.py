"""Where the code of every kernel and host script is, from the dumps of SIPs, as folded text and as plain values. Pure.

For a run that is stopped, for a SIP that makes no progress, and on request. ``SipNode.tasks_dump`` makes such dumps;
an answer to ``DumpRequest`` is one, with queues.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from sipsim.core.units import format_time_ps
from sipsim.insight.hangs.facts import CodeFacts, PositionFacts, TaskFacts
from sipsim.insight.hangs.fold import Entry, folded
from sipsim.records.code_place import shown
from sipsim.records.dump import SipDump, TaskState


class Positions(NamedTuple):
    """At most 32 lines of text; every task as plain values, for the result file."""

    text: str
    facts: list[PositionFacts]


def explain_positions(
    dumps: Sequence[SipDump], unknown: Mapping[int, str] | None = None, folder: str = ""
) -> Positions:
    """Where all tasks of the dumps are; what runs comes first, then what waits for its own work, then waits on queues.

    ``unknown``: ranks without a dump, and why. ``folder``: the working folder of the reader.
    """
    missing = unknown or {}
    tasks = sorted((task for dump in dumps for task in dump.tasks), key=_urgency)
    kernels = task_entries((task for task in tasks if task.place[1] >= 0), folder)
    silent = [Entry((rank, -1, -1), why) for rank, why in sorted(missing.items())]
    lines = [_head(dumps), *folded(kernels), *folded([*silent, *script_entries(dumps, tasks, folder)], most=10)]
    facts = [cast(PositionFacts, task_facts(task)) for task in tasks]
    facts += [PositionFacts(rank=rank, unknown=why) for rank, why in missing.items()]
    return Positions("\n".join(lines), facts)


def running(dump: SipDump | None) -> TaskState | None:
    """The task whose code runs now, if one does."""
    tasks = dump.tasks if dump is not None else ()
    return next((task for task in tasks if not task.waits_for and task.file), None)


def running_text(dump: SipDump, folder: str = "") -> str:
    """Where the code of a SIP that makes no progress is, in the middle of a sentence."""
    task = running(dump)
    if task is None:
        return "no code of a kernel or script runs there"
    return f"{task.name} runs{at(task, folder)}"


def running_facts(dump: SipDump | None) -> CodeFacts:
    """``file``, ``line``, ``cube`` and ``pe`` of the task that runs, as far as they are known."""
    task = running(dump)
    if task is None:
        return {}
    place = CodeFacts(cube=task.place[1], pe=task.place[2]) if task.place[1] >= 0 else CodeFacts()
    return {"file": task.file, "line": task.line, **place}


def at(task: TaskState, folder: str) -> str:
    """`` at FILE:LINE``, or "" if that is unknown."""
    where = shown(task.file, task.line, folder)
    return f" at {where}" if where else ""


def task_entries(tasks: Iterable[TaskState], folder: str) -> list[Entry]:
    """What each task does, and where."""
    return [Entry(task.place, _doing(task) + at(task, folder)) for task in tasks]


def script_entries(dumps: Iterable[SipDump], tasks: Iterable[TaskState], folder: str) -> list[Entry]:
    """The tasks on no PE, and the scripts that have ended."""
    ended = [Entry((dump.rank, -1, -1), "its script has ended") for dump in dumps if not dump.tasks]
    return [*task_entries((task for task in tasks if task.place[1] < 0), folder), *ended]


def doing_in_queue(task: TaskState, folder: str) -> str:
    """The queues that a task waits on, and where."""
    return f"{task.op} {' or '.join(task.directions)}{at(task, folder)}"


def task_facts(task: TaskState) -> TaskFacts:
    """A task as plain values; cube and PE of kernels only."""
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
    """Tasks that run first: of the others, those in queues are likely to wait for them."""
    return 0 if not task.waits_for else 2 if task.op else 1


def _head(dumps: Sequence[SipDump]) -> str:
    times = sorted({dump.now_ps for dump in dumps})
    when = ""
    if times:
        last = f" to {format_time_ps(times[-1])}" if len(times) > 1 else ""
        when = f", at {format_time_ps(times[0])}{last} of simulated time"
    return f"where the code is{when}:"
