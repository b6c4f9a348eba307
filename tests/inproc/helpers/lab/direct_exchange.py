"""An algorithm of a user for all collectives of a group: every rank sends each other one what it needs, directly."""

from sipsim.collectives.group import Group, pairwise_wiring, towards
from sipsim.collectives.schedule import OWN_FIRST, REPLACE, VECTOR, Flow, Schedule, Step, Wiring, units
from sipsim.collectives.semantics import Task

__all__ = ["COLLECTIVES", "schedule", "wiring"]

COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all"
)  # fmt: skip


def wiring(group: Group) -> Wiring:
    return pairwise_wiring({(a, b) for b in range(group.size) for a in range(b)})


def schedule(task: Task) -> Schedule:
    """All-reduce in two rounds: each rank combines its piece, and then has it sent to all."""
    size, of = task.size, task.collective
    if of.combines and of.cut == VECTOR and not of.has_root:
        return [Flow(1, size, _both(size))]

    def moved(a: int, b: int) -> tuple[int, ...]:
        """The units that rank ``a`` sends to ``b``."""
        every = [u for u in range(units(of.cut, size)) if of.needs(u, b, size, task.root)]
        return tuple(
            u for u in every if of.holds(u, a, size, task.root)
            and (of.combines or not of.holds(u, b, size, task.root))
        )  # fmt: skip

    return [Flow(1, 1, lambda rank: _round(rank, size, moved, of.combines, 0))]


def _own(a, b):
    return (b,)


def _from_own(a, b):
    return (a,)


def _both(size):
    return lambda rank: [*_round(rank, size, _own, True, 0), *_round(rank, size, _from_own, False, size)]


def _round(rank, size, moved, combine, first) -> list[Step]:
    steps = []
    for distance in range(1, size):
        to, source = (rank + distance) % size, (rank - distance) % size
        leaving, coming = moved(rank, to), moved(source, rank)
        how = OWN_FIRST if combine else REPLACE
        to_name, from_name = towards(to) if leaving else "", towards(source) if coming else ""
        if leaving or coming:
            steps.append(Step(first + distance, to_name, leaving, from_name, coming, how))
    return steps
