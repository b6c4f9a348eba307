"""Collectives over the ranks of a group, elementwise, as in ``torch.distributed``: which elements each has and needs.

A definition says how its tensors are cut into units (:mod:`sipsim.ccl.schedule.blocks`), who has each unit before and
who needs it afterwards; results follow from that, and so do the tiles of every algorithm.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sipsim.ccl.collectives.base import NO_OP, Array, Collective
from sipsim.ccl.group import Group
from sipsim.ccl.schedule.blocks import PAIRS, RANKS, VECTOR, units
from sipsim.ccl.seeded import Seeded

REDUCTIONS = ("sum", "max", "min", "prod", "avg")


class GroupCollective(Collective):
    """``cut``: see :mod:`~sipsim.ccl.schedule.blocks`. ``gathers``: with cut ``ranks``, the result is the large tensor.

    ``has_root``: one rank is named by the call. It combines values if it has operators.
    """

    cut: str = VECTOR
    gathers: bool = True
    has_root: bool = False

    def holds(self, unit: int, rank: int, size: int, root: int) -> bool:
        """Whether a rank has a unit before."""
        raise NotImplementedError

    def needs(self, unit: int, rank: int, size: int, root: int) -> bool:
        """Whether a rank has a unit afterwards, whole or combined."""
        raise NotImplementedError

    @property
    def combines(self) -> bool:
        """Whether values are combined by an operator."""
        return bool(self.ops)

    def elements(self, n_elem: int, size: int) -> tuple[int, int]:
        """Elements of source and result, with units of ``n_elem``."""
        if self.cut == VECTOR:
            return n_elem, n_elem
        if self.cut == PAIRS:
            return n_elem * size, n_elem * size
        return (n_elem, n_elem * size) if self.gathers else (n_elem * size, n_elem)

    def results(self, inputs: Sequence[Array], values: tuple[int, ...]) -> Sequence[Array | None]:
        root, size = (values or (0,))[0], len(inputs)
        return [self.result_of(list(inputs), size, root, NO_OP, rank) for rank in range(size)]

    def expected(self, data: Seeded, rank: int, values: tuple[int, ...]) -> Array | None:
        raise NotImplementedError

    def result_of(self, sources: list[Array], size: int, root: int, op: str, rank: int) -> Array | None:
        """A rank's result by the definition, in the type of the sources; None if it needs none. For exact data."""
        n_elem = len(sources[root]) if self.cut == VECTOR else self._unit_elements(sources, size, root)
        found: dict[int, Array] = {}
        for unit in range(units(self.cut, size)):
            if self.needs(unit, rank, size, root):
                terms = [
                    self._unit_of(sources[other], unit, n_elem, size)
                    for other in range(size)
                    if self.holds(unit, other, size, root)
                ]
                found[unit] = combine_all(op, terms) if self.combines else terms[0]
        return np.concatenate([found[unit] for unit in sorted(found)]) if found else None

    def _unit_elements(self, sources: list[Array], size: int, root: int) -> int:
        whole = len(sources[root])
        return whole if self.cut == RANKS and self.gathers else whole // size

    def _unit_of(self, source: Array, unit: int, n_elem: int, size: int) -> Array:
        if self.cut == VECTOR or (self.cut == RANKS and self.gathers):
            return source
        index = unit % size
        return source[index * n_elem : (index + 1) * n_elem]


def combine_all(op: str, terms: list[Array]) -> Array:
    """All terms by an operator, one after the other; ``avg`` divides their sum."""
    total = terms[0]
    with np.errstate(over="ignore", invalid="ignore"):
        for term in terms[1:]:
            total = combine(op, total, term)
    return total / np.asarray(len(terms), total.dtype) if op == "avg" else total


def combine(op: str, own: Array, arrived: Array) -> Array:
    """Two arrays by an operator, as PE_MATH combines them; ``avg`` adds."""
    functions = {"sum": np.add, "avg": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
    return np.asarray(functions[op](own, arrived))


class Task(NamedTuple):
    """What an algorithm makes a schedule for. ``root``: a rank of the group; ``n_elem``: elements of a unit.

    ``in_place``: source and result are one tensor.
    """

    collective: GroupCollective
    group: Group
    n_elem: int
    itemsize: int
    root: int = 0
    in_place: bool = True

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.group.size
