"""HBM of tensors: physical blocks, virtual ranges, and the return of both when an allocation is freed.

Only the built-in job frees tensors, one size after the other. A script's tensors stay to its end: at reference count
zero they would return at times that depend on when Python collects cyclic garbage, which differs between engines.

The first block that is large enough is taken; virtual addresses are never used again. The bytes of a freed tensor stay
until one of its blocks is taken again: its hash is taken then, so that ``tensor_sha256`` covers every tensor.
"""

import hashlib
from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sipsim.dtypes import DType
from sipsim.errors import MemoryAccessError, OutOfMemoryError
from sipsim.host.calls import HostCalls
from sipsim.memory.store import MemoryStore
from sipsim.topology.address import VIRTUAL_BIT, PhysAddr

ALIGN_BYTES = 256
MOST_HOLDERS = 5
"""Tensors that an out-of-memory error lists."""


class Segment(NamedTuple):
    """A contiguous range of virtual addresses, and the physical address and bytes of the block behind it."""

    va: int
    nbytes: int
    pa: int
    block_bytes: int


class Allocation:
    """A tensor that was made, as number ``number``; ``sha256`` of its bytes once its memory has been taken again."""

    def __init__(self, number: int, shape: tuple[int, ...], dtype: DType, segments: list[Segment]) -> None:
        self.number = number
        self.shape = shape
        self.dtype = dtype
        self.segments = segments
        self.sha256 = b""

    def __str__(self) -> str:
        nbytes = sum(segment.nbytes for segment in self.segments)
        return f"tensor {self.number}: {self.shape} {self.dtype}, {nbytes} bytes"


class AddressSpace:
    """The tensors of SIP ``sip``: ``room_bytes`` in the HBM of PE 0 of each cube, in ``memory``."""

    def __init__(self, memory: MemoryStore, sip: int, room_bytes: int) -> None:
        self.calls = HostCalls()
        self.allocations: list[Allocation] = []
        self._memory = memory
        self._sip = sip
        self._room = room_bytes
        self._next_va = VIRTUAL_BIT
        self._blocks: dict[int, list[tuple[int, int]]] = {}
        self._segments: list[Segment] = []
        self._live: dict[int, Allocation] = {}
        self._freed: list[Allocation] = []
        self._used_pa: dict[int, int] = {}

    def allocate(self, shape: tuple[int, ...], dtype: DType, num_cubes: int) -> Allocation:
        """A tensor of zeros in equal shards: one contiguous virtual range, a block of HBM on each of the first cubes.

        Raises:
            OutOfMemoryError: when a cube's HBM has no room.
        """
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize // num_cubes
        found = [self._find(cube, nbytes) for cube in range(num_cubes)]
        segments = []
        for cube, index in enumerate(found):
            pa, block_bytes = self._take(cube, index, nbytes)
            segments.append(Segment(self._next_va, nbytes, pa, block_bytes))
            self._next_va += nbytes
        self._next_va += -self._next_va % ALIGN_BYTES
        self._clear(segments)
        allocation = Allocation(len(self.allocations), shape, dtype, segments)
        self.allocations.append(allocation)
        self._live[allocation.number] = allocation
        self._segments += segments
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Return the memory of an allocation; its bytes stay until it is taken again."""
        del self._live[allocation.number]
        self._freed.append(allocation)
        first = bisect_right(self._segments, allocation.segments[0].va, key=_va) - 1
        del self._segments[first : first + len(allocation.segments)]
        for cube, segment in enumerate(allocation.segments):
            insort(self._blocks[cube], (PhysAddr.decode(segment.pa).offset, segment.block_bytes))
            self._blocks[cube] = list(_joined(self._blocks[cube]))

    def read(self, allocation: Allocation) -> Iterator[bytes]:
        """The bytes of each shard in order."""
        return (self._memory.read(segment.pa, segment.nbytes) for segment in allocation.segments)

    def translate(self, address: int, nbytes: int) -> int:
        """The physical address of a virtual range; a physical address is returned unchanged.

        Raises:
            MemoryAccessError: when the range does not lie within one shard of a tensor.
        """
        if not address & VIRTUAL_BIT:
            return address
        index = bisect_right(self._segments, address, key=_va) - 1
        if index >= 0:
            segment = self._segments[index]
            if address + nbytes <= segment.va + segment.nbytes:
                return segment.pa + (address - segment.va)
        raise MemoryAccessError(f"{nbytes} bytes at virtual address {address:#x} are not within one shard of a tensor")

    def sha256(self) -> str:
        """Hash of every tensor's type, shape and bytes in order of creation; where reused, of the bytes' hash."""
        digest = hashlib.sha256()
        for allocation in self.allocations:
            digest.update(f"{allocation.dtype} {allocation.shape}\n".encode())
            for part in (allocation.sha256,) if allocation.sha256 else self.read(allocation):
                digest.update(part)
        return digest.hexdigest()

    def _find(self, cube: int, nbytes: int) -> int:
        """The index of the first free block of ``nbytes`` of a cube."""
        blocks = self._blocks.setdefault(cube, [(0, self._room)])
        for index, (_, size) in enumerate(blocks):
            if nbytes <= size:
                return index
        free = sum(size for _, size in blocks)
        in_one_piece = f", at most {max(size for _, size in blocks)} of them in one piece" if free >= nbytes else ""
        live = [allocation for allocation in self._live.values() if cube < len(allocation.segments)]
        live.sort(key=lambda allocation: (-allocation.segments[0].nbytes, allocation.number))
        held = "; ".join(map(str, live[:MOST_HOLDERS]))
        raise OutOfMemoryError(
            f"a tensor of {nbytes} bytes a cube does not fit cube {cube}: {free} bytes of its HBM are left"
            f"{in_one_piece}; use a smaller size or raise cube.hbm_MiB_per_pe"
            f"{f'; the largest tensors: {held}' if held else ''}"
        )

    def _take(self, cube: int, index: int, nbytes: int) -> tuple[int, int]:
        """The physical address and size of a block cut off a free one."""
        blocks = self._blocks[cube]
        offset, size = blocks[index]
        taken = min(aligned(nbytes), size)
        blocks[index : index + 1] = [(offset + taken, size - taken)] if size > taken else []
        return PhysAddr(self._sip, cube, 0, "hbm", offset).encode(), taken

    def _clear(self, segments: list[Segment]) -> None:
        """Hash the freed tensors whose memory is taken again, and set memory that was used before to zero."""
        overwritten = [freed for freed in self._freed if _overlap(freed.segments, segments)]
        for freed in overwritten:
            digest = hashlib.sha256()
            for part in self.read(freed):
                digest.update(part)
            freed.sha256 = digest.digest()
            self._freed.remove(freed)
        for cube, segment in enumerate(segments):
            if segment.pa < self._used_pa.get(cube, 0):
                self._memory.clear(segment.pa, segment.nbytes)
            self._used_pa[cube] = max(self._used_pa.get(cube, 0), segment.pa + segment.block_bytes)


def aligned(nbytes: int) -> int:
    """Bytes that an allocation of ``nbytes`` takes."""
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


def _va(segment: Segment) -> int:
    return segment.va


def _joined(blocks: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Sorted free blocks, adjacent ones as one."""
    offset, size = blocks[0]
    for next_offset, next_size in blocks[1:]:
        if next_offset == offset + size:
            size += next_size
        else:
            yield offset, size
            offset, size = next_offset, next_size
    yield offset, size


def _overlap(a: list[Segment], b: list[Segment]) -> bool:
    """Whether two tensors share memory. Segment ``i`` of each lies on cube ``i``."""
    pairs = zip(a, b, strict=False)
    return any(x.pa < y.pa + y.block_bytes and y.pa < x.pa + x.block_bytes for x, y in pairs)
