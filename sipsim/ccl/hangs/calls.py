"""Which rank has not made a call that others wait in, from the dumps of all SIPs. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from sipsim.ccl.hangs.wait_groups import numbered
from sipsim.record.calls import WORLD, OpenCall, open_call_text
from sipsim.record.dump import SipDump

MOST_CALLS = 4


class _Missing(NamedTuple):
    """``absent``: the ranks of its group that have not made a call in which ``waiting`` ranks are."""

    call: OpenCall
    absent: list[int]
    waiting: list[int]


def calls_hint(dumps: Sequence[SipDump]) -> str:
    """The calls that some ranks of their group have not made while others wait in them; empty if there are none.

    First those of a rank that waits in no other call, as these are the cause of the others.
    """
    missing = _missing(dumps)
    if not missing:
        return _ended_early(dumps)
    busy = {rank for each in missing for rank in each.waiting}
    ordered = sorted(missing, key=lambda each: (all(rank in busy for rank in each.absent), each.call.group))
    ended = {dump.rank for dump in dumps if not dump.tasks}
    told = [_text(each, ended) for each in ordered[:MOST_CALLS]]
    rest = f"; {len(missing) - MOST_CALLS} more such calls" if len(missing) > MOST_CALLS else ""
    return f"{'; '.join(told)}{rest}; every rank must make the same calls in the same order"


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
    return f"ranks called other collectives: {what}; every rank must make the same calls in the same order"
