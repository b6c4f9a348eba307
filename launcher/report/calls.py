"""Comparison of the collective calls of all ranks, group by group; a mismatch names two ranks and both calls. Pure."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from sipsim.collectives.call import GROUPS, NEW_GROUP, SAME, GroupCall, call_difference, call_position, operation_of


class CallMismatch(NamedTuple):
    """Disagreement of ranks on a call. ``rank``: the first rank whose call differs from the call of lower ranks."""

    rank: int
    message: str


def first_mismatch(calls_of_ranks: Sequence[Sequence[GroupCall]]) -> CallMismatch | None:
    """Return the first call on which two ranks disagree; calls that make or destroy groups are compared first.

    If a rank made fewer calls than others, only as many calls are compared.
    """
    by_group: dict[int, list[list[str]]] = {}
    members: dict[int, tuple[int, ...]] = {}
    for rank, calls in enumerate(calls_of_ranks):
        for call in calls:
            members.setdefault(call.group, call.sips)
            by_group.setdefault(call.group, [[] for _ in calls_of_ranks])[rank].append(call.text)
    for group, texts in sorted(by_group.items(), key=lambda each: (each[0] != GROUPS, each[0])):
        for index, made in enumerate(zip_longest(*texts)):
            if found := _other_call(index, group, members[group], made):
                return found
    return None


def missing_group(calls_of_ranks: Sequence[Sequence[GroupCall]]) -> CallMismatch | None:
    """Return the first group that some ranks created and others did not. Valid only if all other calls agree."""
    made = zip_longest(*([call.text for call in calls if call.group == GROUPS] for calls in calls_of_ranks))
    for texts in made:
        rank, text = next((rank, text) for rank, text in enumerate(texts) if text is not None)
        if text.startswith(NEW_GROUP) and None in texts:
            absent = texts.index(None)
            what = f"rank {rank} calls {text}, and rank {absent} does not"
            return CallMismatch(absent, f"ranks disagree on {_where(0, GROUPS, ())}: {what}; {SAME}")
    return None


def missing_call(calls_of_ranks: Sequence[Sequence[GroupCall]]) -> CallMismatch | None:
    """Return the first call that a rank of the call's group did not make. Valid after a run whose other calls agree.

    A message that was sent, but is still in the receiver's ring, counts as a receive that the rank did not call.
    """
    made: dict[int, dict[int, list[GroupCall]]] = {}
    for rank, calls in enumerate(calls_of_ranks):
        for call in calls:
            if call.group != GROUPS:
                made.setdefault(call.group, {}).setdefault(rank, []).append(call)
    for _, by_rank in sorted(made.items()):
        sips = next(iter(by_rank.values()))[0].sips
        counts = {rank: len(by_rank.get(rank, ())) for rank in sips or range(len(calls_of_ranks))}
        index = min(counts.values())
        if index < max(counts.values()):
            absent = min(rank for rank, count in counts.items() if count == index)
            caller = min(rank for rank, count in counts.items() if count > index)
            return _not_made(index, caller, absent, by_rank[caller][index])
    return None


def _not_made(index: int, rank: int, absent: int, call: GroupCall) -> CallMismatch:
    what = f"rank {rank} calls {operation_of(call.text)}, and rank {absent} does not"
    if call.nbytes:
        what = f"{what}: no rank has received the {call.nbytes} B that rank {rank} sent"
    return CallMismatch(absent, f"ranks disagree on {_where(index, call.group, call.sips)}: {what}; {SAME}")


def _other_call(index: int, group: int, sips: tuple[int, ...], made: Sequence[str | None]) -> CallMismatch | None:
    texts = [(rank, text) for rank, text in enumerate(made) if text is not None]
    usual_rank, usual = texts[0]
    for rank, text in texts:
        if text != usual:
            first, other = call_difference(usual, text)
            where = _where(index, group, sips)
            return CallMismatch(
                rank,
                f"ranks disagree on {where}: rank {usual_rank} calls {first}, rank {rank} {other}; {SAME}",
            )
    return None


def _where(index: int, group: int, sips: tuple[int, ...]) -> str:
    if group == GROUPS:
        return "their groups"
    return call_position(index + 1, group, sips)
