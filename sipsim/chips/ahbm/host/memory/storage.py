"""The memory of a tensor, and the notice that nothing refers to it any more.

A reference count does not say when: a tensor that a dead reference cycle holds, too, loses its last reference when
Python happens to collect the cycle, which differs between engines. So what dies is only noted here, and memory returns
at moments that the program alone decides (``AddressSpace.allocate``), after a full collection.
"""

import weakref
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sipsim.chips.ahbm.host.layout.dp_policy import Place
from sipsim.core.dtypes import DType


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
