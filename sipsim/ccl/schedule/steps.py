"""The steps of a collective algorithm: what each rank sends and receives, in blocks. Plain data.

A *schedule* is made of flows that run side by side, each on a share of the elements, such as the two directions of a
ring. A flow gives every rank of the group a list of steps. In a step a rank sends blocks in one direction and receives
blocks in one direction, tile by tile in turn, or does only one of both. Blocks are numbered as
:mod:`sipsim.ccl.schedule.blocks` says; a message that combines is added to the block that the receiver has.

Steps have *rounds*. A message leaves in the round in which it is received, as the same tile of the step, so that it has
one position (round, tile) on both sides. A rank sends and receives in order of position, and of one position sends
first. Therefore every schedule ends, with any number of slots: of the ranks that have not ended, take one whose next
position is the least. If it is to receive, its sender is at that position or behind it, and at that position it would
still have to send, which comes first, so it would be earlier: the message is on its way. If it is to send and
all slots are taken, the receiver has an earlier position before it, which contradicts the choice. The same holds for
several flows on one worker that takes them in one order of (round, tile, flow).
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

REPLACE, OWN_FIRST, ARRIVED_FIRST = 0, 1, 2
"""What comes replaces a rank's own values, or is combined with them by the operator, as its second or first operand."""


class ScheduleError(ValueError):
    """A schedule that no kernel can carry out."""


class Step(NamedTuple):
    """One rank's step: ``sends`` leave in direction ``send`` while ``recvs`` come from direction ``recv``.

    An empty direction: it sends, or receives, nothing. A block that is sent as it was before the collective, whatever
    has been combined with it since, stands as :func:`original`. ``combine``: what becomes of what comes. A rank has one
    step of a round at most, and steps in order of rounds.
    """

    round: int
    send: str = ""
    sends: tuple[int, ...] = ()
    recv: str = ""
    recvs: tuple[int, ...] = ()
    combine: int = REPLACE


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


def original(block: int) -> int:
    """A block as its rank had it before, in ``sends`` and transfers; of that the block."""
    return ~block


def number_of(block: int) -> int:
    """The number of a block, original or not."""
    return max(block, ~block)


class Transfer(NamedTuple):
    """In a round ``src`` sends blocks in direction ``send``. ``combine``: what becomes of them at the other end."""

    round: int
    src: int
    send: str
    blocks: tuple[int, ...]
    combine: int = REPLACE


def flow_of(weight: int, pieces: int, transfers: Iterable[Transfer], wiring: Wiring) -> Flow:
    """A flow from the transfers of all ranks; those without blocks are left out.

    Raises:
        ScheduleError: from ``steps_of``, when a rank sends or receives twice in a round, or in no direction of its own.
    """

    @cache
    def steps() -> dict[int, list[Step]]:
        found: defaultdict[int, dict[int, Step]] = defaultdict(dict)
        for number, src, send, blocks, combine in transfers:
            if not blocks:
                continue
            if (src, send) not in wiring:
                raise ScheduleError(not_wired(src, "sends", send, number, wiring))
            dst, recv = wiring[src, send]
            step = found[src].get(number, Step(number))
            if step.send:
                first = wiring[src, step.send][0]
                what = f"rank {src} sends to ranks {first} and {dst} in round {number} (directions {step.send}, {send})"
                raise ScheduleError(f"{what}; a rank sends once in a round")
            found[src][number] = step._replace(send=send, sends=blocks)
            step = found[dst].get(number, Step(number))
            if step.recv:
                first = wiring[dst, step.recv][0]
                what = (
                    f"ranks {first} and {src} send to rank {dst} in round {number} (its directions {step.recv}, {recv})"
                )
                raise ScheduleError(f"{what}; a rank receives once in a round")
            found[dst][number] = step._replace(recv=recv, recvs=tuple(map(number_of, blocks)), combine=combine)
        return {rank: [own[number] for number in sorted(own)] for rank, own in found.items()}

    return Flow(weight, pieces, lambda rank: steps().get(rank, []))


def not_wired(rank: int, does: str, direction: str, number: int, wiring: Wiring) -> str:
    """What is wrong with a direction in a round that a rank does not have."""
    own = ", ".join(sorted(str(each) for end, each in wiring if end == rank)) or "none"
    what = f"rank {rank} {does} in direction {direction!r} in round {number}, which its wiring() does not join"
    return f"{what}; directions of rank {rank}: {own}"


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
