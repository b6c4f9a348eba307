"""What must hold of every round over the control path (``--check-invariants``)."""

from collections.abc import Sequence
from typing import Any

from sipsim.chips.ahbm.control.launch_path import Place
from sipsim.core.errors import InvariantViolation

Ps = int


class FanOutChecker:
    """A second account of all rounds of one SIP: who was told, and who has answered.

    Raises:
        InvariantViolation: from every method.
    """

    def __init__(self, sip: int) -> None:
        self._sip = sip
        self._told: dict[Any, set[Place]] = {}

    def sent(self, round_: object, places: Sequence[Place]) -> None:
        """A round is fanned out to these PEs, each of them once."""
        self._told[round_] = set(places)
        if len(self._told[round_]) < len(places):
            raise self._violation(f"a message is fanned out twice to one of the PEs {sorted(places)}")

    def answered(self, round_: object, place: Place) -> None:
        """A PE answers, which it does once, and only where it was told something."""
        if place not in self._told.get(round_, ()):
            raise self._violation(f"cube {place[0]}, PE {place[1]} answers what it was not told, or twice")
        self._told[round_].remove(place)

    def gathered(self, round_: object) -> None:
        """IO_CPU has gathered a round: all have answered."""
        left = self._told.pop(round_)
        if left:
            raise self._violation(f"a launch was gathered before the answers of (cube, PE) {sorted(left)}")

    def starts(self, place: Place, now_ps: Ps, target_ps: Ps) -> None:
        """A kernel starts now, and was to start at ``target_ps``."""
        if now_ps < target_ps:
            where = f"cube {place[0]}, PE {place[1]}"
            raise self._violation(f"the kernel on {where} starts at {now_ps} ps, before its stamped {target_ps} ps")

    def _violation(self, what: str) -> InvariantViolation:
        return InvariantViolation(f"SIP {self._sip}: {what}")
