"""The calls of collectives and groups that ranks make, as text, and how two calls differ. Plain data.

A call is told in parts, the plainest first: what is called, in which group, how it is carried out. Ranks that make the
same call have the same text.
"""

from typing import NamedTuple

import msgspec

GROUPS = -1
"""The group of calls that make and destroy groups, which all ranks of a run make in one order."""
WORLD = 0
"""The group of all ranks. A lesser number than those two: messages from one rank to another."""
PART = "; "
SAME = "every rank must make the same calls in the same order"
"""The end of messages about calls."""
NEW_GROUP = "new_group"
"""What calls that make groups begin with, and all ranks of a run make."""


class GroupCall(msgspec.Struct, frozen=True):
    """A call in group ``group`` of the ranks ``sips``, empty for all ranks of the run; ``text``: its parts.

    ``nbytes``: of a message from one rank to another.
    """

    text: str
    group: int = WORLD
    sips: tuple[int, ...] = ()
    nbytes: int = 0


class Told(NamedTuple):
    """Two calls, each with what sets it apart from the other."""

    one: str
    other: str


def what_of(text: str) -> str:
    """What is called."""
    return text.partition(PART)[0]


def differing(one: str, other: str) -> Told:
    """Two calls by their texts: what is called, and of the other parts the first in which they differ, if need be."""
    pairs = list(zip(one.split(PART), other.split(PART), strict=False))
    shown = pairs[:1]
    shown += [pair for pair in pairs[1:2] if pair[0] != pair[1]]
    if all(mine == its for mine, its in shown):
        shown += [pair for pair in pairs[2:] if pair[0] != pair[1]]
    return Told(*(", ".join(texts) for texts in zip(*shown, strict=True)))


def group_name(number: int, sips: tuple[int, ...]) -> str:
    """A group in messages: its ranks in their order, of many in a row the first and the last."""
    if number == WORLD:
        return "the group of all ranks"
    if number < GROUPS:
        return f"those from rank {sips[0]} to rank {sips[1]}"
    if len(sips) > 2 and sips == tuple(range(sips[0], sips[0] + len(sips))):
        return f"group {number} of ranks {sips[0]} to {sips[-1]}"
    return f"group {number} of rank{'s' if len(sips) > 1 else ''} {', '.join(map(str, sips))}"


CallKey = tuple[int, int]
"""A group, and the number of a call in it."""


class OpenCall(msgspec.Struct, frozen=True):
    """A collective that has not ended on a rank: call ``number``, from 1, of group ``group`` of the ranks ``sips``.

    ``behind``: the open calls that it waits for the end of, as they are before it on one of its PEs, or use its room.
    """

    group: int
    sips: tuple[int, ...]
    number: int
    text: str
    behind: tuple[CallKey, ...] = ()

    @property
    def key(self) -> CallKey:
        """The same on all ranks that make it."""
        return self.group, self.number


def open_call_text(call: OpenCall) -> str:
    """Such a call in messages."""
    return f"{what_of(call.text)}, {place_of(call.number, call.group, call.sips)}"


def place_of(number: int, group: int, sips: tuple[int, ...]) -> str:
    """Call ``number``, from 1, of a group in messages."""
    return f"{'message' if group < GROUPS else 'call'} {number} of {group_name(group, sips)}"
