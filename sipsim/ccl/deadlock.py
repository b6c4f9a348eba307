"""What a deadlock is told as, from the dumps of all SIPs: a circle of PEs, or somebody who did not come.

Runs in the launcher; the broker between it and the SIPs sees bytes. Pure.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from broker.wire import BadFrame, checked
from sipsim.ccl.diagnostics import QueueState, SipDump, TaskState, place_name, pointers
from sipsim.ccl.wait_groups import grouped, grouped_ranks, shortened
from sipsim.ipcq.messages import Place
from sipsim.units import format_time_ps

_DUMP = msgspec.json.Decoder(SipDump)


class Wait(NamedTuple):
    """A PE that waits on a queue, and the other end of that queue, None where nothing is known of it."""

    task: TaskState
    mine: QueueState
    theirs: QueueState | None


class Explanation(NamedTuple):
    """One line, the report, and the same as plain values for the result file."""

    headline: str
    report: str
    facts: dict[str, Any]


def explain_deadlock(blobs: list[bytes]) -> Explanation:
    """What all dumps together show.

    Raises:
        BadFrame: for a dump that is none, or that tells of a wait at a queue which no dump has.
    """
    dumps = [checked(_DUMP.decode, blob, "the dump of a SIP") for blob in blobs]
    waits = list(_all_waits(dumps))
    cycle = find_cycle(waits)
    roots = cycle or find_roots(waits)
    reason = _say_cycle(cycle) if cycle else _say_missing(roots)
    count = len({wait.task.place for wait in waits})
    now_ps = max((d.now_ps for d in dumps), default=0)
    who = "1 PE waits" if count == 1 else f"{count} PEs wait"
    headline = f"{who} and nothing can happen any more, at {format_time_ps(now_ps)}; {reason}"
    ordered = [*roots, *(wait for wait in waits if wait not in roots)]
    unread = _unread_by_place(dumps)
    lines = grouped([(wait.task.place, _say_wait(wait, unread)) for wait in ordered], "wait")
    if waits:
        edges = [(wait.task.place, f"    {_say_edge(wait)}") for wait in ordered]
        lines += ["  who waits for whom:", *grouped(edges, "wait")]
    others = [(t.place[0], f"{t.name} waits for {t.waits_for}") for d in dumps for t in d.tasks if not t.op]
    lines += grouped_ranks(others)
    lines += grouped_ranks([(d.rank, "its script has ended") for d in dumps if not d.tasks])
    facts = {"reason": reason, "time_ps": now_ps, "waits": [_facts(w) for w in ordered]}
    facts["cycle"] = [list(wait.task.place) for wait in cycle]
    return Explanation(headline, "\n".join(lines), facts)


def find_cycle(waits: list[Wait]) -> list[Wait]:
    """PEs that wait for each other in a circle, starting at the least place; empty when there is none.

    Whom one of several directions could help is in no circle, nor who waits for that PE.
    """
    by_place: dict[Place, list[Wait]] = {}
    for wait in waits:
        by_place.setdefault(wait.task.place, []).append(wait)
    while helped := [place for place, mine in by_place.items() if any(w.mine.peer not in by_place for w in mine)]:
        for place in helped:
            del by_place[place]
    if not by_place:
        return []
    # Whoever is left waits for somebody who is left, so any way from here closes.
    path = [by_place[min(by_place)][0]]
    places = [path[0].task.place]
    while path[-1].mine.peer not in places:
        places.append(path[-1].mine.peer)
        path.append(by_place[places[-1]][0])
    return path[places.index(path[-1].mine.peer) :]


def find_roots(waits: list[Wait]) -> list[Wait]:
    """The waits that others only follow from: those for a PE that does not wait itself."""
    places = {wait.task.place for wait in waits}
    return [wait for wait in waits if wait.mine.peer not in places]


def _all_waits(dumps: list[SipDump]) -> Iterator[Wait]:
    queues = {(q.place, q.direction): q for d in dumps for q in d.queues}
    receivers = {q.rx_base_pa: q for q in queues.values()}
    senders = {q.tx_base_pa: q for q in queues.values() if q.tx_base_pa}
    for task in (task for d in dumps for task in d.tasks if task.op):
        for direction in task.directions:
            mine = queues.get((task.place, direction))
            if mine is None:
                raise BadFrame(
                    f"not the dump of a SIP: {place_name(task.place)} waits in {direction}, which is nowhere"
                )
            far = receivers.get(mine.tx_base_pa) or senders.get(mine.rx_base_pa)
            yield Wait(task, mine, far)


def _unread_by_place(dumps: list[SipDump]) -> dict[Place, list[QueueState]]:
    unread: dict[Place, list[QueueState]] = {}
    for queue in (q for d in dumps for q in d.queues if q.unread > 0):
        unread.setdefault(queue.place, []).append(queue)
    return unread


def _say_wait(wait: Wait, unread: dict[Place, list[QueueState]]) -> str:
    task, mine, theirs = wait
    state = _say_ring(task.op, mine)
    lines = [f"  {place_name(task.place)} waits in {task.op} {mine.direction}, peer {place_name(mine.peer)}: {state}"]
    lines.append(f"    here:  {pointers(mine)}")
    if theirs is not None:
        lines.append(f"    there: {pointers(theirs)} (its {theirs.direction})")
    others = [
        f"{q.unread} from {q.direction}" for q in unread.get(task.place, []) if q.direction not in task.directions
    ]
    if others and task.op == "recv":
        lines.append(f"    it has messages that it does not ask for: {', '.join(others)}")
    return "\n".join(lines)


def _say_ring(op: str, mine: QueueState) -> str:
    if op == "send":
        return f"{mine.my_head - mine.peer_tail_cache} of its ring's {mine.n_slots} slots are full"
    return f"message {mine.my_tail} has not come"


def _say_edge(wait: Wait) -> str:
    return f"{place_name(wait.task.place)} -> {place_name(wait.mine.peer)} ({wait.task.op} {wait.mine.direction})"


def _say_cycle(cycle: list[Wait]) -> str:
    steps = [f"{place_name(w.task.place)} ({w.task.op} {w.mine.direction})" for w in cycle]
    return "a circle: " + shortened([*steps, place_name(cycle[0].task.place)])


def _say_missing(roots: list[Wait]) -> str:
    if not roots:
        return "the host scripts wait for something that no kernel will do"
    task, mine, _ = roots[0]
    runs = f"{place_name(mine.peer)}, which waits for nothing,"
    if task.op == "recv":
        return f"missing: a send by {runs} to {place_name(task.place)} (its recv {' or '.join(task.directions)})"
    return f"missing: a recv by {runs} of what {place_name(task.place)} sends {mine.direction}"


def _facts(wait: Wait) -> dict[str, Any]:
    def end(queue: QueueState) -> dict[str, Any]:
        sip, cube, pe = queue.place
        names = ("direction", "my_head", "my_tail", "peer_head_cache", "peer_tail_cache", "rx_base_pa", "rx_bytes")
        return {"rank": sip, "cube": cube, "pe": pe, **{name: getattr(queue, name) for name in names}}

    theirs = None if wait.theirs is None else end(wait.theirs)
    return {"op": wait.task.op, "here": end(wait.mine), "peer": list(wait.mine.peer), "there": theirs}
