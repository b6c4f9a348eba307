"""Telling why nothing moves: each SIP's dump of its queue pairs, and the deadlock that all dumps together show.

``dump`` runs in a SIP; ``explain_deadlock`` in the launcher, on the dumps of all SIPs. The broker between them
sees bytes.
"""

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from sipsim.pe.ipcq import QueuePair, Waiting
from sipsim.units import format_time_ps

if TYPE_CHECKING:
    from sipsim.sip import Sip

Place = tuple[int, int, int]


class QueueState(msgspec.Struct, frozen=True):
    """One queue pair at the end: its place, direction, peer, the four pointers and the address range it receives in."""

    place: Place
    direction: str
    peer: Place
    my_head: int
    my_tail: int
    peer_head_cache: int
    peer_tail_cache: int
    rx_base_pa: int
    rx_bytes: int
    tx_base_pa: int
    n_slots: int


class TaskState(msgspec.Struct, frozen=True):
    """A task that has not ended: what it waits for; ``op`` and ``direction`` when that is a queue."""

    place: Place
    name: str
    waits_for: str
    op: str
    direction: str


class SipDump(msgspec.Struct, frozen=True):
    """All that one SIP knows of its queues."""

    rank: int
    now_ps: int
    queues: tuple[QueueState, ...]
    tasks: tuple[TaskState, ...]


class Wait(NamedTuple):
    """A PE that waits on a queue, and the other end of that queue."""

    task: TaskState
    mine: QueueState
    theirs: QueueState | None


def dump(sip: "Sip") -> bytes:
    """A SIP's state for the deadlock report."""
    queues = tuple(_queue_state(pe.ipcq.place, queue) for pe in sip.pes_in_use() for queue in pe.ipcq.queues.values())
    by_task = {id(pe.task): pe.ipcq.place for pe in sip.pes_in_use() if pe.task is not None}
    tasks = []
    for task in sip.tasks:
        if not task.ended:
            reason = task.waits_for
            place = by_task.get(id(task), (sip.sip, -1, -1))
            if isinstance(reason, Waiting):
                tasks.append(TaskState(place, task.name, reason.op, reason.op, reason.queue.direction))
            else:
                tasks.append(TaskState(place, task.name, str(reason), "", ""))
    return msgspec.json.encode(SipDump(sip.sip, sip.engine.now_ps, queues, tuple(tasks)))


def explain_deadlock(blobs: list[bytes]) -> tuple[str, str]:
    """(one line, the whole report) from the dumps of all SIPs."""
    dumps = [msgspec.json.decode(blob, type=SipDump) for blob in blobs]
    queues = {(q.place, q.direction): q for d in dumps for q in d.queues}
    rings = {(q.place, q.rx_base_pa): q for q in queues.values()}
    waits = [_wait_of(task, queues, rings) for d in dumps for task in d.tasks if task.op]
    cycle = find_cycle(waits)
    now_ps = max(d.now_ps for d in dumps)
    roots = cycle or find_roots(waits)
    reason = _say_cycle(cycle) if cycle else _say_missing(roots)
    headline = f"{len(waits)} PEs wait and nothing can happen any more, at {format_time_ps(now_ps)}; {reason}"
    lines = [_say_wait(wait) for wait in [*roots, *(wait for wait in waits if wait not in roots)]]
    lines += [f"  rank {t.place[0]}: {t.name} waits for {t.waits_for}" for d in dumps for t in d.tasks if not t.op]
    lines += [f"  rank {d.rank}: its script has ended" for d in dumps if not d.tasks]
    return headline, "\n".join(lines)


def find_cycle(waits: list[Wait]) -> list[Wait]:
    """PEs that wait for each other in a circle, starting at the least place; empty when there is none."""
    by_place = {wait.task.place: wait for wait in waits}
    for start in sorted(by_place):
        path: list[Place] = []
        here: Place | None = start
        while here in by_place and here not in path:
            path.append(here)
            here = by_place[here].mine.peer
        if here in path:
            circle = path[path.index(here) :]
            return [by_place[place] for place in circle]
    return []


def find_roots(waits: list[Wait]) -> list[Wait]:
    """The waits that others only follow from: those for a PE that does not wait itself."""
    places = {wait.task.place for wait in waits}
    return [wait for wait in waits if wait.mine.peer not in places]


def _queue_state(place: Place, queue: QueuePair) -> QueueState:
    peer = queue.peer
    return QueueState(
        place,
        queue.direction,
        (peer.sip, peer.cube, peer.pe),
        queue.my_head,
        queue.my_tail,
        queue.peer_head_cache,
        queue.peer_tail_cache,
        queue.my_rx_base_pa,
        queue.n_slots * queue.slot_size,
        peer.rx_base_pa,
        queue.n_slots,
    )


def _wait_of(
    task: TaskState, queues: dict[tuple[Place, str], QueueState], rings: dict[tuple[Place, int], QueueState]
) -> Wait:
    mine = queues[task.place, task.direction]
    return Wait(task, mine, rings.get((mine.peer, mine.tx_base_pa)))


def _name(place: Place) -> str:
    return f"rank {place[0]} cube {place[1]} PE {place[2]}"


def _pointers(queue: QueueState) -> str:
    return (
        f"my_head={queue.my_head} my_tail={queue.my_tail} "
        f"peer_head_cache={queue.peer_head_cache} peer_tail_cache={queue.peer_tail_cache}"
    )


def _say_wait(wait: Wait) -> str:
    task, mine, theirs = wait
    lines = [f"  {_name(task.place)} waits in {task.op} {task.direction}, peer {_name(mine.peer)}"]
    lines.append(f"    here:  {_pointers(mine)}")
    if theirs is not None:
        lines.append(f"    there: {_pointers(theirs)} (its {theirs.direction})")
    return "\n".join(lines)


def _say_cycle(cycle: list[Wait]) -> str:
    steps = [f"{_name(w.task.place)} ({w.task.op} {w.task.direction})" for w in cycle]
    return "a circle: " + " -> ".join([*steps, _name(cycle[0].task.place)])


def _say_missing(roots: list[Wait]) -> str:
    if not roots:
        return "the host scripts wait for something that no kernel will do"
    task, mine, _ = roots[0]
    runs = f"{_name(mine.peer)}, which waits for nothing,"
    if task.op == "recv":
        return f"missing: a send by {runs} to {_name(task.place)} (its recv {task.direction})"
    return f"missing: a recv by {runs} of what {_name(task.place)} sends {task.direction}"
