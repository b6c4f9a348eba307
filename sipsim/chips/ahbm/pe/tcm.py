"""Handles, the operands and results of a PE's commands, and their space in the kernel region of the TCM."""

import gc
import sys
from typing import Any

import msgspec
import numpy as np

from sipsim.chips.ahbm.address import PhysAddr, space_of, tcm_map
from sipsim.chips.ahbm.ipcq.messages import TakenSlot
from sipsim.config.schema import TcmLayout
from sipsim.core.dtypes import DType
from sipsim.core.errors import InvariantViolation, TcmFull
from sipsim.core.free_blocks import FreeBlocks
from sipsim.records.code_place import CodeLine, shown, user_line

LINE_BYTES = 64
"""Bytes of a TCM line: 512 bit, as wide as the NoC (ADR-0023 D19)."""
MOST_NAMED = 5
"""Maximum number of handles that an error lists."""


class _HandleSpace(msgspec.Struct, frozen=True, gc=False):
    """Reserved space of one handle, and the kernel line that made the handle. ``pieces``: (offset, bytes) of the parts;
    empty if handles have no addresses.
    """

    nbytes: int
    name: str
    file: str
    line: int
    pieces: tuple[tuple[int, int], ...]


class _CycleCollector:
    """Tracks whether Python's cycle collector is running."""

    is_running = False
    is_watched = False

    @classmethod
    def watch(cls) -> None:
        """Start to track the collector."""
        if not cls.is_watched:
            cls.is_watched = True
            gc.callbacks.append(cls._note)

    @classmethod
    def _note(cls, phase: str, _info: dict[str, int]) -> None:
        cls.is_running = phase == "start"


class TcmReservation:
    """TCM space of one handle, freed with the handle. ``address``: of the first byte, or None."""

    __slots__ = ("_number", "_room", "address")

    def __init__(self, room: "TcmBudget", number: int, address: int | None) -> None:
        self._room = room
        self._number = number
        self.address = address

    def __del__(self) -> None:
        if not _CycleCollector.is_running:
            self._room.free(self._number)


class TcmBudget:
    """Space for handles in the kernel region of one PE's TCM (``tcm_layout.handles_take_room``).

    ``used_bytes`` of ``capacity_bytes`` are in use. The result of a command takes its bytes, in whole TCM lines, when
    the command is submitted: a load, an operation, a constant, a message that is not used in place. A handle that
    refers to a slot takes no space until a command has read the slot. The space is freed when the last reference to the
    handle is dropped (CPython counts references, so this happens at the same instant in every run), with
    ``tl.release``, and at the end of the kernel. A command refers to its operands until it ends, a send until its
    message leaves. A handle that only Python's cycle collector frees keeps its space until the kernel ends: when the
    collector runs depends on the process.

    Only sizes decide whether a handle fits: the model assumes that a compiler, which knows all handles, packs them
    without gaps. ``gives_addresses``: each handle lies in the first gap that is large enough (first fit), or in several
    gaps if none is, so that banks can be distinguished. Limits: addresses that a kernel uses directly (``tl.store`` to
    its own TCM) are not counted; operations need no scratch space.
    """

    def __init__(
        self, layout: TcmLayout, place: tuple[int, int, int], gives_addresses: bool, check: bool = False
    ) -> None:
        self.capacity_bytes = tcm_map(layout).kernel.size
        self.used_bytes = 0
        self._place = place[1:]
        self._start = PhysAddr(*place, "tcm", 0).encode()
        self._free = FreeBlocks(self.capacity_bytes) if gives_addresses else None
        self._check = check
        self._spaces: dict[int, _HandleSpace] = {}
        self._count = 0
        _CycleCollector.watch()

    def take(self, name: str, nbytes: int, line: CodeLine | None = None) -> TcmReservation:
        """Reserve space for a handle while the returned object lives. ``line``: kernel line that makes the handle, by
        default the running line.

        Raises:
            TcmFull: if the handle does not fit.
        """
        nbytes = -(-nbytes // LINE_BYTES) * LINE_BYTES
        if not self.has(nbytes):
            raise self._full(name, nbytes)
        self._count += 1
        pieces = () if self._free is None else tuple(self._free.allocate_pieces(nbytes))
        self._spaces[self._count] = _HandleSpace(nbytes, name, *(line or user_line(sys._getframe(1))), pieces)
        self.used_bytes += nbytes
        if self._check:
            self._check_use()
        return TcmReservation(self, self._count, self._start + pieces[0][0] if pieces else None)

    def has(self, nbytes: int) -> bool:
        """Return whether ``nbytes`` are free."""
        return self.used_bytes + nbytes <= self.capacity_bytes

    def free(self, number: int) -> None:
        """Free the space of a handle, unless it was freed before."""
        space = self._spaces.pop(number, None)
        if space is not None:
            self.used_bytes -= space.nbytes
            if self._free is not None:
                for piece in space.pieces:
                    self._free.free(*piece)

    def clear(self) -> None:
        """Free the space of all handles, at the end of the kernel."""
        for number in [*self._spaces]:
            self.free(number)

    def _check_use(self) -> None:
        used = sum(each.nbytes for each in self._spaces.values())
        if used != self.used_bytes or used > self.capacity_bytes:
            cube, pe = self._place
            what = f"handles hold {used} bytes, {self.used_bytes} of {self.capacity_bytes} bytes are counted"
            raise InvariantViolation(f"the TCM space of cube {cube} PE {pe} is miscounted: {what}", cube=cube, pe=pe)

    def _full(self, name: str, nbytes: int) -> TcmFull:
        cube, pe = self._place
        largest = sorted(self._spaces.values(), key=lambda each: -each.nbytes)[:MOST_NAMED]
        named = [f"{each.name} of {each.nbytes} bytes, made at {shown(each.file, each.line)}" for each in largest]
        more = len(self._spaces) - len(named)
        rest = f"; and {more} more handles" if more else ""
        free_bytes = self.capacity_bytes - self.used_bytes
        held = f"; the largest handles: {'; '.join(named)}{rest}" if named else ""
        return TcmFull(
            f"{name} of {nbytes} bytes does not fit the TCM: {free_bytes} of {self.capacity_bytes} bytes "
            f"(tcm_layout.kernel_MiB) are free; work in smaller tiles, drop or tl.release handles{held}",
            cube=cube,
            pe=pe,
        )


Array = np.ndarray[Any, Any]


class Handle:
    """Read-only values with a type and a shape. The result of a command is empty until the command fills it.

    ``name`` is ``h`` and a number, counted per PE over the life of its SIP. ``slot_pa``: the slot in HBM or SRAM from
    which the values are still to be fetched, or None. ``in_slot``: the slot that the handle refers to, until a command
    claims it. ``is_released``: no command may use the handle. ``room``: its space in the TCM (:class:`TcmBudget`), or
    the spaces of the handles that it joins. ``offset``: start of a view, in bytes from the start of ``room``.
    ``is_placed``: whether it shares the space of another handle (``sipsim.chips.ahbm.pe.math``).
    """

    __slots__ = (
        "__weakref__",
        "array",
        "dtype",
        "in_slot",
        "is_placed",
        "is_released",
        "name",
        "offset",
        "room",
        "slot_pa",
    )

    array: Array

    def __init__(self, dtype: DType, name: str) -> None:
        self.dtype = dtype
        self.name = name
        self.slot_pa: int | None = None
        self.in_slot: TakenSlot | None = None
        self.is_released = self.is_placed = False
        self.room: TcmReservation | tuple[Any, ...] | None = None
        self.offset = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each dimension."""
        shape: tuple[int, ...] = self.array.shape
        return shape

    @property
    def tcm_pa(self) -> int | None:
        """TCM address of the first byte; None for a handle without an address, or with a slot in another memory."""
        if self.in_slot is not None:
            return self.in_slot.slot_pa if space_of(self.in_slot.slot_pa) == "tcm" else None
        room = self.room
        while isinstance(room, tuple):
            room = room[0]
        return None if room is None or room.address is None else room.address + self.offset

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.array.nbytes
