"""Carries a flow out for all ranks at once, in NumPy: what it leaves, what passes each direction, whether it ends.

It is the reference of every algorithm that is a schedule: the same messages in the same order, so the same additions.
A rank that waits for a message, or for a free slot, lets the others go on; when all wait, the schedule deadlocks.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np

from sipsim.collectives.schedule import ARRIVED_FIRST, OWN_FIRST, End, Step, Wiring, number_of

Array = np.ndarray[Any, Any]
Combine = Callable[[Array, Array], Array]
Tile = tuple[int, int]
"""A piece of a block that is one message: its first element, and the first behind it."""
Message = tuple[int, int, int]
"""A block, and a tile of it."""
Sent = tuple[int, Message]
"""A message and its round."""


class ScheduleDeadlock(ValueError):
    """Every rank that has not ended waits for a message or for a slot."""


class Evaluated(NamedTuple):
    """``values``: of each rank, the block's elements by its number. ``sent``: elements by the end that sent them."""

    values: list[dict[int, Array]]
    sent: dict[End, int]


def messages(blocks: tuple[int, ...], tiling: Callable[[int], list[Tile]]) -> list[Message]:
    """What blocks are sent as: in order, each in its tiles."""
    return [(block, start, stop) for block in blocks for start, stop in tiling(number_of(block))]


def evaluate(
    steps: list[list[Step]],
    wiring: Wiring,
    values: list[dict[int, Array]],
    tiling: Callable[[int], list[Tile]],
    combine: Combine,
    n_slots: int | None = None,
) -> Evaluated:
    """Run the steps of all ranks from ``values``, each rank's blocks. ``tiling``: the tiles of a block, in order.

    ``n_slots``: messages that fit a direction's ring; None: without limit.

    Raises:
        ScheduleDeadlock: with the step of each rank that waits.
        KeyError: for a block that a rank sends and does not have.
        ValueError: for steps that are not in order of rounds, or a message that is not the one that is due.
    """
    run = _Run(wiring, tiling, combine, n_slots)
    left = [{block: np.array(array) for block, array in own.items()} for own in values]
    ranks = {rank: run.rank(rank, own, left[rank]) for rank, own in enumerate(steps)}
    while ranks:
        waits = {rank: next(going, None) for rank, going in ranks.items()}
        ranks = {rank: going for rank, going in ranks.items() if waits[rank] is not None}
        if all(waits.values()):
            raise ScheduleDeadlock("; ".join(f"rank {rank} {what}" for rank, what in waits.items()))
    return Evaluated(left, dict(run.sent))


class _Run:
    """``rings``: what has been sent to each end and not received."""

    def __init__(
        self,
        wiring: Wiring,
        tiling: Callable[[int], list[Tile]],
        combine: Combine,
        n_slots: int | None,
    ) -> None:
        self._wiring = wiring
        self._tiling = tiling
        self._combine = combine
        self._n_slots = n_slots
        self._rings: defaultdict[End, deque[tuple[Sent, Array]]] = defaultdict(deque)
        self.sent: defaultdict[End, int] = defaultdict(int)

    def rank(self, rank: int, steps: list[Step], own: dict[int, Array]) -> Iterator[str]:
        """Yields "" each time that it has moved a message, or what it waits for."""
        rounds = [step.round for step in steps]
        if any(later <= earlier for earlier, later in pairwise(rounds)):
            raise ValueError(f"rank {rank}: rounds {rounds} do not rise")
        before = {block: own[~block].copy() for step in steps for block in step.sends if block < 0}
        for step in steps:
            out, into = (messages(blocks, self._tiling) for blocks in (step.sends, step.recvs))
            for leaving, coming in zip_longest(out, into):
                if leaving is not None:
                    to = self._wiring[rank, step.send]
                    while self._n_slots is not None and len(self._rings[to]) >= self._n_slots:
                        yield f"waits in round {step.round} for a slot {step.send}"
                    block, start, stop = leaving
                    data = (own if block >= 0 else before)[block][start:stop].copy()
                    self._rings[to].append(((step.round, (number_of(block), start, stop)), data))
                    self.sent[rank, step.send] += stop - start
                    yield ""
                if coming is not None:
                    ring = self._rings[rank, step.recv]
                    while not ring:
                        yield f"waits in round {step.round} for a message {step.recv}"
                    self._take(ring.popleft(), (step.round, coming), step.combine, own)
                    yield ""

    def _take(self, arrived: tuple[Sent, Array], due: Sent, combine: int, own: dict[int, Array]) -> None:
        sent, data = arrived
        if sent != due:
            raise ValueError(f"a message comes (round, (block, start, stop)) {sent} where {due} is due")
        block, start, stop = due[1]
        if block not in own:
            own[block] = np.empty(self._tiling(block)[-1][1], data.dtype)
        if combine == OWN_FIRST:
            data = self._combine(own[block][start:stop], data)
        elif combine == ARRIVED_FIRST:
            data = self._combine(data, own[block][start:stop])
        own[block][start:stop] = data
