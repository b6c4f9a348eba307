"""The HBM of tensors: physical blocks, virtual ranges, and the return of both once nothing refers to a tensor.

A reference count does not say when: a tensor that a dead reference cycle holds, too, loses its last reference when
Python happens to collect the cycle, which differs between engines. So what dies is only noted, and memory returns at
moments that the program alone decides (:meth:`AddressSpace.allocate`, :meth:`AddressSpace.begin_row`), after a full
collection.
"""

import gc
import hashlib
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from sipsim.chips.ahbm.address import VIRTUAL_BIT, PhysAddr
from sipsim.chips.ahbm.host.layout import DPPolicy, Place
from sipsim.chips.ahbm.memory.mmu import MmuMapEntry, MmuMapMsg, MmuUnmapMsg, PageTable, Target
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.sip import Pe
from sipsim.chips.api.bridge import Bridge, GreenletBridge
from sipsim.core.dtypes import DType
from sipsim.core.errors import InvariantViolation, MemoryAccessError, OutOfMemoryError
from sipsim.core.free_blocks import FreeBlocks


class Block(NamedTuple):
    """Physical memory in the HBM of one PE."""

    pa: int
    nbytes: int


class Segment(NamedTuple):
    """A contiguous range of virtual addresses, and the physical address and bytes of the block behind it.

    ``copies``: the blocks with the same content by their PE, that one first; empty where there is one.
    """

    va: int
    nbytes: int
    pa: int
    block_bytes: int
    copies: Mapping[Place, Block] = {}

    def blocks(self) -> list[Block]:
        """All blocks, copy 0 first."""
        return [*self.copies.values()] or [Block(self.pa, self.block_bytes)]

    def pa_for(self, cube: int, pe: int) -> int:
        """Where a kernel on a PE finds it: in its own copy, else in the first of its cube, else in copy 0."""
        own = self.copies.get((cube, pe))
        if own is None:
            own = next((block for (on_cube, _), block in self.copies.items() if on_cube == cube), None)
        return self.pa if own is None else own.pa


class Allocation(NamedTuple):
    """The memory of tensor ``number``: a segment for each of its blocks, in order."""

    number: int
    shape: tuple[int, ...]
    dtype: DType
    segments: list[Segment]

    def __str__(self) -> str:
        nbytes = sum(segment.nbytes for segment in self.segments)
        return f"tensor {self.number}: {self.shape} {self.dtype}, {nbytes} bytes"


class Storage:
    """Owns ``allocation``: its memory may return once this object is gone. Tensors of the same memory share it."""

    __slots__ = ("__weakref__", "allocation")

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation


class Watch(weakref.ref[Storage]):
    """Calls ``on_death(watch)`` when a storage is gone. ``on_death`` must not be Python code, in which the exception of
    a signal handler would be lost.
    """

    __slots__ = ("allocation",)
    allocation: Allocation

    def __new__(cls, storage: Storage, on_death: Callable[["Watch"], None]) -> "Watch":
        """The allocation outlives the storage."""
        watch = super().__new__(cls, storage, on_death)
        watch.allocation = storage.allocation
        return watch


def map_messages(allocation: Allocation) -> list[MmuMapMsg]:
    """The messages that map a tensor in the page tables of a SIP's PEs, one for each target, all PEs first.

    All PEs get copy 0; where there are copies (:class:`~sipsim.chips.ahbm.host.layout.DPPolicy`), all PEs of a cube the
    first copy there, and a PE its own. The same mappings end when the tensor is freed.
    """
    entries: dict[Target, list[MmuMapEntry]] = {}
    for segment in allocation.segments:
        for target, block in _seen(segment).items():
            entries.setdefault(target, []).append(MmuMapEntry(segment.va, block.pa, segment.nbytes))
    return [MmuMapMsg(cube, pe, tuple(some), str(allocation)) for (cube, pe), some in entries.items()]


def _seen(segment: Segment) -> dict[Target, Block]:
    """The block that each target gets."""
    found: dict[Target, Block] = {(None, None): segment.blocks()[0]}
    for (cube, pe), block in segment.copies.items():
        found.setdefault((cube, None), block)
        found[cube, pe] = block
    return found


ALIGN_BYTES = 256
LEAST_MADE_BYTES = 2**28
"""Tensors that are made before dead ones are looked for while there is room."""
RECORD_BYTES = 512
"""The host's memory, in bytes, that a block of a tensor takes at least: a smaller block counts as this many."""
MOST_HOLDERS = 5
"""Tensors that an out-of-memory error lists."""


class AddressSpace:
    """The tensors of SIP ``sip``: ``room_bytes`` in the HBM of each PE, in ``memory``; a PE without any costs nothing.

    The first block that is large enough is taken; virtual addresses are used once in a row. Memory returns at a row
    start, and in :meth:`allocate`, when there is no room or when as much was made since the last time as was alive
    then: what Python's full collection finds dead at that moment depends on nothing but the program. A freed tensor is
    hashed, so that ``tensor_sha256`` covers every tensor, and its bytes return to the host.

    ``bridge``: by which host code calls them. ``page_table``: that of the PEs' MMUs, which follows.
    """

    def __init__(
        self,
        memory: MemoryStore,
        sip: int,
        room_bytes: int,
        bridge: Bridge | None = None,
        page_table: PageTable | None = None,
    ) -> None:
        self.bridge = bridge or GreenletBridge()
        self._memory = memory
        self._sip = sip
        self._room = room_bytes
        self._page_table = page_table
        self._next_va = VIRTUAL_BIT
        self._free: dict[Place, FreeBlocks] = {}
        self._segments: list[Segment] = []
        self._live: dict[int, Watch] = {}
        self._hashes: list[bytes] = []
        self._dead: list[Watch] = []
        self._made_bytes = 0
        self._most_made_bytes = LEAST_MADE_BYTES

    def allocate(self, shape: tuple[int, ...], dtype: DType, dp: DPPolicy) -> Storage:
        """A tensor of zeros laid out by ``dp``, in equal blocks of one contiguous virtual range.

        Raises:
            OutOfMemoryError: when a PE's HBM has no room.
        """
        holders = dp.holders()
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize // len(holders)
        places = [place for some in holders for place in some]
        made_bytes = max(nbytes, RECORD_BYTES) * len(places)
        found = self._find(nbytes, places)
        if found is None or self._made_bytes + made_bytes > self._most_made_bytes:
            self.free_dead()
            found = self._find(nbytes, places)
        if found is None:
            raise self._out_of_memory(nbytes, places)
        self._made_bytes += made_bytes
        segments = [self._segment(nbytes, {place: found[place] for place in some}) for some in holders]
        self._next_va += -self._next_va % ALIGN_BYTES
        storage = Storage(Allocation(len(self._hashes), shape, dtype, segments))
        self._live[len(self._hashes)] = Watch(storage, self._dead.append)
        self._hashes.append(b"")
        self._segments += segments
        if self._page_table is not None:
            for message in map_messages(storage.allocation):
                self._page_table.map(message)
        return storage

    def _segment(self, nbytes: int, found: dict[Place, int]) -> Segment:
        """The next ``nbytes`` of virtual addresses, with a block of each PE that was found to have one."""
        blocks: dict[Place, Block] = {}
        for (cube, pe), index in found.items():
            offset, block_bytes = self._free[cube, pe].take(index, aligned(nbytes))
            pa = PhysAddr(self._sip, cube, pe, "hbm", offset).encode()
            self._memory.clear(pa, block_bytes)  # a kernel may have written there by its physical address
            blocks[cube, pe] = Block(pa, block_bytes)
        first = next(iter(blocks.values()))
        segment = Segment(self._next_va, nbytes, *first, blocks if len(blocks) > 1 else {})
        self._next_va += nbytes
        return segment

    def free_dead(self) -> None:
        """Return the memory of all tensors that the program cannot reach."""
        gc.collect()
        while self._dead:
            self._free_one(self._dead.pop().allocation)
        self._made_bytes = 0
        alive = sum(segment.nbytes * len(segment.blocks()) for segment in self._segments)
        self._most_made_bytes = max(LEAST_MADE_BYTES, alive)

    def begin_row(self) -> None:
        """Free what the program cannot reach, and let new tensors follow what is left, also by virtual addresses: all
        TLBs are empty now.
        """
        self.free_dead()
        self._next_va = VIRTUAL_BIT
        if self._segments:
            last = self._segments[-1]
            self._next_va = last.va + last.nbytes
            self._next_va += -self._next_va % ALIGN_BYTES

    def live(self) -> list[Allocation]:
        """The tensors that are not freed, in order of creation."""
        return [watch.allocation for watch in self._live.values()]

    def read(self, allocation: Allocation) -> Iterator[bytes]:
        """The bytes of each shard in order, of copy 0."""
        return (self._memory.read(segment.pa, segment.nbytes) for segment in allocation.segments)

    def translation_for(self, cube: int, pe: int) -> Callable[[int, int], int]:
        """:meth:`translate` for the kernels of one PE."""
        return partial(self.translate, cube=cube, pe=pe)

    def translate(self, address: int, nbytes: int, cube: int = -1, pe: int = -1) -> int:
        """The physical address of a virtual range; a physical address is returned unchanged.

        ``cube``, ``pe``: who asks, where the range has copies; without them it is copy 0.

        Raises:
            MemoryAccessError: when the range does not lie within one shard of a tensor.
        """
        if not address & VIRTUAL_BIT:
            return address
        index = bisect_right(self._segments, address, key=_va) - 1
        if index >= 0:
            segment = self._segments[index]
            if address + nbytes <= segment.va + segment.nbytes:
                return (segment.pa_for(cube, pe) if segment.copies else segment.pa) + (address - segment.va)
        raise MemoryAccessError(f"{nbytes} bytes at virtual address {address:#x} are not within one shard of a tensor")

    def sha256(self) -> str:
        """Hash of the hashes of all tensors, freed ones included, in order of creation."""
        digest = hashlib.sha256()
        for number, kept in enumerate(self._hashes):
            digest.update(kept or self._hash(self._live[number].allocation))
        return digest.hexdigest()

    def _free_one(self, allocation: Allocation) -> None:
        """Hash a tensor and return its memory."""
        self._hashes[allocation.number] = self._hash(allocation)
        del self._live[allocation.number]
        if self._page_table is not None:
            for cube, pe, entries, _ in map_messages(allocation):
                self._page_table.unmap(MmuUnmapMsg(cube, pe, tuple(entry.va for entry in entries)))
        first = bisect_right(self._segments, allocation.segments[0].va, key=_va) - 1
        del self._segments[first : first + len(allocation.segments)]
        for pa, nbytes in (block for segment in allocation.segments for block in segment.blocks()):
            _, cube, pe, _, offset = PhysAddr.decode(pa)
            self._memory.clear(pa, nbytes)
            self._free[cube, pe].give(offset, nbytes)

    def _hash(self, allocation: Allocation) -> bytes:
        """Hash of a tensor's type, shape and bytes, those of all further copies last."""
        digest = hashlib.sha256(f"{allocation.dtype} {allocation.shape}\n".encode())
        for part in self.read(allocation):
            digest.update(part)
        for segment in allocation.segments:
            for block in segment.blocks()[1:]:
                digest.update(self._memory.read(block.pa, segment.nbytes))
        return digest.digest()

    def _find(self, nbytes: int, places: list[Place]) -> dict[Place, int] | None:
        """The index of the first free block of ``nbytes`` on each PE; None if one has none."""
        found: dict[Place, int] = {}
        for place in places:
            index = self._free_of(place).find(nbytes)
            if index is None:
                return None
            found[place] = index
        return found

    def _free_of(self, place: Place) -> FreeBlocks:
        free = self._free.get(place)
        if free is None:
            free = self._free[place] = FreeBlocks(self._room)
        return free

    def _out_of_memory(self, nbytes: int, places: list[Place]) -> OutOfMemoryError:
        """Of the first PE without a free block of ``nbytes``."""
        cube, pe = next(place for place in places if self._free_of(place).find(nbytes) is None)
        sizes = self._free[cube, pe].sizes()
        in_one_piece = f", at most {max(sizes)} of them in one piece" if sum(sizes) >= nbytes else ""
        live = [(_bytes_on(allocation, cube, pe), allocation) for allocation in self.live()]
        live = sorted((each for each in live if each[0]), key=lambda each: (-each[0], each[1].number))
        held = "; ".join(str(allocation) for _, allocation in live[:MOST_HOLDERS])
        return OutOfMemoryError(
            f"a tensor of {nbytes} bytes a PE does not fit cube {cube}, PE {pe}: {sum(sizes)} bytes of its HBM are left"
            f"{in_one_piece}; use a smaller size or raise cube.hbm_MiB_per_pe"
            f"{f'; the largest tensors: {held}' if held else ''}",
            cube=cube,
            pe=pe,
        )


def aligned(nbytes: int) -> int:
    """Bytes that an allocation of ``nbytes`` takes."""
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


def _va(segment: Segment) -> int:
    return segment.va


def _bytes_on(allocation: Allocation, cube: int, pe: int) -> int:
    """Bytes of a tensor in the HBM of one PE."""
    places = (PhysAddr.decode(block.pa) for segment in allocation.segments for block in segment.blocks())
    return allocation.segments[0].nbytes * sum((place.cube, place.pe) == (cube, pe) for place in places)


Translate = Callable[[int, int], int]


def translation_on(pe: Pe, space: AddressSpace, is_checked: bool) -> Translate:
    """The translation for the kernels of a PE: by the allocator in no time, or by the PE's MMU.

    ``is_checked``: MMU and allocator must agree each time.
    """
    exact = space.translation_for(pe.cube, pe.pe)
    if pe.mmu is None:
        return exact
    return _agreeing(pe.mmu.translate, exact) if is_checked else pe.mmu.translate


def _agreeing(by_mmu: Translate, exact: Translate) -> Translate:
    def translate(address: int, nbytes: int) -> int:
        found, expected = by_mmu(address, nbytes), exact(address, nbytes)
        if found != expected:
            what = f"PE_MMU translates {address:#x} to {found:#x}"
            raise InvariantViolation(f"{what}, and the allocator to {expected:#x}")
        return found

    return translate
