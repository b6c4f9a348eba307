"""Device tensors: the placement of their shards in simulated memory, and copies between host and device.

Host copies take no simulated time. A tensor is one range of virtual addresses; each PE's shard is
contiguous in it and lies in that PE's HBM. Copies have the same addresses
(:class:`~sipsim.chips.ahbm.host.layout.DPPolicy`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sipsim.chips.ahbm.host.layout import NO_NUMBERS, DPPolicy, HostTensor, array_for, whole
from sipsim.chips.ahbm.host.memory import AddressSpace, Segment
from sipsim.chips.ahbm.host.tensor_math import Device, TensorMath
from sipsim.chips.ahbm.host.views import Addressed, TensorView
from sipsim.chips.ahbm.memory.store import MemoryStore
from sipsim.chips.ahbm.tl.values import Pointer
from sipsim.chips.api.bridge import host_call
from sipsim.collectives.call import Range
from sipsim.core.arithmetic.operations import cast
from sipsim.core.dtypes import DType


class Tensor(TensorMath, Addressed):
    """A tensor in simulated memory: ``shape`` elements of ``dtype``, laid out by ``dp``, of ``shard_shape`` on a PE.

    Raises:
        ValueError: a shape that the layout cannot divide.
    """

    def __init__(
        self,
        memory: MemoryStore,
        space: AddressSpace,
        shape: tuple[int, ...],
        dtype: DType,
        dp: DPPolicy,
        device: Device | None = None,
    ) -> None:
        self.shard_shape = dp.block_shape(shape)
        self._memory = memory
        if device is not None:
            self.device = device
        self.bridge = space.bridge
        self.shape = shape
        self.dtype = dtype
        self.dp = dp
        self._storage = space.allocate(shape, dtype, dp)

    @property
    def shards(self) -> list[Segment]:
        """Its blocks in the order of addresses, each on one PE or in copies on several."""
        return self._storage.allocation.segments

    @property
    def va(self) -> int:
        """Virtual address of the first element."""
        return self.shards[0].va

    def elements_per_pe(self) -> int:
        """Elements of one shard."""
        return self.numel() // len(self.shards)

    @host_call
    def copy_(self, source: "HostTensor | Tensor") -> "Tensor":
        """Overwrite with another tensor's elements, converted as by :func:`~sipsim.core.arithmetic.operations.cast`.

        Raises:
            ValueError: when the shapes differ.
        """
        blocks = self.dp.to_blocks(cast(array_for(self.shape, source), self.dtype))
        data = np.ascontiguousarray(blocks).reshape(-1).view(np.uint8).data
        for index, shard in enumerate(self.shards):
            for block in shard.blocks():
                self._memory.write_from_host(block.pa, data[index * shard.nbytes : (index + 1) * shard.nbytes])
        return self

    @host_call
    def fill_(self, value: float) -> "Tensor":
        """Set every element, converted as by :meth:`copy_`.

        Raises:
            TypeError: for what is no number.
        """
        if np.ndim(value) or np.asarray(value).dtype.kind in NO_NUMBERS:
            raise TypeError(f"fill_({value!r}): give a number")
        return self.copy_(HostTensor(np.full(self.shape, value)))

    @host_call
    def tobytes(self) -> bytes:
        """All elements in order, little endian; of copy 0."""
        return self._read([shard.pa for shard in self.shards]).tobytes()

    @host_call
    def numpy(self) -> "np.ndarray[Any, Any]":
        """A copy on the host, of copy 0 of a replicated tensor."""
        return self._read([shard.pa for shard in self.shards])

    @host_call
    def copies(self) -> "list[np.ndarray[Any, Any]]":
        """Every copy of a replicated tensor, on the host; of others, the only one."""
        return [
            self._read(copy) for copy in zip(*([b.pa for b in shard.blocks()] for shard in self.shards), strict=True)
        ]

    def _read(self, addresses: Sequence[int]) -> "np.ndarray[Any, Any]":
        """The tensor from its blocks at these addresses."""
        data = b"".join(self._memory.read(pa, self.shards[0].nbytes) for pa in addresses)
        return self.dp.from_blocks(np.frombuffer(bytearray(data), self.dtype.numpy), self.shape)

    def cpu(self) -> HostTensor:
        """A copy on the host, as a host tensor."""
        return HostTensor(self.numpy())

    def pointer(self) -> Pointer:
        return Pointer(self.va, self.dtype)

    def ranges(self) -> list[Range]:
        """Of its virtual addresses: one."""
        return [(self.va, self.va + self.nbytes)]

    def narrow(self, dim: int, start: int, length: int) -> TensorView:
        """``length`` rows from ``start`` on, as a view: they share the tensor's memory. ``dim`` is 0.

        Raises:
            ValueError: for another dimension, or rows that are no view
            (:class:`~sipsim.chips.ahbm.host.views.TensorView`). IndexError: for rows that do not exist.
        """
        if dim != 0:
            raise ValueError(f"narrow(dim={dim}): views are of rows, dim 0")
        return TensorView(self, whole("narrow: start", start), whole("narrow: length", length))

    def chunk(self, chunks: int) -> list[TensorView]:
        """The rows in so many equal parts, as views.

        Raises:
            ValueError: when the rows cannot be shared equally, or a part is no view.
        """
        chunks = whole("chunk: chunks", chunks)
        if chunks < 1 or self.shape[0] % chunks:
            raise ValueError(f"chunk({chunks}): {self.shape[0]} rows cannot be shared equally")
        rows = self.shape[0] // chunks
        return [TensorView(self, start, rows) for start in range(0, self.shape[0], rows)]

    def __repr__(self) -> str:
        return f"Tensor(shape={self.shape}, dtype={self.dtype}, cubes={self.dp.num_cubes})"
