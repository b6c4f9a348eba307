"""The steps of a collective algorithm: what each rank sends and receives, in blocks. Plain data.

A *schedule* is made of flows that run side by side, each on a share of the elements, such as the two directions of a
ring. A flow gives every rank of the group a list of steps. In a step a rank sends blocks in one direction and receives
blocks in one direction, tile by tile in turn, or does only one of both. Blocks are numbered as
:mod:`sipsim.ccl.schedule.blocks` says; a message that combines is added to the block that the receiver has.
"""

from collections.abc import Callable
from typing import NamedTuple


class Step(NamedTuple):
    """One rank's step: ``sends`` leave in direction ``send`` while ``recvs`` come from direction ``recv``.

    An empty direction: it sends, or receives, nothing. ``combine``: what comes is combined with the rank's own values
    by the operator; else it replaces them.
    """

    send: str = ""
    sends: tuple[int, ...] = ()
    recv: str = ""
    recvs: tuple[int, ...] = ()
    combine: bool = False


class Flow(NamedTuple):
    """``weight``: its share of the elements, relative to the other flows. ``pieces``: in how many blocks it wants each
    unit of data cut (:mod:`~sipsim.ccl.schedule.blocks`). ``steps_of(rank)``: the steps of a rank of the group.
    """

    weight: int
    pieces: int
    steps_of: Callable[[int], list[Step]]


Schedule = list[Flow]
End = tuple[int, str]
"""A rank of the group, and one of its directions."""
Wiring = dict[End, End]
"""Where each direction of each rank leads: to a direction of another rank, which leads back."""


def mutual(pairs: dict[End, End]) -> Wiring:
    """A wiring from one end of each of its pairs of directions.

    Raises:
        ValueError: for a direction that leads to two places.
    """
    wiring: Wiring = {}
    for a, b in [*pairs.items(), *((b, a) for a, b in pairs.items())]:
        if wiring.setdefault(a, b) != b:
            raise ValueError(f"direction {a[1]} of rank {a[0]} leads to {wiring[a]} and to {b}")
    return wiring
