"""Where tensors lie: the same addresses on all chips whose host scripts make the same calls. Nothing is freed but
scratch.
"""

from collections.abc import Sequence

from sipsim.chips.tensix.arguments import one_of
from sipsim.chips.tensix.ccl.tensors.tensor import Tensor, pages_of
from sipsim.chips.tensix.noc.floor_plan import FloorPlan
from sipsim.chips.tensix.params import ChipParams
from sipsim.core.dtypes import DType
from sipsim.core.errors import KernelMisuse

KIB, MIB = 2**10, 2**20
ALIGNED = 64
CONNECTION_BYTES, SEMAPHORE_BYTES = 16 * KIB, 16 * KIB
KEPT_BYTES = CONNECTION_BYTES + SEMAPHORE_BYTES
"""At the end of a worker's L1: connections to the fabric, and below them the semaphores of operations, by fabric."""
BUFFER_BYTES = 512 * KIB
"""Of a worker's L1, from its first free address on: circular buffers of operations."""


class Store:
    """Of one chip. ``l1_base``: the first address of a worker that programs have."""

    def __init__(self, plan: FloorPlan, params: ChipParams, l1_base: int) -> None:
        self._cores = {"dram": plan.dram, "l1": plan.workers}
        self._next = {"dram": 0, "l1": l1_base + BUFFER_BYTES}
        self._end = {"dram": params.dram.channel_MiB * MIB, "l1": params.tensix.l1_KiB * KIB - KEPT_BYTES}
        self._scratch: dict[tuple[object, ...], Tensor] = {}
        self._packet_bytes = params.ccl.packet_bytes

    def make(
        self, shape: Sequence[int], dtype: DType, memory: str, slices: int = 1, is_tiled: bool | None = None
    ) -> Tensor:
        """A tensor whose slices begin new runs. ``is_tiled``: as of :func:`pages_of`.

        Raises:
            KernelMisuse: for a memory that there is not, or without room.
        """
        one_of("memory", memory, self._cores)
        pages = pages_of(shape, dtype, is_tiled)
        run = max(self._packet_bytes // pages.page_bytes, 1)
        base = self._next[memory]
        slice_pages = pages.number // slices if pages.number % slices == 0 else pages.number
        found = Tensor(shape, dtype, pages, memory, self._cores[memory], base, run, max(slice_pages, 1))
        end = base + -(-found.core_bytes // ALIGNED) * ALIGNED
        if end > self._end[memory]:
            raise KernelMisuse(f"{found}: {memory} of SIPs has no room for its {found.nbytes} B")
        self._next[memory] = end
        return found

    def like(self, other: Tensor, shape: Sequence[int], slices: int = 1) -> Tensor:
        """A tensor with the type, the memory and the kind of pages of another."""
        return self.make(shape, other.dtype, other.memory, slices, other.pages.is_tiled)

    def scratch(self, name: str, fabric: int, like: Tensor, slices: int) -> Tensor:
        """Room for what an operation on a fabric keeps for itself, the same in every call. It is free when a call
        begins, as all chips of the fabric wait for one another then.
        """
        key = (name, fabric, like.shape, like.dtype, like.memory, slices, like.pages.is_tiled)
        found = self._scratch.get(key)
        if found is None:
            found = self._scratch[key] = self.like(like, like.shape, slices)
        return found
