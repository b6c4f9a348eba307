"""Finds the likely cause of a deadlock in the program: collectives called in different orders or not by all ranks,
slots that unused handles hold, a wrong direction. Pure.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from sipsim.collectives.call import SAME, WORLD, CallKey, OpenCall, open_call_text
from sipsim.insight.hangs.fold import describe, numbered
from sipsim.insight.hangs.positions import doing_in_queue
from sipsim.insight.hangs.waits import Wait
from sipsim.records.dump import Place, SipDump, place_name

MOST_CALLS = 4


def hint_of(dumps: Sequence[SipDump], waits: Sequence[Wait], roots: Sequence[Wait], folder: str) -> tuple[str, bool]:
    """Return the hint or "", and whether the hint is a likelier cause than a cycle or a missing message."""
    hint = _calls_hint(dumps) or _unused_hint(waits)
    if hint:
        return hint, True
    every = {wait.place: wait for wait in roots}.values()
    wrong = [wait for wait in every if wait.unread]
    if wrong:
        return _direction_hint(wrong, folder), len(wrong) == len(every)
    return _sent_elsewhere_hint(dumps, roots), False


def _calls_hint(dumps: Sequence[SipDump]) -> str:
    """Return a hint on calls that ranks made in different orders; else on calls that some ranks have not made."""
    found = _crossed(dumps) or _not_made(dumps) or _ended_early(dumps)
    return f"{found}; {SAME}" if found else ""


def _crossed(dumps: Sequence[SipDump]) -> str:
    """Return a text for a cycle of calls, each of which waits on some rank for an earlier call of the cycle."""
    calls = {call.key: call for dump in dumps for call in dump.open_calls}
    behind: dict[CallKey, dict[CallKey, int]] = {key: {} for key in calls}
    for dump in dumps:
        for call in dump.open_calls:
            for other in call.behind:
                behind[call.key].setdefault(other, dump.rank)
    try:
        TopologicalSorter(behind).prepare()
    except CycleError as error:
        cycle: list[CallKey] = error.args[1][:0:-1]
    else:
        return ""
    first = cycle.index(min(cycle))
    orders = [
        f"rank {behind[later][first]} has called {open_call_text(calls[first])}, before {open_call_text(calls[later])}"
        for later, first in pairwise([*cycle[first:], *cycle[: first + 1]])
    ]
    if len(orders) > MOST_CALLS:
        orders[MOST_CALLS - 1 :] = [f"{len(orders) - MOST_CALLS + 1} more such orders"]
    return "; ".join(orders)


def _not_made(dumps: Sequence[SipDump]) -> str:
    """Return a text for calls that some ranks wait in and other ranks have not made; likely causes first."""
    made = {dump.rank: dump.calls for dump in dumps}
    ended = {dump.rank for dump in dumps if not dump.tasks}
    waiting: dict[CallKey, tuple[OpenCall, list[int]]] = {}
    for dump in dumps:
        for call in dump.open_calls:
            waiting.setdefault(call.key, (call, []))[1].append(dump.rank)
    missing = []
    for _, (call, ranks) in sorted(waiting.items(), key=lambda each: each[0]):
        absent = [rank for rank in sorted(call.sips) if rank in made and made[rank].get(call.group, 0) < call.number]
        if absent:
            missing.append((call, absent, sorted(ranks)))
    busy = {rank for _, _, ranks in missing for rank in ranks}
    # A call missing on a rank that waits in no other such call causes the others.
    missing.sort(key=lambda each: (busy.issuperset(each[1]), each[0].group))
    texts = []
    for call, absent, ranks in missing[:MOST_CALLS]:
        has, its = ("have", "their scripts have") if absent[1:] else ("has", "its script has")
        reason = f" ({its} ended)" if ended.issuperset(absent) else ""
        others = f"{numbered('rank', ranks)} {'wait' if ranks[1:] else 'waits'} in it"
        texts.append(f"{numbered('rank', absent)} {has} not called {open_call_text(call)}{reason}; {others}")
    if len(missing) > MOST_CALLS:
        texts.append(f"{len(missing) - MOST_CALLS} more such calls")
    return "; ".join(texts)


def _ended_early(dumps: Sequence[SipDump]) -> str:
    """Return a text for scripts that have ended after fewer collectives than other ranks have called."""
    calls = {dump.rank: dump.calls.get(WORLD, 0) for dump in dumps}
    most = max(calls.values(), default=0)
    fewer = {dump.rank: calls[dump.rank] for dump in dumps if calls[dump.rank] < most and not dump.tasks}
    if not fewer:
        return ""
    number = min(fewer.values())
    who = numbered("rank", {rank for rank, made in fewer.items() if made == number})
    others = numbered("rank", {rank for rank, made in calls.items() if made == most})
    after = "1 call" if number == 1 else f"{number} calls"
    return f"ranks called other collectives: the script of {who} has ended after {after}, {others} made {most}"


def _unused_hint(waits: Sequence[Wait]) -> str:
    """Return a hint on a send that waits for slots whose messages are held by handles that no command has used."""
    for task, _, far, _ in waits:
        unused = [] if far is None else list(filter(None, far.in_use))
        if task.op == "send" and far is not None and unused:
            slots = f"{len(unused)} of the {far.n_slots} slots of its ring {far.direction}"
            what = f"{place_name(far.place)} has received {slots} into handles that no command has named"
            return (
                f"{what}: {', '.join(unused[:4])} (latch: in_place); name a handle in a command, or tl.release the "
                f"handle; else raise defaults.n_slots, or set defaults.latch=copy"
            )
    return ""


def _direction_hint(wrong: Sequence[Wait], folder: str) -> str:
    """Return a hint on PEs that wait in one direction while messages from another direction are unread."""
    groups: dict[str, set[Place]] = {}
    for wait in wrong:
        directions = " and ".join(sorted(queue.direction for queue in wait.unread))
        text = f"in {doing_in_queue(wait.task, folder)}, with unread messages from {directions}"
        groups.setdefault(text, set()).add(wait.place)
    text, places = max(groups.items(), key=lambda each: len(each[1]))
    rest = f" (and {len(groups) - 1} more kinds of such waits)" if len(groups) > 1 else ""
    return f"perhaps a wrong direction: {describe(places)} {'waits' if len(places) == 1 else 'wait'} {text}{rest}"


def _sent_elsewhere_hint(dumps: Sequence[SipDump], roots: Sequence[Wait]) -> str:
    """Return a hint on a PE whose messages other PEs wait for, and which has sent unread messages elsewhere."""
    senders = {wait.local.peer for wait in roots if wait.task.op == "recv"}
    queues = [queue for dump in dumps for queue in dump.queues]
    by_tx = {(queue.generation, queue.tx_base_pa): queue for queue in queues if queue.tx_base_pa}
    for queue in (queue for queue in queues if queue.unread > 0 and queue.peer in senders):
        sender = by_tx.get((queue.generation, queue.rx_base_pa))
        direction = f" in direction {sender.direction}" if sender is not None else ""
        sent = f"{place_name(queue.peer)} has sent {queue.unread}{direction} to {place_name(queue.place)}"
        return f"perhaps a wrong direction: {sent}, which has not received them"
    return ""
