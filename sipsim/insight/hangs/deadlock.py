"""Explains a deadlock from the dumps of all SIPs: its likely cause, and where in the code every kernel waits.

Runs in the launcher; the broker forwards the dumps as bytes. Pure.
"""

from collections.abc import Iterator
from typing import NamedTuple

from broker.wire import BadFrame
from sipsim.chips.ahbm.collectives.queue_dump import pointers
from sipsim.core.errors import Deadlock, IpcqDeadlock
from sipsim.core.units import format_time_ps
from sipsim.insight.hangs.blocked import BlockedChannels, explain_blocked, find_cycle
from sipsim.insight.hangs.calls import calls_hint
from sipsim.insight.hangs.facts import DeadlockFacts, QueueEnd, WaitFacts
from sipsim.insight.hangs.fold import Entry, describe, folded, shortened
from sipsim.insight.hangs.positions import at, task_entries, task_facts
from sipsim.records.dump import HOST_SCRIPT, Place, QueueState, SipDump, TaskState, dump_from, place_name

Unread = dict[Place, list[QueueState]]


class Wait(NamedTuple):
    """A PE that waits on a queue, and the far end of that queue, None if no dump has it."""

    task: TaskState
    local: QueueState
    far: QueueState | None


class Explanation(NamedTuple):
    """One line with the likely cause; equal waits folded, a line each; every wait for itself, those on queues with
    pointers and the waits-for graph; and the same as plain values for the result file.
    """

    headline: str
    report: str
    whole: str
    facts: DeadlockFacts


class _Cause(NamedTuple):
    """``first``: for the headline; ``second``: for the line below, or empty; ``reason`` and ``hint`` of the facts."""

    first: str
    second: str
    reason: str
    hint: str


class _State(NamedTuple):
    """All that the dumps say, and ``folder``, below which files are shown by their path from there."""

    dumps: list[SipDump]
    waits: list[Wait]
    others: list[TaskState]
    roots: list[Wait]
    cycle: list[Wait]
    unread: Unread
    folder: str


def kind_of(blobs: list[bytes]) -> str:
    """The kind of the failure: that of a chip with queues, if one has any."""
    return (IpcqDeadlock if any(dump_from(blob).has_ipcq for blob in blobs) else Deadlock).kind


def explain_deadlock(blobs: list[bytes], folder: str = "") -> Explanation:
    """Merge the dumps of all SIPs into one explanation. ``folder``: the working folder of the reader.

    Raises:
        BadFrame: for bytes that are no dump, or a wait on a queue that no dump has.
    """
    dumps = [dump_from(blob) for blob in blobs]
    waits = list(_all_waits(dumps))
    cycle = cycle_of(waits)
    roots = cycle or find_roots(waits)
    are_roots = set(map(id, roots))
    ordered = [*roots, *(wait for wait in waits if id(wait) not in are_roots)]
    others = [task for dump in dumps for task in dump.tasks if not task.op]
    state = _State(dumps, ordered, others, roots, cycle, _unread_by_place(dumps), folder)
    blocked = explain_blocked(dumps)
    cause = _cause(state, blocked)
    now_ps = max((d.now_ps for d in dumps), default=0)
    places = {task.place for task in (*others, *(wait.task for wait in waits)) if task.place[1] >= 0}
    waiting = "1 PE waits and " if len(places) == 1 else f"{len(places)} PEs wait and " if places else ""
    headline = f"{cause.first}; {waiting}nothing can happen any more, at {format_time_ps(now_ps)}"
    positions = [*folded(_kernel_entries(state)), *_script_lines(state)]
    second = [f"  {cause.second}"] if cause.second else []
    facts: DeadlockFacts = {
        "reason": cause.reason,
        "hint": cause.hint,
        "time_ps": now_ps,
        "waits": [_facts(wait) for wait in ordered],
        "cycle": [list(wait.task.place) for wait in cycle],
        "others": [task_facts(task) for task in others],
    }
    if blocked is not None:
        facts |= {"blocked": blocked.facts, "channel_cycle": blocked.cycle}
    whole = [headline, *second, *(blocked.lines if blocked else []), *positions, "", "every wait:"]
    if ordered:
        whole += [_wait_text(wait, state) for wait in ordered]
        whole += ["", "waits-for graph:", *(f"  {_edge_text(wait)}" for wait in ordered)]
    else:
        whole += [f"  {place_name(each.place)}: {each.text}" for each in task_entries(others, folder)]
    report = [*second, *(blocked.short_lines if blocked else []), *positions]
    return Explanation(headline, "\n".join(report), "\n".join(whole) + "\n", facts)


def _cause(state: _State, blocked: BlockedChannels | None) -> _Cause:
    """A cycle of channels is what it is; a missing message may have a likelier cause."""
    hint, more = _hints(state)
    if blocked is not None and blocked.cycle:
        return _Cause(blocked.reason, hint or more, blocked.reason, hint or more)
    if state.cycle:
        reason = _cycle_text(state)
    elif state.roots:
        reason = _missing_text(state)
    else:
        reason = blocked.reason if blocked else _other_text(state.others, state.folder)
    return _Cause(hint or reason, reason if hint else more, reason, hint or more)


def cycle_of(waits: list[Wait]) -> list[Wait]:
    """PEs that wait for each other in a cycle, starting at the least place on it; empty when there is none.

    A PE that waits for any of several directions is blocked only if all of their peers are.
    """
    ordered = sorted(waits, key=lambda wait: wait.task.place)
    first: dict[Place, Wait] = {}
    for wait in ordered:
        first.setdefault(wait.task.place, wait)
    return [first[place] for place in find_cycle((wait.task.place, wait.local.peer) for wait in ordered)]


def find_roots(waits: list[Wait]) -> list[Wait]:
    """The waits for a PE that does not wait itself; the others follow from them."""
    places = {wait.task.place for wait in waits}
    return [wait for wait in waits if wait.local.peer not in places]


def _all_waits(dumps: list[SipDump]) -> Iterator[Wait]:
    queues = {(q.place, q.direction): q for d in dumps for q in d.queues}
    receivers = {(q.generation, q.rx_base_pa): q for q in queues.values()}
    senders = {(q.generation, q.tx_base_pa): q for q in queues.values() if q.tx_base_pa}
    for task in (task for d in dumps for task in d.tasks if task.op):
        for direction in task.directions:
            local = queues.get((task.place, direction))
            if local is None:
                raise BadFrame(
                    f"not the dump of a SIP: {place_name(task.place)} waits in {direction}, which is nowhere"
                )
            number = local.generation
            far = receivers.get((number, local.tx_base_pa)) or senders.get((number, local.rx_base_pa))
            yield Wait(task, local, far)


def _unread_by_place(dumps: list[SipDump]) -> Unread:
    unread: Unread = {}
    for queue in (q for d in dumps for q in d.queues if q.unread > 0):
        unread.setdefault(queue.place, []).append(queue)
    return unread


def _unread_elsewhere(task: TaskState, unread: Unread) -> list[QueueState]:
    """Rings with messages that a PE does not receive, since it waits in other directions."""
    if task.op != "recv":
        return []
    return [queue for queue in unread.get(task.place, []) if queue.direction not in task.directions]


# --- the likely cause ---


def _hints(state: _State) -> tuple[str, str]:
    """What is likelier than a cycle or a missing message, and what may be behind those; each may be ""."""
    calls = calls_hint(state.dumps)
    if calls:
        return calls, ""
    unused = _unused_hint(state)
    if unused:
        return unused, ""
    tasks = list({wait.task.place: wait.task for wait in state.roots}.values())
    wrong = [task for task in tasks if _unread_elsewhere(task, state.unread)]
    text = _direction_hint(wrong, state) if wrong else _sent_elsewhere_hint(state)
    return (text, "") if wrong and len(wrong) == len(tasks) else ("", text)


def _unused_hint(state: _State) -> str:
    """A send waits for a slot whose message was received and is kept by a handle that no command has named."""
    for wait in state.waits:
        unused = [] if wait.far is None else list(filter(None, wait.far.in_use))
        if wait.task.op == "send" and wait.far is not None and unused:
            far, names = wait.far, ", ".join(unused[:4])
            slots = f"{len(unused)} of the {far.n_slots} slots of its ring {far.direction}"
            what = f"{place_name(far.place)} has received {slots} into handles that no command has named: {names}"
            return (
                f"{what} (latch: in_place); name one in a command, or tl.release it; else give defaults.n_slots more, "
                f"or defaults.latch copy"
            )
    return ""


def _direction_hint(wrong: list[TaskState], state: _State) -> str:
    """PEs that wait in one direction while messages from another are unread."""
    groups: dict[str, set[Place]] = {}
    for task in wrong:
        ways = " and ".join(sorted(queue.direction for queue in _unread_elsewhere(task, state.unread)))
        text = f"in {_doing(task, state.folder)}, with unread messages from {ways}"
        groups.setdefault(text, set()).add(task.place)
    text, places = max(groups.items(), key=lambda each: len(each[1]))
    rest = f" (and {len(groups) - 1} more kinds of such waits)" if len(groups) > 1 else ""
    return f"perhaps a wrong direction: {describe(places)} {'waits' if len(places) == 1 else 'wait'} {text}{rest}"


def _sent_elsewhere_hint(state: _State) -> str:
    """A PE that others wait for has sent messages that nobody has received, perhaps in a wrong direction."""
    senders = {wait.local.peer for wait in state.roots if wait.task.op == "recv"}
    queues = (queue for dump in state.dumps for queue in dump.queues if queue.tx_base_pa)
    by_tx = {(queue.generation, queue.tx_base_pa): queue for queue in queues}
    for queue in (queue for queues in state.unread.values() for queue in queues if queue.peer in senders):
        sender = by_tx.get((queue.generation, queue.rx_base_pa))
        way = f" in direction {sender.direction}" if sender is not None else ""
        sent = f"{place_name(queue.peer)} has sent {queue.unread}{way} to {place_name(queue.place)}"
        return f"perhaps a wrong direction: {sent}, which has not received them"
    return ""


def _cycle_text(state: _State) -> str:
    cycle = state.cycle
    ats = {at(wait.task, state.folder) for wait in cycle}
    common = ats.pop() if len(ats) == 1 else ""
    own = ["" if common else at(wait.task, state.folder) for wait in cycle]
    steps = [
        f"{place_name(wait.task.place)} ({wait.task.op} {wait.local.direction}{where})"
        for wait, where in zip(cycle, own, strict=True)
    ]
    return "a cycle: " + shortened([*steps, place_name(cycle[0].task.place)]) + (f", all{common}" if common else "")


def _missing_text(state: _State) -> str:
    task, local, _ = state.roots[0]
    where = at(task, state.folder)
    runs = f"{place_name(local.peer)}, which waits for nothing,"
    if task.op == "recv":
        return f"missing: a send by {runs} to {place_name(task.place)} (its recv {' or '.join(task.directions)}{where})"
    return f"missing: a recv by {runs} of what {place_name(task.place)} sends {local.direction}{where}"


def _other_text(tasks: list[TaskState], folder: str) -> str:
    """Why nothing happens when no PE waits in a queue."""
    kernels = [task for task in tasks if task.place[1] >= 0]
    on_tiles = [task for task in tasks if task.place[1] < 0 and not task.is_server and task.name != HOST_SCRIPT]
    if on_tiles and not kernels:
        first = min(on_tiles, key=lambda task: task.place)
        what = f"{first.name} of {place_name(first.place)} waits for {first.waits_for}"
        return f"{what}{at(first, folder)}, which nothing will end"
    if not kernels:
        return "the host scripts wait, and no kernel is left to resume them"
    first = min(kernels, key=lambda task: task.place)
    return f"{place_name(first.place)} waits for {first.waits_for}{at(first, folder)}, which nothing will end"


# --- folded, for the terminal ---


def _doing(task: TaskState, folder: str) -> str:
    return f"{task.op} {' or '.join(task.directions)}{at(task, folder)}"


def _kernel_entries(state: _State) -> list[Entry]:
    """A PE for each line: those that wait on queues, roots first, then the others."""
    entries: dict[Place, Entry] = {}
    for wait in state.waits:
        task = wait.task
        ways = ", ".join(sorted(queue.direction for queue in _unread_elsewhere(task, state.unread)))
        note = f"; unread messages from {ways}" if ways else ""
        alone = f"; peer {place_name(wait.local.peer)}: {_ring_text(task.op, wait.local)}"
        roughly = f"{task.op} in several directions{at(task, state.folder)}"
        entry = Entry(task.place, _doing(task, state.folder) + note, alone, roughly)
        entries.setdefault(task.place, entry)
    kernels = [task for task in state.others if task.place[1] >= 0]
    return [*entries.values(), *task_entries(kernels, state.folder)]


def _script_lines(state: _State) -> list[str]:
    scripts = [task for task in state.others if task.place[1] < 0]
    ended = [Entry((d.rank, -1, -1), "its script has ended") for d in state.dumps if not d.tasks]
    return folded([*task_entries(scripts, state.folder), *ended], most=8)


# --- every wait ---


def _wait_text(wait: Wait, state: _State) -> str:
    task, local, far = wait
    what = f"waits in {task.op} {local.direction}{at(task, state.folder)}"
    lines = [f"  {place_name(task.place)} {what}, peer {place_name(local.peer)}: {_ring_text(task.op, local)}"]
    lines.append(f"    here:  {pointers(local)}")
    if far is not None:
        lines.append(f"    there: {pointers(far)} (its {far.direction})")
    others = [f"{queue.unread} from {queue.direction}" for queue in _unread_elsewhere(task, state.unread)]
    if others:
        lines.append(f"    it has unread messages in other directions: {', '.join(others)}")
    return "\n".join(lines)


def _ring_text(op: str, local: QueueState) -> str:
    if op == "send":
        return f"{local.my_head - local.peer_tail_cache} of its ring's {local.n_slots} slots are full"
    return f"message {local.my_tail + len(local.in_use)} has not arrived"


def _edge_text(wait: Wait) -> str:
    return f"{place_name(wait.task.place)} -> {place_name(wait.local.peer)} ({wait.task.op} {wait.local.direction})"


def _facts(wait: Wait) -> WaitFacts:
    far = None if wait.far is None else _end(wait.far)
    return {
        "op": wait.task.op,
        "file": wait.task.file,
        "line": wait.task.line,
        "here": _end(wait.local),
        "peer": list(wait.local.peer),
        "there": far,
    }


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
