"""Calls of a host script for tensors: made from an array, on one chip or over many, and turned back into an array."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sipsim.chips.tensix.arguments import Count, any_whole, checked
from sipsim.chips.tensix.ccl.mesh_tensors import AXES, MeshTensor, local_of, part_of
from sipsim.chips.tensix.ccl.participants import Participants
from sipsim.chips.tensix.ccl.placement import INTERLEAVED, MemoryConfig, memory_config_of
from sipsim.chips.tensix.ccl.tensors import Store, Tensor, from_pages, to_pages
from sipsim.chips.tensix.formats import format_of
from sipsim.core.errors import KernelMisuse


@checked("tt")
class HostTensors:
    """Calls of a host script for the tensors of one chip."""

    def __init__(self, chip: Any, store: Store, participants: Participants) -> None:
        self._chip = chip
        self._rank: int = chip.session.rank
        self._store = store
        self._participants = participants

    def tensor(
        self,
        array: "np.ndarray[Any, Any]",
        memory_config: str | MemoryConfig = "dram",
        slices: Count = 1,
        layout: str | None = None,
        dtype: str | None = None,
    ) -> Tensor:
        """Make a tensor of this chip from an array. ``memory_config``: a config, or ``dram`` or ``l1`` for pages that
        are interleaved over that memory; each of ``slices`` along the first dimension then begins a new run of adjacent
        pages, so that an operation can move a slice in whole runs. ``layout``: ``tile`` or ``row_major``; by default
        tiles if the last two dimensions divide into whole tiles. ``dtype``: ``bfp8`` or ``bfp4`` for an array of
        floats, which is rounded to tiles of block floating point (:class:`BlockFormat`); by default the array's type.

        Raises:
            KernelMisuse: for an unknown element type or ``dtype``, a layout or config that the array cannot have, a
                shape or elements that a block format does not have, or a tensor that does not fit.
        """
        _check_array(array)
        config = memory_config_of(memory_config)
        if slices != 1 and config.memory_layout != INTERLEAVED:
            raise KernelMisuse(f"slices={slices}: shards have no runs of slices; leave slices out with {config}")
        tensor = self._store.make(array.shape, format_of(array, dtype), config, slices, layout)
        data, size = to_pages(array, tensor.dtype, tensor.pages), tensor.pages.page_bytes
        for page in range(tensor.pages.n_pages):
            core, address = tensor.place(page)
            self._chip.metal.write(core, address, data[page * size : (page + 1) * size])
        return tensor

    def mesh_tensor(
        self,
        array: "np.ndarray[Any, Any]",
        dims: int | Sequence[int | None] = 0,
        memory_config: str | MemoryConfig = "dram",
        slices: Count = 1,
        layout: str | None = None,
        *,
        chips: Sequence[int] | None = None,
        dtype: str | None = None,
    ) -> MeshTensor:
        """Make one tensor over many chips from an array, of which each chip stores its part.

        ``dims``: a pair has, for each axis of the mesh (0: down a column; 1: along a row), the dimension that is cut
        along the axis, or None where each chip keeps its own array whole. One number cuts this dimension along a line
        of all chips, or of ``chips``, in the order that operations use. For other arguments see :meth:`tensor`.

        Raises:
            KernelMisuse: as :meth:`tensor`, and if the array cannot be cut so, or the mesh of the chips is unknown.
        """
        _check_array(array)
        rows: Sequence[Sequence[int]]
        is_line = not isinstance(dims, Sequence)
        if isinstance(dims, Sequence):
            if chips is not None or len(dims) != len(AXES):
                what = "give one number, or a dimension or None for both axes of the mesh, without chips"
                raise KernelMisuse(f"dims={dims!r}: {what}")
            rows = self._participants.mesh
            along = [None if each is None else any_whole("a dimension of dims", each) for each in dims]
        else:
            rows = [self._participants.found("line", 1).chips if chips is None else self._participants.ranks(chips)]
            along = [None, any_whole("dims", dims)]
        if not any(self._rank in row for row in rows):
            raise KernelMisuse(f"SIP {self._rank} makes a mesh tensor of chips {list(rows[0])}, without itself")
        part = part_of(array, (along[0], along[1]), rows, self._rank)
        local = self.tensor(part.array, memory_config, slices, layout, dtype)
        return MeshTensor(local, rows, part.dims, is_line)

    def to_numpy(self, tensor: Tensor | MeshTensor) -> "np.ndarray[Any, Any]":
        """Wait until all kernels have ended, then return the elements of a tensor that are on this chip, those of block
        formats in f32.
        """
        self._chip.wait_for_kernels()
        tensor = local_of(tensor)
        size = tensor.pages.page_bytes
        places = (tensor.place(page) for page in range(tensor.pages.n_pages))
        data = b"".join(self._chip.tiles.memory(core).read(address, size) for core, address in places)
        return from_pages(data, tensor.shape, tensor.dtype, tensor.pages)


def _check_array(array: object) -> None:
    """Check that an argument is a NumPy array whose elements are all of it."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray | np.matrix):
        what = f"a tensor is made from a NumPy array, not a {type(array).__name__}"
        raise KernelMisuse(f"{what}; give an array, such as np.asarray makes")
