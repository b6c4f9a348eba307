"""The schedule of one member: the messages of all its units, in steps that no number of slots can deadlock.

A **step** has a label, (round, part). In it a member posts its receives, waits for those that are ``STRIDE`` rounds
old, and sends at most ``n_slots`` messages in each direction. The two ends of a queue pair count its messages of a
round in the same order, that of the units, so a message has one label at both ends: message ``m`` of its pair and round
is in part ``m // n_slots``.

**No deadlock, for any n_slots >= 1.** Suppose that members stop, and let L be the least label that some member has not
completed. Every member has completed its steps before L: it has sent their messages and posted their receives, so all
of them arrive, are taken and return their slots, whatever the member does then. A wait in step L is for such a message.
A send in step L finds a slot: in its ring are messages of L alone, at most ``n_slots``. So step L completes: a
contradiction. (A posted receive returns its slot by itself with ``latch: copy`` or ``null``, which :mod:`.exchange`
therefore asks for; with ``in_place`` its first use would, in a later step.)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sipsim.chips.ahbm.collectives.intercube.tree import Act, Axis, Event, Leg, events_of
from sipsim.collectives.reduction import combine, final

STRIDE = 2
"""Rounds from the sending of a message to its use: a round of a tree is so many, while units begin one after the other.
With one, a member that is a hop nearer to the next unit's owner sends for both units in one round: on 4x4 cubes the
busiest member sends 5.2 messages a round then, with two 4; in the mean it is 1.9."""


class Unit(NamedTuple):
    """``length`` elements from element ``start`` on; its tree begins in ``first_round``."""

    start: int
    length: int
    legs: tuple[Leg, ...]
    first_round: int


class Message(NamedTuple):
    """A message of a unit, the index of which is ``unit``, and what is done with it.

    ``event``: its place among the events of the unit. Two messages of a unit and a round may be in parts of the other
    order, and are combined in this one.
    ``is_result``: with it, the unit is what this member ends with. ``is_last_use``: the value that the member holds is
    used no more.
    """

    unit: int
    event: int
    act: Act
    direction: str
    is_result: bool
    is_last_use: bool


class Step(NamedTuple):
    """What a member receives, and what it sends, in a round or a part of it."""

    round: int
    sends: list[Message]
    receives: list[Message]


def schedule(axes: tuple[Axis, ...], places: tuple[int, ...], units: list[Unit], n_slots: int) -> list[Step]:
    """The steps of the member at ``places``, in their order. All members that it talks to have the same ``units``."""
    steps: dict[tuple[int, int], Step] = {}
    counts: dict[tuple[int, bool, str], int] = {}
    for index, unit in enumerate(units):
        events = events_of(axes, places, unit.legs)
        labels = [_label(unit.first_round, event, counts, n_slots) for event in events]
        last_receive = max((i for i, event in enumerate(events) if event.act is not Act.SEND), default=-1)
        in_order = sorted(range(len(events)), key=labels.__getitem__)
        for place, i in enumerate(in_order):
            after = in_order[place + 1] if place + 1 < len(in_order) else None
            act, direction = events[i].act, events[i].direction
            step = steps.get(labels[i])
            if step is None:
                step = steps[labels[i]] = Step(labels[i][0], [], [])
            is_last_use = after is None or events[after].act is Act.TAKE
            message = Message(index, i, act, direction, i == last_receive, is_last_use)
            (step.sends if act is Act.SEND else step.receives).append(message)
    return [steps[label] for label in sorted(steps)]


def _label(first_round: int, event: Event, counts: dict[tuple[int, bool, str], int], n_slots: int) -> tuple[int, int]:
    """The label of the next message of its pair; ``counts``: those of each round so far."""
    now, is_send = first_round + STRIDE * event.round, event.act is Act.SEND
    count = counts.get((now, is_send, event.direction), 0)
    counts[now, is_send, event.direction] = count + 1
    return now, count // n_slots


Array = np.ndarray[Any, Any]


def combined(rows: Array, axes: tuple[Axis, ...], units: Sequence[Unit], op: str = "sum") -> Array:
    """The row that all members end with, computed in NumPy with the kernels' order of additions (:mod:`.tree`).

    ``rows``: shape (\\*sizes of axes, elements). ``units`` cover the elements.
    """
    result = np.empty(rows.shape[-1], rows.dtype)
    for unit in units:
        part = slice(unit.start, unit.start + unit.length)
        result[part] = _of_unit(rows[..., part], axes, unit.legs, op)
    return final(op, result, rows[..., 0].size)


def _of_unit(values: Array, axes: tuple[Axis, ...], legs: tuple[Leg, ...], op: str) -> Array:
    """Axes are kept with size 1, so that their numbers stay."""
    for leg in legs:
        values = np.expand_dims(_along(np.moveaxis(values, leg.axis, 0), axes[leg.axis], leg, op), leg.axis)
    return values.reshape(values.shape[-1])


def _along(values: Array, axis: Axis, leg: Leg, op: str) -> Array:
    total: Array = values[leg.owner]
    behind, ahead = leg.arms(axis)
    for length, way in ((behind, -1), (ahead, 1)):
        if length:
            arm = [values[(leg.owner + way * hops) % axis.size] for hops in range(length, 0, -1)]
            partial = arm[0]
            for own in arm[1:]:
                partial = combine(op, own, partial)
            total = combine(op, total, partial)
    return total
