"""What the kernels compute, in NumPy, with the same order of additions (:mod:`.tree`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sipsim.chips.ahbm.collectives.intercube.schedule import Unit
from sipsim.chips.ahbm.collectives.intercube.tree import Axis, Leg
from sipsim.collectives.reduction import combine, final

Array = np.ndarray[Any, Any]


def combined(rows: Array, axes: tuple[Axis, ...], units: Sequence[Unit], op: str = "sum") -> Array:
    """The row that all members end with.

    ``rows``: shape (\\*sizes of axes, elements). ``units`` cover the elements.
    """
    result = np.empty(rows.shape[-1], rows.dtype)
    for unit in units:
        part = slice(unit.start, unit.start + unit.length)
        result[part] = _of_unit(rows[..., part], axes, unit.legs, op)
    return final(op, result, rows[..., 0].size)


def _of_unit(values: Array, axes: tuple[Axis, ...], legs: tuple[Leg, ...], op: str) -> Array:
    """Axes are kept with size 1, so that their numbers stay."""
    for leg in legs:
        values = np.expand_dims(_along(np.moveaxis(values, leg.axis, 0), axes[leg.axis], leg, op), leg.axis)
    return values.reshape(values.shape[-1])


def _along(values: Array, axis: Axis, leg: Leg, op: str) -> Array:
    total: Array = values[leg.owner]
    behind, ahead = leg.arms(axis)
    for length, way in ((behind, -1), (ahead, 1)):
        if length:
            arm = [values[(leg.owner + way * hops) % axis.size] for hops in range(length, 0, -1)]
            partial = arm[0]
            for own in arm[1:]:
                partial = combine(op, own, partial)
            total = combine(op, total, partial)
    return total
