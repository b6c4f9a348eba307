"""The values that a PE holds, operands and results of its commands, and their room in the kernel region of its TCM."""

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
"""A line of the TCM: 512 bit, as wide as the NoC (ADR-0023 D19)."""
MOST_NAMED = 5
"""Handles that an error lists."""


class _Held(msgspec.Struct, frozen=True, gc=False):
    """A handle with room, and the line of the kernel that made it. ``pieces``: (offset, bytes) of its gaps; empty where
    the room gives no addresses.
    """

    nbytes: int
    name: str
    file: str
    line: int
    pieces: tuple[tuple[int, int], ...]


class _Collections:
    """Whether Python's collector of cycles runs just now."""

    is_running = False
    is_watched = False

    @classmethod
    def watch(cls) -> None:
        """From now on, know it."""
        if not cls.is_watched:
            cls.is_watched = True
            gc.callbacks.append(cls._note)

    @classmethod
    def _note(cls, phase: str, _info: dict[str, int]) -> None:
        cls.is_running = phase == "start"


class Holding:
    """The room of one handle, which alone refers to it. ``address``: of its first byte; None: the room gives none."""

    __slots__ = ("_number", "_room", "address")

    def __init__(self, room: "KernelRoom", number: int, address: int | None) -> None:
        self._room = room
        self._number = number
        self.address = address

    def __del__(self) -> None:
        if not _Collections.is_running:
            self._room.give(self._number)


class KernelRoom:
    """The kernel region of the TCM of one PE (``tcm_layout.handles_take_room``): ``used_bytes`` of ``capacity_bytes``.

    The result of a command takes its bytes, in whole lines of the TCM, when the command is submitted: a load, an
    operation, a value that the kernel makes itself, a message that is not used in place. A handle that stands for a
    slot takes none until a command has read the slot. Room returns when nothing refers to the handle any more (CPython
    counts references, so that is the same instant in every run), with ``tl.release``, and at the end of the kernel. A
    command refers to its operands until it has ended, a send until its message leaves, and nothing else of ours does. A
    handle that is freed only by Python's collector of cycles keeps its room until then: when the collector runs depends
    on the process.

    Sizes alone decide whether a handle fits: the author decides which handles a kernel holds at a time, and a compiler,
    which knows all of them, packs them without gaps. ``gives_addresses``: so that banks tell handles apart, each lies
    in the first gap that holds it (first fit), or in several gaps where none does. Limits: addresses of the region that
    a kernel names itself (``tl.store`` to its own TCM) are not counted; operations need no scratch.
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
        self._held: dict[int, _Held] = {}
        self._count = 0
        _Collections.watch()

    def take(self, name: str, nbytes: int, line: CodeLine | None = None) -> Holding:
        """Room for a handle of the kernel that runs, for as long as the holding lives. ``line``: that of the kernel
        which made it, the one that runs unless given.

        Raises:
            TcmFull: when there is none.
        """
        nbytes = -(-nbytes // LINE_BYTES) * LINE_BYTES
        if not self.has(nbytes):
            raise self._full(name, nbytes)
        self._count += 1
        pieces = () if self._free is None else tuple(self._free.take_pieces(nbytes))
        self._held[self._count] = _Held(nbytes, name, *(line or user_line(sys._getframe(1))), pieces)
        self.used_bytes += nbytes
        if self._check:
            self._check_use()
        return Holding(self, self._count, self._start + pieces[0][0] if pieces else None)

    def has(self, nbytes: int) -> bool:
        """Whether there is room."""
        return self.used_bytes + nbytes <= self.capacity_bytes

    def give(self, number: int) -> None:
        """Return the room of a handle, if it still has any."""
        held = self._held.pop(number, None)
        if held is not None:
            self.used_bytes -= held.nbytes
            if self._free is not None:
                for piece in held.pieces:
                    self._free.give(*piece)

    def clear(self) -> None:
        """The kernel has ended."""
        for number in [*self._held]:
            self.give(number)

    def _check_use(self) -> None:
        used = sum(each.nbytes for each in self._held.values())
        if used != self.used_bytes or used > self.capacity_bytes:
            cube, pe = self._place
            what = f"handles hold {used} bytes, {self.used_bytes} are counted, of {self.capacity_bytes}"
            raise InvariantViolation(f"the TCM of cube {cube} PE {pe} holds more than it has: {what}", cube=cube, pe=pe)

    def _full(self, name: str, nbytes: int) -> TcmFull:
        cube, pe = self._place
        largest = sorted(self._held.values(), key=lambda each: -each.nbytes)[:MOST_NAMED]
        named = [f"{each.name} of {each.nbytes} bytes, made at {shown(each.file, each.line)}" for each in largest]
        more = len(self._held) - len(named)
        rest = f"; and {more} more" if more else ""
        left = self.capacity_bytes - self.used_bytes
        held = f"; the largest handles: {'; '.join(named)}{rest}" if named else ""
        return TcmFull(
            f"{name} of {nbytes} bytes does not fit the {left} bytes that are left of the {self.capacity_bytes} of "
            f"tcm_layout.kernel_MiB; work in smaller tiles, drop handles or give them to tl.release{held}",
            cube=cube,
            pe=pe,
        )


Array = np.ndarray[Any, Any]


class Handle:
    """Read-only values with a type and a shape. The result of a command is empty until the command fills it.

    ``name`` is ``h`` and a number, counted on each PE over the life of its SIP. ``slot_pa``: the slot in HBM or SRAM
    from which the values are still to be fetched, or None. ``in_slot``: the slot that the handle stands for, until a
    command has claimed it. ``is_released``: no command may name it any more. ``room``: its room in the TCM
    (:class:`KernelRoom`), or that of each handle that it joins. ``offset``: where a view begins, in bytes from the
    start of ``room``. ``is_placed``: it lies where another handle does (``sipsim.chips.ahbm.pe.math``).
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
        self.room: Holding | tuple[Any, ...] | None = None
        self.offset = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements in each dimension."""
        shape: tuple[int, ...] = self.array.shape
        return shape

    @property
    def tcm_pa(self) -> int | None:
        """The TCM address of its first byte; None for a handle without an address, or with a slot in another memory."""
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
