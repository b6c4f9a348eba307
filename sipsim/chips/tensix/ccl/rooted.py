"""Operations in which single chips have a part of their own: broadcast, gather, scatter, reduce, send/receive."""

from collections.abc import Sequence

from sipsim.chips.tensix.arguments import Count, Within, checked, whole
from sipsim.chips.tensix.ccl.calls import Calls
from sipsim.chips.tensix.ccl.fabric_operations import FabricOperations
from sipsim.chips.tensix.ccl.placement import MemoryConfig, config_or_none
from sipsim.chips.tensix.ccl.tensors import Part, Store, Tensor, segments_of
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.core.errors import KernelMisuse


@checked("tt")
class RootedCollectives:
    """Calls of a host script for operations that name a chip by its rank, ``src`` or ``dst``. All chips of the line or
    ring make the same call, each with a tensor of the same shape, type and config. All allocate the result. For other
    arguments see :meth:`~sipsim.chips.tensix.ccl.operations.Collectives.all_gather`.
    """

    def __init__(self, calls: Calls, store: Store, over_fabric: FabricOperations) -> None:
        self._calls = calls
        self._store = store
        self._over_fabric = over_fabric

    def broadcast(
        self,
        tensor: Tensor,
        src: Within,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor:
        """Enqueue a broadcast, and return a tensor with the elements of chip ``src``'s tensor on every chip.

        Raises:
            KernelMisuse: if an argument does not fit these chips or this tensor; so do the other calls.
        """
        with self._calls.open(tensor, fabric, topology, num_links, chips) as fabric:
            root, config = _position("src", src, fabric), config_or_none(memory_config)
            output = self._over_fabric.broadcast(tensor, config, fabric, root)
            return self._calls.note("broadcast", tensor, 0, output, fabric, src=src)

    def gather(
        self,
        tensor: Tensor,
        dst: Within,
        dim: Within = 0,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor | None:
        """Enqueue a gather: concatenate the chips' tensors along a dimension. Return the result on chip ``dst``, and
        None on the others.
        """
        with self._calls.open(tensor, fabric, topology, num_links, chips) as fabric:
            root, config = _position("dst", dst, fabric), config_or_none(memory_config)
            output = self._gather_at(tensor, root, dim, config, fabric)
            self._calls.note("gather", tensor, dim, output, fabric, dst=dst)
            return output if fabric.position == root else None

    def scatter(
        self,
        tensor: Tensor,
        src: Within,
        dim: Within = 0,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor:
        """Enqueue a scatter, and return this chip's slice of chip ``src``'s tensor along a dimension."""
        with self._calls.open(tensor, fabric, topology, num_links, chips) as fabric:
            root, size = _position("src", src, fabric), fabric.size
            along, output = self._store.scattered(tensor, dim, config_or_none(memory_config), size)
            source, target = segments_of((tensor, output), along, size)

            def moves(origin: int, to: int) -> tuple[Part, Part] | None:
                return ((source, source.slice(along, to, size)), (target, target.all())) if origin == root else None

            self._over_fabric.move(tensor, output, moves, fabric)
            return self._calls.note("scatter", tensor, dim, output, fabric, src=src)

    def reduce(
        self,
        tensor: Tensor,
        dst: Within,
        dim: Within = 0,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor | None:
        """Enqueue a reduce, which sums all tensors: a reduce-scatter along ``dim``, then a gather. Return the result on
        chip ``dst``, and None on the others.
        """
        with self._calls.open(tensor, fabric, topology, num_links, chips) as fabric:
            root = _position("dst", dst, fabric)
            scattered = self._over_fabric.reduce_scatter(tensor, dim, None, fabric)
            output = self._gather_at(scattered, root, dim, config_or_none(memory_config), fabric)
            self._calls.note("reduce", tensor, dim, output, fabric, dst=dst)
            return output if fabric.position == root else None

    def send_receive(
        self,
        tensor: Tensor,
        src: Within,
        dst: Within,
        *,
        memory_config: str | MemoryConfig | None = None,
        topology: str = "line",
        num_links: Count | None = None,
        chips: Sequence[int] | None = None,
        fabric: Fabric | None = None,
    ) -> Tensor | None:
        """Enqueue a send from chip ``src`` to chip ``dst``. Return ``src``'s tensor there, and None on the others."""
        with self._calls.open(tensor, fabric, topology, num_links, chips) as fabric:
            ends = _position("src", src, fabric), _position("dst", dst, fabric)
            if ends[0] == ends[1]:
                raise KernelMisuse(f"src={src}, dst={dst}: one chip cannot send to itself; give two chips")
            output = self._store.like(tensor, tensor.shape, 1, config_or_none(memory_config))
            source, target = segments_of((tensor, output), 0, 1)

            def moves(origin: int, to: int) -> tuple[Part, Part] | None:
                return ((source, source.all()), (target, target.all())) if (origin, to) == ends else None

            self._over_fabric.move(tensor, output, moves, fabric)
            self._calls.note("send_receive", tensor, 0, output, fabric, src=src, dst=dst)
            return output if fabric.position == ends[1] else None

    def _gather_at(self, tensor: Tensor, root: int, dim: int, config: MemoryConfig | None, fabric: Fabric) -> Tensor:
        """Enqueue a gather to the chip at position ``root``. Return the output, allocated on all chips."""
        along, output = self._store.gathered(tensor, dim, config, fabric.size)
        source, target = segments_of((tensor, output), along, 1)

        def moves(origin: int, to: int) -> tuple[Part, Part] | None:
            return ((source, source.all()), (target, target.slice(along, origin, fabric.size))) if to == root else None

        return self._over_fabric.move(tensor, output, moves, fabric)


def _position(name: str, rank: int, fabric: Fabric) -> int:
    """Return the position in the fabric of the chip that an argument names.

    Raises:
        KernelMisuse: for a chip that is not in the fabric.
    """
    if whole(name, rank, 0) not in fabric.chips:
        raise KernelMisuse(f"{name}={rank}: the operation is on chips {fabric.chips}; give one of them")
    return fabric.chips.index(rank)
