"""Which PEs of a SIP a launch names."""

from collections.abc import Sequence

from sipsim.chips.ahbm.address import LEAD_PE, PePlace
from sipsim.chips.ahbm.plan import Plan

Numbers = int | Sequence[int] | None


def chosen_places(plan: Plan, sip: int, cubes: Numbers, pes: Numbers) -> list[PePlace] | None:
    """Each PE of ``pes`` on each cube of ``cubes``, both a number or several; None where neither is given.

    Without ``cubes``: on all. Without ``pes``: the lead PE.

    Raises:
        ValueError: for a cube or a PE that does not exist or is named twice, or none at all.
        TypeError: for what is no whole number.
    """
    if cubes is None and pes is None:
        return None
    of_sip = _numbers("cubes", cubes, plan.system.n_cubes, "a SIP", range(plan.system.n_cubes))
    of_cube = _numbers("pes", pes, plan.system.n_pes, "a cube", [LEAD_PE])
    return [PePlace(sip, cube, pe) for cube in of_sip for pe in of_cube]


def allowed_pes(plan: Plan, pes: Sequence[int]) -> tuple[int, ...]:
    """The PEs of a cube that may work for a collective, in order; none where all may.

    Raises:
        ValueError: for one that does not exist or is named twice.
        TypeError: for what is no whole number.
    """
    if isinstance(pes, tuple | list | range) and not pes:
        return ()
    return tuple(_numbers("pes", pes, plan.system.n_pes, "a cube", (), "a collective"))


def _numbers(
    name: str, given: Numbers, size: int, whole: str, default: Sequence[int], what: str = "torch.launch"
) -> list[int]:
    if given is None:
        return list(default)
    if isinstance(given, str | bytes) or not (isinstance(given, int) or hasattr(given, "__iter__")):
        raise TypeError(f"{what}: {name}={given!r}: give a number or several, from 0 to {size - 1}")
    numbers = [given] if isinstance(given, int) else list(given)
    if not numbers:
        raise ValueError(f"{what}: {name} is empty; name at least one, from 0 to {size - 1}, or leave it out")
    for number in numbers:
        if not hasattr(number, "__index__") or isinstance(number, bool):
            raise TypeError(f"{what}: {name}={given!r}: {number!r} is no whole number")
        if not 0 <= number < size:
            raise ValueError(f"{what}: {name}={given!r}: {whole} has {size}, from 0 to {size - 1}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{what}: {name}={given!r}: one is named twice")
    return sorted(int(number) for number in numbers)
