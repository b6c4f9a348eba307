"""Allocator of tensors in HBM: physical blocks and virtual ranges, freed once nothing refers to a tensor.

Memory is not freed when a reference count drops to zero: a tensor in a reference cycle dies when Python happens to
collect the cycle, and that moment differs between engines. Dead tensors are only listed. Their memory is freed at
moments that depend on the program alone (:meth:`AddressSpace.allocate`, :meth:`AddressSpace.begin_row`), after a full
garbage collection.
"""

import gc
import hashlib
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

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
    """Physical block in the HBM of one PE."""

    pa: int
    nbytes: int


class Segment(NamedTuple):
    """Contiguous range of virtual addresses that maps to one physical block, or to copies of it.

    ``pa``, ``block_bytes``: the block of copy 0. ``copies``: all blocks by (cube, PE), copy 0 first, or empty.
    """

    va: int
    nbytes: int
    pa: int
    block_bytes: int
    copies: Mapping[Place, Block] = {}

    def blocks(self) -> list[Block]:
        """Return all blocks, copy 0 first."""
        return [*self.copies.values()] or [Block(self.pa, self.block_bytes)]

    def pa_for(self, cube: int, pe: int) -> int:
        """Return the physical address for a kernel on a PE: the PE's copy, else its cube's first copy, else copy 0."""
        block = self.copies.get((cube, pe))
        if block is None:
            block = next((each for (on_cube, _), each in self.copies.items() if on_cube == cube), None)
        return self.pa if block is None else block.pa


class Allocation(NamedTuple):
    """Memory of tensor ``number``: a segment for each block, in order."""

    number: int
    shape: tuple[int, ...]
    dtype: DType
    segments: list[Segment]

    def __str__(self) -> str:
        nbytes = sum(segment.nbytes for segment in self.segments)
        return f"tensor {self.number}: {self.shape} {self.dtype}, {nbytes} bytes"


class Storage:
    """Owner of ``allocation``, which may be freed once this object is dead. Views share the storage of their tensor."""

    __slots__ = ("__weakref__", "allocation")

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation


class StorageRef(weakref.ref[Storage]):
    """Weak reference that calls ``on_death(reference)`` when a storage dies. ``on_death`` must be a C function: in a
    callback of Python code the exception of a signal handler would be lost.
    """

    __slots__ = ("allocation",)
    allocation: Allocation

    def __new__(cls, storage: Storage, on_death: Callable[["StorageRef"], None]) -> "StorageRef":
        """Make a reference with the storage's allocation, which outlives the storage."""
        reference = super().__new__(cls, storage, on_death)
        reference.allocation = storage.allocation
        return reference


def map_messages(allocation: Allocation) -> list[MmuMapMsg]:
    """Return messages that map a tensor for a SIP's PEs: one for all PEs, then one for each narrower target.

    All PEs get copy 0. With copies (:class:`~sipsim.chips.ahbm.host.layout.DPPolicy`) all PEs of a cube get the cube's
    first copy, and each PE with a copy gets this copy. The same mappings are removed when the tensor is freed.
    """
    entries: dict[Target, list[MmuMapEntry]] = {}
    for segment in allocation.segments:
        for target, block in _blocks_by_target(segment).items():
            entries.setdefault(target, []).append(MmuMapEntry(segment.va, block.pa, segment.nbytes))
    return [MmuMapMsg(cube, pe, tuple(mapped), str(allocation)) for (cube, pe), mapped in entries.items()]


def _blocks_by_target(segment: Segment) -> dict[Target, Block]:
    """Return the block to which each target maps the segment."""
    blocks: dict[Target, Block] = {(None, None): segment.blocks()[0]}
    for (cube, pe), block in segment.copies.items():
        blocks.setdefault((cube, None), block)
        blocks[cube, pe] = block
    return blocks


class Access(Protocol):
    """Access of host code to the memories of a SIP."""

    def write(self, storage: Storage, blocks: Sequence[tuple[Block, memoryview]]) -> None:
        """Write bytes to blocks of ``storage``."""

    def read(self, storage: Storage, blocks: Sequence[Block]) -> list[bytes]:
        """Return the bytes of blocks of ``storage``."""


class FreeAccess(Access):
    """Access in no simulated time, which waits for no launch: for data that the simulator prepares or checks."""

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def write(self, storage: Storage, blocks: Sequence[tuple[Block, memoryview]]) -> None:
        for block, data in blocks:
            self._memory.write_from_host(block.pa, data)

    def read(self, storage: Storage, blocks: Sequence[Block]) -> list[bytes]:
        return [self._memory.read(*block) for block in blocks]


ALIGN_BYTES = 256
LEAST_MADE_BYTES = 2**28
"""Least limit of the bytes that are allocated between two searches for dead tensors, while memory suffices."""
RECORD_BYTES = 512
"""Bytes of host memory for the record of one block: a smaller block counts as this many bytes."""
MOST_HOLDERS = 5
"""Tensors that an out-of-memory error lists."""


class AddressSpace:
    """Allocator of the tensors of SIP ``sip``, with ``room_bytes`` in the HBM of each PE. ``memory``: stores the bytes.

    Allocation is first fit. Within a row each virtual address is used once. Memory is freed at a row start, and in
    :meth:`allocate` when memory does not suffice or as many bytes were allocated since the last freeing as were
    alive then. Which tensors a full garbage collection finds dead at these moments depends only on the program. A freed
    tensor is hashed first, so that ``tensor_sha256`` covers every tensor.

    ``bridge``: connects the host program to the simulation. ``page_table``: table of the PEs' MMUs, kept up to date.
    ``free``: access in no time; ``access``: access of the host script, ``free`` until it is replaced.
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
        self.free = FreeAccess(memory)
        self.access: Access = self.free
        self._memory = memory
        self._sip = sip
        self._hbm_bytes = room_bytes
        self._page_table = page_table
        self._next_va = VIRTUAL_BIT
        self._free: dict[Place, FreeBlocks] = {}
        self._segments: list[Segment] = []
        self._live: dict[int, StorageRef] = {}
        self._hashes: list[bytes] = []
        self._dead: list[StorageRef] = []
        self._allocated_bytes = 0
        self._allocation_limit_bytes = LEAST_MADE_BYTES
        self._messages: list[MmuMapMsg | MmuUnmapMsg] = []

    def allocate(self, shape: tuple[int, ...], dtype: DType, dp: DPPolicy) -> Storage:
        """Allocate a tensor of zeros with layout ``dp``: equal blocks in one contiguous virtual range.

        Raises:
            OutOfMemoryError: when a PE's HBM has no free block of the size.
        """
        holders = dp.holders()
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize // len(holders)
        places = [place for of_block in holders for place in of_block]
        new_bytes = max(nbytes, RECORD_BYTES) * len(places)
        indices = self._find(nbytes, places)
        if indices is None or self._allocated_bytes + new_bytes > self._allocation_limit_bytes:
            self.free_dead()
            indices = self._find(nbytes, places)
        if indices is None:
            raise self._out_of_memory(nbytes, places)
        self._allocated_bytes += new_bytes
        segments = [self._segment(nbytes, {place: indices[place] for place in of_block}) for of_block in holders]
        self._next_va += -self._next_va % ALIGN_BYTES
        storage = Storage(Allocation(len(self._hashes), shape, dtype, segments))
        self._live[len(self._hashes)] = StorageRef(storage, self._dead.append)
        self._hashes.append(b"")
        self._segments += segments
        if self._page_table is not None:
            for message in map_messages(storage.allocation):
                self._page_table.map(message)
                self._messages.append(message)
        return storage

    def take_messages(self) -> list[MmuMapMsg | MmuUnmapMsg]:
        """Remove and return the messages that have changed the page table since the last call or row start."""
        messages, self._messages = self._messages, []
        return messages

    def drop_maps(self) -> None:
        """Remove the maps from the messages that :meth:`take_messages` returns next."""
        self._messages = [each for each in self._messages if isinstance(each, MmuUnmapMsg)]

    def _segment(self, nbytes: int, indices: dict[Place, int]) -> Segment:
        """Take the next ``nbytes`` of virtual addresses, and on each PE the free block that ``indices`` names."""
        blocks: dict[Place, Block] = {}
        for (cube, pe), index in indices.items():
            offset, block_bytes = self._free[cube, pe].take(index, aligned(nbytes))
            pa = PhysAddr(self._sip, cube, pe, "hbm", offset).encode()
            self._memory.clear(pa, block_bytes)  # a kernel may have written to the physical address
            blocks[cube, pe] = Block(pa, block_bytes)
        first = next(iter(blocks.values()))
        segment = Segment(self._next_va, nbytes, *first, blocks if len(blocks) > 1 else {})
        self._next_va += nbytes
        return segment

    def free_dead(self) -> None:
        """Free the memory of all tensors that the program cannot reach."""
        gc.collect()
        while self._dead:
            self._free_one(self._dead.pop().allocation)
        self._allocated_bytes = 0
        alive = sum(segment.nbytes * len(segment.blocks()) for segment in self._segments)
        self._allocation_limit_bytes = max(LEAST_MADE_BYTES, alive)

    def begin_row(self) -> None:
        """Free the tensors that the program cannot reach, and reuse virtual addresses behind the last live tensor: all
        TLBs are empty at a row start.
        """
        self.free_dead()
        self._messages.clear()  # a row starts on a machine at rest
        self._next_va = VIRTUAL_BIT
        if self._segments:
            last = self._segments[-1]
            self._next_va = last.va + last.nbytes
            self._next_va += -self._next_va % ALIGN_BYTES

    def live(self) -> list[Allocation]:
        """Return the allocations that are not freed, in order of creation."""
        return [reference.allocation for reference in self._live.values()]

    def read(self, allocation: Allocation) -> Iterator[bytes]:
        """Return an iterator over the bytes of the shards, in order, from copy 0."""
        return (self._memory.read(segment.pa, segment.nbytes) for segment in allocation.segments)

    def translation_for(self, cube: int, pe: int) -> Callable[[int, int], int]:
        """Return :meth:`translate` with ``cube`` and ``pe`` set, for the kernels of one PE."""
        return partial(self.translate, cube=cube, pe=pe)

    def translate(self, address: int, nbytes: int, cube: int = -1, pe: int = -1) -> int:
        """Return the physical address of a virtual range; return a physical address unchanged.

        ``cube``, ``pe``: the accessing PE, which selects one of several copies; -1 selects copy 0.

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
        """Return the SHA-256 of the hashes of all tensors, freed tensors included, in order of creation."""
        digest = hashlib.sha256()
        for number, tensor_hash in enumerate(self._hashes):
            digest.update(tensor_hash or self._hash(self._live[number].allocation))
        return digest.hexdigest()

    def _free_one(self, allocation: Allocation) -> None:
        """Hash a tensor and free its memory."""
        self._hashes[allocation.number] = self._hash(allocation)
        del self._live[allocation.number]
        if self._page_table is not None:
            for cube, pe, entries, _ in map_messages(allocation):
                message = MmuUnmapMsg(cube, pe, tuple(entry.va for entry in entries))
                self._page_table.unmap(message)
                self._messages.append(message)
        first = bisect_right(self._segments, allocation.segments[0].va, key=_va) - 1
        del self._segments[first : first + len(allocation.segments)]
        for pa, nbytes in (block for segment in allocation.segments for block in segment.blocks()):
            _, cube, pe, _, offset = PhysAddr.decode(pa)
            self._memory.clear(pa, nbytes)
            self._free[cube, pe].free(offset, nbytes)

    def _hash(self, allocation: Allocation) -> bytes:
        """Hash a tensor's type, shape and bytes; the bytes of copies 1 and up come last."""
        digest = hashlib.sha256(f"{allocation.dtype} {allocation.shape}\n".encode())
        for part in self.read(allocation):
            digest.update(part)
        for segment in allocation.segments:
            for block in segment.blocks()[1:]:
                digest.update(self._memory.read(block.pa, segment.nbytes))
        return digest.digest()

    def _find(self, nbytes: int, places: list[Place]) -> dict[Place, int] | None:
        """Return the index of the first free block of ``nbytes`` on each PE; None if a PE has no such block."""
        indices: dict[Place, int] = {}
        for place in places:
            index = self._free_of(place).find(nbytes)
            if index is None:
                return None
            indices[place] = index
        return indices

    def _free_of(self, place: Place) -> FreeBlocks:
        free = self._free.get(place)
        if free is None:
            free = self._free[place] = FreeBlocks(self._hbm_bytes)
        return free

    def _out_of_memory(self, nbytes: int, places: list[Place]) -> OutOfMemoryError:
        """Return the error for the first PE without a free block of ``nbytes``."""
        cube, pe = next(place for place in places if self._free_of(place).find(nbytes) is None)
        sizes = self._free[cube, pe].sizes()
        in_one_piece = f", at most {max(sizes)} bytes in one piece" if sum(sizes) >= nbytes else ""
        live = [(_bytes_on(allocation, cube, pe), allocation) for allocation in self.live()]
        live = sorted((each for each in live if each[0]), key=lambda each: (-each[0], each[1].number))
        held = "; ".join(str(allocation) for _, allocation in live[:MOST_HOLDERS])
        return OutOfMemoryError(
            f"a tensor of {nbytes} bytes per PE does not fit HBM of cube {cube}, PE {pe}: {sum(sizes)} bytes are free"
            f"{in_one_piece}; use a smaller size or raise cube.hbm_MiB_per_pe"
            f"{f'; the largest tensors: {held}' if held else ''}",
            cube=cube,
            pe=pe,
        )


def aligned(nbytes: int) -> int:
    """Round ``nbytes`` up to whole units of ``ALIGN_BYTES``, as the allocator does."""
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


def _va(segment: Segment) -> int:
    return segment.va


def _bytes_on(allocation: Allocation, cube: int, pe: int) -> int:
    """Return the bytes of a tensor in the HBM of one PE."""
    places = (PhysAddr.decode(block.pa) for segment in allocation.segments for block in segment.blocks())
    return allocation.segments[0].nbytes * sum((place.cube, place.pe) == (cube, pe) for place in places)


Translate = Callable[[int, int], int]


def address_translator(pe: Pe, space: AddressSpace, is_checked: bool) -> Translate:
    """Return the address translation for the kernels of a PE: by its MMU, or without one by the allocator.

    ``is_checked``: compare each address of the MMU with the allocator's address.
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
