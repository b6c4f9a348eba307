"""Reference results of schedules: the schedule's messages evaluated in NumPy for all ranks. No side effects.

Parts, blocks, order of additions and arithmetic are the same as in the kernels, so results are bit-identical.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from sipsim.chips.ahbm.collectives.algorithm import Algorithm
from sipsim.chips.ahbm.collectives.programs import work_of
from sipsim.collectives.call import Array
from sipsim.collectives.evaluate import evaluate
from sipsim.collectives.reduction import combine, final
from sipsim.collectives.schedule import Flow, Schedule, Share, Wiring, block_of, units
from sipsim.collectives.semantics import Has, Task


def group_results(algorithm: Algorithm, task: Task, op: str, sources: Sequence[Array | None]) -> list[Array | None]:
    """Return the flat result of every rank; None for a rank without a result, whose tensor is unspecified.

    ``sources``: flat source array by rank, or None. In place, the tensor of a rank without a result keeps its source.
    """
    assert algorithm.schedule is not None
    assert algorithm.wiring is not None
    return schedule_results(algorithm.schedule(task), algorithm.wiring(task.group), task, op, sources)


def schedule_results(
    schedule: Schedule, wiring: Wiring, task: Task, op: str, sources: Sequence[Array | None]
) -> list[Array | None]:
    """Return every rank's flat result of a schedule that :func:`~sipsim.collectives.evaluate.check_results` accepts."""
    results = [_empty(task, rank, sources) for rank in range(task.size)]
    for worker in range(task.workers):
        for flow, parts in work_of(task, schedule, worker, task.workers):
            for part in parts:
                _carry_out(task, flow, part, wiring, op, sources, results)
    return results


def _carry_out(
    task: Task,
    flow: Flow,
    part: Share,
    wiring: Wiring,
    op: str,
    sources: Sequence[Array | None],
    results: list[Array | None],
) -> None:
    """Evaluate a part of a flow, whole blocks as messages: tiles do not change which elements are combined."""
    collective, size = task.collective, task.size
    place_of = partial(block_of, collective.cut, collective.gathers, task.n_elem, size, part, flow.pieces)
    places = [place_of(number) for number in range(units(collective.cut, size) * flow.pieces)]

    def blocks(has: Has, rank: int) -> list[int]:
        return [number for number in range(len(places)) if has(number // flow.pieces, rank, size, task.root)]

    values: list[dict[int, Array]] = [{} for _ in sources]
    for rank, source in enumerate(sources):
        if source is not None:
            for number in blocks(collective.holds, rank):
                block = places[number]
                values[rank][number] = source[block.source : block.source + block.length]
    final_values = evaluate([flow.steps_of(rank) for rank in range(size)], wiring, values, partial(combine, op))
    for rank, result in enumerate(results):
        for number in blocks(collective.needs, rank):
            assert result is not None
            block = places[number]
            result[block.result : block.result + block.length] = final(op, final_values[rank][number], size)


def _empty(task: Task, rank: int, sources: Sequence[Array | None]) -> Array | None:
    source = sources[rank]
    if task.in_place:
        return None if source is None else source.copy()
    collective = task.collective
    needs = (collective.needs(unit, rank, task.size, task.root) for unit in range(units(collective.cut, task.size)))
    dtype = next(each.dtype for each in sources if each is not None)
    return np.zeros(collective.elements(task.n_elem, task.size)[1], dtype) if any(needs) else None
