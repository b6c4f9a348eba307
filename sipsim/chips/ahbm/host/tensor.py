"""Tensors of a SIP: shards in simulated memory, copies between host and device, views of rows, and lists of tensors.

A host script's copies take the time of :mod:`sipsim.chips.ahbm.host.copies`. A tensor has one range of virtual
addresses. Each PE's shard is contiguous in this range and lies in the PE's HBM. All copies of a shard have the same
addresses (:class:`~sipsim.chips.ahbm.host.layout.DPPolicy`).
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from sipsim.chips.ahbm.host.layout import (
    COLUMNS,
    COPIES,
    NO_NUMBERS,
    Array,
    DPPolicy,
    HostTensor,
    PartLayout,
    TensorBase,
    array_for,
    whole,
)
from sipsim.chips.ahbm.host.memory import Access, AddressSpace, Block, Segment, Storage
from sipsim.chips.ahbm.host.tensor_math import Device, TensorMath
from sipsim.chips.ahbm.tl.values import Pointer, PointerList
from sipsim.chips.api.bridge import host_call
from sipsim.collectives.call import Range
from sipsim.core.arithmetic.operations import cast
from sipsim.core.dtypes import DType


class Tensor(TensorMath):
    """Tensor in simulated memory: ``shape`` elements of ``dtype`` with layout ``dp``; ``shard_shape`` is a PE's part.

    ``shards``: the blocks in the order of addresses, each on one PE or with copies on several. A view (:meth:`narrow`)
    has some of the shards, or part of a shard, and its layout is a :class:`~sipsim.chips.ahbm.host.layout.PartLayout`.

    Raises:
        ValueError: for a shape that the layout cannot divide.
    """

    def __init__(
        self,
        space: AddressSpace,
        shape: tuple[int, ...],
        dtype: DType,
        dp: DPPolicy,
        device: Device | None = None,
    ) -> None:
        self.shard_shape = dp.block_shape(shape)
        self._space = space
        if device is not None:
            self.device = device
        self.bridge = space.bridge
        self.shape = shape
        self.dtype = dtype
        self.dp = dp
        self._storage = space.allocate(shape, dtype, dp)
        self.shards = self._storage.allocation.segments

    @property
    def va(self) -> int:
        """Virtual address of the first element."""
        return self.shards[0].va

    def elements_per_pe(self) -> int:
        """Return the number of elements of one shard."""
        return self.numel() // len(self.shards)

    @host_call
    def copy_(self, source: "HostTensor | Tensor") -> "Tensor":
        """Overwrite all elements with the elements of ``source``, converted as by ``tl.cast``.

        The bytes pass the host's link; those of a device tensor first pass it to the host.

        Raises:
            ValueError: when the shapes differ.
        """
        self._write(self._space.access, array_for(self.shape, source))
        return self

    def preset(self, values: Array) -> None:
        """Overwrite all elements as :meth:`copy_` does, in no simulated time: for the simulator's own data."""
        self._write(self._space.free, values)

    def _write(self, access: Access, values: Array) -> None:
        blocks = self.dp.to_blocks(cast(values, self.dtype))
        data = np.ascontiguousarray(blocks).reshape(-1).view(np.uint8).data
        parts = []
        for index, shard in enumerate(self.shards):
            part = data[index * shard.nbytes : (index + 1) * shard.nbytes]
            parts += [(block._replace(nbytes=shard.nbytes), part) for block in shard.blocks()]
        access.write(self._storage, parts)

    @host_call
    def fill_(self, value: float) -> "Tensor":
        """Set every element to ``value``, converted as in :meth:`copy_`.

        Raises:
            TypeError: when ``value`` is not a number.
        """
        if np.ndim(value) or np.asarray(value).dtype.kind in NO_NUMBERS:
            raise TypeError(f"fill_({value!r}): give a number")
        return self.copy_(HostTensor(np.full(self.shape, value)))

    @host_call
    def tobytes(self) -> bytes:
        """Return all elements in order, little endian, from copy 0."""
        return self.numpy().tobytes()

    @host_call
    def numpy(self) -> Array:
        """Return all elements as a new array on the host, from copy 0."""
        return self._read(self._space.access, [shard.pa for shard in self.shards])

    def peek(self) -> Array:
        """Return all elements as :meth:`numpy` does, in no simulated time: for the simulator's own checks."""
        return self._read(self._space.free, [shard.pa for shard in self.shards])

    @host_call
    def copies(self) -> list[Array]:
        """Return every copy of the tensor as an array on the host; one array if the tensor is not replicated."""
        every = [block.pa for shard in self.shards for block in shard.blocks()]
        data, count = self._read_blocks(self._space.access, every), len(self.shards[0].blocks())
        return [self._from_blocks(data[number::count]) for number in range(count)]

    def _read(self, access: Access, addresses: Sequence[int]) -> Array:
        return self._from_blocks(self._read_blocks(access, addresses))

    def _read_blocks(self, access: Access, addresses: Sequence[int]) -> list[bytes]:
        """Read the blocks at these physical addresses."""
        nbytes = self.shards[0].nbytes
        return access.read(self._storage, [Block(pa, nbytes) for pa in addresses])

    def _from_blocks(self, blocks: Sequence[bytes]) -> Array:
        """Join the blocks of all shards into the tensor's shape."""
        data = b"".join(blocks)
        return self.dp.from_blocks(np.frombuffer(bytearray(data), self.dtype.numpy), self.shape)

    def cpu(self) -> HostTensor:
        """Return all elements as a new host tensor."""
        return HostTensor(self.numpy())

    def pointer(self) -> Pointer:
        return Pointer(self.va, self.dtype)

    def storages(self) -> tuple[Storage, ...]:
        return (self._storage,)

    def narrow(self, dim: int, start: int, length: int) -> "Tensor":
        """Return a view of ``length`` rows from row ``start``: a tensor in the same memory. ``dim`` must be 0.

        Raises:
            ValueError: for another dimension, a tensor that is not split by rows alone, or a view that begins or ends
                inside several blocks.
            IndexError: for rows that do not exist, or a ``length`` below 1.
        """
        if dim != 0:
            raise ValueError(f"narrow(dim={dim}): a view selects rows; give dim=0")
        return self._view(whole("narrow: start", start), whole("narrow: length", length))

    def chunk(self, chunks: int) -> "list[Tensor]":
        """Split the rows into ``chunks`` equal views.

        Raises:
            ValueError: when the rows cannot be split equally, or :meth:`narrow` refuses a part.
        """
        chunks, n_rows = whole("chunk: chunks", chunks), self.shape[0]
        if chunks < 1 or n_rows % chunks:
            raise ValueError(f"chunk({chunks}): {n_rows} rows cannot be split equally; give a divisor of {n_rows}")
        rows = n_rows // chunks
        return [self._view(start, rows) for start in range(0, n_rows, rows)]

    def _view(self, start: int, rows: int) -> "Tensor":
        if rows < 1 or start < 0 or start + rows > self.shape[0]:
            raise IndexError(f"rows {start} to {start + rows - 1} do not exist; the rows are 0 to {self.shape[0] - 1}")
        if any(count > 1 and layout in (COLUMNS, COPIES) for layout, count in self.dp.splits()):
            raise ValueError(f"a tensor with layout {self.dp} has no views of rows; use a layout that splits rows only")
        block = self.shape[0] // len(self.shards)
        first, skipped = divmod(start, block)
        if skipped + rows > block and (skipped or rows % block):
            raise ValueError(
                f"rows {start} to {start + rows - 1} begin or end inside a block of {block} rows; "
                f"take rows of one block, or whole blocks"
            )
        row_bytes = self.shards[0].nbytes // block
        offset, nbytes = skipped * row_bytes, min(rows, block) * row_bytes
        shards = self.shards[first : first - (-rows // block)]
        view = copy(self)
        view.shape, view.shard_shape = (rows, *self.shape[1:]), (min(rows, block), *self.shape[1:])
        view.shards = [Segment(each.va + offset, nbytes, each.pa + offset, nbytes) for each in shards]
        view.dp = self.dp.part(len(shards))
        return view

    def __repr__(self) -> str:
        where = ", view" if isinstance(self.dp, PartLayout) else f", cubes={self.dp.num_cubes}"
        return f"Tensor(shape={self.shape}, dtype={self.dtype}{where})"


class TensorList(TensorBase):
    """Tensors of one shape, type and layout that a collective treats as one tensor, in the order of the list.

    Raises:
        ValueError: for an empty list, or tensors that differ in shape, type or layout.
    """

    dp: PartLayout

    def __init__(self, tensors: Sequence[Any]) -> None:
        if not tensors:
            raise ValueError("a list of tensors is empty; give one tensor per rank of the group")
        first = tensors[0]
        for number, other in enumerate(tensors):
            kinds = ((each.shape, str(each.dtype), each.dp.places(), each.dp.blocks()) for each in (first, other))
            if len({repr(kind) for kind in kinds}) > 1:
                raise ValueError(
                    f"tensors of a list must have one shape, type and layout; "
                    f"tensor 0 is {first!r}, tensor {number} is {other!r}"
                )
        self.tensors = list(tensors)
        self.shape = (len(tensors), *first.shape)
        self.dtype = first.dtype
        self.dp = first.dp.part(len(tensors) * first.dp.blocks())

    def storages(self) -> tuple[Storage, ...]:
        return tuple(each for tensor in self.tensors for each in tensor.storages())

    def pointer(self) -> PointerList:
        pointers = [each.pointer() for each in self.tensors]
        return PointerList(pointers, self.tensors[0].nbytes, self.dtype)

    def ranges(self) -> list[Range]:
        """Return the ranges of virtual addresses of all tensors, in the order of the list."""
        return [each for tensor in self.tensors for each in tensor.ranges()]

    def peek(self) -> Array:
        """Return all tensors stacked into one array, read in no simulated time."""
        return np.stack([each.peek() for each in self.tensors])


def device_tensor(name: str, tensor: Any) -> Any:
    """Return ``tensor`` if it lies on the device. ``name``: name of the call, for the error message.

    Raises:
        TypeError: for anything else.
    """
    if not isinstance(tensor, TensorBase):
        kind = type(tensor).__name__
        raise TypeError(f"{name} takes tensors of the device, not a {kind}; give a tensor of torch.zeros")
    return tensor


def as_one(name: str, tensor: Any) -> Any:
    """Return the source or result of a collective: a list as a :class:`TensorList`, a tensor or None unchanged.

    Raises:
        TypeError: for anything else.
        ValueError: for an empty list, or a list whose tensors differ.
    """
    for each in tensor if isinstance(tensor, list | tuple) else () if tensor is None else (tensor,):
        device_tensor(name, each)
    return TensorList(tensor) if isinstance(tensor, list | tuple) else tensor
