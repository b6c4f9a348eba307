"""A path of bytes that carries one access at a time, and what checks that (``--check-invariants``)."""

from bisect import bisect_right, insort

from sipsim.core.errors import InvariantViolation

Ps = int
KEPT = 256
"""Stretches of a bus that a later one is compared with."""


class BusWitness:
    """Sees all stretches of time for which a bus was given to an access, in any order.

    Raises:
        InvariantViolation: when two of them overlap.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._taken: list[tuple[Ps, Ps]] = []

    def took(self, start_ps: Ps, end_ps: Ps) -> None:
        """The bus carries an access from ``start_ps`` to ``end_ps``."""
        taken, at = self._taken, bisect_right(self._taken, (start_ps, end_ps))
        for other_start, other_end in taken[max(at - 1, 0) : at + 1]:
            if other_start < end_ps and start_ps < other_end:
                raise InvariantViolation(
                    f"{self._name}: its bus carries two accesses at a time, from {start_ps} to {end_ps} ps and from "
                    f"{other_start} to {other_end} ps"
                )
        insort(taken, (start_ps, end_ps))
        if len(taken) > 2 * KEPT:
            del taken[:KEPT]


class Bus:
    """Busy-until arithmetic: accesses pass in the order in which they are claimed. ``free_ps``: when all are
    through."""

    __slots__ = ("free_ps", "witness")

    def __init__(self) -> None:
        self.free_ps: Ps = 0
        self.witness: BusWitness | None = None

    def take(self, from_ps: Ps, ps: Ps) -> Ps:
        """Give the bus to an access for ``ps``, not before ``from_ps``; when that begins."""
        start_ps = self.free_ps if self.free_ps > from_ps else from_ps
        self.free_ps = start_ps + ps
        if self.witness is not None:
            self.witness.took(start_ps, self.free_ps)
        return start_ps
