"""Operations in which single chips have a part of their own: broadcast, gather, scatter, reduce, send/receive."""

from collections.abc import Callable, Sequence
from functools import cache

from sipsim.chips.tensix.arguments import Count, Within, checked, whole
from sipsim.chips.tensix.ccl.operations import Collectives, config_or_none
from sipsim.chips.tensix.ccl.placement import MemoryConfig
from sipsim.chips.tensix.ccl.schedules import all_to_all, broadcast
from sipsim.chips.tensix.ccl.tensors import PageGroup, Part, Tensor, pieces, segments_of
from sipsim.chips.tensix.fabric.fabric import Fabric
from sipsim.core.errors import KernelMisuse

Moves = Callable[[int, int], tuple[Part, Part] | None]
"""A function from two positions to the segments that the first chip sends to the second one, and their places there."""


@checked("tt")
class RootedCollectives(Collectives):
    """Calls of :class:`Collectives`, and operations that name a chip by its rank, ``src`` or ``dst``. All chips of the
    line or ring make the same call, each with a tensor of the same shape, type and config. All allocate the result.
    For other arguments see :meth:`all_gather`.
    """

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
        with self._open(tensor, fabric, topology, num_links, chips, None) as fabric:
            root = _position("src", src, fabric)
            call = self._call_plan(fabric, tensor, True)
            output = self._store.like(tensor, tensor.shape, 1, config_or_none(memory_config))
            source, target = segments_of((tensor, output), 0, 1)
            groups = pieces(((source, source.all()), (target, target.all())), call.packet_bytes)
            broadcast(call, groups, root)
            self._run(call, tensor, groups if fabric.position == root else (), 1, fabric)
            return self._note("broadcast", tensor, 0, output, fabric, src=src)

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
        with self._open(tensor, fabric, topology, num_links, chips, None) as fabric:
            root, config = _position("dst", dst, fabric), config_or_none(memory_config)
            output = self._gather_at(tensor, root, dim, config, fabric)
            self._note("gather", tensor, dim, output, fabric, dst=dst)
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
        with self._open(tensor, fabric, topology, num_links, chips, None) as fabric:
            root = _position("src", src, fabric)
            size = fabric.size
            along, output = self._scattered(tensor, dim, config_or_none(memory_config), size)
            source, target = segments_of((tensor, output), along, size)

            def moves(origin: int, to: int) -> tuple[Part, Part] | None:
                return ((source, source.slice(along, to, size)), (target, target.all())) if origin == root else None

            self._move(tensor, moves, fabric)
            return self._note("scatter", tensor, dim, output, fabric, src=src)

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
        with self._open(tensor, fabric, topology, num_links, chips, None) as fabric:
            root = _position("dst", dst, fabric)
            scattered = self._scatter(tensor, dim, None, fabric, True, None, 0, None)
            output = self._gather_at(scattered, root, dim, config_or_none(memory_config), fabric)
            self._note("reduce", tensor, dim, output, fabric, dst=dst)
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
        with self._open(tensor, fabric, topology, num_links, chips, None) as fabric:
            ends = _position("src", src, fabric), _position("dst", dst, fabric)
            if ends[0] == ends[1]:
                raise KernelMisuse(f"src={src}, dst={dst}: one chip cannot send to itself; give two chips")
            output = self._store.like(tensor, tensor.shape, 1, config_or_none(memory_config))
            source, target = segments_of((tensor, output), 0, 1)

            def moves(origin: int, to: int) -> tuple[Part, Part] | None:
                return ((source, source.all()), (target, target.all())) if (origin, to) == ends else None

            self._move(tensor, moves, fabric)
            self._note("send_receive", tensor, 0, output, fabric, src=src, dst=dst)
            return output if fabric.position == ends[1] else None

    # --- parts ----------------------------------------------------------------------------------------------------

    def _gather_at(self, tensor: Tensor, root: int, dim: int, config: MemoryConfig | None, fabric: Fabric) -> Tensor:
        """Enqueue a gather to the chip at position ``root``. Return the output, allocated on all chips."""
        along, output = self._gathered(tensor, dim, config, fabric.size)
        source, target = segments_of((tensor, output), along, 1)

        def moves(origin: int, to: int) -> tuple[Part, Part] | None:
            return ((source, source.all()), (target, target.slice(along, origin, fabric.size))) if to == root else None

        self._move(tensor, moves, fabric)
        return output

    def _move(self, tensor: Tensor, moves: Moves, fabric: Fabric) -> None:
        """Enqueue the program that moves segments between chips, as in an all-to-all."""
        call = self._call_plan(fabric, tensor, True)
        position = call.place.position

        @cache
        def cut(origin: int, to: int) -> list[PageGroup]:
            parts = moves(origin, to)
            return pieces(parts, call.packet_bytes) if parts else []

        all_to_all(call, lambda to: cut(position, to), lambda origin: cut(origin, position))
        self._run(call, tensor, cut(position, position), 1, fabric)


def _position(name: str, rank: int, fabric: Fabric) -> int:
    """Return the position in the fabric of the chip that an argument names.

    Raises:
        KernelMisuse: for a chip that is not in the fabric.
    """
    if whole(name, rank, 0) not in fabric.chips:
        raise KernelMisuse(f"{name}={rank}: the operation is on chips {fabric.chips}; give one of them")
    return fabric.chips.index(rank)
