"""Device tensors: the placement of their shards in simulated memory, and copies between host and device.

Host copies take no simulated time (DESIGN section 4). A tensor is one range of virtual addresses; each cube's
shard is contiguous in it and lies in the HBM of that cube's PE 0.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sipsim.dtypes import DTYPES, DType, named_dtype
from sipsim.errors import MemoryAccessError
from sipsim.host.calls import HostCalls, host_call
from sipsim.host.dp_policy import DPPolicy
from sipsim.memory.store import MemoryStore
from sipsim.tl.values import Pointer
from sipsim.topology.address import VIRTUAL_BIT, PhysAddr

ALIGN_BYTES = 256


class Segment(NamedTuple):
    """A contiguous piece of virtual address space and the physical address it maps to."""

    va: int
    nbytes: int
    pa: int


class AddressSpace:
    """The virtual addresses of one SIP's tensors and the HBM behind them. Nothing is ever freed."""

    def __init__(self, sip: int, room_bytes: int) -> None:
        self.calls = HostCalls()
        self._sip = sip
        self._room = room_bytes
        self._next_va = VIRTUAL_BIT
        self._next_offset: dict[int, int] = {}
        self._segments: list[Segment] = []

    def allocate(self, cubes: range, nbytes_each: int) -> list[Segment]:
        """One contiguous virtual range with ``nbytes_each`` in the HBM of PE 0 of each cube.

        Raises:
            MemoryAccessError: when a cube's HBM has no room.
        """
        allocated = []
        for cube in cubes:
            offset = self._next_offset.get(cube, 0)
            if offset + nbytes_each > self._room:
                raise MemoryAccessError(
                    f"a tensor of {nbytes_each} bytes a cube does not fit cube {cube}: {self._room - offset} bytes of "
                    f"its HBM are left; use a smaller size or raise cube.hbm_MiB_per_pe"
                )
            self._next_offset[cube] = offset + aligned(nbytes_each)
            pa = PhysAddr(self._sip, cube, 0, "hbm", offset).encode()
            allocated.append(Segment(self._next_va, nbytes_each, pa))
            self._next_va += nbytes_each
        self._next_va += -self._next_va % ALIGN_BYTES
        self._segments += allocated
        return allocated

    def translate(self, address: int, nbytes: int) -> int:
        """The physical address of a virtual range; a physical address is returned unchanged.

        Raises:
            MemoryAccessError: when the range does not lie within one shard of a tensor.
        """
        if not address & VIRTUAL_BIT:
            return address
        index = bisect_right(self._segments, address, key=lambda s: s.va) - 1
        if index >= 0:
            segment = self._segments[index]
            if address + nbytes <= segment.va + segment.nbytes:
                return segment.pa + (address - segment.va)
        raise MemoryAccessError(f"{nbytes} bytes at virtual address {address:#x} are not within one shard of a tensor")


def aligned(nbytes: int) -> int:
    """Bytes that an allocation of ``nbytes`` takes."""
    return -(-nbytes // ALIGN_BYTES) * ALIGN_BYTES


class HostTensor:
    """An array on the host, as ``torch.from_numpy`` gives it."""

    def __init__(self, array: "np.ndarray[Any, Any]") -> None:
        self.array = array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    def numpy(self) -> "np.ndarray[Any, Any]":
        """The array itself."""
        return self.array


class Tensor:
    """A tensor in simulated memory: ``shape`` elements of ``dtype``, laid out by ``dp``.

    Raises:
        ValueError: a shape that the layout cannot divide.
    """

    def __init__(
        self, memory: MemoryStore, space: AddressSpace, shape: tuple[int, ...], dtype: DType, dp: DPPolicy
    ) -> None:
        if shape[0] % dp.num_cubes:
            raise ValueError(
                f"a tensor of shape {shape} has {shape[0]} rows, which {dp.num_cubes} cubes cannot share equally; "
                f"use a multiple of {dp.num_cubes} rows"
            )
        self._memory = memory
        self.calls = space.calls
        self.shape = shape
        self.dtype = dtype
        self.dp = dp
        self.shards = space.allocate(range(dp.num_cubes), self.nbytes // dp.num_cubes)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements on this rank."""
        return self.numel() * self.dtype.itemsize

    @property
    def va(self) -> int:
        """Virtual address of the first element."""
        return self.shards[0].va

    def numel(self) -> int:
        """Elements on this rank."""
        return int(np.prod(self.shape, dtype=np.int64))

    def elements_per_cube(self) -> int:
        """Elements of one shard."""
        return self.numel() // self.dp.num_cubes

    @host_call
    def copy_(self, source: "HostTensor | Tensor") -> "Tensor":
        """Overwrite with another tensor's elements, converted to this type.

        Raises:
            ValueError: when the shapes differ.
        """
        array = source.numpy()
        if tuple(array.shape) != self.shape:
            raise ValueError(f"cannot copy a tensor of shape {tuple(array.shape)} into one of {self.shape}")
        data = np.ascontiguousarray(array, dtype=self.dtype.numpy).reshape(-1).view(np.uint8).data
        for index, shard in enumerate(self.shards):
            self._memory.write(shard.pa, data[index * shard.nbytes : (index + 1) * shard.nbytes])
        return self

    @host_call
    def fill_(self, value: float) -> "Tensor":
        """Set every element."""
        return self.copy_(HostTensor(np.full(self.shape, value, self.dtype.numpy)))

    def shard_bytes(self) -> Iterator[bytes]:
        """The bytes of each shard in order, little endian."""
        return (self._memory.read(shard.pa, shard.nbytes) for shard in self.shards)

    def tobytes(self) -> bytes:
        """All elements in order, little endian."""
        return b"".join(self.shard_bytes())

    @host_call
    def numpy(self) -> "np.ndarray[Any, Any]":
        """A copy on the host."""
        return np.frombuffer(self.tobytes(), self.dtype.numpy).reshape(self.shape).copy()

    def cpu(self) -> HostTensor:
        """A copy on the host, as a host tensor."""
        return HostTensor(self.numpy())

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={self.dtype}, cubes={self.dp.num_cubes})"


def pointer_to(tensor: Tensor) -> Pointer:
    """The kernel argument for a tensor: its typed virtual address."""
    return Pointer(tensor.va, tensor.dtype)


def dtype_of(dtype: object) -> DType:
    """The type named by ``dtype``: a ``DType``, its name, or the NumPy type of the same format.

    Raises:
        TypeError: for any other type.
    """
    named = named_dtype(dtype)
    if named is not None:
        return named
    try:
        numpy_type = np.dtype(dtype)  # type: ignore[call-overload]
    except TypeError:
        numpy_type = None
    for known in DTYPES.values():
        if numpy_type == known.numpy:
            return known
    raise TypeError(f"dtype {dtype!r} is not available; allowed: {', '.join(DTYPES)}")
