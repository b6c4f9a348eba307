"""The tree along which one unit of a row is combined and sent back, as seen by one of its members.

A **member** is a worker PE: it has a place on every :class:`Axis`, such as the rows of the cube mesh or the ring of
SIPs. A **unit** is a piece of the row that moves as one message. It has an owner on each axis. Along the first axis
every member sends its partial result towards the owner, where two arms meet; along the next axis only the owners of the
first one go on; and so on. The owner on all axes then holds the result, which goes back the same way.

Rounds count hops: what is sent in a round is used in the next one. An axis takes as many rounds as its longest possible
arm, and partial results reach the owner in the last of them, whoever it is.

**Order of additions** on each axis, repeated by :mod:`.schedule`: from the end of each arm inwards, each member
``own + received``; the owner ``(own + arm behind) + arm ahead``. One member computes each result, so all ranks agree.
"""

from enum import Enum
from typing import NamedTuple


class Axis(NamedTuple):
    """Members in a line or, with ``wraps``, in a ring of ``size``; the directions that lead to the next and back."""

    size: int
    wraps: bool
    ahead: str
    back: str

    @property
    def span(self) -> int:
        """Rounds that a reduction along it takes: hops of the longest arm of any owner."""
        return self.size // 2 if self.wraps else self.size - 1


class Leg(NamedTuple):
    """A unit's way along an axis: the owner's place, and which arm of a ring of even size is the longer one."""

    axis: int
    owner: int
    longer_ahead: bool

    def arms(self, axis: Axis) -> tuple[int, int]:
        """Members behind and ahead of the owner."""
        if not axis.wraps:
            return self.owner, axis.size - 1 - self.owner
        behind = (axis.size - self.longer_ahead) // 2
        return behind, axis.size - 1 - behind

    def offset(self, axis: Axis, place: int) -> int:
        """Hops from the owner to a place, negative behind it."""
        if not axis.wraps:
            return place - self.owner
        behind, _ = self.arms(axis)
        return (place - self.owner + behind) % axis.size - behind


class Act(Enum):
    """What a member does with its value of a unit: combine a message into it, replace it by one, or send it."""

    COMBINE = 0
    TAKE = 1
    SEND = 2


class Event(NamedTuple):
    """One message of a unit, at one of its ends."""

    round: int
    act: Act
    direction: str


def events_of(axes: tuple[Axis, ...], places: tuple[int, ...], legs: tuple[Leg, ...]) -> list[Event]:
    """What the member at ``places``, one an axis, does for a unit with these legs; its results depend on the order.

    Within a round a member sends first, what it had at the round's start.
    """
    found: list[Event] = []
    start, joined = 0, 0
    for leg in legs:
        axis, place = axes[leg.axis], places[leg.axis]
        found += _inwards(axis, leg, place, start)
        start += axis.span
        if place != leg.owner:
            break
        joined += 1
    start = sum(axes[leg.axis].span for leg in legs)
    for index in range(len(legs) - 1, -1, -1):
        leg = legs[index]
        if index <= joined:
            found += _outwards(axes[leg.axis], leg, places[leg.axis], start)
        start += axes[leg.axis].span
    return sorted(found, key=lambda event: event.round)


def _inwards(axis: Axis, leg: Leg, place: int, start: int) -> list[Event]:
    """The reduction: the member at distance ``d`` from the owner sends ``d`` rounds before the axis' end."""
    (behind, ahead), offset = leg.arms(axis), leg.offset(axis, place)
    sent, found = start + axis.span - abs(offset), []
    if -behind < offset <= 0:
        found.append(Event(sent - 1, Act.COMBINE, axis.back))
    if 0 <= offset < ahead:
        found.append(Event(sent - 1, Act.COMBINE, axis.ahead))
    if offset:
        found.append(Event(sent, Act.SEND, axis.ahead if offset < 0 else axis.back))
    return found


def _outwards(axis: Axis, leg: Leg, place: int, start: int) -> list[Event]:
    """The broadcast: the member at distance ``d`` from the owner sends in the axis' round ``d``."""
    (behind, ahead), offset = leg.arms(axis), leg.offset(axis, place)
    sent, found = start + abs(offset), []
    if offset:
        found.append(Event(sent - 1, Act.TAKE, axis.back if offset > 0 else axis.ahead))
    if 0 <= offset < ahead:
        found.append(Event(sent, Act.SEND, axis.ahead))
    if -behind < offset <= 0:
        found.append(Event(sent, Act.SEND, axis.back))
    return found
