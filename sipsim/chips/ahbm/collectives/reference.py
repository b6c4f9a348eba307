"""What a schedule leaves on every rank of a group, from the sources of all: its messages carried out in NumPy. Pure.

Parts, blocks and the order of additions are those of the kernels, and so is the arithmetic: bit for bit.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.programs import work_of
from sipsim.collectives.call import Array
from sipsim.collectives.evaluate import Tile, evaluate
from sipsim.collectives.reduction import combine, final
from sipsim.collectives.schedule import Block, Flow, Part, Schedule, Wiring, block_of, units
from sipsim.collectives.semantics import Task


def group_results(algorithm: Algorithm, task: Task, op: str, sources: Sequence[Array | None]) -> list[Array | None]:
    """Every rank's result, flat; None for one that needs none, and whose tensor may be anything.

    ``sources``: by rank, flat, None for one that has none. A rank that needs no result keeps its source where both are
    one tensor.
    """
    assert algorithm.schedule is not None
    assert algorithm.wiring is not None
    return schedule_results(algorithm.schedule(task), algorithm.wiring(task.group), task, op, sources)


def schedule_results(
    schedule: Schedule, wiring: Wiring, task: Task, op: str, sources: Sequence[Array | None]
) -> list[Array | None]:
    """The same of a schedule and its wiring."""
    results = [_empty(task, rank, sources) for rank in range(task.size)]
    for worker in range(task.workers):
        for flow, parts in work_of(task, schedule, worker, task.workers):
            for part in parts:
                _carry_out(_Work(task, flow, part), wiring, op, sources, results)
    return results


class _Work:
    """A part of a flow: its blocks, by number."""

    def __init__(self, task: Task, flow: Flow, part: Part) -> None:
        self.task = task
        self.flow = flow
        cut, count = task.collective, units(task.collective.cut, task.size) * flow.pieces
        of = partial(block_of, cut.cut, cut.gathers, task.n_elem, task.size, part, flow.pieces)
        self.blocks: list[Block] = [of(number) for number in range(count)]

    def tiles(self, number: int) -> list[Tile]:
        """Where an element goes does not depend on its message, so a block is one."""
        length = self.blocks[number].length
        return [(0, length)] if length else []

    def held(self, rank: int, source: Array | None) -> dict[int, Array]:
        """A rank's blocks before."""
        if source is None:
            return {}
        return {
            number: source[block.source : block.source + block.length]
            for number, block in enumerate(self.blocks)
            if self.task.collective.holds(number // self.flow.pieces, rank, self.task.size, self.task.root)
        }

    def needed(self, rank: int) -> Iterator[tuple[int, Block]]:
        """A rank's blocks afterwards."""
        task, pieces = self.task, self.flow.pieces
        return (
            (number, block)
            for number, block in enumerate(self.blocks)
            if task.collective.needs(number // pieces, rank, task.size, task.root)
        )


def _carry_out(
    work: _Work, wiring: Wiring, op: str, sources: Sequence[Array | None], results: list[Array | None]
) -> None:
    ranks = range(work.task.size)
    values = [work.held(rank, sources[rank]) for rank in ranks]
    steps = [work.flow.steps_of(rank) for rank in ranks]
    left = evaluate(steps, wiring, values, work.tiles, partial(combine, op)).values
    for rank in ranks:
        result = results[rank]
        for number, block in work.needed(rank):
            assert result is not None
            value = left[rank].get(number)
            if value is not None and block.length:
                result[block.result : block.result + block.length] = final(op, value, work.task.size)


def _empty(task: Task, rank: int, sources: Sequence[Array | None]) -> Array | None:
    source = sources[rank]
    if task.in_place:
        return None if source is None else source.copy()
    collective = task.collective
    needs = (collective.needs(unit, rank, task.size, task.root) for unit in range(units(collective.cut, task.size)))
    dtype = next(each.dtype for each in sources if each is not None)
    return np.zeros(collective.elements(task.n_elem, task.size)[1], dtype) if any(needs) else None
