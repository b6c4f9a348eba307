"""Table of the collectives: how tensors are cut into units, and which units a rank holds before and needs afterwards.

Each row is a :class:`Collective`. Eight collectives work on the ranks of a group, as in ``torch.distributed``;
``intercube`` is the all-reduce of ADR-0032. Sizes, results, bus bandwidth and the tiles of every algorithm are derived
from the row. One row defines a new collective.
"""

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from sipsim.collectives.group import Group
from sipsim.collectives.reduction import NO_OP, REDUCTIONS, combine_all
from sipsim.collectives.schedule import PAIRS, RANKS, VECTOR, Share, block_of, units
from sipsim.core.registry import Registry

Array = np.ndarray[Any, Any]
Has = Callable[[int, int, int, int], bool]
"""Predicate ``(unit, rank, size, root)``: True if a rank of a group of ``size`` ranks has a unit."""


def every_rank(unit: int, rank: int, size: int, root: int) -> bool:
    """All ranks have all units."""
    return True


def only_root(unit: int, rank: int, size: int, root: int) -> bool:
    """Only the root has units, and the root has all units."""
    return rank == root


def its_own(unit: int, rank: int, size: int, root: int) -> bool:
    """Each rank has the unit with the rank's number. Use it with cut ``ranks``."""
    return unit == rank


def its_row(unit: int, rank: int, size: int, root: int) -> bool:
    """Each rank has the units that it sends. Use it with cut ``pairs``."""
    return unit // size == rank


def its_column(unit: int, rank: int, size: int, root: int) -> bool:
    """Each rank has the units that are sent to it. Use it with cut ``pairs``."""
    return unit % size == rank


class Collective(NamedTuple):
    """Definition of a collective, a row of the table. ``about``: one line for ``--list``. ``cut``: how tensors are cut
    into units (:mod:`~sipsim.collectives.schedule`).

    ``holds``: the units that a rank has before; ``needs``: the units that a rank has afterwards. ``ops``: operators
    that combine a unit over all its holders; empty if data are only moved. ``has_root``: the call names a root rank.
    ``per_cube``: tensors have one row per cube, each row is cut into units, and a kernel that is wired before the run
    runs the collective on all SIPs; with operators, all rows of all ranks are combined.
    """

    name: str
    about: str
    cut: str
    holds: Has
    needs: Has
    ops: tuple[str, ...] = ()
    has_root: bool = False
    per_cube: bool = False

    @property
    def combines(self) -> bool:
        """True if values are combined by an operator."""
        return bool(self.ops)

    @property
    def in_place(self) -> bool:
        """True if source and result are one tensor in the built-in job and in the ``torch.distributed`` call."""
        return self.cut == VECTOR

    @property
    def gathers(self) -> bool:
        """For cut ``ranks``: True if each rank holds only one unit before, so that the result is the larger tensor."""
        return self.holds(0, 0, 2, 0) != self.holds(1, 0, 2, 0)

    @property
    def is_shared(self) -> bool:
        """True if several ranks get the same combined values."""
        return self.combines and self.needs(0, 0, 2, 0) and self.needs(0, 1, 2, 0)

    def elements(self, n_elem: int, size: int) -> tuple[int, int]:
        """Return the elements of source and result (with ``per_cube``: of one row) for units of ``n_elem`` elements."""
        if self.cut == VECTOR:
            return n_elem, n_elem
        if self.cut == PAIRS:
            return n_elem * size, n_elem * size
        return (n_elem, n_elem * size) if self.gathers else (n_elem * size, n_elem)

    def busbw_factor(self, size: int) -> Fraction:
        """Return bus bandwidth divided by algorithm bandwidth for ``size`` ranks, as in nccl-tests: the least data that
        each rank must send or receive, relative to the larger tensor.
        """
        if self.cut != VECTOR:
            return Fraction(size - 1, size)
        return Fraction(1) if self.has_root else Fraction(2 * (size - 1), size)

    def contributions(self, size: int, rows: int) -> int:
        """Return the number of rows that are combined into one, for ``size`` ranks with ``rows`` rows each."""
        return size * rows if self.combines else 1

    def start_of(self, unit: int, n_elem: int, size: int) -> int:
        """Return the offset of a unit of ``n_elem`` elements in the source of a rank that holds the unit."""
        return unit % self.elements(1, size)[0] * n_elem

    def result_of(self, sources: Sequence[Array], size: int, root: int, op: str, rank: int) -> Array | None:
        """Return a rank's result from all ranks' sources, cut along the last axis; None if the rank needs no unit."""
        n_elem = sources[root].shape[-1] // self.elements(1, size)[0]

        def total_of(ranks: list[int], unit: int) -> Array:
            start = self.start_of(unit, n_elem, size)
            return combine_all(op, (sources[other][..., start : start + n_elem] for other in ranks))

        return self.result_from(total_of, size, root, rank)

    def result_from(self, total_of: Callable[[list[int], int], Array], size: int, root: int, rank: int) -> Array | None:
        """Return a rank's result as defined by ``holds`` and ``needs``; None if the rank needs no unit.

        ``total_of(ranks, unit)`` returns a unit combined over its holders ``ranks`` (one rank if data are only moved).
        """
        parts = []
        for unit in range(units(self.cut, size)):
            if self.needs(unit, rank, size, root):
                ranks = [other for other in range(size) if self.holds(unit, other, size, root)]
                parts.append(total_of(ranks if self.combines else ranks[:1], unit))
        return np.concatenate(parts, axis=-1) if parts else None

    def results(self, inputs: Sequence[Array], values: tuple[int, ...]) -> list[Array | None]:
        """Return every rank's result of a collective that only moves data. ``values``: empty, or the root's rank."""
        root, size = (values or (0,))[0], len(inputs)
        return [self.result_of(inputs, size, root, NO_OP, rank) for rank in range(size)]


INTERCUBE = "intercube"
"""The default collective of the built-in job (ADR-0032)."""
TABLE = (
    Collective("all_gather", "each rank ends with the tensors of all ranks", RANKS, its_own, every_rank),
    Collective(
        "all_reduce", "each element becomes its combination over all ranks", VECTOR, every_rank, every_rank, REDUCTIONS
    ),
    Collective("all_to_all", "each rank ends with its part of every rank's tensor", PAIRS, its_row, its_column),
    Collective("broadcast", "each rank ends with the root's tensor", VECTOR, only_root, every_rank, has_root=True),
    Collective("gather", "the root ends with the tensors of all ranks", RANKS, its_own, only_root, has_root=True),
    Collective(
        INTERCUBE,
        "every row (one per cube) becomes the sum of all rows of all ranks (ADR-0032)",
        VECTOR,
        every_rank,
        every_rank,
        ("sum",),
        per_cube=True,
    ),
    Collective(
        "reduce", "the root ends with the combination over all ranks", VECTOR, every_rank, only_root, REDUCTIONS, True
    ),
    Collective(
        "reduce_scatter",
        "each rank ends with its part of the combination over all ranks",
        RANKS,
        every_rank,
        its_own,
        REDUCTIONS,
    ),
    Collective(
        "scatter", "each rank ends with its part of the root's tensor", RANKS, only_root, its_own, has_root=True
    ),
)
COLLECTIVES: Registry[Collective] = Registry(
    "collective", {__name__: [each.name for each in TABLE]}, objects_of=Collective
)


def _takes(function: object, words: tuple[str, ...]) -> bool:
    """Return whether a function can be called with the positional arguments ``words``."""
    try:
        inspect.signature(function).bind(*words)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def wrong_units(row: Collective, size: int, root: int) -> str:
    """Describe an inconsistency of ``holds`` and ``needs`` in a group of ``size`` ranks; empty if there is none."""
    numbers = range(units(row.cut, size))
    extents = [block_of(row.cut, row.gathers, 1, size, Share(0, 1, 1), 1, unit) for unit in numbers]
    holders: Counter[int] = Counter()
    needed: set[int] = set()
    tensors = row.elements(1, size)
    for rank in range(size):
        held = [unit for unit in numbers if row.holds(unit, rank, size, root)]
        wanted = [unit for unit in numbers if row.needs(unit, rank, size, root)]
        holders.update(held)
        needed.update(wanted)
        offsets = ([extents[unit].source for unit in held], [extents[unit].result for unit in wanted])
        for word, used, count in zip(("holds", "needs"), offsets, tensors, strict=True):
            if len(used) not in (0, count):
                what = f"rank {rank} of {size} {word} {len(used)} of the {len(numbers)} units"
                return f"{what}; with cut {row.cut!r} it must have all {count} units of its tensor, or none"
            if len(set(used)) < len(used):
                what = f"rank {rank} of {size} {word} several units at the same offset of its tensor"
                return f"{what}; with cut {row.cut!r} a rank holds the units it sends and needs the units sent to it"
    if unheld := needed - holders.keys():
        return f"in a group of {size}, unit {min(unheld)} is needed, but no rank holds it; let a rank hold it"
    several = [unit for unit in sorted(needed) if holders[unit] > 1]
    if several and not row.combines:
        what = f"in a group of {size}, {holders[several[0]]} ranks hold unit {several[0]}, but no operator combines it"
        return f"{what}; give ops, or let only one rank hold the unit"
    return ""


def define(*collectives: Collective) -> None:
    """Register collectives for all ranks of a process, as definitions of the module that calls this function.

    Raises:
        TypeError: an argument is not a :class:`Collective`, or a field has the wrong type.
        ValueError: unknown cut or operator, a name that is taken, or ``holds`` and ``needs`` that are inconsistent in a
            group of 2 to 4 ranks (:func:`wrong_units`).
    """
    module = sys._getframe(1).f_globals["__name__"]
    for each in collectives:
        if not isinstance(each, Collective):
            raise TypeError(f"{each!r} is not a Collective; write define(Collective(name, about, cut, holds, needs))")
        for name, function in (("holds", each.holds), ("needs", each.needs)):
            if not _takes(function, ("unit", "rank", "size", "root")):
                raise TypeError(f"collective {each.name}: {name} must be a function of (unit, rank, size, root)")
        if not isinstance(each.has_root, bool) or not isinstance(each.per_cube, bool):
            raise TypeError(f"collective {each.name}: has_root and per_cube must be True or False")
        if each.cut not in (VECTOR, RANKS, PAIRS):
            raise ValueError(f"collective {each.name}: cut {each.cut!r}; allowed: {VECTOR}, {RANKS}, {PAIRS}")
        if unknown := set(each.ops) - set(REDUCTIONS):
            raise ValueError(f"collective {each.name}: ops {sorted(unknown)}; allowed: {', '.join(REDUCTIONS)}")
        if each.per_cube and set(each.ops) - {"sum"}:
            raise ValueError(
                f"collective {each.name}: ops {list(each.ops)}; with per_cube=True the only operator is 'sum'"
            )
        groups = ((size, root) for size in range(2, 5) for root in range(size if each.has_root else 1))
        if wrong := next(filter(None, (wrong_units(each, size, root) for size, root in groups)), ""):
            raise ValueError(f"collective {each.name}: {wrong}")
        COLLECTIVES.register(each.name, SimpleNamespace(__module__=module, __qualname__=each.name))(each)


define(*TABLE)


def operators() -> list[str]:
    """Return the operators of all collectives."""
    return sorted({op for name in COLLECTIVES.names() for op in COLLECTIVES.get(name).ops})


NO_BOUND = 2**62


class Task(NamedTuple):
    """Input of an algorithm's ``schedule()``. ``n_elem``: elements per unit; ``itemsize``: bytes per element.

    ``root``: the root's rank in the group. ``in_place``: source and result are one tensor. ``workers``: number of PEs
    per rank that share the elements. ``room_bytes``: TCM bytes for the kernel's values on each worker.
    """

    collective: Collective
    group: Group
    n_elem: int
    itemsize: int
    root: int = 0
    in_place: bool = True
    workers: int = 1
    room_bytes: int = NO_BOUND

    @property
    def size(self) -> int:
        """The number of ranks."""
        return self.group.size
