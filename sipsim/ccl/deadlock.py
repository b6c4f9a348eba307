"""Explains a deadlock from the dumps of all SIPs: a cycle of waiting PEs, or a missing send or recv.

Runs in the launcher; the broker forwards the dumps as bytes. Pure.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from broker.wire import BadFrame, checked
from sipsim.ccl.deadlock_facts import DeadlockFacts, QueueEnd, WaitFacts
from sipsim.ccl.diagnostics import place_name, pointers
from sipsim.ccl.wait_groups import grouped, grouped_ranks, shortened
from sipsim.record.dump import Place, QueueState, SipDump, TaskState
from sipsim.units import format_time_ps

_DUMP = msgspec.json.Decoder(SipDump)


class Wait(NamedTuple):
    """A PE that waits on a queue, and the far end of that queue, None if no dump has it."""

    task: TaskState
    local: QueueState
    far: QueueState | None


class Explanation(NamedTuple):
    """One line, the report, and the same as plain values for the result file."""

    headline: str
    report: str
    facts: DeadlockFacts


def explain_deadlock(blobs: list[bytes]) -> Explanation:
    """Merge the dumps of all SIPs into one explanation.

    Raises:
        BadFrame: for bytes that are no dump, or a wait on a queue that no dump has.
    """
    dumps = [checked(_DUMP.decode, blob, "the dump of a SIP") for blob in blobs]
    waits = list(_all_waits(dumps))
    cycle = find_cycle(waits)
    roots = cycle or find_roots(waits)
    others = [task for dump in dumps for task in dump.tasks if not task.op]
    reason = _cycle_text(cycle) if cycle else _missing_text(roots) if roots else _other_text(others)
    count = len({task.place for task in (*others, *(wait.task for wait in waits)) if task.place[1] >= 0})
    now_ps = max((d.now_ps for d in dumps), default=0)
    waiting = "1 PE waits" if count == 1 else f"{count} PEs wait"
    headline = f"{waiting} and nothing can happen any more, at {format_time_ps(now_ps)}; {reason}"
    ordered = [*roots, *(wait for wait in waits if wait not in roots)]
    unread = _unread_by_place(dumps)
    lines = grouped([(wait.task.place, _wait_text(wait, unread)) for wait in ordered], "wait")
    if waits:
        edges = [(wait.task.place, f"    {_edge_text(wait)}") for wait in ordered]
        lines += ["  waits-for graph:", *grouped(edges, "wait")]
    lines += grouped_ranks([(task.place[0], f"{task.name} waits for {task.waits_for}") for task in others])
    lines += grouped_ranks([(d.rank, "its script has ended") for d in dumps if not d.tasks])
    facts: DeadlockFacts = {
        "reason": reason,
        "time_ps": now_ps,
        "waits": [_facts(wait) for wait in ordered],
        "cycle": [list(wait.task.place) for wait in cycle],
    }
    return Explanation(headline, "\n".join(lines), facts)


def find_cycle(waits: list[Wait]) -> list[Wait]:
    """PEs that wait for each other in a cycle, starting at the least place; empty when there is none.

    A PE that waits for any of several directions is blocked only if all of their peers are.
    """
    by_place: dict[Place, list[Wait]] = {}
    for wait in waits:
        by_place.setdefault(wait.task.place, []).append(wait)
    while free := [place for place, its in by_place.items() if any(w.local.peer not in by_place for w in its)]:
        for place in free:
            del by_place[place]
    if not by_place:
        return []
    # Each PE left waits for a PE that is left, so every path closes.
    path = [by_place[min(by_place)][0]]
    places = [path[0].task.place]
    while path[-1].local.peer not in places:
        places.append(path[-1].local.peer)
        path.append(by_place[places[-1]][0])
    return path[places.index(path[-1].local.peer) :]


def find_roots(waits: list[Wait]) -> list[Wait]:
    """The waits for a PE that does not wait itself; the others follow from them."""
    places = {wait.task.place for wait in waits}
    return [wait for wait in waits if wait.local.peer not in places]


def _all_waits(dumps: list[SipDump]) -> Iterator[Wait]:
    queues = {(q.place, q.direction): q for d in dumps for q in d.queues}
    receivers = {q.rx_base_pa: q for q in queues.values()}
    senders = {q.tx_base_pa: q for q in queues.values() if q.tx_base_pa}
    for task in (task for d in dumps for task in d.tasks if task.op):
        for direction in task.directions:
            local = queues.get((task.place, direction))
            if local is None:
                raise BadFrame(
                    f"not the dump of a SIP: {place_name(task.place)} waits in {direction}, which is nowhere"
                )
            far = receivers.get(local.tx_base_pa) or senders.get(local.rx_base_pa)
            yield Wait(task, local, far)


def _unread_by_place(dumps: list[SipDump]) -> dict[Place, list[QueueState]]:
    unread: dict[Place, list[QueueState]] = {}
    for queue in (q for d in dumps for q in d.queues if q.unread > 0):
        unread.setdefault(queue.place, []).append(queue)
    return unread


def _wait_text(wait: Wait, unread: dict[Place, list[QueueState]]) -> str:
    task, local, far = wait
    state = _ring_text(task.op, local)
    lines = [f"  {place_name(task.place)} waits in {task.op} {local.direction}, peer {place_name(local.peer)}: {state}"]
    lines.append(f"    here:  {pointers(local)}")
    if far is not None:
        lines.append(f"    there: {pointers(far)} (its {far.direction})")
    others = [
        f"{q.unread} from {q.direction}" for q in unread.get(task.place, []) if q.direction not in task.directions
    ]
    if others and task.op == "recv":
        lines.append(f"    it has unread messages in other directions: {', '.join(others)}")
    return "\n".join(lines)


def _ring_text(op: str, local: QueueState) -> str:
    if op == "send":
        return f"{local.my_head - local.peer_tail_cache} of its ring's {local.n_slots} slots are full"
    return f"message {local.my_tail} has not arrived"


def _edge_text(wait: Wait) -> str:
    return f"{place_name(wait.task.place)} -> {place_name(wait.local.peer)} ({wait.task.op} {wait.local.direction})"


def _cycle_text(cycle: list[Wait]) -> str:
    steps = [f"{place_name(w.task.place)} ({w.task.op} {w.local.direction})" for w in cycle]
    return "a cycle: " + shortened([*steps, place_name(cycle[0].task.place)])


def _missing_text(roots: list[Wait]) -> str:
    task, local, _ = roots[0]
    runs = f"{place_name(local.peer)}, which waits for nothing,"
    if task.op == "recv":
        return f"missing: a send by {runs} to {place_name(task.place)} (its recv {' or '.join(task.directions)})"
    return f"missing: a recv by {runs} of what {place_name(task.place)} sends {local.direction}"


def _other_text(tasks: list[TaskState]) -> str:
    """Why nothing happens when no PE waits in a queue."""
    kernels = [task for task in tasks if task.place[1] >= 0]
    if not kernels:
        return "the host scripts wait, and no kernel is left to resume them"
    first = min(kernels, key=lambda task: task.place)
    return f"{place_name(first.place)} waits for {first.waits_for}, which nothing will end"


def _facts(wait: Wait) -> WaitFacts:
    far = None if wait.far is None else _end(wait.far)
    return {"op": wait.task.op, "here": _end(wait.local), "peer": list(wait.local.peer), "there": far}


def _end(queue: QueueState) -> QueueEnd:
    return {
        "rank": queue.place[0],
        "cube": queue.place[1],
        "pe": queue.place[2],
        "direction": queue.direction,
        "my_head": queue.my_head,
        "my_tail": queue.my_tail,
        "peer_head_cache": queue.peer_head_cache,
        "peer_tail_cache": queue.peer_tail_cache,
        "rx_base_pa": queue.rx_base_pa,
        "rx_bytes": queue.rx_bytes,
    }
