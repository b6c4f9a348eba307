"""One engine of a PE as a server: it does one piece of work at a time, in the order in which they are given to it.

Busy-until arithmetic, without events: whoever gives it work is told when that begins, and makes the event of its end.
Tiles of composite commands share the units of their PE, and so do the commands of a kernel where engines have queues
(ADR-0014). Without queues a command of a kernel starts when it is issued, by definition: its time counts, but it takes
no turn, so that a unit may be busy with two things, and for longer than the time that passes.
"""

from sipsim.core.errors import InvariantViolation

Ps = int
MATH, GEMM, FETCH_STORE = "PE_MATH", "PE_GEMM", "PE_FETCH_STORE"
UNITS = (MATH, GEMM, FETCH_STORE)


class Unit:
    """``free_ps``: when all work so far is done. ``busy_ps``: the time of all work so far."""

    __slots__ = ("busy_ps", "free_ps", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.free_ps: Ps = 0
        self.busy_ps: Ps = 0

    def take(self, from_ps: Ps, ps: Ps) -> Ps:
        """Do work that takes ``ps``, not before ``from_ps``; when it begins.

        Raises:
            InvariantViolation: for work of negative length.
        """
        if ps < 0:
            raise InvariantViolation(f"{self.name} was given work of {ps} ps")
        start_ps = self.free_ps if self.free_ps > from_ps else from_ps
        self.free_ps = start_ps + ps
        self.busy_ps += ps
        return start_ps

    def count(self, ps: Ps) -> None:
        """Work that takes ``ps`` and no turn: it begins at once, beside what the unit does."""
        self.busy_ps += ps
