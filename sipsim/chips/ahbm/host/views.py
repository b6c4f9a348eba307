"""What collectives take besides whole tensors: rows of a tensor, and several tensors as one. Neither is copied."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from sipsim.chips.ahbm.host.layout import ROWS, Array, DPPolicy, HostTensor, Place, Shaped, array_for
from sipsim.chips.ahbm.tl.values import Pointer, PointerList
from sipsim.collectives.call import Range
from sipsim.core.dtypes import DType


class Addressed:
    """What has an address: as an argument of a kernel it stands for that."""

    def pointer(self) -> Pointer | PointerList:
        """The kernel's argument."""
        raise NotImplementedError


class Whole(Protocol):
    """A tensor, as far as views need it."""

    shape: tuple[int, ...]
    dtype: DType
    dp: DPPolicy

    @property
    def va(self) -> int: ...
    def numpy(self) -> Array: ...
    def copy_(self, source: Any) -> Any: ...


@dataclass(frozen=True)
class PartLayout:
    """The layout of a part of a tensor: its memory is that of the PEs of the ``whole``, in ``count`` blocks."""

    whole: DPPolicy
    count: int
    cube: str = "part"
    pe: str = "part"

    @property
    def num_cubes(self) -> int:
        """Of the whole."""
        return self.whole.num_cubes

    @property
    def num_pes(self) -> int:
        """Of the whole."""
        return self.whole.num_pes

    def places(self) -> list[Place]:
        """Of the whole, so that all parts have the same workers, on every rank."""
        return self.whole.places()

    def blocks(self) -> int:
        """How many blocks make the part."""
        return self.count

    def cube_blocks(self) -> int:
        """One: the part may lie on one cube, or on some."""
        return 1


class TensorView(Shaped, Addressed):
    """Rows of a tensor, which they share the memory of: ``rows`` of them from ``start`` on.

    Raises:
        IndexError: for rows that do not exist, or none.
        ValueError: for a tensor that is not split by rows alone, or a view that begins or ends inside several blocks.
    """

    dp: PartLayout

    def __init__(self, base: Whole, start: int, rows: int) -> None:
        if rows < 1 or start < 0 or start + rows > base.shape[0]:
            raise IndexError(f"rows {start} to {start + rows - 1} of a tensor of shape {base.shape} do not exist")
        if any(count > 1 and layout != ROWS for layout, count in base.dp.splits()):
            raise ValueError(f"rows of a tensor are a view where it is split by rows alone, not as {base.dp}")
        block = base.shape[0] // base.dp.blocks()
        is_inside = start // block == (start + rows - 1) // block
        if not is_inside and (start % block or rows % block):
            raise ValueError(
                f"rows {start} to {start + rows - 1} begin or end inside a block of {block} rows; "
                f"take rows of one block, or whole blocks"
            )
        self._base = base
        self._start = start
        self.shape = (rows, *base.shape[1:])
        self.dtype = base.dtype
        self.dp = PartLayout(base.dp, 1 if is_inside else rows // block)

    def pointer(self) -> Pointer:
        row_bytes = prod(self.shape[1:]) * self.dtype.itemsize
        return Pointer(self._base.va + self._start * row_bytes, self.dtype)

    def ranges(self) -> list[Range]:
        """Of its virtual addresses: one."""
        start = int(self.pointer())
        return [(start, start + self.nbytes)]

    def numpy(self) -> Array:
        """A copy on the host."""
        return self._base.numpy()[self._start : self._start + self.shape[0]]

    def copy_(self, source: Any) -> "TensorView":
        """Overwrite with another tensor's elements, as :meth:`sipsim.chips.ahbm.host.tensor.Tensor.copy_`.

        Raises:
            ValueError: when the shapes differ.
        """
        array, whole = array_for(self.shape, source), self._base.numpy()
        whole[self._start : self._start + self.shape[0]] = array
        self._base.copy_(HostTensor(whole))
        return self

    def __repr__(self) -> str:
        return f"TensorView(shape={self.shape}, dtype={self.dtype})"


class TensorList(Shaped, Addressed):
    """Tensors of one shape, type and layout that a collective takes as one, one after the other.

    Raises:
        ValueError: for none, or tensors that differ.
    """

    dp: PartLayout

    def __init__(self, tensors: Sequence[Any]) -> None:
        if not tensors:
            raise ValueError("a list of tensors is empty; give one for each rank of the group")
        first = tensors[0]
        for number, other in enumerate(tensors):
            ways = ((each.shape, str(each.dtype), each.dp.places(), each.dp.blocks()) for each in (first, other))
            if len({repr(way) for way in ways}) > 1:
                raise ValueError(
                    f"tensors of a list have one shape, type and layout; "
                    f"number 0 is {first!r}, number {number} {other!r}"
                )
        self.tensors = list(tensors)
        self.shape = (len(tensors), *first.shape)
        self.dtype = first.dtype
        whole = first.dp if isinstance(first.dp, DPPolicy) else first.dp.whole
        self.dp = PartLayout(whole, len(tensors) * first.dp.blocks())

    def pointer(self) -> PointerList:
        pointers = [each.pointer() for each in self.tensors]
        return PointerList(pointers, self.tensors[0].nbytes, self.dtype)

    def ranges(self) -> list[Range]:
        """Of the virtual addresses of each tensor."""
        return [each for tensor in self.tensors for each in tensor.ranges()]

    def numpy(self) -> Array:
        """All on the host, as one array."""
        return np.stack([each.numpy() for each in self.tensors])


def device_tensor(name: str, tensor: Any) -> Any:
    """The argument of a call that needs a tensor of the device, checked. ``name``: the call's.

    Raises:
        TypeError: for anything else.
    """
    if not isinstance(tensor, Shaped) or isinstance(tensor, HostTensor):
        kind = type(tensor).__name__
        raise TypeError(f"{name} takes tensors of the device, not a {kind}; give what torch.zeros returns")
    return tensor


def as_one(name: str, tensor: Any) -> Any:
    """The source or result of a collective as one tensor: a list becomes one, a tensor or None stays as it is.

    Raises:
        TypeError: for anything else.
        ValueError: for a list that cannot be one.
    """
    for each in tensor if isinstance(tensor, list | tuple) else () if tensor is None else (tensor,):
        device_tensor(name, each)
    return TensorList(tensor) if isinstance(tensor, list | tuple) else tensor
