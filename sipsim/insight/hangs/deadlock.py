"""Explains a deadlock from the dumps of all SIPs: the likely cause, and the line of code at which each kernel waits.

This code runs in the launcher; the broker forwards the dumps as bytes. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sipsim.chips.ahbm.collectives.queue_dump import pointers
from sipsim.core.errors import Deadlock, IpcqDeadlock
from sipsim.core.units import format_time_ps
from sipsim.insight.hangs.facts import DeadlockFacts
from sipsim.insight.hangs.fold import MOST_LINES, Entry, folded, shortened
from sipsim.insight.hangs.hints import hint_of
from sipsim.insight.hangs.positions import at, doing_in_queue, script_entries, task_entries, task_facts
from sipsim.insight.hangs.waits import Channels, Wait, channels_of, cycle_of, waits_of
from sipsim.records.dump import HOST_SCRIPT, Place, QueueEnd, QueueState, TaskState, dump_from, place_name

MOST_POINTERS = 4
"""The most queue pairs whose pointers are in the short report."""


class DeadlockReport(NamedTuple):
    """A deadlock as text and as plain values. ``headline``: one line with the likely cause. ``report``: equal waits
    folded into one line, and pointers of the first queue pairs. ``whole``: each wait, queue pointers and waits-for
    graph. ``facts``: for the result file.
    """

    headline: str
    report: str
    whole: str
    facts: DeadlockFacts


def kind_of(blobs: list[bytes]) -> str:
    """Return the kind of the failure: ``IpcqDeadlock`` if any chip has IPCQ queues, else ``Deadlock``."""
    return (IpcqDeadlock if any(dump_from(blob).has_ipcq for blob in blobs) else Deadlock).kind


def explain_deadlock(blobs: list[bytes], folder: str = "") -> DeadlockReport:
    """Merge the dumps of all SIPs into one report. ``folder``: the user's working folder, for relative paths.

    Raises:
        BadFrame: for bytes that are not a dump, or a wait on a queue that no dump contains.
    """
    dumps = [dump_from(blob) for blob in blobs]
    waits, channels = waits_of(dumps), channels_of(dumps)
    cycle, waiting = cycle_of(waits), {wait.place for wait in waits}
    # Without a cycle, the root causes are waits for a PE that does not itself wait.
    roots = cycle or [wait for wait in waits if wait.local.peer not in waiting]
    are_roots = set(map(id, roots))
    waits = [*roots, *(wait for wait in waits if id(wait) not in are_roots)]
    others = [task for dump in dumps for task in dump.tasks if not task.op]
    kernels = [task for task in others if task.place[1] >= 0]

    if cycle and not channels.cycle:
        reason = _cycle_text(cycle, folder)
    elif roots and not channels.cycle:
        reason = _missing_text(roots[0], folder)
    else:
        reason = _channels_text(channels) if channels.blocked else _other_text(others, folder)
    hint, is_likelier = hint_of(dumps, waits, roots, folder)
    first, second = (hint, reason) if is_likelier and not channels.cycle else (reason, hint)
    now_ps = max((d.now_ps for d in dumps), default=0)
    n_waiting = len(waiting.union(task.place for task in kernels))
    who = "1 PE waits and " if n_waiting == 1 else f"{n_waiting} PEs wait and " if n_waiting else ""
    headline = f"{first}; {who}nothing can happen any more, at {format_time_ps(now_ps)}"

    seconds = [f"  {second}"] if second else []
    entries: dict[Place, Entry] = {}
    for wait in waits:
        entries.setdefault(wait.place, _entry(wait, folder))
    positions = folded([*entries.values(), *task_entries(kernels, folder)])
    positions += folded(script_entries(dumps, others, folder), most=8)
    blocked = [f"  {each}" for each in channels.blocked]
    whole = [headline, *seconds, *blocked, *positions, "", "every wait:"]
    if waits:
        whole += [line for wait in waits for line in _wait_lines(wait, folder)]
        whole += ["", "waits-for graph:", *(f"  {_edge(wait)}" for wait in waits)]
    else:
        whole += [f"  {place_name(each.place)}: {each.text}" for each in task_entries(others, folder)]
    if len(blocked) > MOST_LINES:
        blocked[MOST_LINES - 1 :] = [f"  {len(blocked) - MOST_LINES + 1} more channels wait"]
    facts: DeadlockFacts = {
        "reason": reason,
        "hint": hint,
        "time_ps": now_ps,
        "waits": [
            {
                "op": task.op,
                "file": task.file,
                "line": task.line,
                "here": _end(local),
                "peer": list(local.peer),
                "there": None if far is None else _end(far),
            }
            for task, local, far, _ in waits
        ],
        "cycle": [list(wait.place) for wait in cycle],
        "others": [task_facts(task) for task in others],
    }
    if channels.blocked:
        facts |= {"blocked": channels.blocked, "channel_cycle": channels.cycle}
    report = "\n".join([*seconds, *blocked, *positions, *_pointer_lines(waits)])
    return DeadlockReport(headline, report, "\n".join(whole) + "\n", msgspec.to_builtins(facts))


# --- reasons ---


def _cycle_text(cycle: Sequence[Wait], folder: str) -> str:
    ats = [at(wait.task, folder) for wait in cycle]
    common = ats[0] if len(set(ats)) == 1 else ""
    steps = [
        f"{place_name(wait.place)} ({wait.task.op} {wait.local.direction}{'' if common else where})"
        for wait, where in zip(cycle, ats, strict=True)
    ]
    return "a cycle: " + shortened([*steps, place_name(cycle[0].place)]) + (f", all{common}" if common else "")


def _missing_text(wait: Wait, folder: str) -> str:
    task, local = wait.task, wait.local
    runs = f"{place_name(local.peer)}, which waits for nothing,"
    if task.op == "recv":
        return f"missing: a send by {runs} to {place_name(task.place)} (its {doing_in_queue(task, folder)})"
    return f"missing: a recv by {runs} of what {place_name(task.place)} sends {local.direction}{at(task, folder)}"


def _channels_text(channels: Channels) -> str:
    cycle, blocked = channels
    if cycle:
        what = "a cycle of 1 channel" if len(cycle) == 1 else f"a cycle of {len(cycle)} channels"
        return f"{what}: {shortened([*cycle, cycle[0]])}"
    rest = len({each.name for each in blocked}) - 1
    more = f"; {rest} more {'channel is' if rest == 1 else 'channels are'} blocked" if rest else ""
    return f"{blocked[0]}, which waits for no channel{more}"


def _other_text(tasks: Sequence[TaskState], folder: str) -> str:
    """Return the reason of a deadlock in which no PE waits in a queue."""
    kernels = [task for task in tasks if task.place[1] >= 0]
    on_tiles = [task for task in tasks if task.place[1] < 0 and not task.is_server and task.name != HOST_SCRIPT]
    first = min(kernels or on_tiles, key=lambda task: task.place, default=None)
    if first is None:
        return "the host scripts wait, and no kernel is left to resume them"
    who = "" if kernels else f"{first.name} of "
    return f"{who}{place_name(first.place)} waits for {first.waits_for}{at(first, folder)}, which nothing will end"


# --- every wait ---


def _entry(wait: Wait, folder: str) -> Entry:
    unread = ", ".join(sorted(queue.direction for queue in wait.unread))
    note = f"; unread messages from {unread}" if unread else ""
    alone = f"; peer {place_name(wait.local.peer)}: {_ring_text(wait)}"
    roughly = f"{wait.task.op} in several directions{at(wait.task, folder)}"
    return Entry(wait.place, doing_in_queue(wait.task, folder) + note, alone, roughly)


def _pointer_lines(waits: Sequence[Wait]) -> list[str]:
    """Return the pointers of both ends of the queue pairs that PEs wait on, root causes first (ADR-0023 D14, F3)."""
    lines = ["  pointers of the queue pairs with a waiting PE:"] if waits else []
    for wait in waits[:MOST_POINTERS]:
        lines.append(f"    {place_name(wait.place)} {wait.local.direction}: {pointers(wait.local)}")
        far = wait.far
        there = " has not installed the other end" if far is None else f" {far.direction}: {pointers(far)}"
        lines.append(f"      peer {place_name(wait.local.peer)}{there}")
    rest = len(waits) - MOST_POINTERS
    return [*lines, f"    and {rest} more queue pairs"] if rest > 0 else lines


def _wait_lines(wait: Wait, folder: str) -> list[str]:
    task, local, far, unread = wait
    what = f"waits in {task.op} {local.direction}{at(task, folder)}"
    lines = [
        f"  {place_name(task.place)} {what}, peer {place_name(local.peer)}: {_ring_text(wait)}",
        f"    here:  {pointers(local)}",
    ]
    if far is not None:
        lines.append(f"    there: {pointers(far)} (its {far.direction})")
    if unread:
        others = ", ".join(f"{queue.unread} from {queue.direction}" for queue in unread)
        lines.append(f"    unread messages in other directions: {others}")
    return lines


def _ring_text(wait: Wait) -> str:
    local = wait.local
    if wait.task.op == "send":
        return f"{local.my_head - local.peer_tail_cache} of its ring's {local.n_slots} slots are full"
    return f"message {local.my_tail + len(local.in_use)} has not arrived"


def _edge(wait: Wait) -> str:
    return f"{place_name(wait.place)} -> {place_name(wait.local.peer)} ({wait.task.op} {wait.local.direction})"


def _end(queue: QueueState) -> QueueEnd:
    return msgspec.convert(queue, QueueEnd, from_attributes=True)
