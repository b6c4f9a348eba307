"""Untimed evaluation of a flow on all ranks: computes each rank's result, and checks that every rank ends.

A value is any type that ``combine`` accepts. Arrays are combined in the order of the algorithm, which gives the
reference result of a schedule. Sets of ranks show whether a result contains each contribution exactly once.
A rank that waits for a message or a free slot yields to the other ranks; if all ranks wait, the schedule deadlocks.
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
    """Deadlock of a schedule: every rank that has not ended waits for a message or for a slot."""


def evaluate(
    steps: list[list[Step]],
    wiring: Wiring,
    values: list[dict[int, V]],
    combine: Callable[[V, V], V],
    n_slots: int | None = None,
) -> list[dict[int, V]]:
    """Run the steps of all ranks on ``values`` (per rank, its blocks by number); return each rank's final blocks.

    ``values`` is not modified. The steps must have passed :func:`~sipsim.collectives.schedule.check_schedule`. A block
    is one message here. The tiles of a block are sent and received in one order, so whole blocks deadlock exactly when
    tiles would. ``n_slots``: messages that fit into the receive ring of a direction; None if there is no limit.

    Raises:
        ScheduleDeadlock: all ranks wait; the message lists the step of each waiting rank.
        ScheduleError: a rank uses a block that it does not hold, or a message arrives out of order or is never
            received; the message states rank and round.
    """
    run = _Run(wiring, combine, n_slots)
    final = [dict(blocks) for blocks in values]
    ranks = {rank: run.rank(rank, rank_steps, final[rank]) for rank, rank_steps in enumerate(steps)}
    while ranks:
        waits = {rank: next(going, None) for rank, going in ranks.items()}
        ranks = {rank: going for rank, going in ranks.items() if waits[rank] is not None}
        if all(waits.values()):
            raise ScheduleDeadlock("; ".join(f"rank {rank} {what}" for rank, what in waits.items()))
    run.check_received()
    return final


class _Run(Generic[V]):
    """State of one evaluation. ``_rings``: the messages in flight to each end, as (round, block, value)."""

    def __init__(self, wiring: Wiring, combine: Callable[[V, V], V], n_slots: int | None) -> None:
        self._wiring = wiring
        self._combine = combine
        self._n_slots = n_slots
        self._rings: defaultdict[End, deque[tuple[int, int, V]]] = defaultdict(deque)

    def rank(self, rank: int, steps: list[Step], own: dict[int, V]) -> Iterator[str]:
        """Run a rank's steps. Yields "" after each message sent or received, else the reason why the rank waits."""
        before = dict(own)
        for step in steps:
            for sent_block, due_block in zip_longest(step.sends, step.recvs):
                if sent_block is not None:
                    ring = self._rings[self._wiring[rank, step.send]]
                    while self._n_slots is not None and len(ring) >= self._n_slots:
                        yield f"waits in round {step.round} for a slot in direction {step.send}"
                    number = number_of(sent_block)
                    value = _block_of(own if sent_block >= 0 else before, number, f"rank {rank} sends", step.round)
                    ring.append((step.round, number, value))
                    yield ""
                if due_block is not None:
                    ring = self._rings[rank, step.recv]
                    while not ring:
                        peer, _ = self._wiring[rank, step.recv]
                        yield f"waits in round {step.round} for block {due_block} from rank {peer} ({step.recv})"
                    sent_round, block, value = ring.popleft()
                    if (sent_round, block) != (step.round, due_block):
                        raise ScheduleError(
                            f"rank {rank} receives block {block} of round {sent_round} in direction {step.recv} where "
                            f"block {due_block} of round {step.round} is due"
                        )
                    own[block] = value if step.combine == REPLACE else self._combined(rank, step, block, own, value)
                    yield ""

    def _combined(self, rank: int, step: Step, block: int, own: dict[int, V], arrived: V) -> V:
        held = _block_of(own, block, f"rank {rank} combines received data with", step.round)
        return self._combine(held, arrived) if step.combine == OWN_FIRST else self._combine(arrived, held)

    def check_received(self) -> None:
        """Raise if some message was sent and never received."""
        for (rank, direction), ring in self._rings.items():
            if ring:
                number, block, _ = ring[0]
                raise ScheduleError(
                    f"rank {rank} never receives block {block}, sent in round {number} on direction {direction}"
                )


def _block_of(blocks: dict[int, V], number: int, does: str, step_round: int) -> V:
    if number not in blocks:
        raise ScheduleError(f"{does} block {number} in round {step_round}, but does not hold this block")
    return blocks[number]


class _Ranks(NamedTuple):
    """Ranks whose values a block contains, as bit masks: ``once``, at least once; ``again``, more than once."""

    once: int
    again: int = 0


def _with(first: _Ranks, second: _Ranks) -> _Ranks:
    return _Ranks(first.once | second.once, first.again | second.again | first.once & second.once)


def check_results(schedule: Schedule, wiring: Wiring, task: Task) -> None:
    """Check that all ranks end, and that each block that a rank needs contains each contribution exactly once.

    For a collective that only moves data, the block must be a copy of some holder's block. Rings have one slot here: a
    schedule that ends with one slot ends with any number of slots (proof: :mod:`~sipsim.collectives.schedule`).

    Raises:
        ScheduleError: names the first wrong rank and block.
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
            raise ScheduleError(f"{what}; {collective.name} only moves data: use combine=REPLACE")
    values = [
        {block: _Ranks(1 << rank) for block in blocks if collective.holds(block // pieces, rank, size, root)}
        for rank in ranks
    ]
    final = evaluate(steps_of, wiring, values, _with, 1)
    for rank in ranks:
        for block in blocks:
            if collective.needs(block // pieces, rank, size, root):
                holders = sum(values[other][block].once for other in ranks if block in values[other])
                wrong = _wrong(final[rank].get(block, _Ranks(0)), holders, collective.combines)
                if wrong:
                    raise ScheduleError(f"rank {rank} ends with block {block} of {len(blocks)} {wrong}")


def _wrong(ranks: _Ranks, holders: int, combines: bool) -> str:
    """Describe the error in the contributions to a block; return "" if all contributions are correct."""
    if ranks.again:
        return f"in which the values of {_names(ranks.again)} are combined more than once"
    if combines:
        return f"without the values of {_names(holders & ~ranks.once)}" if holders & ~ranks.once else ""
    return "" if ranks.once else f"unwritten; {_names(holders)} held this block before"


def _names(ranks: int) -> str:
    """Format a bit mask of ranks: ``rank 3``, ``ranks 0, 2``."""
    numbers = [str(rank) for rank in range(ranks.bit_length()) if ranks >> rank & 1]
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
