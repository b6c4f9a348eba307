"""Calls that a rank has not made while others wait in them, or in another order, from the dumps of all SIPs. Pure."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sipsim.collectives.call import SAME, WORLD, CallKey, OpenCall, open_call_text
from sipsim.insight.hangs.fold import numbered
from sipsim.records.dump import SipDump

MOST_CALLS = 4


class _Missing(NamedTuple):
    """``absent``: the ranks of its group that have not made a call in which ``waiting`` ranks are."""

    call: OpenCall
    absent: list[int]
    waiting: list[int]


def calls_hint(dumps: Sequence[SipDump]) -> str:
    """Calls that ranks have made in orders that cross; else those that some ranks of their group have not made while
    others wait in them, first those of a rank that waits in no other call, as these are the cause of the others.

    Empty if there are none.
    """
    crossed = _crossed(dumps)
    if crossed:
        return f"{'; '.join(crossed)}; {SAME}"
    missing = _missing(dumps)
    if not missing:
        return _ended_early(dumps)
    busy = {rank for each in missing for rank in each.waiting}
    ordered = sorted(missing, key=lambda each: (all(rank in busy for rank in each.absent), each.call.group))
    ended = {dump.rank for dump in dumps if not dump.tasks}
    told = [_text(each, ended) for each in ordered[:MOST_CALLS]]
    rest = f"; {len(missing) - MOST_CALLS} more such calls" if len(missing) > MOST_CALLS else ""
    return f"{'; '.join(told)}{rest}; {SAME}"


def _crossed(dumps: Sequence[SipDump]) -> list[str]:
    """Each call of a cycle waits, on a rank that is told, for the end of the next one, which is before it there."""
    calls = {call.key: call for dump in dumps for call in dump.open_calls}
    behind: dict[CallKey, dict[CallKey, int]] = {key: {} for key in calls}
    for dump in dumps:
        for call in dump.open_calls:
            for other in call.behind:
                behind[call.key].setdefault(other, dump.rank)
    cycle = _cycle_in(behind)
    told = [
        f"rank {behind[later][first]} has called {open_call_text(calls[first])}, before {open_call_text(calls[later])}"
        for later, first in pairwise([*cycle, *cycle[:1]])
    ]
    if len(told) > MOST_CALLS:
        told[MOST_CALLS - 1 :] = [f"{len(told) - MOST_CALLS + 1} more such orders"]
    return told


def _cycle_in(behind: dict[CallKey, dict[CallKey, int]]) -> list[CallKey]:
    """Calls of which each is behind the next one, and the last behind the first; empty when there are none."""
    left = {key: {each for each in others if each in behind} for key, others in behind.items()}
    while ended := {key for key, others in left.items() if not others}:
        left = {key: others - ended for key, others in left.items() if key not in ended}
    path: list[CallKey] = [min(left)] if left else []
    while left and min(left[path[-1]]) not in path:
        path.append(min(left[path[-1]]))
    return path[path.index(min(left[path[-1]])) :] if left else []


def _missing(dumps: Sequence[SipDump]) -> list[_Missing]:
    made = {dump.rank: dump.calls for dump in dumps}
    first: dict[tuple[int, int], OpenCall] = {}
    waiting: dict[tuple[int, int], list[int]] = {}
    for dump in dumps:
        for call in dump.open_calls:
            first.setdefault((call.group, call.number), call)
            waiting.setdefault((call.group, call.number), []).append(dump.rank)
    found = []
    for key, call in sorted(first.items()):
        absent = [rank for rank in sorted(call.sips) if rank in made and made[rank].get(call.group, 0) < call.number]
        if absent:
            found.append(_Missing(call, absent, sorted(waiting[key])))
    return found


def _text(missing: _Missing, ended: set[int]) -> str:
    who, many = numbered("rank", missing.absent), len(missing.absent) > 1
    why = ""
    if ended.issuperset(missing.absent):
        why = " (their scripts have ended)" if many else " (its script has ended)"
    others = numbered("rank", missing.waiting)
    wait = "wait" if len(missing.waiting) > 1 else "waits"
    return f"{who} {'have' if many else 'has'} not called {open_call_text(missing.call)}{why}; {others} {wait} in it"


def _ended_early(dumps: Sequence[SipDump]) -> str:
    """Scripts that have ended after fewer collectives than others have called."""
    calls = {dump.rank: dump.calls.get(WORLD, 0) for dump in dumps}
    most = max(calls.values(), default=0)
    fewer = {dump.rank: calls[dump.rank] for dump in dumps if calls[dump.rank] < most and not dump.tasks}
    if not fewer:
        return ""
    number = min(fewer.values())
    who = numbered("rank", {rank for rank, made in fewer.items() if made == number})
    others = numbered("rank", {rank for rank, made in calls.items() if made == most})
    after = "1 call" if number == 1 else f"{number} calls"
    what = f"the script of {who} has ended after {after}, {others} made {most}"
    return f"ranks called other collectives: {what}; {SAME}"
