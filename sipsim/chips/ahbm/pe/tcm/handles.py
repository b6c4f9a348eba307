"""Values that a PE holds: operands and results of its commands."""

from typing import Any

import numpy as np

from sipsim.chips.ahbm.ipcq.messages.latch import TakenSlot
from sipsim.chips.ahbm.pe.tcm.room import Holding
from sipsim.core.dtypes import DType

Array = np.ndarray[Any, Any]


class Handle:
    """Read-only values with a type and a shape. The result of a command is empty until the command fills it.

    ``name`` is ``h`` and a number, counted on each PE over the life of its SIP. ``slot_pa``: the slot in HBM or SRAM
    from which the values are still to be fetched, or None. ``in_slot``: the slot that the handle stands for, until a
    command has claimed it. ``is_released``: no command may name it any more. ``room``: in the TCM
    (``sipsim.chips.ahbm.pe.tcm.room``), or that of each handle that it joins. ``is_placed``: it lies where another
    handle does (``sipsim.chips.ahbm.pe.math.view``).
    """

    __slots__ = ("__weakref__", "array", "dtype", "in_slot", "is_placed", "is_released", "name", "room", "slot_pa")

    array: Array

    def __init__(self, dtype: DType, name: str) -> None:
        self.dtype = dtype
        self.name = name
        self.slot_pa: int | None = None
        self.in_slot: TakenSlot | None = None
        self.is_released = self.is_placed = False
        self.room: Holding | tuple[Any, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each dimension."""
        shape: tuple[int, ...] = self.array.shape
        return shape

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.array.nbytes
