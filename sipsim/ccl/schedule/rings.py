"""Steps along a ring: reduce-scatter, all-gather, and both for an all-reduce."""

from sipsim.ccl.collectives.group import Task
from sipsim.ccl.schedule.steps import Step


def circulate(task: Task, place: int, order: list[int], send: str, recv: str) -> list[Step]:
    """The steps of the rank at ``place`` of a ring; block ``b`` is that of the rank ``order[b]``, or of piece ``b``."""
    steps: list[Step] = []
    if task.collective.combines:
        steps += reduce_scatter(place, order, send, recv)
    if task.collective.name != "reduce_scatter":
        steps += all_gather(place, order, send, recv)
    return steps


def reduce_scatter(place: int, order: list[int], send: str, recv: str) -> list[Step]:
    """In ``len(order) - 1`` steps the rank at ``place`` gets block ``order[place]`` combined over all ranks."""
    size = len(order)
    blocks = [(order[(place - 1 - step) % size], order[(place - 2 - step) % size]) for step in range(size - 1)]
    return [Step(send, (leaving,), recv, (coming,), True) for leaving, coming in blocks]


def all_gather(place: int, order: list[int], send: str, recv: str) -> list[Step]:
    """In ``len(order) - 1`` steps the rank at ``place``, which has block ``order[place]``, gets all others."""
    size = len(order)
    blocks = [(order[(place - step) % size], order[(place - 1 - step) % size]) for step in range(size - 1)]
    return [Step(send, (leaving,), recv, (coming,)) for leaving, coming in blocks]
