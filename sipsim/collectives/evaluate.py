"""Runs the steps of a flow for all ranks at once, to find each rank's result and whether every rank ends.

A value is anything that ``combine`` takes. With arrays the result has the algorithm's own order of additions: it is the
reference of every algorithm that is a schedule. With sets of ranks it shows whether it has each contribution once.
A rank that waits for a message, or for a free slot, lets the others go on; when all wait, the schedule deadlocks.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Generic, NamedTuple, TypeVar

from sipsim.collectives.schedule import (
    OWN_FIRST,
    REPLACE,
    End,
    Flow,
    Schedule,
    ScheduleError,
    Step,
    Wiring,
    number_of,
    units,
)
from sipsim.collectives.semantics import Task

V = TypeVar("V")


class ScheduleDeadlock(ScheduleError):
    """Every rank that has not ended waits for a message or for a slot."""


def evaluate(
    steps: list[list[Step]],
    wiring: Wiring,
    values: list[dict[int, V]],
    combine: Callable[[V, V], V],
    n_slots: int | None = None,
) -> list[dict[int, V]]:
    """Run the steps of all ranks from ``values``, each rank's blocks by number. Returns the blocks of each rank
    afterwards; values are not changed in place. The steps have passed
    :func:`~sipsim.collectives.schedule.check_schedule`. A block is one message: its tiles are sent, and received, in
    one order, so they wait as it does, and none is sent after it was received in the same step.

    ``n_slots``: messages that fit a direction's ring; None: without limit.

    Raises:
        ScheduleDeadlock: with the step of each rank that waits.
        ScheduleError: for a block that a rank uses and does not have, and for a message that is not due or that no rank
            receives; with rank and round.
    """
    run = _Run(wiring, combine, n_slots)
    left = [dict(own) for own in values]
    ranks = {rank: run.rank(rank, own, left[rank]) for rank, own in enumerate(steps)}
    while ranks:
        waits = {rank: next(going, None) for rank, going in ranks.items()}
        ranks = {rank: going for rank, going in ranks.items() if waits[rank] is not None}
        if all(waits.values()):
            raise ScheduleDeadlock("; ".join(f"rank {rank} {what}" for rank, what in waits.items()))
    run.check_received()
    return left


class _Run(Generic[V]):
    """One evaluation. ``_rings``: the messages under way to each end, as (round, block, value)."""

    def __init__(self, wiring: Wiring, combine: Callable[[V, V], V], n_slots: int | None) -> None:
        self._wiring = wiring
        self._combine = combine
        self._n_slots = n_slots
        self._rings: defaultdict[End, deque[tuple[int, int, V]]] = defaultdict(deque)

    def rank(self, rank: int, steps: list[Step], own: dict[int, V]) -> Iterator[str]:
        """Carry out a rank's steps; yields "" after each message that it moved, and what it waits for when it waits."""
        before = dict(own)
        for step in steps:
            for leaving, coming in zip_longest(step.sends, step.recvs):
                if leaving is not None:
                    ring = self._rings[self._wiring[rank, step.send]]
                    while self._n_slots is not None and len(ring) >= self._n_slots:
                        yield f"waits in round {step.round} for a slot {step.send}"
                    number = number_of(leaving)
                    value = _block_of(own if leaving >= 0 else before, number, f"rank {rank} sends", step.round)
                    ring.append((step.round, number, value))
                    yield ""
                if coming is not None:
                    ring = self._rings[rank, step.recv]
                    while not ring:
                        peer, _ = self._wiring[rank, step.recv]
                        yield f"waits in round {step.round} for block {coming} of rank {peer} ({step.recv})"
                    sent_round, block, value = ring.popleft()
                    if (sent_round, block) != (step.round, coming):
                        raise ScheduleError(
                            f"rank {rank} receives block {block} of round {sent_round} in direction {step.recv} where "
                            f"block {coming} of round {step.round} is due"
                        )
                    own[block] = value if step.combine == REPLACE else self._combined(rank, step, block, own, value)
                    yield ""

    def _combined(self, rank: int, step: Step, block: int, own: dict[int, V], arrived: V) -> V:
        held = _block_of(own, block, f"rank {rank} combines what comes with", step.round)
        return self._combine(held, arrived) if step.combine == OWN_FIRST else self._combine(arrived, held)

    def check_received(self) -> None:
        """Check that no message is left over."""
        for (rank, direction), ring in self._rings.items():
            if ring:
                number, block, _ = ring[0]
                raise ScheduleError(
                    f"rank {rank} never receives block {block}, which comes in direction {direction} in round {number}"
                )


def _block_of(blocks: dict[int, V], number: int, does: str, step_round: int) -> V:
    if number not in blocks:
        raise ScheduleError(f"{does} block {number} in round {step_round}, which it does not have")
    return blocks[number]


class _Ranks(NamedTuple):
    """The ranks whose values a block combines, as bits. ``once``: at least once; ``again``: more than once."""

    once: int
    again: int = 0


def _with(first: _Ranks, second: _Ranks) -> _Ranks:
    return _Ranks(first.once | second.once, first.again | second.again | first.once & second.once)


def check_results(schedule: Schedule, wiring: Wiring, task: Task) -> None:
    """Check that all ranks end, and that each block that a rank needs has each contribution exactly once, or is a copy
    of a holder's where the collective only moves data. Rings have one slot here: a schedule whose messages are the ones
    that are due ends with that as with any number (the proof is in :mod:`~sipsim.collectives.schedule`).

    Raises:
        ScheduleError: with the first rank and block that is wrong.
    """
    for flow in schedule:
        _check_flow(flow, wiring, task)


def _check_flow(flow: Flow, wiring: Wiring, task: Task) -> None:
    collective, size, root, pieces = task.collective, task.size, task.root, flow.pieces
    blocks, ranks = range(units(collective.cut, size) * pieces), range(size)
    steps_of = [flow.steps_of(rank) for rank in ranks]
    for rank in ranks:
        combining = [
            step for step in steps_of[rank] if step.recvs and step.combine != REPLACE and not collective.combines
        ]
        if combining:
            what = f"rank {rank} combines block {combining[0].recvs[0]} in round {combining[0].round}"
            raise ScheduleError(f"{what}; {collective.name} moves data, so what comes replaces what a rank has")
    values = [
        {block: _Ranks(1 << rank) for block in blocks if collective.holds(block // pieces, rank, size, root)}
        for rank in ranks
    ]
    left = evaluate(steps_of, wiring, values, _with, 1)
    for rank in ranks:
        for block in blocks:
            if collective.needs(block // pieces, rank, size, root):
                holders = sum(values[other][block].once for other in ranks if block in values[other])
                wrong = _wrong(left[rank].get(block, _Ranks(0)), holders, collective.combines)
                if wrong:
                    raise ScheduleError(f"rank {rank} ends with block {block} of {len(blocks)} {wrong}")


def _wrong(found: _Ranks, holders: int, combines: bool) -> str:
    """The fault in the contributions to a block; empty without one."""
    if found.again:
        return f"in which the values of {_names(found.again)} are combined more than once"
    if combines:
        return f"without the values of {_names(holders & ~found.once)}" if holders & ~found.once else ""
    return "" if found.once else f"unwritten; {_names(holders)} had it before"


def _names(ranks: int) -> str:
    """Ranks from their bits: ``rank 3``, ``ranks 0, 2``."""
    numbers = [str(rank) for rank in range(ranks.bit_length()) if ranks >> rank & 1]
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
